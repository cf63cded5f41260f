"""Rewinds and other attempts, and what only looks like one."""

from __future__ import annotations

from typing import Any

import pytest

from ctxvc.core.recording.events import Compacted, Forked
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
