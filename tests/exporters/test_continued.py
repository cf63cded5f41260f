"""Sessions that were written for another agent, and come back with what that did as scopes of the one they are from."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from ctxvc.exporters.conversation import Conversation
from ctxvc.exporters.native import native_format
from ctxvc.exporters.native.session import NativeSession, Setting
from ctxvc.recording.files import Outcome, import_paths
from ctxvc.recording.written import remember
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store, create
from ctxvc.store.verify.verify import verify
from ctxvc.wire.exchange import Management
from ctxvc.wire.sessions import Sessions
from tests.exporters.trips import imported
from tests.wire.clients import FORMS, Wire

DATA = Path(__file__).parents[1] / "data"
TIME = datetime(2026, 11, 28, 4, 5, 6, 789000, tzinfo=timezone.utc)
LATER = "2026-11-28T05:00:00.000Z"
ASKED, ANSWERED = "Go on, please.", "I have gone on."
TOOLS = [{"name": "exec_command", "input_schema": {"type": "object"}}]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with create(tmp_path / "store") as created:
        yield created


def written(agent: str, recorded: Conversation) -> NativeSession:
    native = native_format(agent)
    session = native.write(recorded, Setting(folder=Path("/work/p"), time=TIME))
    assert remember(recorded.store, recorded.snapshot, native.format, session.id, session.files)
    return session


# --- as the agent's own files have it


def _codex(data: bytes) -> bytes:
    items = [{"role": "user", "content": [{"type": "input_text", "text": ASKED}]},
             {"role": "assistant", "content": [{"type": "output_text", "text": ANSWERED}]}]  # fmt: skip
    lines = [{"timestamp": LATER, "type": "response_item", "payload": {"type": "message", **item}} for item in items]
    return data + b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def _pi(data: bytes) -> bytes:
    parent = json.loads(data.splitlines()[-1])["id"]
    messages = [{"role": "user", "content": [{"type": "text", "text": ASKED}], "timestamp": 1_795_842_000_000},
                {"role": "assistant", "content": [{"type": "text", "text": ANSWERED}], "api": "anthropic-messages",
                 "provider": "anthropic", "model": "claude-opus-5", "stopReason": "stop",
                 "timestamp": 1_795_842_001_000}]  # fmt: skip
    for number, message in enumerate(messages):
        line = {"type": "message", "id": f"n{number}", "parentId": parent, "timestamp": LATER, "message": message}
        data, parent = data + json.dumps(line).encode() + b"\n", f"n{number}"
    return data


def _opencode(data: bytes) -> bytes:
    document = json.loads(data)
    session, at = document["info"]["id"], document["info"]["time"]["created"] + 60_000
    for number, (role, text) in enumerate((("user", ASKED), ("assistant", ANSWERED))):
        time = {"created": at + number, **({"completed": at + number} if number else {})}
        info: dict[str, Any] = {"id": f"msg_z{number}", "sessionID": session, "role": role, "time": time}
        document["messages"].append({"info": info, "parts": [{"id": f"prt_z{number}", "type": "text", "text": text}]})
    return json.dumps(document).encode()


GROWN: dict[str, Callable[[bytes], bytes]] = {"codex": _codex, "pi": _pi, "opencode": _opencode}


def taken(store: Store, session: NativeSession, folder: Path, change: Callable[[bytes], bytes]) -> Outcome:
    (name, data), *_ = session.files.items()
    path = folder / name.name
    path.write_bytes(change(data))
    (outcome,) = import_paths(store, [path], final=True, redact=False)
    assert outcome.error is None
    return outcome


@pytest.mark.parametrize("agent", GROWN)
@pytest.mark.parametrize("name", ["recorded/claude-code.jsonl", "native/odd-messages.json"])
def test_what_another_agent_does_is_a_scope_of_the_session(agent: str, name: str, store: Store, tmp_path: Path) -> None:
    recorded = imported(store, DATA / name)
    session = written(agent, recorded)
    before = store.all_tips()

    unchanged = taken(store, session, tmp_path, lambda data: data)
    assert (unchanged.session, unchanged.created, unchanged.units) == (recorded.snapshot.session, False, 0)
    assert store.all_tips() == before
    for units in (1, 0):
        grown = taken(store, session, tmp_path, GROWN[agent])
        assert (grown.session, grown.created, grown.units) == (recorded.snapshot.session, False, units)

    (scope,) = {*store.tips(grown.session)} - {*before[grown.session]}
    assert scope.startswith(f"{agent}-")
    with StoredSession.open(store, grown.session, scope) as opened:
        rows = list(opened.ledger().rows())
        assert [opened.body(row).decode() for row in rows[-2:]] == [ASKED, ANSWERED]
        assert rows[:-2] == list(recorded.ledger.rows())
        assert opened.ledger().meta.parent == "main"
    assert [finding for finding in verify(store).findings if finding.severity != "note"] == []


def test_what_is_not_as_it_was_written_is_a_session_of_its_own(store: Store, tmp_path: Path) -> None:
    recorded = imported(store, DATA / "recorded/claude-code.jsonl")
    session = written("codex", recorded)

    def cut(data: bytes) -> bytes:
        lines = data.splitlines(keepends=True)
        texts = [number for number, line in enumerate(lines) if b'"output_text"' in line]
        return b"".join(line for number, line in enumerate(lines) if number != texts[-1])

    assert taken(store, session, tmp_path, cut).created


# --- on the wire


@pytest.mark.parametrize("managed", [False, True])
@pytest.mark.parametrize("names_itself", [False, True])
def test_requests_of_another_agent_are_a_scope_of_the_session(names_itself: bool, managed: bool, store: Store) -> None:
    recorded = imported(store, DATA / "recorded/claude-code.jsonl")
    session = written("codex", recorded)
    (data,) = session.files.values()
    lines = [json.loads(line) for line in data.splitlines()]
    management = Management(budget=200_000) if managed else None

    def recorder() -> Wire:
        def opened() -> Store:
            return Store(store.path)

        sessions = Sessions(opened, agent="codex", session="", folder="/work/p", run="one", management=management)
        wire = Wire(FORMS["responses"](TOOLS), sessions)
        wire.headers = {"session-id": session.id, "x-codex-turn-metadata": "{}"} if names_itself else {}
        return wire

    wire = recorder()
    own = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "You are Codex."}]}
    wire.client.messages += [own, *(line["payload"] for line in lines if line["type"] == "response_item")]
    for number in range(3):
        wire.client.incoming([{"type": "text", "text": f"{ASKED} {number}"}])
        wire.client.took(wire.ask([{"type": "text", "text": f"{ANSWERED} {number}"}]))
        if number == 1:
            wire.sessions.close()
            again = recorder()
            again.client = wire.client
            wire = again
    wire.sessions.close()

    assert store.sessions() == [recorded.snapshot.session]
    (scope,) = {*store.tips(recorded.snapshot.session)} - {"main"}
    assert scope.startswith("codex-")
    with StoredSession.open(store, recorded.snapshot.session, scope) as opened:
        rows = [row for row in opened.ledger().rows() if row.kind in ("user", "assistant")]
        texts = [opened.body(row).decode() for row in rows[-6:]]
        assert texts == [f"{text} {number}" for number in range(3) for text in (ASKED, ANSWERED)]
        assert all(row.present for row in rows)
        new = [row.kind for row in opened.ledger().rows() if row.id not in {row.id for row in recorded.ledger.rows()}]
        assert managed or new == ["user", "assistant"] * 3
    assert [finding for finding in verify(store).findings if finding.severity != "note"] == []
