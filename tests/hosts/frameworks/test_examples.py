"""The how-to and the example for frameworks, run as they stand with a scripted model."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ctxvc.store.store import Store
from tests.hosts.frameworks.agents import FRAMEWORKS
from tests.hosts.wire.upstream import serve
from tests.messages_api import text

DOCS = Path(__file__).parents[3] / "docs"
BLOCKS = dict(
    re.findall(r"<!-- ([\w-]+) -->\n```python\n(.*?)```", (DOCS / "how-to" / "use-a-framework.md").read_text(), re.S)
)
#: The example of a framework → what may follow on it, and the sessions that are there in the end.
PAGE = {
    "langchain": ("langgraph", ["fix-login", "langgraph-fix-login"]),
    "openai-agents": ("openai-agents-session", ["fix-login", "openai-agents-fix-login"]),
    "pydantic-ai": ("", ["fix-login"]),
}


def test_the_sessions_of_the_example_are_listed_and_can_be_read(tmp_path: Path) -> None:
    pytest.importorskip("claude_agent_sdk")
    command = [sys.executable, DOCS / "examples" / "agent_sdk_sessions.py", tmp_path / ".ctxvc"]
    env = {**os.environ, "PYTHONPATH": str(DOCS.parent)}
    for _ in range(2):
        out = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=env).stdout

    assert out.splitlines() == ["4 entries", "6f1c3a52-8d0e-4b7a-9c55-1f2e3d4c5b6a"]
    with Store(tmp_path / ".ctxvc") as store:
        assert "claude-6f1c3a52" in store.sessions()


@pytest.mark.parametrize("name", PAGE)
def test_the_page_does_what_it_says(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    framework = next(one for one in FRAMEWORKS if one.name.startswith(name))
    follows, sessions = PAGE[name]
    if not framework.is_installed or (follows == "langgraph" and not importlib.util.find_spec("langgraph.checkpoint")):
        pytest.skip(f"{framework.package} is not installed")
    monkeypatch.chdir(tmp_path)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    with serve(lambda _: [text("It is the fixture.")]) as upstream:
        for variable, value in _environment(upstream.url).items():
            monkeypatch.setenv(variable, value)
        names: dict[str, Any] = {"tools": []}
        block = BLOCKS[name]
        if follows:  # while the client of the example is open
            block = re.sub(r"(?m)^http_client.close\(\)\n", "", block)
            indent = "    " if "async with" in block else ""
            block += "".join(f"{indent}{line}\n" for line in BLOCKS[follows].splitlines())
        _run(block, names)

    said = {
        "langchain": lambda result: result["messages"][-1].text,
        "openai-agents": lambda result: result.final_output,
    }
    assert said.get(name, lambda result: result.output)(names["result"]) == "It is the fixture."
    with Store(tmp_path / ".ctxvc") as store:
        assert sorted(store.sessions()) == sessions


def _environment(url: str) -> dict[str, str]:
    keys = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY"), "not-a-key")
    return {**keys, "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_BASE": f"{url}/v1", "ANTHROPIC_BASE_URL": url}


def _run(block: str, names: dict[str, Any]) -> None:
    """Runs an example, whose names are in `names` then."""
    body = "".join(f"    {line}\n" for line in block.splitlines())
    exec(f"async def page():\n{body}    globals().update(locals())\n", names)
    asyncio.run(names["page"]())


def test_the_page_is_python() -> None:
    assert {*PAGE, "langgraph", "openai-agents-session", "claude-agent-sdk", "smaller"} == set(BLOCKS)
    for name, block in BLOCKS.items():
        code = "async def page():\n" + "".join(f"    {line}\n" for line in block.splitlines())
        compile(code, name, "exec")
