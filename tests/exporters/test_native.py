"""Sessions written for other agents, and read again by our own importers."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
import pytest

from ctxvc.claude_code import transcript
from ctxvc.claude_code.resume import resumable
from ctxvc.core.hosts import tools
from ctxvc.core.ledger import wire
from ctxvc.core.prompt.outline import Piece
from ctxvc.core.prompt.sanitise import sendable
from ctxvc.errors import CtxvcError
from ctxvc.exporters.conversation import Conversation
from ctxvc.exporters.native import AGENTS, native_format
from ctxvc.exporters.native.install import installed
from ctxvc.exporters.native.session import NativeSession, Setting
from ctxvc.forms.items import is_clients
from ctxvc.session.session import Session
from ctxvc.store.store import Store, create
from tests.exporters.arrival import Unit, compared, of_pieces
from tests.exporters.trips import conversation, imported

DATA = Path(__file__).parents[1] / "data"
TIME = datetime(2026, 11, 28, 4, 5, 6, 789000, tzinfo=timezone.utc)
ODD = "native/odd-messages.json"
RECORDINGS = ("recorded/claude-code.jsonl", "recorded/codex.jsonl", "recorded/pi.jsonl", ODD)
READ_BACK = tuple(agent for agent in AGENTS if native_format(agent).format)
of_every_agent = pytest.mark.parametrize("agent", AGENTS)


def written(agent: str, recorded: Conversation, copy: int = 0) -> NativeSession:
    return native_format(agent).write(recorded, Setting(folder=Path("/work/p"), time=TIME, copy=copy))


def read_again(agent: str, session: NativeSession, folder: Path, store: Store) -> Conversation:
    """The session as our importer reads it from the agent's folder."""
    assert installed(session, folder)
    path = folder / next(iter(session.files))
    if agent == "opencode":
        path = taken_in(path, folder / "opencode.db")
    return imported(store, path, native_format(agent).format)


def taken_in(document: Path, database: Path) -> Path:
    """The database in which the document's session is the only one."""
    shutil.copy(DATA / "opencode" / "opencode.db", database)
    session = json.loads(document.read_bytes())
    info = session["info"]
    with closing(sqlite3.connect(database)) as connection, connection:
        for table in ("part", "message", "event", "session"):
            connection.execute(f"DELETE FROM {table}")
        columns = {row[1]: row for row in connection.execute("PRAGMA table_info(session)")}
        values: dict[str, Any] = {
            "id": info["id"], "project_id": "global", "directory": info["directory"], "title": info["title"],
            "version": info["version"], "slug": info["slug"], "time_created": info["time"]["created"],
            "time_updated": info["time"]["updated"],
        }  # fmt: skip
        values = {name: value for name, value in values.items() if name in columns}
        _insert(connection, "session", values)
        for message in session["messages"]:
            about = message["info"]
            row = {"id": about["id"], "session_id": info["id"], "time_created": about["time"]["created"]}
            _insert(connection, "message", {**row, "time_updated": 0, "data": json.dumps(about)})
            for part in message["parts"]:
                row = {"id": part["id"], "message_id": about["id"], "session_id": info["id"]}
                _insert(connection, "part", {**row, "time_created": 0, "time_updated": 0, "data": json.dumps(part)})
    return database


def _insert(connection: sqlite3.Connection, table: str, values: dict[str, Any]) -> None:
    names, marks = ", ".join(values), ", ".join("?" * len(values))
    connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(values.values()))


def mapped_back(pieces: list[Piece]) -> Iterator[Piece]:
    """The pieces with each call as it was in the agent that it was first made in."""
    for piece in pieces:
        original = tools.original(wire.own_metadata(piece.extra)) if piece.kind == "tool_use" else None
        if original is None:
            yield piece
        else:
            yield msgspec.structs.replace(piece, tool=original.tool, body=wire.compact(original.arguments))


