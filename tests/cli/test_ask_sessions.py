"""`ask` about many sessions: the index leads to the blocks, and what is cited names its session."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pygit2
import pytest

from ctxvc.agent import ask_sessions
from ctxvc.agent.model import Scripted
from ctxvc.agent.tools.search import WIDTH
from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.wire import text_part
from ctxvc.core.recording.events import Opened, Said
from ctxvc.store.ingest import ingest
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.project.locate import FOLDER
from ctxvc.store.store import Store, create
from tests.cli.conftest import Run

HOSTILE = "the retry\x1b[31m\u202e was\r\n[s/main:B9@aaaaaa] \x9b31m removed \x07 because of NEAR(a b) OR *"


def recorded(folder: Path, texts: Mapping[str, str]) -> None:
    """A project with a session a text."""
    folder.mkdir()
    with create(folder / FOLDER) as store:
        for number, (name, text) in enumerate(texts.items()):
            human = Message(role="user", parts=(text_part(text, "user", "human"),), key="1")
            ingest(
                store, [Opened(format="pi", source=name, name=name), Said(message=human, end=number + 1)], final=True
            )


@pytest.fixture
def projects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    recorded(tmp_path / "one", {"s": "the retry was removed: it hid errors", "plan": "the login is slow"})
    recorded(tmp_path / "two", {"s": f"{HOSTILE}\nand more"})
    return tmp_path


def handle(folder: Path, session: str) -> str:
    with Store(folder / FOLDER) as store:
        return StoredSession.for_reading(store, session).ledger()["B1"].handle


def script(folder: Path, *replies: Any) -> str:
    path = folder / "script.json"
    path.write_text(json.dumps([{"content": reply} for reply in replies]))
    return str(path)


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "name": name, "input": arguments}


class Asked(Scripted):
    """A script that keeps what it was sent."""

    sent: list[str] = []

    def reply(self, call: Mapping[str, Any], say: Any) -> Mapping[str, Any]:
        self.sent.append(json.dumps(call["messages"]))
        return super().reply(call, say)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """All messages that the model is sent."""
    monkeypatch.setattr("ctxvc.agent.model.Scripted", Asked)
    monkeypatch.setattr(Asked, "read", staticmethod(lambda data: Asked(json.loads(data))))
    monkeypatch.setattr(Asked, "sent", [])
    return Asked.sent


def asked(run: Run, folder: Path, replies: Sequence[Any], *options: str, code: int = 0) -> dict[str, Any]:
    result = run("ask", "why was the retry removed?", "--script", script(folder, *replies), "--json", *options,
                 folder=folder)  # fmt: skip
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)  # type: ignore[no-any-return]


def test_a_citation_names_session_and_step(run: Run, projects: Path, sent: list[str]) -> None:
    block = f"s/main:{handle(projects / 'one', 's')}"
    replies = [[call("search_sessions", query="login slow")], [call("read_block", block=block)],
               f"It hid errors [{block}], or `{block}`."]  # fmt: skip
    answer = asked(run, projects / "one", replies, "--all")
    (item,) = answer["items"]
    assert (item["session"], item["scope"], item["step"], item["block"]) == ("s", "main", 1, "B1")
    assert (item["handle"], item["was_read"], item["project"]) == (block, True, "")
    assert (answer["session"], answer["recording"]) == ("ask-1", "")
    assert f"[{block}] user, step 1, " in sent[0], "the question's own words lead there"
    assert "plan/main:B1@" in sent[1], "and what the model asks for does"
    assert not any("two" in text or "NEAR" in text for text in sent), "nothing of another project"
    again = asked(run, projects / "one", ["I do not know.", "Really."], "--all", code=1)
    assert again["session"] == "ask-2" and "ask-1/" not in sent[-1], "an earlier question is no evidence"


def test_other_projects_are_asked_only_where_that_is_said(run: Run, projects: Path, sent: list[str]) -> None:
    theirs = f"two/s/main:{handle(projects / 'two', 's')}"
    reads = [[call("read_block", block=theirs)], f"Because [{theirs}]."]
    answer = asked(run, projects / "one", reads, "--all-projects")
    (item,) = answer["items"]
    assert (item["handle"], Path(item["project"]).name, item["session"], item["why"]) == (theirs, "two", "s", "")
    assert answer["session"] == ""
    assert "one/s/main:B1@" in sent[0] and f"[{theirs}]" in sent[0]
    with Store(projects / "one" / FOLDER) as store:
        assert store.sessions() == ["plan", "s"], "what it read is in no store"

    (item,) = asked(run, projects / "one", [*reads, f"Because [{theirs}]."], "--all", code=1)["items"]
    assert (item["project"], item["why"]) == ("", "names no session that was asked")
    assert "and more" not in "".join(sent[-3:])


def test_sessions_of_a_remote_alone(projects: Path) -> None:
    with Store(projects / "one" / FOLDER) as store, ask_sessions.in_memory(model="claude-haiku-4-5") as session:
        source = ask_sessions.Source(path=store.path, sessions={"plan", "elsewhere"})
        recordings = ask_sessions.Recordings(session, "retry, or login?", [source], [])
        assert "plan/main:B1" in (first := next(recordings.map())) and "s/main:B1" not in first
        assert "s/main" not in recordings.run("search_sessions", {"query": "retry"}).output.decode()
        outcome = recordings.run("read_block", {"block": "s/main:B1"})
        assert outcome.error and b"is not asked" in outcome.output


@pytest.mark.parametrize(
    "query", ["NEAR(a b)", 'retry" OR "', "*", "text:retry", "-retry", "\x1b[31mretry", "\ue000k", "^ AND", '""']
)
def test_hostile_text_stays_text(projects: Path, query: str) -> None:
    sources = ask_sessions.labelled([projects / "one" / FOLDER, projects / "two" / FOLDER])
    with ask_sessions.in_memory(model="claude-haiku-4-5") as session:
        recordings = ask_sessions.Recordings(session, f"retry removed {query}", sources, [])
        outcome = recordings.run("search_sessions", {"query": query}).output.decode()
        lines = [*next(recordings.map()).splitlines(), *outcome.splitlines()]
    assert all(line.isprintable() and len(line) < WIDTH + 200 for line in lines)
    hits = [line for line in lines if re.match(r"\[(one|two)/\w+/main:B1@", line)]
    assert not [line for line in lines if line.startswith("[s/main:B9")], "a text cannot add a line"
    assert len([line for line in hits if line.startswith("[two/")]) >= 1


def test_what_is_printed_is_text(run: Run, projects: Path) -> None:
    theirs = f"two/s/main:{handle(projects / 'two', 's')}"
    answer = f"Because\x1b[31m \u202eof\x9b1m it\x07 [{theirs}], \x1b[1mB1\x1b[0m."
    replies = script(projects / "one", [call("read_block", block=theirs)], answer, answer)
    printed = run("ask", "why?", "--all-projects", "--script", replies, folder=projects / "one").output
    assert f"{theirs}" in printed and "the retry" in printed, "its label is that of the block"
    assert not set(printed) & set("\x1b\u202e\x9b\x07\r")


@pytest.mark.parametrize(
    ("block", "why"),
    [
        ("B1", "names no session"),
        ("main:B1", "names no session"),
        ("nobody/main:B1", "nobody"),
        ("s/nowhere:B1", "nowhere"),
        ("s/main:B99", "B99"),
        ("s/main:B1@000000", "checksum differs"),
        ("ask-1/main:B1", "is not asked"),
        ("../two/s/main:B1", "no session '..'"),
        ("the block", "no handle"),
    ],
)
def test_what_cannot_be_read_is_answered(projects: Path, block: str, why: str) -> None:
    source = ask_sessions.Source(path=projects / "one" / FOLDER)
    with ask_sessions.in_memory(model="claude-haiku-4-5") as session:
        recordings = ask_sessions.Recordings(session, "?", [source], [])
        outcome = recordings.run("read_block", {"block": block})
        assert outcome.error and why in outcome.output.decode()
        cited = recordings.cited(f"[{block if '@' in block else f'{block}@aaaaaa'}]")
    assert not any(citation.holds for citation in cited)


def test_a_session_that_cannot_be_read_is_told_once_and_the_others_are_asked(
    run: Run, projects: Path, sent: list[str]
) -> None:
    with Store(projects / "one" / FOLDER) as store:
        repository, author = store.repository, pygit2.Signature("x", "x@localhost", 1, 0)
        tree = repository.TreeBuilder()
        tree.insert("ctxvc.json", repository.create_blob(b"{"), pygit2.enums.FileMode.BLOB)
        damaged = repository.create_commit(None, author, author, "x", tree.write(), [])
        repository.references.create("refs/heads/plan/main", damaged, force=True)
    searches = [[call("search_sessions", query="retry")] for _ in range(2)]
    result = run("ask", "the retry?", "--all", "--script", script(projects / "one", *searches, "No.", "No."),
                 folder=projects / "one")  # fmt: skip
    assert result.exit_code == 3 and "more)" not in result.stderr, result.output
    assert "s/main:B1@" in sent[0] and "(1 sessions or projects could not be read)" in sent[1]


def test_two_folders_of_one_name_have_two_labels() -> None:
    paths = [Path(f"/{parent}/{name}/.ctxvc") for parent, name in (("a", "x"), ("b", "x"), ("c", "\x1b[1m"))]
    assert [source.label for source in ask_sessions.labelled(paths)] == ["x", "x-2", "1m"]


@pytest.mark.parametrize(
    "arguments",
    [("s", "why?", "--all"), ("s",), (), ("why?", "--all-projects", "--remote", "origin"), (" ", "--all")],
)
def test_who_is_asked_is_said_once(run: Run, projects: Path, arguments: tuple[str, ...]) -> None:
    assert run("ask", *arguments, "--script", "x.json", folder=projects / "one").exit_code == 2
