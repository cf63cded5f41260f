"""Two runs use by use, cut points, and the hard set."""

from __future__ import annotations

import pytest

from ctxvc.replay.experiments.no_impact import hard_set, tool_pressure
from ctxvc.replay.measures.anchors import NONE
from ctxvc.replay.measures.cut_points import cut_point, cut_points
from ctxvc.replay.measures.retention import UNMEASURED, Counts, Gauge, Lookup
from ctxvc.replay.measures.transitions import Difference, Transitions, differences, transitions
from ctxvc.replay.measures.uses import uses
from tests.making.conversation import human
from tests.replay.login import LINE, PATH, SIZES, conversation, everything, login, nothing, reply

LOGIN = login()
USES = uses(LOGIN, NONE)
LOOKUP = Lookup(LOGIN, USES)


def test_transitions_between_two_runs() -> None:
    """A shows the call, and with it the path; B shows the result, and with it the four others."""
    a, b = Gauge(LOOKUP), Gauge(LOOKUP)
    for gauge, block in ((a, 2), (b, 3)):
        gauge.add(nothing(0, complete=[0]))
        gauge.add(nothing(6, complete=[block]))
    at_risk = [place for place, use in enumerate(USES) if use.ar]

    assert transitions(a.outcomes, b.outcomes) == Transitions(both=1, only_a=1, only_b=4)
    assert transitions(a.outcomes, b.outcomes, at_risk) == Transitions(only_b=4)
    assert transitions(a.outcomes, b.outcomes, outcome="recoverable") == Transitions(both=6)
    assert differences(LOGIN, USES, a.outcomes, b.outcomes) == (
        Difference(
            conversation="by hand",
            block=3,
            label=f"tool_result Read {PATH}",
            only_a=0,
            only_b=4,
            anchors=("48213", "compare_digest", "user.token", LINE),
            calls=(6,),
        ),
        Difference("by hand", 2, f"tool_use Read {PATH}", 1, 0, (PATH,), (6,)),
    )
    assert Transitions(1, 2, 3, 4) + Transitions(1, 1, 1, 1) == Transitions(2, 3, 4, 5)


def test_uses_that_one_run_did_not_measure_are_left_out() -> None:
    assert transitions(bytes([0, UNMEASURED, 3]), bytes([1, 0, 0])) == Transitions(only_a=1, only_b=1)


def test_outcomes_of_two_conversations_do_not_compare() -> None:
    with pytest.raises(ValueError, match="not of the same conversation"):
        transitions(b"\0", b"\0\0")


def test_a_plan_is_judged_by_what_the_future_uses_of_what_it_took() -> None:
    """At call 4 B3 leaves, and all that the edit needs with it; the path stays in the call."""
    before = everything(LOGIN, 4)
    after = nothing(4, complete=before.complete - {3}, tokens=600)

    point = cut_point(LOOKUP, before, after)

    assert point.prune == pytest.approx(0.4)
    assert point.dependencies == Counts(visible=1, recoverable=4)
    assert [USES[place].anchor for place in point.misses] == ["48213", "compare_digest", "user.token", LINE]
    assert point.losses == {"evidence": 3, "verbatim": 1}
    assert point.kinds == {"number": 1, "identifier": 2, "line": 1}
    assert not point.no_impact
    assert cut_point(LOOKUP, before, after, horizon=2).no_impact  # calls 4 and 5
    assert cut_point(LOOKUP, after, after).dependencies == Counts(visible=1)  # what was gone before is not its doing
    assert cut_point(LOOKUP, before, before).no_impact


def test_what_comes_in_again_after_the_cut_does_not_depend_on_it() -> None:
    own = conversation(
        ([human("saveAll")], reply("ok")),
        ([human("on")], reply("ok")),
        ([human("it is saveAll")], reply("call saveAll")),
    )
    lookup = Lookup(own, uses(own, NONE))

    assert cut_point(lookup, everything(own, 1), nothing(1)).dependencies == Counts()


def test_the_papers_figures_are_over_plans_that_save_enough() -> None:
    before = everything(LOGIN, 4)
    points = [
        cut_point(LOOKUP, before, nothing(4, complete=before.complete - gone, tokens=tokens))
        for gone, tokens in (({3}, 600), ({5, 7}, 500), ({0}, 900))
    ]

    figures = cut_points(points)

    assert figures is not None
    assert (figures.plans, figures.prune, figures.no_impact) == (2, pytest.approx(0.45), 0.5)
    assert cut_points(points, saving=0.7) is None


def test_tool_pressure_is_what_stands_in_half_of_the_prompts() -> None:
    """The prompts of calls 0 to 6 have 0, 50, 56, 62, 68, 74 and 80 tokens of calls and results."""
    assert tool_pressure(LOGIN, SIZES) == 62


def test_the_hard_set_is_the_tenth_under_most_pressure() -> None:
    pressures = {f"s{number:03}": number % 300 for number in range(332)}

    assert len(hard_set(pressures)) == 33
    assert hard_set(pressures)[:2] == ("s299", "s298")
    assert hard_set({"a": 1, "b": 1}) == ("a",)
    assert hard_set({}) == ()
