"""The how-tos on agents, run as they stand against a provider on this machine."""

from __future__ import annotations

import asyncio
import difflib
import json
import re
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anthropic
import pytest

from ctxvc.agent import TOOLS
from ctxvc.agent.call import Stop
from ctxvc.session.session import Session
from tests.messages_api import MessagesApi, call, serve, text, thought
from tests.messages_api import script as said
from tests.messages_api.wire import Block

from .building import nothing_rejected, only_the_newest_thinking_was_dropped

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
PAGE = HOW_TO / "make-an-agent-context-managed.md"
#: The loop that the page begins with.
PLAIN = (HOW_TO.parent / "examples" / "plain_loop.py").read_text()


def blocks(page: Path, language: str = "python") -> dict[str, str]:
    """name → the code block behind the comment with that name."""
    return dict(re.findall(rf"<!-- ([^>]+) -->\n```{language}\n(.*?)```", page.read_text(), re.DOTALL))


@pytest.fixture
def connected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[MessagesApi], None]]:
    """Makes `anthropic.Anthropic()` talk to a server, in an empty folder. A program's end closes its client."""
    monkeypatch.chdir(tmp_path)
    with ExitStack() as clients:
        made = anthropic.Anthropic

        def connect(api: MessagesApi) -> None:
            monkeypatch.setenv("ANTHROPIC_API_KEY", "test")
            monkeypatch.setenv("ANTHROPIC_BASE_URL", api.url)
            monkeypatch.setattr(anthropic, "Anthropic", lambda: clients.enter_context(made()))

        yield connect


def steps(number: int) -> list[list[Block]]:
    """A model that counts, so many times, and then has had its say."""
    command = "seq 1 4000"
    loop = [[thought("hm"), text(f"Look {at}. "), call("sh", cmd=f"{command}; echo {at}")] for at in range(number)]
    return [*loop, [thought("So."), text("It is counted.")]]


def changed(before: str, after: str) -> int:
    """Lines of the second that are not in the first."""
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    return sum(line.startswith("+ ") and bool(line[2:].strip()) for line in lines)


def test_an_existing_agent_becomes_context_managed_by_about_ten_lines(connected: Callable[..., None]) -> None:
    page = blocks(PAGE)
    unmanaged, _, tail = PLAIN.partition("def work")
    managed = PLAIN.replace("def work" + tail, page["after"])
    assert changed(PLAIN, managed) <= 12

    answers = []
    for source in (PLAIN, managed):
        names: dict[str, Any] = {}
        with serve(said(*steps(12))) as api:
            connected(api)
            exec(source, names)
            answers.append(names["work"]("Count."))
            nothing_rejected(api)
        sizes = [len(json.dumps(body["messages"])) for body in api.bodies]
    assert answers == ["It is counted.", "It is counted."]
    assert max(sizes) < 400_000
    with Session.open(".ctxvc", "mend") as session:
        held = [session.body(row.id) for row in session.ledger().rows() if row.kind == "tool_result"]
        assert [body.splitlines()[-1] for body in held] == [str(number).encode() for number in range(12)]
        assert session.used() <= session.budget.effective
    assert unmanaged


def test_the_asynchronous_loop_works_as_it_stands(connected: Callable[..., None]) -> None:
    page = blocks(PAGE)
    names: dict[str, Any] = {}
    script = steps(3)
    script[1] += [call("note", text="Counting works."), call("archive", blocks="B5")]
    with serve(said(*script)) as api:
        connected(api)
        exec(PLAIN + page["after"] + page["stream"], names)
        work: Callable[[str], Coroutine[Any, Any, str]] = names["work"]
        assert asyncio.run(work("Count.")) == "It is counted."
        nothing_rejected(api)
        only_the_newest_thinking_was_dropped(api)
    with Session.open(".ctxvc", "mend") as session:
        assert [note.text for note in session.notes()] == ["Counting works."]


def test_the_minimal_agent_works_as_it_stands_and_goes_on_when_it_is_run_again(
    connected: Callable[..., None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = (HOW_TO.parent / "examples" / "minimal_agent.py").read_text()
    texts: list[str] = []

    def answer(prompt: str) -> str:
        texts.append(prompt)
        return "y" if "echo" in prompt else "n"

    monkeypatch.setattr("builtins.input", answer)
    first = [text("I look. "), call("shell", command="echo it works")]
    second = [call("shell", command="rm x"), call("search", pattern="it works")]
    with serve(said(first, "Done.", second, "Done again.")) as api:
        connected(api)
        for task in ("Look.", "Once more."):
            monkeypatch.setattr(sys, "argv", ["agent.py", task])
            exec(source, {"__name__": "__main__"})
        nothing_rejected(api)
    assert capsys.readouterr().out == "I look. \nDone.\n\nDone again.\n"
    assert texts == ["run 'echo it works'? [y/N] ", "run 'rm x'? [y/N] "]
    with Session.open(".ctxvc", "agent") as session:
        results = [row for row in session.ledger().rows() if row.kind == "tool_result"]
        assert [(row.tool, row.error) for row in results] == [("shell", False), ("shell", True), ("search", False)]
        assert session.body(results[0].id) == b"it works\n"
        assert "it works" in session.body(results[2].id).decode()


def test_the_page_names_every_tool_and_every_way_a_reply_ends() -> None:
    words = PAGE.read_text()
    assert not [name for name in TOOLS if f"`{name}`" not in words]
    assert not [stop for stop in Stop.__args__ if f"| `{stop}` |" not in words]


def test_the_configurations_of_mcp_clients_are_json_and_start_the_server() -> None:
    found = blocks(HOW_TO / "connect-over-mcp.md", "json")
    assert len(found) == 4
    for name, words in found.items():
        ((kind, servers),) = json.loads(words).items()
        assert kind == ("servers" if "vscode" in name else "mcpServers")
        server = servers["ctxvc"]
        assert Path(server["command"]).name == "ctxvc"
        assert server["args"][0] == "mcp"
