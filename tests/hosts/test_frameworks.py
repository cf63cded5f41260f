"""Frameworks in the lowest and the highest version that works: `frameworks/`, in environments of their own."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from tests.hosts import environments
from tests.hosts.frameworks.agents import FRAMEWORKS

#: The package that a framework is installed as → its module of `integrations`, and so the tests of it.
TESTS = {
    "langgraph-checkpoint-conformance": "langgraph",
    "claude-agent-sdk": "claude_agent_sdk",
    "openai-agents": "openai_agents",
}


def test_every_adapter_is_tested_at_both_ends_of_its_range() -> None:
    adapters = {path.stem for path in (environments.ROOT / "tests" / "hosts" / "frameworks").glob("test_*.py")}
    assert {f"test_{adapter}" for adapter in TESTS.values()} <= adapters
    for end in ("highest", "lowest"):
        listed = {
            environments.package(requirement)
            for name in environments.names()
            if name.startswith(end)
            for requirement in environments.requirements(name)
        }
        assert listed >= TESTS.keys(), end
        assert end == "lowest" or listed >= {framework.package for framework in FRAMEWORKS}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", environments.names())
def test_all_adapters_work_in_these_versions(name: str) -> None:
    env = {**os.environ, "PYTHONPATH": str(environments.ROOT), "CTXVC_HOSTS_CACHE": str(environments.cache())}
    tests = environments.ROOT / "tests" / "hosts" / "frameworks"
    result = subprocess.run(
        [
            environments.python(name),
            "-m",
            "pytest",
            "-m",
            "hosts",
            "-n",
            "0",
            "-p",
            "no:cacheprovider",
            "-rs",
            "-W",
            "default",
            tests,
        ],
        capture_output=True,
        text=True,
        check=False,
        env=env,
        cwd=environments.ROOT,
    )

    assert result.returncode == 0, result.stdout[-4000:]
    for requirement in environments.requirements(name):
        tests_of_it = f"test_{TESTS.get(environments.package(requirement), '-')}.py"
        # A single test may be skipped for what a version lacks, but not for the framework as a whole.
        skipped = rf"SKIPPED.*/{tests_of_it}:\d+: .*(?:could not import|is not installed)"
        assert not re.search(skipped, result.stdout), f"{requirement} is there, and was not tested"
    passed = re.search(r"(\d+) passed", result.stdout)
    assert passed and int(passed[1]) >= 5, "nothing was run"
