"""Sessions of Qwen Code: what its own recordings say, and what its records mean."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from ctxvc import importers
from ctxvc.core.recording.events import Compacted, Edited, Event, Forked, Opened, Said, Warned
from ctxvc.importers import qwen_code
from ctxvc.importers.file import Recording
from ctxvc.recording.files import import_paths
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from tests.making.events import messages

DATA = Path(__file__).parents[1] / "data" / "qwen-code"
RESUMED = DATA / "chats" / "501beb22-a81f-4e0f-a395-2d79b02a84b5.jsonl"
PICTURE = DATA / "chats" / "0a27f1cc-2c83-4f8f-98ba-59eff2aeeb1b.jsonl"


def events(path: Path) -> list[Event]:
    return list(qwen_code.events(Recording(path)))


def record(name: str, parent: str | None, kind: str, *parts: Any, **more: Any) -> dict[str, Any]:
    message = {"message": {"role": "model" if kind == "assistant" else "user", "parts": [*parts]}} if parts else {}
    base = {"uuid": name, "parentUuid": parent, "sessionId": "s", "timestamp": "2026-01-01T00:00:00Z", "type": kind}
    return {**base, "cwd": "/work/p", "version": "0.24.4", **message, **more}


def of_records(folder: Path, *records: Any) -> list[Event]:
    path = folder / "s.jsonl"
    path.write_text("".join(json.dumps(one, separators=(",", ":")) + "\n" for one in records))
    return events(path)


def shape(found: list[Event]) -> list[tuple[str, ...]]:
    return [
        (m.role, *(f"{part.kind}:{part.origin}{':error' * part.error}" for part in m.parts)) for m in messages(found)
    ]


ASKED = [
    record("a", None, "user", {"text": "one"}, provenance="real_user"),
    record("b", "a", "assistant", {"text": "two"}, model="qwen3-coder"),
    record("c", "b", "user", {"text": "three"}, provenance="real_user"),
]
CALL = {"functionCall": {"id": "c1", "name": "read_file", "args": {"file_path": "a"}}}
RESULT = {"functionResponse": {"id": "c1", "name": "", "response": {"output": "long"}}}


def test_a_session_is_told_with_its_model_window_calls_and_compaction() -> None:
    found = events(RESUMED)
    opened = [event for event in found if isinstance(event, Opened)]

    assert (opened[0].source, opened[0].cwd, opened[0].agent) == (RESUMED.stem, "/work/p", "Qwen Code")
    assert [event.model for event in opened if event.model] == ["qwen3-coder"]
    assert [event.window.tokens for event in opened if event.window] == [262_144]
    assert shape(found)[:4] == [
        ("user", "user:human"),
        ("assistant", "assistant:model", "tool_use:model", "tool_use:model"),
        ("user", "tool_result:tool"),
        ("user", "tool_result:tool"),
    ]
    (compaction,) = [event for event in found if isinstance(event, Compacted)]
    assert [message.role for message in compaction.summary] == ["user", "assistant", "user"]
    assert (compaction.kept, compaction.detail) == (frozenset(), {"trigger": "manual", "tokens": 20_979})
    assert not [event for event in found if isinstance(event, Warned)]


def test_what_the_host_puts_into_a_message_is_not_a_persons() -> None:
    said = [(part.origin, part.body) for message in messages(events(RESUMED)) for part in message.parts]
    reminders = [origin for origin, body in said if body.startswith((b"<system-reminder>", b"<task-notification>"))]

    assert reminders and set(reminders) == {"client"}
    assert ("human", b"Say goodbye.") in said
    with_file = messages(events(PICTURE))[0]
    assert [part.origin for part in with_file.parts] == ["human", "client", "client", "client", "client"]


def test_a_picture_is_in_its_result_and_a_failed_call_failed() -> None:
    results = [part for message in messages(events(PICTURE)) for part in message.parts if part.kind == "tool_result"]

    assert [(part.error, len(part.files)) for part in results] == [(False, 1), (True, 0), (True, 0)]


def test_a_sub_agent_is_a_scope_of_its_session_begun_by_its_call(store: Store, tmp_path: Path) -> None:
    shutil.copytree(DATA, tmp_path / "qwen")
    outcomes = list(import_paths(store, [tmp_path / "qwen" / "chats" / RESUMED.name], final=True))

    assert [outcome.error for outcome in outcomes] == [None, None]
    (session,) = store.sessions()
    assert sorted(store.tips(session)) == ["agent-general-purpose-call_3_1", "main"]
    with StoredSession.open(store, session, "agent-general-purpose-call_3_1") as stored:
        assert [row.kind for row in stored.ledger().rows()] == [
            "user", "assistant", "tool_use", "tool_result", "assistant",
        ]  # fmt: skip
        (asked, *_) = stored.ledger().rows()
        assert asked.origin == "client"
    subagent = next((tmp_path / "qwen" / "subagents").glob("*/*.jsonl"))
    assert {event.task for event in events(subagent) if isinstance(event, Said)} == {"call_3_1"}


def test_a_rewind_goes_on_from_the_record_that_it_names(tmp_path: Path) -> None:
    rewind = record("r", "b", "system", subtype="rewind", systemPayload={"truncatedCount": 1})
    found = of_records(tmp_path, *ASKED, rewind, record("d", "r", "user", {"text": "otherwise"}))

    assert [event.after for event in found if isinstance(event, Forked)] == ["b"]
    assert found[-1] == Said(message=messages(found)[-1], end=found[-1].end)  # type: ignore[union-attr]


def test_what_a_compaction_keeps_as_it_was_stays(tmp_path: Path) -> None:
    history = [
        {"role": "user", "parts": [{"text": "what was before"}]},
        {"role": "model", "parts": [{"text": "x"}, CALL]},
        {"role": "user", "parts": [RESULT, {"text": "and"}]},
    ]
    compression = record("k", "f", "system", subtype="chat_compression", systemPayload={"compressedHistory": history})
    found = of_records(
        tmp_path,
        *ASKED,
        record("d", "c", "assistant", {"text": "x"}, CALL),
        record("e", "d", "tool_result", RESULT),
        record("f", "e", "user", {"text": "and"}, subtype="mid_turn_user_message"),
        compression,
        record("g", "k", "assistant", {"text": "then"}),
    )
    (compaction,) = [event for event in found if isinstance(event, Compacted)]

    assert [message.key for message in compaction.summary] == ["k"]
    assert (compaction.kept, compaction.before) == ({"d", "e", "f"}, "d")
    assert not [event for event in found if isinstance(event, Forked)]


@pytest.mark.parametrize("sent, gone", [(False, ["c"]), (True, [])])
def test_a_command_that_was_answered_here_leaves_the_prompt(tmp_path: Path, sent: bool, gone: list[str]) -> None:
    payload = {
        "phase": "result", "rawCommand": "three", "sentToModel": sent, "outputHistoryItems": [{"type": "assistant"}],
    }  # fmt: skip
    found = of_records(tmp_path, *ASKED, record("d", "c", "system", subtype="slash_command", systemPayload=payload))

    assert [event.key for event in found if isinstance(event, Edited)] == gone


@pytest.mark.parametrize(
    "odd, warned",
    [
        (record("x", "nowhere", "user", {"text": "last"}), "parent"),
        (record("x", "c", "dream", {"text": "last"}), "unknown type"),
        ({"hello": 1}, "no record"),
        (record("b", "c", "user", {"text": "last"}), ""),
        (record("x", "c", "system", subtype="chat_compression", systemPayload={"compressedHistory": 7}), ""),
    ],
)
def test_an_odd_record_costs_itself_at_most(tmp_path: Path, odd: Any, warned: str) -> None:
    found = of_records(tmp_path, *ASKED, odd, record("y", "c", "assistant", {"text": "the end"}))
    warnings = [event.text for event in found if isinstance(event, Warned)]

    assert (len(warnings), all(warned.replace("no record", "not a record") in text for text in warnings)) == (
        bool(warned),
        True,
    )
    assert messages(found)[-1].parts[0].body == b"the end"
    assert len({message.key for message in messages(found)}) == len(messages(found))


def test_a_project_has_its_own_sessions_in_which_something_was_said(tmp_path: Path) -> None:
    chats = tmp_path / ".qwen" / "projects" / "-work-p" / "chats"
    shutil.copytree(DATA / "chats", chats)
    (chats / "silent.jsonl").write_text(json.dumps(record("a", None, "system"), separators=(",", ":")) + "\n")
    inner = chats.parents[1] / "-work-p-inner" / "chats"
    inner.mkdir(parents=True)
    shutil.copy(PICTURE, inner / "other.jsonl")  # as its folder says, it is of another, but its record names /work/p
    (inner / "elsewhere.jsonl").write_bytes(PICTURE.read_bytes().replace(b'"/work/p"', b'"/work/p-2"'))
    own = importers.importer("qwen-code")
    (folder,) = own.folders(Path("/work/p"), tmp_path, {})

    assert [path.name for path in own.recordings(folder, Path("/work/p"))] == [
        PICTURE.name, RESUMED.name, "other.jsonl",
    ]  # fmt: skip
    assert own.folders(Path("/work/p"), tmp_path, {"QWEN_HOME": "/q"}) == [Path("/q/projects")]
    assert own.state(RESUMED, {RESUMED.stem: 0}) == "grown"
    assert own.state(RESUMED, {RESUMED.stem: RESUMED.stat().st_size}) == "whole"
