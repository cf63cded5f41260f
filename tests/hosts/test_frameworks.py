"""The adapters in the lowest and the highest version of each framework: `frameworks/`, in environments of their own."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from tests.hosts import environments


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", environments.names())
def test_all_adapters_work_in_these_versions(name: str) -> None:
    env = {**os.environ, "PYTHONPATH": str(environments.ROOT), "CTXVC_HOSTS_CACHE": str(environments.cache())}
    tests = environments.ROOT / "tests" / "hosts" / "frameworks"
    done = subprocess.run(
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

    assert done.returncode == 0, done.stdout[-4000:]
    assert re.search(r"^\.{8}", done.stdout, re.M), "nothing was run"
