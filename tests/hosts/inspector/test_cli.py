"""The MCP Inspector, by its command line, on our server: over stdio and over HTTP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ctxvc.mcp.offer import PROMPTS, TOOLS
from tests.hosts import npm
from tests.hosts.coding import ROOT
from tests.making.project import build
from tests.mcp.test_mcp_http import running


@dataclass
class Inspector:
    """The Inspector in a home of its own, on a server of a project with recorded sessions."""

    modules: Path
    home: Path
    server: tuple[str, ...]

    def ask(self, method: str, *arguments: str) -> tuple[int, Any, str]:
        """Its exit status, what the server answered, and what it says of that."""
        entry = self.modules / ".bin" / "mcp-inspector"
        node = self.modules / "node" / "bin"
        result = subprocess.run(
            ["node", entry, "--cli", *self.server, "--method", method, *arguments],
            env={"PATH": f"{node}:{os.environ['PATH']}", "HOME": str(self.home), "LANG": "C.UTF-8"},
            cwd=self.home, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        return result.returncode, json.loads(result.stdout) if result.stdout.strip() else None, result.stderr

    def result(self, method: str, *arguments: str) -> Any:
        status, answer, remarks = self.ask(method, *arguments)
        assert status == 0, remarks
        return answer


@pytest.fixture(params=["stdio", "http"])
def inspector(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    build(tmp_path / "project")
    modules = npm.installed("mcp-inspector")
    if request.param == "stdio":
        started = ("-e", f"PYTHONPATH={ROOT}", sys.executable, "-m", "ctxvc", "-C", str(tmp_path / "project"), "mcp")
        yield Inspector(modules, tmp_path, started)
        return
    with running(tmp_path / "project", "0") as (url, token):
        yield Inspector(
            modules, tmp_path, (f"{url}/mcp", "--transport", "http", "--header", f"Authorization: Bearer {token}")
        )


def test_the_inspector_finds_nothing_wrong(inspector: Inspector) -> None:
    status, listed, remarks = inspector.ask("tools/list", "--strict")
    assert (status, remarks) == (0, "")
    assert {tool["name"] for tool in listed["tools"]} == {tool.name for tool in TOOLS}
    assert {tool["name"] for tool in listed["tools"] if tool["annotations"]["readOnlyHint"]} == {
        tool.name for tool in TOOLS
    } - {"note"}

    addresses = [one["uri"] for one in inspector.result("resources/list")["resources"]]
    assert addresses[0] == "ctxvc://dashboard" and len(addresses) > 1
    assert len(inspector.result("resources/templates/list")["resourceTemplates"]) == 2
    assert [one["name"] for one in inspector.result("prompts/list")["prompts"]] == [one.name for one in PROMPTS]
    (read,) = inspector.result("resources/read", "--uri", addresses[-1])["contents"]
    assert read["uri"] == addresses[-1] and read["text"]

    recovered = inspector.result("tools/call", "--tool-name", "recover", "--tool-arg", "address=B6", "lines=2:2")
    assert recovered["structuredContent"]["content"].startswith("1: assert")
    noted = inspector.result("tools/call", "--tool-name", "note", "--tool-arg", "text=Seen by the Inspector.")
    assert noted["structuredContent"]["block"].startswith("B")
    arguments = ("--prompt-name", "recover-evidence", "--prompt-args", "claim=it was green")
    assert "> it was green" in str(inspector.result("prompts/get", *arguments))


def test_what_is_refused_is_an_error_to_the_inspector(inspector: Inspector) -> None:
    status, answer, remarks = inspector.ask("tools/call", "--tool-name", "recover", "--tool-arg", "adress=B6")
    assert (status, answer["isError"]) == (5, True) and "tool_is_error" in remarks
    assert "unknown argument adress; did you mean address?" in answer["content"][0]["text"]
    assert inspector.ask("prompts/get", "--prompt-name", "recover-evidence")[0] != 0
    assert inspector.ask("resources/read", "--uri", "ctxvc://block/B999")[0] != 0
