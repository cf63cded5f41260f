"""Sub-agents: lines of the session, or files of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ctxvc.core.ledger import name_rules
from ctxvc.core.recording.events import Compacted, Event, Opened, Said
from ctxvc.importers import claude_code
from ctxvc.importers.file import Recording
from tests.importers.claude_code.lines import SESSION, Line, between, call, of, prompt, reply, result, side, written
from tests.making.events import parts


def scopes(events: list[Event]) -> list[tuple[str, str, str]]:
    return [(event.message.key, event.scope, event.task) for event in of(Said, events) if event.scope]


def test_sub_agents_among_the_sessions_lines_are_scopes_named_by_their_first_line(parsed: Any) -> None:
    events = parsed(
        prompt("u1", None, "look"),
        reply("a1", "u1", call("t1", "Task", prompt="look here"), id="m"),
        reply("a2", "a1", call("t2", "Task", prompt="look there"), id="m"),
        side("CAFE0001-0000", None, words="look there"),
        side("cafe0002-0000", None, words="look here"),
        side("d1", "CAFE0001-0000", answer="nothing there"),
        between("progress", "d2", "cafe0002-0000", isSidechain=True),
        side("d3", "d2", answer="found it"),
        result("r1", "a1", "t1"),
    )

    assert scopes(events) == [
        ("CAFE0001-0000", "agent-cafe0001", "t2"),
        ("cafe0002-0000", "agent-cafe0002", "t1"),
        ("d1", "agent-cafe0001", "t2"),
        ("d3", "agent-cafe0002", "t1"),
    ]
    assert [part.origin for part in parts(events)][3:7] == ["model", "model", "model", "model"]
    assert all(not name_rules.problem(scope) for _, scope, _ in scopes(events))


def session(folder: Path, *lines: Line) -> Path:
    return written(folder / f"{SESSION}.jsonl", *lines)


def agent_file(folder: Path, agent: str, *lines: Line | bytes, note: Line | None = None) -> Path:
    inner, _, name = agent.rpartition("/")
    path = written(folder / SESSION / "subagents" / inner / f"agent-{name}.jsonl", *lines)
    if note is not None:
        path.with_suffix(".meta.json").write_text(json.dumps(note))
    return path


def test_sub_agents_with_files_of_their_own_are_beside_the_session(tmp_path: Path) -> None:
    path = session(tmp_path, prompt("u1", None, "look"), reply("a1", "u1", call("t1", "Agent", prompt="!")))
    first = agent_file(tmp_path, "b22", side("c1", None, agent="b22", words="x"))
    second = agent_file(tmp_path, "workflows/w1/b33", side("d1", None, agent="b33", words="z"))
    agent_file(tmp_path, "acompact-b44", side("e1", None, agent="acompact-b44", words="sum it up"))

    assert claude_code.beside(path) == [first, second]


@pytest.mark.parametrize(
    "link",
    [
        between("progress", "p1", "a1", data={"agentId": "b22"}, parentToolUseID="t1"),
        result("r1", "a1", "t1") | {"toolUseResult": {"status": "completed", "agentId": "b22"}},
    ],
    ids=["progress", "result"],
)
def test_a_line_names_the_call_that_started_a_sub_agent(parsed: Any, link: Line) -> None:
    start = reply("a1", None, call("t1", "Agent", prompt="!"))

    events = parsed(start, link, side("c1", None, agent="b22", words="x"))

    assert scopes(events) == [("c1", "agent-b22", "t1")]


def test_two_sub_agents_with_one_task_have_a_call_each(parsed: Any) -> None:
    twice = [call("t1", "Task", prompt="look"), call("t2", "Task", prompt="look")]

    events = parsed(reply("a1", None, *twice), side("c1", None, words="look"), side("d1", None, words="look"))

    assert scopes(events) == [("c1", "agent-c1", "t1"), ("d1", "agent-d1", "t2")]


def test_a_compaction_in_a_sub_agents_file_is_of_its_scope(tmp_path: Path) -> None:
    boundary = between("system", "c2", None, subtype="compact_boundary")
    path = agent_file(tmp_path, "b22", side("c1", None, agent="b22", words="x"), boundary, side("c3", "c2", answer="y"))
    last = len(path.read_bytes().splitlines(keepends=True)[-1])

    (compaction,) = of(Compacted, list(claude_code.events(Recording(path))))

    assert (compaction.scope, compaction.end) == ("agent-b22", path.stat().st_size - last)


def test_a_sub_agents_file_is_a_recording(tmp_path: Path) -> None:
    lines = side("c1", None, agent="b22", words="x"), side("c2", "c1", agent="b22", answer="y")
    path = agent_file(tmp_path, "b22", *lines, note={"toolUseId": "t1"})

    events = list(claude_code.events(Recording(path)))

    assert of(Opened, events)[0].source == SESSION
    assert scopes(events) == [("c1", "agent-b22", "t1"), ("c2", "agent-b22", "t1")]
    assert of(Said, events)[-1].end == path.stat().st_size


def test_sub_agents_of_older_versions_stand_in_the_same_folder(tmp_path: Path) -> None:
    path = session(tmp_path, prompt("u1", None, "look"))
    own = json.dumps(side("c1", None, agent="b22", words="x"), separators=(",", ":")).encode()
    mine = written(tmp_path / "agent-b22.jsonl", own)
    written(tmp_path / "agent-b33.jsonl", own.replace(SESSION.encode(), b"another"))
    (tmp_path / "agent-b44.jsonl").write_bytes(b"\x1f\x8b broken")

    assert claude_code.beside(path) == [mine]
