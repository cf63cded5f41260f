"""Session traces: those of other programs, and ours with what is beside their messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ctxvc.core.recording.events import Event, Opened, Warned
from ctxvc.errors import BadInput
from ctxvc.importers import hf_trace
from ctxvc.importers.file import Recording
from ctxvc.store.store import Store
from tests.exporters.trips import imported
from tests.making.events import messages, parts, written

DATA = Path(__file__).parents[1] / "data" / "hf-trace" / "foreign.jsonl"
OURS = {"type": "session", "harness": "ctxvc", "id": "a/main"}
FOREIGN = {**OURS, "harness": "my-agent"}


def read(path: Path, header: dict[str, Any], *lines: dict[str, Any]) -> list[Event]:
    return list(hf_trace.events(Recording(written(path, header, *lines))))


def said(role: str, content: str, marks: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    line = {"type": "message", "message": {"role": role, "content": content, **fields}}
    return {**line, "ctxvc": marks} if marks else line


def test_a_trace_of_another_program_is_read_whole() -> None:
    events = list(hf_trace.events(Recording(DATA)))
    openings = [event for event in events if isinstance(event, Opened)]

    assert (openings[0].agent, openings[0].title) == ("llama.app", "The weather in Lyon")
    assert openings[-1].system == [{"type": "text", "text": "Answer briefly."}]
    assert [[(part.kind, part.origin) for part in message.parts] for message in messages(events)] == [
        [("user", "human")],
        [("thinking", "model"), ("tool_use", "model"), ("tool_use", "model")],
        [("tool_result", "tool")],
        [("tool_result", "tool")],
        [("assistant", "model")],
        [("user", "human")],
        [("assistant", "model")],
    ]
    assert messages(events)[0].time == "2026-02-25T06:13:20Z"
    assert messages(events)[1].model == "qwen3"


def test_its_replies_are_steps(store: Store) -> None:
    ledger = imported(store, DATA).ledger

    assert [(row.step, row.turn) for row in ledger.rows() if row.role == "assistant"] == [(1, 1)] * 3 + [(2, 1), (3, 2)]


def test_marks_count_in_traces_of_ours_only(tmp_path: Path) -> None:
    line = said("user", "a reminder", {"origin": "client"})

    for header, origin in ((OURS, "client"), (FOREIGN, "human")):
        assert [part.origin for part in parts(read(tmp_path / "t.jsonl", header, line))] == [origin]


def test_a_line_that_continues_a_reply_is_of_its_step(tmp_path: Path) -> None:
    lines = said("assistant", "a"), said("assistant", "b", {"continues": True}), said("assistant", "c")

    replies = [message.reply for message in messages(read(tmp_path / "t.jsonl", OURS, *lines))]

    assert replies[0] == replies[1] != replies[2]


def test_what_is_no_message_costs_its_line(tmp_path: Path) -> None:
    lines: tuple[Any, ...] = ([], {"type": "other"}, said("wizard", "x"), said("user", ""), said("user", "y"))
    events = read(tmp_path / "t.jsonl", FOREIGN, *lines)

    assert [part.body for part in parts(events)] == [b"y"]
    assert [event.line for event in events if isinstance(event, Warned)] == [2, 3, 4, 5]


@pytest.mark.parametrize(
    "fields",
    [
        {"toolCalls": [{"id": 1}, 7, {"id": "c", "function": {"name": "f"}}]},
        {"timestamp": 1e300},
        {"timestamp": "now"},
        {"model": 7},
        {"reasoningContent": []},
    ],
)
def test_odd_fields_break_nothing(tmp_path: Path, fields: dict[str, Any]) -> None:
    events = read(tmp_path / "t.jsonl", FOREIGN, said("assistant", "x", **fields))

    assert b"x" in [part.body for part in parts(events)]


@pytest.mark.parametrize("first", [b"", b"{}", b'{"type":"session"}', b"[]", b'{"type":"session","harness":1,"id":2}'])
def test_a_file_without_the_header_is_none(tmp_path: Path, first: bytes) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(first + b"\n")

    assert not hf_trace.sniff(first)
    with pytest.raises(BadInput, match="header of a session trace"):
        list(hf_trace.events(Recording(path)))
