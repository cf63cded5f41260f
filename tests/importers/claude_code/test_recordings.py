"""Recordings: a beginning says what the whole says, and another program's reading agrees."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from ctxvc.core.recording.events import Compacted, Forked, Said, Warned
from ctxvc.importers import claude_code
from ctxvc.importers.file import Recording
from tests.importers.claude_code.lines import (
    NO_FORKS,
    REAL,
    TWO_TURNS,
    WHOLE_LINES,
    Line,
    assert_every_beginning_is_told_alike,
    compacted,
    of,
    prompt,
    written,
)
from tests.making.conversation import block_of
from tests.making.events import messages, parts


@pytest.mark.parametrize("lines", NO_FORKS.values(), ids=NO_FORKS.keys())
def test_hand_made_files_cut_after_any_line_do_too(tmp_path: Path, lines: list[Line]) -> None:
    more = [*WHOLE_LINES, *TWO_TURNS, *lines, compacted()[0], prompt("z1", "a1", "x"), prompt("z2", None, "y")]

    assert_every_beginning_is_told_alike(written(tmp_path / "whole" / "s.jsonl", *more), tmp_path)


def test_a_real_session_is_told_whole() -> None:
    events = list(claude_code.events(Recording(REAL)))

    assert [type(event).__name__ for event in events[:3]] == ["Opened", "Said", "Opened"]
    assert len(messages(events)) == 54
    assert len({message.reply for message in messages(events)} - {""}) == 13
    assert {part.call for part in parts(events) if part.kind == "tool_use"} == {
        part.call for part in parts(events) if part.kind == "tool_result"
    }
    assert of(Said, events)[-1].end == REAL.stat().st_size
    assert not of(Forked, events) and not of(Warned, events)


SHARED = os.environ.get("CTXVC_TEST_DATA", "")
needs_shared = pytest.mark.skipif(not SHARED, reason="CTXVC_TEST_DATA does not name the folder of shared recordings")
PAIRS = [
    ("20-02395c1048-0.jsonl", "entire-cli-20-02395c1048-0"),
    ("48-b4b05476e5-0.jsonl", "entire-cli-48-b4b05476e5-0"),
    ("7e-c034df6095-2.jsonl", "entire-cli-7e-c034df6095-2"),
    ("86-9d11344fce-1.compacted.jsonl.gz", "entire-cli-86-9d11344fce-1"),
]


def told_by_another(path: Path) -> dict[str, list[Any]]:
    """What someone else's converter found in the same session, by kind of block."""
    found: dict[str, list[Any]] = {"text": [], "thinking": [], "tool_use": [], "tool_result": []}
    with gzip.open(path) as file:
        for message in [json.loads(one) for one in file][1:]:
            for block in message["content"]:
                match block["type"]:
                    case "text" | "thinking" as kind:
                        found[kind].append((message["role"], block[kind]))
                    case "tool_use":
                        found["tool_use"].append((block["id"], block["name"], block["input"]))
                    case "tool_result" if not block.get("synthetic"):
                        found["tool_result"].append(
                            (block["tool_use_id"], block["content"], bool(block.get("is_error")))
                        )
    found["tool_result"].sort()  # results recorded out of place were moved there
    return found


def told_by_us(path: Path) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {"text": [], "thinking": [], "tool_use": [], "tool_result": []}
    for event in claude_code.events(Recording(path)):
        told = event.summary if isinstance(event, Compacted) else [event.message] if isinstance(event, Said) else []
        for part in (part for message in told if not message.key.startswith("line:") for part in message.parts):
            block = block_of(part)
            match part.kind:
                case "user" | "assistant" if part.role == "user" or part.origin == "model":
                    found["text"].append((part.role, block["text"]))
                case "thinking":
                    found["thinking"].append((part.role, block["thinking"]))
                case "tool_use":
                    found["tool_use"].append((part.call, part.tool, block["input"]))
                case "tool_result":
                    found["tool_result"].append((part.call, block.get("content", []), part.error))
    found["tool_result"].sort()
    return found


@needs_shared
@pytest.mark.parametrize(("original", "converted"), PAIRS)
def test_another_converter_found_the_same_in_real_sessions(original: str, converted: str) -> None:
    ours = told_by_us(Path(SHARED) / "transcripts" / "claude-code" / original)
    theirs = told_by_another(Path(SHARED) / "trajectories" / f"{converted}.jsonl.gz")

    assert ours == theirs