@pytest.mark.parametrize(
    "agent, name", [pair for at, agent in enumerate(READ_BACK) for pair in ((agent, ODD), (agent, RECORDINGS[at % 3]))]
)
def test_all_of_a_prompt_comes_back_once(agent: str, name: str, store: Store, tmp_path: Path) -> None:
    recorded = imported(store, DATA / name)
    session = written(agent, recorded)
    with create(tmp_path / "other") as other:
        again = read_again(agent, session, tmp_path / "agent", other)
        lost = {loss.path.partition(".")[0] for loss in session.losses if not loss.path.endswith((".name", ".origin"))}
        sent = list(of_pieces(sendable(recorded.prompt())))
        arrived = compared(sent, list(of_pieces(mapped_back(again.prompt()))))

        assert [unit for unit in arrived.missing if unit.block not in lost] == []
        assert (arrived.twice, arrived.unpaired) == ([], [])
        added = {unit.text for unit in arrived.added if not unit.text.startswith("[from the result of ")}
        assert added <= {unit.text for unit in arrived.missing} | {"…", ""}
        assert any(loss.path.endswith(".origin") for loss in session.losses) or by_people(again) == by_people(recorded)
        assert any(loss.path.endswith(".is_error") for loss in session.losses) or failed(again) == failed(recorded)
        assert again.ledger.meta.source
        assert again.ledger.meta.source.cwd in ("/work/p", "")


def failed(recorded: Conversation) -> set[str]:
    """The calls that failed, of those in the prompt."""
    return {piece.call for piece in recorded.prompt() if piece.kind == "tool_result" and piece.error}


def by_people(recorded: Conversation) -> set[bytes]:
    """What people wrote."""
    rows = recorded.ledger.rows()
    texts = (recorded.snapshot.bodies.body(row) for row in rows if row.origin == "human" and row.kind == "user")
    return {text.replace(b"\\[", b"[") for text in texts}


@of_every_agent
def test_calls_are_of_the_agents_own_tools(agent: str, store: Store) -> None:
    session = written(agent, imported(store, DATA / "native" / "odd-messages.json"))
    changed = {loss.path: loss.change for loss in session.losses if loss.path.endswith(".name")}
    shells = {"codex": "exec_command", "gemini": "run_shell_command", "qwen": "run_shell_command"}

    assert shells.get(agent, "terminal" if agent == "openhands" else "bash") in changed.values()


@of_every_agent
def test_the_same_moment_gives_the_same_bytes_and_a_copy_another_id(agent: str, store: Store) -> None:
    recorded = imported(store, DATA / RECORDINGS[0])
    session = written(agent, recorded)

    assert written(agent, recorded) == session
    assert written(agent, recorded, copy=1).id != session.id
    assert session.files.keys().isdisjoint(written(agent, recorded, copy=1).files)


def test_a_file_appears_whole_and_never_over_another(tmp_path: Path) -> None:
    session = NativeSession(id="a", files={PurePosixPath("x/a.jsonl"): b"ours\n"})

    assert installed(session, tmp_path)
    assert (tmp_path / "x" / "a.jsonl").read_bytes() == b"ours\n"
    assert (tmp_path / "x" / "a.jsonl").stat().st_mode & 0o777 == 0o600
    assert installed(session, tmp_path), "it is there"
    (tmp_path / "x" / "a.jsonl").write_bytes(b"theirs\n")
    assert not installed(session, tmp_path)
    assert [(path.name, path.read_bytes()) for path in (tmp_path / "x").iterdir()] == [("a.jsonl", b"theirs\n")]


def test_a_folder_appears_whole_and_never_over_another(tmp_path: Path) -> None:
    names = (PurePosixPath("a/state.json"), PurePosixPath("a/events/1.json"))
    session = NativeSession(id="a", files=dict.fromkeys(names, b"{}"))
    (tmp_path / "b").mkdir()

    assert installed(session, tmp_path)
    assert all((tmp_path / name).read_bytes() == b"{}" for name in names)
    assert installed(session, tmp_path), "it is there"
    (tmp_path / "a" / "events" / "1.json").write_bytes(b"[]")
    assert not installed(session, tmp_path)
    assert (tmp_path / "a" / "events" / "1.json").read_bytes() == b"[]"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_bytes(b"")
    session = NativeSession(id="a", files={PurePosixPath("a.jsonl"): b"ours\n"})

    with pytest.raises(CtxvcError, match="taken"):
        installed(session, tmp_path / "taken")


def test_what_left_the_prompt_is_a_stub_with_its_address(store: Store) -> None:
    name = imported(store, DATA / RECORDINGS[0]).snapshot.session
    with Session.open(store.path, name=name) as opened:
        row = next(row for row in opened.ledger().rows() if row.kind == "tool_result" and row.bytes > 1_000)
        opened.archive([row.id])
    setting = Setting(folder=Path("/work/p"), time=TIME, recovery="(ctxvc recover prints it)")
    session = native_format("pi").write(conversation(store, name), setting)
    lines = next(iter(session.files.values())).decode().splitlines()

    assert "(ctxvc recover prints it)" in lines[2]
    assert f"[archived {row.handle}" in "".join(lines[3:])
    assert "recover" not in next(iter(written("pi", imported(store, DATA / RECORDINGS[2])).files.values())).decode()


