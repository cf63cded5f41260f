"""Rewinds and other attempts, and what only looks like one."""

from __future__ import annotations

from typing import Any

import pytest

from ctxvc.core.recording.events import Compacted, Forked, Opened, Said, Warned
from tests.importers.claude_code.lines import (
    NO_FORKS,
    TWO_TURNS,
    Line,
    between,
    compacted,
    forks,
    of,
    prompt,
    reply,
    text,
)
from tests.making.events import messages


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
