"""The host's own compactions."""

from __future__ import annotations

from typing import Any

import pytest

from ctxvc.core.recording.events import Compacted, Forked, Opened, Said, Warned
from tests.importers.claude_code.lines import TWO_TURNS, Line, between, compacted, forks, of, prompt, reply, text
from tests.making.events import messages


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
