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
    between,
    compacted,
    of,
    prompt,
    queue,
    reply,
    text,
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


# --- how transcripts are known, and where they lie


def test_a_transcript_is_known_by_its_first_lines() -> None:
    snapshot = {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}}
    long = json.dumps(prompt("u1", None, "x" * 100_000), separators=(",", ":")).encode()

    assert claude_code.sniff(REAL.read_bytes()[:65536])
    assert claude_code.sniff(json.dumps(snapshot).encode())
    assert claude_code.sniff(json.dumps(queue("enqueue", "x")).encode() + b"\n")
    assert claude_code.sniff(long[:65536])


def test_the_folder_of_a_project_is_its_path_with_dashes(tmp_path: Path) -> None:
    projects = tmp_path / ".claude" / "projects"

    assert claude_code.folders(Path("/home/me/my_app\U0001f600"), tmp_path, {}) == [projects / "-home-me-my-app--"]


def test_the_environment_can_move_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "config" / "projects" / "mine"
    env = {"CLAUDE_CONFIG_DIR": str(tmp_path / "config"), "CLAUDE_CODE_PROJECT_DIR_NAME": "mine"}

    assert claude_code.folders(Path("/anywhere"), Path("/nobody"), env) == [folder]


@pytest.mark.parametrize(
    ("cwd", "is_of"),
    [("/work/app", True), ("/work/app/inner", True), ("/work-app", False), ("/work/app2", False), (None, True)],
)
def test_sessions_of_two_projects_in_one_folder_are_told_apart(cwd: str | None, is_of: bool) -> None:
    head = json.dumps(prompt("u1", None, 'say "cwd":"/elsewhere"', **({"cwd": cwd} if cwd else {})))

    assert claude_code.is_of_project((head if cwd else '{"type":"mode"}').encode(), "/work/app") is is_of


def test_of_a_very_long_path_every_folder_that_begins_like_it_is_found(tmp_path: Path) -> None:
    project = Path("/" + "x" * 300)
    found = tmp_path / ".claude" / "projects" / f"-{'x' * 199}-1a2b3c"
    found.mkdir(parents=True)
    (found.parent / f"-{'x' * 199}").mkdir()

    assert claude_code.folders(project, tmp_path, {}) == [found]


# --- lines that nobody can trust


def test_lines_that_cannot_be_read_are_named_and_the_rest_is_told(tmp_path: Path) -> None:
    path = written(
        tmp_path / "s.jsonl", prompt("u1", None, "hi"), b"[1, 2", b"[1, 2]", reply("a1", "u1", text("hello"))
    )
    with path.open("ab") as file:
        file.write(json.dumps(prompt("u2", "a1", "more")).encode()[:50])

    events = list(claude_code.events(Recording(path)))

    assert [message.key for message in messages(events)] == ["u1", "a1"]
    assert [warning.line for warning in of(Warned, events)] == [2, 3, 5]
    assert "cut short" in of(Warned, events)[-1].text


def test_a_line_of_the_conversation_without_a_message_is_warned_of(parsed: Any) -> None:
    broken = prompt("u1", None, "hi") | {"message": "hi"}

    assert [warning.line for warning in of(Warned, parsed(broken))] == [1]


def test_fields_of_unexpected_types_do_not_cost_the_message(parsed: Any) -> None:
    odd = prompt("u1", None, "hi", timestamp=12, isMeta="no", cwd=["/"], origin="me", attachment=3)
    odd["message"] |= {"usage": [], "id": 4}

    (message,) = messages(parsed(odd))

    assert (message.key, message.time, message.parts[0].body) == ("u1", "", b"hi")


@pytest.mark.parametrize(
    "broken",
    [
        prompt("u1", None, "cut \ud83d"),
        between("system", "u1", None, subtype="local_command", content="cut \ud83d"),
        between("attachment", "u1", None, attachment={"type": "queued_command", "prompt": "cut \ud83d"}),
        between("attachment", "u1", None, attachment={"type": "x"}, rendered=[{"content": "cut \ud83d"}]),
    ],
)
def test_half_of_a_surrogate_pair_comes_through(parsed: Any, broken: Line) -> None:
    (part,) = parts(parsed(broken))

    assert part.body.decode("utf-8", "surrogatepass") == "cut \ud83d"


def test_lines_second_beyond_reason_are_a_warning(parsed: Any) -> None:
    deep = b'{"type":"user","message":{"role":"user","content":' + b"[" * 100_000 + b"]" * 100_000 + b"}}"

    assert [warning.line for warning in of(Warned, parsed(deep))] == [1]
