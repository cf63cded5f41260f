"""The how-tos, run as they stand, and the Python reference compared with the code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ctxvc
from ctxvc import Session, errors
from ctxvc.core.plan import Problem, Rehearsal
from ctxvc.core.prompt.recover import Recovered
from ctxvc.core.prompt.request import Request
from tests.docs.console import play
from tests.messages_api import call, problems, script, serve, text

ROOT = Path(__file__).parents[2]
HOW_TO = ROOT / "docs" / "how-to"
REFERENCE = (ROOT / "docs" / "python.md").read_text()
BLOCK = re.compile(r"<!-- (\w+) -->\n```python\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize(
    "name", ["rewind-and-branch", "recover-after-compaction", "choose-a-policy", "search-across-sessions"]
)
def test_every_command_does_what_the_page_says(name: str, tmp_path: Path) -> None:
    assert play(HOW_TO / f"{name}.md", tmp_path) >= 4


#: An agent without a client's library, which would take longer to load than all the rest.
_AGENT = """
import json, os, urllib.request

messages = [{"role": "user", "content": "Find the password."}]
tools = [{"name": "sh", "description": "a shell", "input_schema": {"type": "object"}}]
url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
headers = {"x-api-key": "not-a-key", "anthropic-version": "2023-06-01", "content-type": "application/json"}
while True:
    body = {"model": "claude-sonnet-4-5", "max_tokens": 1000, "messages": messages, "tools": tools}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    reply = json.load(urllib.request.urlopen(request))
    messages.append({"role": "assistant", "content": reply["content"]})
    calls = [block["id"] for block in reply["content"] if block["type"] == "tool_use"]
    if not calls:
        break
    messages.append({"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": call,
         "content": "the password is kingfisher-77\\n" + f"{call}: a line\\n" * 150} for call in calls
    ]})
print("Done.")
"""


def test_an_agent_inside_a_budget_is_looked_at_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_agent.py").write_text(_AGENT)
    replies: list[Any] = [[text(f"Look {number}."), call("sh", n=number)] for number in range(12)]
    replies.insert(10, [text("What was it?"), call("search", pattern="kingfisher")])
    with serve(script(*replies, [text("It is done.")])) as api:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", api.url)
        monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("PYTHONPATH", str(ROOT))
        assert play(HOW_TO / "keep-any-agent-inside-a-budget.md", tmp_path) >= 4
        assert [one.status for one in api.calls] == [200] * 14
        assert {"search", "recover", "archive"} <= {tool["name"] for tool in api.bodies[0]["tools"]}
        assert any("[archived B" in str(body["messages"]) for body in api.bodies)


# --- the loop


def python(page: Path) -> dict[str, str]:
    return dict(BLOCK.findall(page.read_text()))


class Provider:
    """A model that looks three times, then answers. It takes nothing that the API would refuse."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []

    def ask(self, body: dict[str, Any]) -> dict[str, Any]:
        assert problems({"model": "claude-opus-4-5", "max_tokens": 1024, **body}) == []
        self.requests.append(body)
        number = len(self.requests)
        content: list[dict[str, Any]] = [{"type": "text", "text": f"Look {number}."}]
        if number < 4:
            content.append({"type": "tool_use", "id": f"toolu_{number}", "name": "sh", "input": {"n": number}})
        return {"id": f"msg_{number}", "role": "assistant", "content": content, "usage": {"input_tokens": 9}}

    def run(self, call: dict[str, Any]) -> dict[str, Any]:
        output = "".join(f"{call['id']}: line {at}\n" for at in range(9_000))
        return {"type": "tool_result", "tool_use_id": call["id"], "content": output}


def test_the_loop_is_short_and_on_one_page_only() -> None:
    page = HOW_TO / "manage-an-agent.md"
    loop = python(page)["loop"]
    assert len(loop.strip().splitlines()) <= 12
    assert [each for each in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")) if loop in each.read_text()] == [page]


def test_the_loop_runs_as_it_stands_and_so_does_what_is_done_with_its_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = python(HOW_TO / "manage-an-agent.md")
    provider = Provider()
    tools = [{"name": "sh", "description": "a shell", "input_schema": {"type": "object"}}]
    names: dict[str, Any] = {"ask": provider.ask, "run": provider.run, "tools": tools}

    exec(page["loop"], names)

    assert len(provider.requests) == 4
    with Session.open(tmp_path / ".ctxvc", "fix-login") as session:
        rows = list(session.ledger().rows())
        held = [session.body(row.id).decode() for row in rows if row.kind == "tool_result"]
        assert held == [provider.run({"id": f"toolu_{number}"})["content"] for number in (1, 2, 3)]
        assert session.budget.window == 100_000
        (first, *_) = [row.id for row in rows if row.kind == "tool_result"]

    for name in ("verbs", "scope"):
        exec(page[name].replace('"B3', f'"{first}'), names)
    assert "line 1\n" in capsys.readouterr().out
    with Session.open(tmp_path / ".ctxvc", "fix-login") as session:
        assert session.scopes() == ["main", "read-the-docs"]
        assert [note.text for note in session.notes()][-1] == "[← read-the-docs] fixtures expire after a day"
    exec(page["factor"], names)
    with Session.open(tmp_path / ".ctxvc", "local") as session:
        assert session.ledger().meta.calibration == (1_100, 0)


# --- the reference


def test_the_reference_names_everything_that_a_session_offers_and_nothing_else() -> None:
    offered = {name for name in vars(Session) if not name.startswith("_")}
    offered |= {"store", "stored", "policy", "shows_dashboard"}  # set when it is made
    cells = [line.split("|")[1] for line in REFERENCE.partition("## Errors")[0].splitlines() if line.startswith("| `")]
    named = {match for cell in cells for match in re.findall(r"`(?:Session\.)?(\w+)", cell)}

    assert named == offered


def test_what_the_reference_says_of_errors_and_answers_is_there() -> None:
    table = REFERENCE.partition("## Errors")[2]
    for name in re.findall(r"^\| `(\w+)`", table, re.MULTILINE):
        assert issubclass(getattr(errors, name), errors.CtxvcError)
    kinds = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}
    warnings = {name for name in kinds if issubclass(getattr(errors, name), Warning)}
    assert kinds - warnings == {*re.findall(r"^\| `(\w+)`", table, re.MULTILINE), "CtxvcError"}
    assert all(f"`ctxvc.errors.{name}`" in table for name in warnings)
    for kind, fields in (
        (Request, ("model", "system", "tools", "messages", "label", "digest", "body")),
        (Rehearsal, ("freed", "rows", "groups", "problems")),
        (Problem, ("target", "why", "text")),
        (Recovered, ("text", "header", "content", "complete", "next")),
    ):
        for field in fields:
            assert f"`{field}" in REFERENCE
            assert hasattr(kind, field), (kind, field)


FUNCTIONS = ("async_http_client", "convert", "http_client")


def test_the_package_offers_its_names_and_importing_it_loads_none_of_them() -> None:
    assert sorted(ctxvc.__all__) == ["Action", "Budget", "Plan", "Session", "Store", *FUNCTIONS]
    for name in ctxvc.__all__:
        assert getattr(ctxvc, name).__name__ == name
        assert name in dir(ctxvc)
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = ctxvc.nothing_of_the_kind
    program = (
        "import ctxvc, sys; print([name for name in sys.modules if name.startswith(('ctxvc.', 'pygit2', 'msgspec'))])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
