"""Rewinds and other attempts, and what only looks like one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ctxvc.core.ledger import name_rules
from ctxvc.core.recording.events import Compacted, Event, Forked, Opened, Said, Warned
from ctxvc.importers import claude_code
from ctxvc.importers.file import Recording
from tests.importers.claude_code.lines import (
    NO_FORKS,
    SESSION,
    TWO_TURNS,
    Line,
    between,
    call,
    compacted,
    forks,
    of,
    prompt,
    reply,
    result,
    side,
    text,
    written,
)
from tests.making.events import messages, parts


def test_a_prompt_that_hangs_from_an_earlier_turn_is_a_rewind(parsed: Any) -> None:
    events = parsed(*TWO_TURNS, prompt("u3", "s1", "second, better"), reply("a4", "u3", text("two")))

    assert forks(events) == [("a1", "u3")]


def test_a_prompt_without_a_parent_is_a_rewind_to_the_start(parsed: Any) -> None:
    assert forks(parsed(*TWO_TURNS, prompt("u3", None, "first, better"))) == [("", "u3")]


def test_the_start_may_stand_behind_a_hook(parsed: Any) -> None:
    hook = between("progress", "p1", None, data={"type": "hook_progress"})
    events = parsed(hook, prompt("u1", "p1", "first"), reply("a1", "u1", text("one")), prompt("u2", "p1", "better"))

    assert forks(events) == [("", "u2")]


def test_a_prompt_that_was_taken_back_before_the_reply_is_a_fork(parsed: Any) -> None:
    events = parsed(*TWO_TURNS, prompt("u3", "a3", "oops"), prompt("u4", "a3", "this"), reply("a4", "u4", text("x")))

    assert forks(events) == [("a3", "u4")]


def test_another_attempt_at_a_reply_is_a_fork(parsed: Any) -> None:
    assert forks(parsed(*TWO_TURNS, reply("a4", "r2", text("again")))) == [("r2", "a4")]


def test_a_slash_command_after_a_rewind_is_where_the_fork_is(parsed: Any) -> None:
    caveat = prompt("u3", "a1", "<local-command-caveat>Caveat</local-command-caveat>", isMeta=True)
    command = prompt("u4", "u3", "<command-name>/model</command-name>")

    assert forks(parsed(*TWO_TURNS, caveat, command, prompt("u5", "u4", "go"))) == [("a1", "u3")]


def test_a_fork_closes_the_branch_that_it_leaves(parsed: Any) -> None:
    caveat = prompt("u3", "a1", "<local-command-caveat>Caveat</local-command-caveat>", isMeta=True)

    assert forks(parsed(*TWO_TURNS, caveat, prompt("u4", "a3", "back"))) == [("a1", "u3"), ("a3", "u4")]


def test_what_hangs_from_an_attachment_is_judged_by_what_that_hangs_from(parsed: Any) -> None:
    stray = between("attachment", "x1", "a1", attachment={"type": "hook"}, rendered=[{"content": "late"}])

    assert forks(parsed(*TWO_TURNS, stray, prompt("u3", "x1", "other"))) == [("a1", "u3")]


def test_a_segment_that_the_host_kept_does_not_hold_an_abandoned_branch(parsed: Any) -> None:
    metadata = {"preservedSegment": {"headUuid": "u1", "tailUuid": "a4"}}
    events = parsed(*TWO_TURNS, prompt("u3", "a1", "other"), reply("a4", "u3", text("x")), *compacted(metadata))

    assert of(Compacted, events)[0].kept == {"u1", "a1", "u3", "a4"}


def test_an_abandoned_branch_can_be_taken_up_again(parsed: Any) -> None:
    events = parsed(*TWO_TURNS, prompt("u3", "a1", "other"), reply("a4", "u3", text("x")), prompt("u5", "a3", "back"))

    assert forks(events) == [("a1", "u3"), ("a3", "u5")]


@pytest.mark.parametrize("lines", NO_FORKS.values(), ids=NO_FORKS.keys())
def test_what_looks_like_a_fork_and_is_none(parsed: Any, lines: list[Line]) -> None:
    events = parsed(*TWO_TURNS, *lines)

    assert not of(Forked, events)
    assert {message.key for message in messages(events)} >= {one["uuid"] for one in lines if "message" in one}


# --- the host's own compactions


def test_a_compaction_drops_everything_for_a_summary_of_the_clients(parsed: Any) -> None:
    metadata = {"trigger": "auto", "preTokens": 171646, "extra": {"not": "a number"}}
    events = parsed(*TWO_TURNS, *compacted(metadata), reply("b1", "c2", text("on")), prompt("u3", "a3", "x"))

    (event,) = of(Compacted, events)
    (summary,) = event.summary
    assert (summary.key, summary.parts[0].origin, summary.parts[0].body[:12]) == ("c2", "client", b"This session")
    assert (event.kept, event.before, event.detail) == (frozenset(), "", {"trigger": "auto", "preTokens": 171646})
    assert "c2" not in [message.key for message in messages(events)]
    assert [type(one) for one in events[-4:]] == [Compacted, Said, Forked, Said]


def test_what_follows_a_compaction_may_hang_from_the_end_before_it_or_from_what_was_kept(parsed: Any) -> None:
    keep_first = compacted({"preservedMessages": {"uuids": ["u1", "a1"]}})

    assert not forks(parsed(*TWO_TURNS, *compacted(), prompt("u3", "a3", "x")))
    assert not forks(parsed(*TWO_TURNS, *keep_first, prompt("u3", "a1", "x")))
    assert forks(parsed(*TWO_TURNS, *keep_first, prompt("u3", "u2", "x"))) == [("u2", "u3")]


@pytest.mark.parametrize(
    ("metadata", "kept"),
    [
        ({"preservedMessages": {"uuids": ["a3", "r2", "s1", "nobody", 7]}}, {"r2", "a3"}),
        ({"preservedSegment": {"headUuid": "a2", "tailUuid": "a3"}}, {"a2", "r2", "a3"}),
        ({"preservedSegment": {"headUuid": "s1", "tailUuid": "r2"}}, {"u2", "a2", "r2"}),
        ({"preservedSegment": {"headUuid": "a3", "tailUuid": "a2"}}, set()),
        ({"preservedSegment": {"headUuid": "nobody", "tailUuid": "a3"}}, set()),
        ({"preservedSegment": {"headUuid": ["u1"], "tailUuid": None}}, set()),
        ({"preservedMessages": "all"}, set()),
    ],
)
def test_messages_that_the_host_kept_stand_behind_the_summary(parsed: Any, metadata: Line, kept: set[str]) -> None:
    (event,) = of(Compacted, parsed(*TWO_TURNS, *compacted(metadata)))

    order = [one["uuid"] for one in TWO_TURNS]
    assert event.kept == kept
    assert event.before == (min(kept, key=order.index) if kept else "")


def test_what_stands_between_a_boundary_and_its_summary_is_kept(parsed: Any) -> None:
    boundary, summary = compacted()
    plan = between("attachment", "x1", "c1", attachment={"type": "plan"}, rendered=[{"content": "the plan"}])
    typed = between("attachment", "x2", "x1", attachment={"type": "queued_command", "prompt": "and the tests"})

    (event,) = of(Compacted, parsed(*TWO_TURNS, boundary, plan, typed, summary))

    assert (event.kept, event.before) == ({"x1", "x2"}, "x1")


def test_a_boundary_without_a_summary_drops_what_stood_before_it(parsed: Any) -> None:
    events = parsed(*TWO_TURNS, compacted()[0], prompt("u3", "c1", "go on"))

    dropped, said = events[-2:]
    assert isinstance(dropped, Compacted) and isinstance(said, Said)
    assert (dropped.summary, dropped.kept) == ((), frozenset())
    assert events[-3].end < dropped.end < said.end


def test_boundaries_at_the_very_beginning_do_not_come_before_the_opening(parsed: Any) -> None:
    boundary = compacted()[0]

    assert [type(event) for event in parsed(boundary, boundary)] == [Opened, Compacted]


def test_a_summary_without_a_boundary_is_a_compaction_too(parsed: Any) -> None:
    (event,) = of(Compacted, parsed(compacted()[1], reply("a1", "c2", text("on"))))

    assert event.summary[0].key == "c2"


def test_cleared_results_are_warned_of(parsed: Any) -> None:
    (warning,) = of(Warned, parsed(*TWO_TURNS, between("system", "m1", "a3", subtype="microcompact_boundary")))

    assert (warning.line, "cleared" in warning.text) == (8, True)


# --- sub-agents: lines of the session, or files of their own


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


def test_sub_agents_with_files_of_their_own_come_after_the_session(tmp_path: Path) -> None:
    result_of = result("r1", "a1", "t1") | {"toolUseResult": {"status": "completed", "agentId": "b22"}}
    path = session(tmp_path, prompt("u1", None, "look"), reply("a1", "u1", call("t1", "Agent", prompt="!")), result_of)
    first = agent_file(
        tmp_path, "b22", side("c1", None, agent="b22", words="x"), side("c2", "c1", agent="b22", answer="y")
    )
    lines = [side("d1", None, agent="b33", words="z")]
    second = agent_file(tmp_path, "workflows/w1/b33", *lines, note={"toolUseId": "t9"})
    agent_file(tmp_path, "acompact-b44", side("e1", None, agent="acompact-b44", words="sum it up"))

    events = list(claude_code.events(Recording(path)))

    assert claude_code.beside(path) == [first, second]
    assert [message.key for message in messages(events)] == ["u1", "a1", "r1", "c1", "c2", "d1"]
    assert scopes(events) == [("c1", "agent-b22", "t1"), ("c2", "agent-b22", "t1"), ("d1", "agent-b33", "t9")]
    assert {event.end for event in of(Said, events)[2:]} == {path.stat().st_size}


def test_progress_tells_early_which_call_started_a_sub_agent(tmp_path: Path) -> None:
    progress = between("progress", "p1", "a1", data={"agentId": "b22"}, parentToolUseID="t1")
    path = session(tmp_path, reply("a1", None, call("t1", "Agent", prompt="!")), progress)
    agent_file(tmp_path, "b22", side("c1", None, agent="b22", words="x"))

    assert scopes(list(claude_code.events(Recording(path)))) == [("c1", "agent-b22", "t1")]


def test_two_sub_agents_with_one_task_have_a_call_each(parsed: Any) -> None:
    twice = [call("t1", "Task", prompt="look"), call("t2", "Task", prompt="look")]

    events = parsed(reply("a1", None, *twice), side("c1", None, words="look"), side("d1", None, words="look"))

    assert scopes(events) == [("c1", "agent-c1", "t1"), ("d1", "agent-d1", "t2")]


def test_a_sub_agents_file_says_nothing_of_the_session(tmp_path: Path) -> None:
    path = session(tmp_path, prompt("u1", None, "look"))
    boundary = between("system", "c2", None, subtype="compact_boundary")
    agent_file(tmp_path, "b22", side("c1", None, agent="b22", words="x"), boundary, side("c3", "c2", answer="y"))

    events = list(claude_code.events(Recording(path)))

    assert len(of(Opened, events)) == 1
    assert [(event.scope, event.end) for event in of(Compacted, events)] == [("agent-b22", path.stat().st_size)]


def test_a_sub_agents_file_can_be_read_for_itself(tmp_path: Path) -> None:
    lines = side("c1", None, agent="b22", words="x"), side("c2", "c1", agent="b22", answer="y")
    path = agent_file(tmp_path, "b22", *lines, note={"toolUseId": "t1"})

    events = list(claude_code.own_events(Recording(path)))

    assert of(Opened, events)[0].source == SESSION
    assert scopes(events) == [("c1", "agent-b22", "t1"), ("c2", "agent-b22", "t1")]
    assert of(Said, events)[-1].end == path.stat().st_size


def test_what_the_session_told_of_a_sub_agent_is_not_told_again(tmp_path: Path) -> None:
    path = session(tmp_path, prompt("u1", None, "look"), side("c1", None, agent="b22", words="x"))
    agent_file(tmp_path, "b22", side("c1", None, agent="b22", words="x"), side("c2", "c1", agent="b22", answer="y"))

    assert [key for key, _, _ in scopes(list(claude_code.events(Recording(path))))] == ["c1", "c2"]


def test_sub_agents_of_older_versions_stand_in_the_same_folder(tmp_path: Path) -> None:
    path = session(tmp_path, prompt("u1", None, "look"))
    own = json.dumps(side("c1", None, agent="b22", words="x"), separators=(",", ":")).encode()
    mine = written(tmp_path / "agent-b22.jsonl", own)
    written(tmp_path / "agent-b33.jsonl", own.replace(SESSION.encode(), b"another"))
    (tmp_path / "agent-b44.jsonl").write_bytes(b"\x1f\x8b broken")

    assert claude_code.beside(path) == [mine]


def test_a_sub_agents_file_that_cannot_be_read_is_warned_of(tmp_path: Path) -> None:
    path = session(tmp_path, prompt("u1", None, "look"))
    agent_file(tmp_path, "b22").write_bytes(b"\x1f\x8b broken")
    agent_file(tmp_path, "b33", side("c1", None, agent="b33", words="x"), b"{oops")

    broken, cut = of(Warned, list(claude_code.events(Recording(path))))

    assert "agent-b22.jsonl" in broken.text
    assert ("agent-b33.jsonl" in cut.text, cut.line) == (True, 2)