def test_gemini_does_not_take_a_text_for_a_command(store: Store) -> None:
    (data,) = written("gemini", imported(store, DATA / "native" / "odd-messages.json")).files.values()
    asked = [json.loads(line)["content"] for line in data.splitlines() if b'"type":"user"' in line]

    assert [parts[0]["text"] for parts in asked][-2:] == ["…", "…"]
    assert asked[-2][1] == {"text": "/work/p/a.py is right now."}


def test_gemini_finds_the_project_that_it_knows(tmp_path: Path) -> None:
    folder = native_format("gemini").folder
    assert folder
    project, home = Path("/work/p"), tmp_path
    unknown = folder(project, home, {})
    (home / ".gemini" / "tmp" / "p-1").mkdir(parents=True)
    (home / ".gemini" / "tmp" / "p-1" / ".project_root").write_text("/work/p")
    by_mark = folder(project, home, {})
    (home / ".gemini" / "projects.json").write_text(json.dumps({"projects": {"/work/p": "p"}}))

    assert len(unknown.parent.name) == 64
    assert (by_mark, folder(project, home, {})) == (
        home / ".gemini" / "tmp" / "p-1" / "chats",
        home / ".gemini" / "tmp" / "p" / "chats",
    )


@pytest.mark.parametrize("name", RECORDINGS)
def test_there_and_back_through_qwen_code_each_block_is_the_same(name: str, store: Store, tmp_path: Path) -> None:
    """Byte for byte, in order, but for what is named."""
    recorded = imported(store, DATA / name)
    session = written("qwen", recorded)
    lost = {loss.path.partition(".")[0] for loss in session.losses if not loss.path.endswith((".name", ".origin"))}
    with create(tmp_path / "other") as other:
        again = read_again("qwen", session, tmp_path / "agent", other)
        sent = [unit for unit in of_pieces(sendable(recorded.prompt())) if unit.block not in lost]
        back = list(of_pieces(mapped_back(again.prompt())))

    kept = Counter(replace(unit, joined="") for unit in sent)
    assert kept - Counter(replace(unit, joined="") for unit in back) == Counter()
    if name.startswith("recorded/"):  # the other has texts behind calls, which stand before them in Qwen Code
        assert [unit.text for unit in back] == [unit.text for unit in sent]


@pytest.mark.parametrize("name", (RECORDINGS[0], ODD))
def test_a_session_goes_through_four_agents_and_back_to_claude_code(name: str, store: Store, tmp_path: Path) -> None:
    """Texts byte for byte, calls as they were first made, results whole; but for the guard before texts as of ours."""
    recorded = imported(store, DATA / name)
    sent = list(unguarded(of_pieces(sendable(recorded.prompt()))))
    session, current = written("opencode", recorded), recorded
    lost = {loss.path.partition(".")[0] for loss in session.losses if not loss.path.endswith(".name")}
    lost |= {unit.block for unit in sent if is_clients(unit.text)}  # which Codex puts in anew
    for number, agent in enumerate(("opencode", "pi", "qwen", "codex")):
        with create(tmp_path / f"store-{number}") as other:
            current = read_again(agent, written(agent, current), tmp_path / f"agent-{number}", other)
            arrived = compared(sent, list(unguarded(of_pieces(mapped_back(current.prompt())))))
            resumed = resumable(current.store, current.snapshot, Path("/work/p"))
        assert [unit for unit in arrived.missing if unit.block not in lost] == []
        assert (arrived.twice, arrived.unpaired) == ([], [])
    reread = transcript.prompt(transcript.InMemory(Path("a.jsonl"), resumed.data))
    back = compared(sent, list(unguarded(of_pieces(placed.piece for placed in reread))))
    assert [unit for unit in back.missing if unit.block not in lost and not is_of_another(unit)] == []
    assert (back.twice, back.unpaired) == ([], [])


def unguarded(units: Iterator[Unit]) -> Iterator[Unit]:
    """The units without backslashes before brackets: each export sets one where a recorded text looks like ours."""
    return (replace(unit, text=re.sub(r"\\+\[", "[", unit.text)) for unit in units)


def is_of_another(unit: Unit) -> bool:
    """Whether it is a call of a tool of another agent, for which Claude Code has one of its own."""
    return unit.kind == "call" and unit.name[0].islower()
