"""The how-to and the examples for frameworks, run as they stand with a scripted model."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ctxvc.store.store import Store

DOCS = Path(__file__).parents[3] / "docs"
BLOCKS = dict(
    re.findall(r"<!-- ([\w-]+) -->\n```python\n(.*?)```", (DOCS / "how-to" / "use-a-framework.md").read_text(), re.S)
)


def run(name: str, place: Path) -> str:
    """What an example prints. Raises: CalledProcessError."""
    command = [sys.executable, DOCS / "examples" / name, place]
    env = {**os.environ, "PYTHONPATH": str(DOCS.parent)}
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=place.parent, env=env).stdout


def test_the_agent_of_the_example_stays_in_its_budget_and_finds_again_what_left(tmp_path: Path) -> None:
    pytest.importorskip("langchain.agents.middleware")

    first, second = run("langchain_agent.py", tmp_path / ".ctxvc").splitlines()

    assert first.startswith("Found again: ") and "page 1:" in first
    longest = int(re.findall(r"had ([\d,]+) characters", second)[0].replace(",", ""))
    assert second.startswith("84 messages") and longest < 48_000


def test_the_sessions_of_the_example_are_listed_and_can_be_read(tmp_path: Path) -> None:
    pytest.importorskip("claude_agent_sdk")

    run("agent_sdk_sessions.py", tmp_path / ".ctxvc")
    entries, session = run("agent_sdk_sessions.py", tmp_path / ".ctxvc").splitlines()

    assert (entries, session) == ("4 entries", "6f1c3a52-8d0e-4b7a-9c55-1f2e3d4c5b6a")
    with Store(tmp_path / ".ctxvc") as store:
        assert "claude-6f1c3a52" in store.sessions()


def test_the_middleware_and_the_checkpointer_do_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("langchain.agents.middleware")
    from tests.hosts.frameworks.scripted import Scripted

    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"model": Scripted(says=lambda *_: "It is the fixture."), "tools": []}
    exec(BLOCKS["langchain"], names)
    exec(BLOCKS["langgraph"], names)

    assert names["result"]["messages"][-1].text == "It is the fixture."
    with Store(tmp_path / ".ctxvc") as store:
        assert [re.sub("-.{36}", "-ID", name) for name in store.sessions()] == ["langchain-ID", "langgraph-fix-login"]


def test_the_page_is_python() -> None:
    assert set(BLOCKS) == {"langchain", "langgraph", "claude-agent-sdk", "smaller"}
    for name, block in BLOCKS.items():
        code = "async def page():\n" + "".join(f"    {line}\n" for line in block.splitlines())
        compile(code, name, "exec")
