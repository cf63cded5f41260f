"""The default policy: clearing in batches, the agent's own tools, scopes, and no planner."""

from __future__ import annotations

import pytest

from ctxvc.core.view.budget import Budget, Ladder
from ctxvc.policies import protocol, scoped, self_managed
from ctxvc.policies.default import Default
from ctxvc.policies.self_managed import SelfManaged
from tests.making.conversation import LONG, human, step, steps
from tests.policies.laws import settled
from tests.policies.recorded import running, states

POLICY = Default()


def test_above_clear_the_oldest_results_leave_down_to_the_low_water_mark() -> None:
    made = running(human("Do it"), *steps(20))
    assert not POLICY.propose(made.view(29_000)).actions
    tried = settled(POLICY, made, 28_000)
    assert tried.tokens_after <= 0.4 * 28_000 < tried.tokens_after + 900
    assert states(made.ledger) == ["archived"] * len(tried.rows) + ["visible"] * (20 - len(tried.rows))


def test_the_newest_six_results_stay_and_three_in_a_small_window() -> None:
    def kept(window: int, **knobs: int) -> int:
        made = running(human("words " * window), *steps(20))
        settled(Default(**knobs), made, window)  # type: ignore[arg-type]
        return states(made.ledger).count("visible")

    assert (kept(99_999), kept(100_000), kept(100_000, keep=2)) == (3, 6, 2)


def test_clear_is_the_budgets_own_threshold() -> None:
    made = running(human("Do it"), *steps(20))
    assert POLICY.propose(made.view(Budget(40_000, ladder=Ladder(clear=0.42)))).actions
    assert not POLICY.propose(made.view(Budget(40_000))).actions
    assert POLICY.propose(made.view(Budget(40_000, reserve=15_000))).actions


def test_errors_and_excluded_tools_are_not_cleared() -> None:
    made = running(human("Do it"), *step(1, LONG, error=True), *step(2, LONG, tool="record"), *steps(18, first=3))
    settled(Default(exclude=("record",)), made, 28_000)
    assert states(made.ledger)[:3] == ["visible", "visible", "archived"]


def test_a_batch_is_not_one_result_a_call() -> None:
    def clearings(policy: Default) -> int:
        made = running(human("words " * 9_000), *steps(6))
        count = 0
        for number in range(20, 50):
            count += bool(settled(policy, made, 16_000))
            made.append(*step(number, LONG[:1_000]))
        return count

    assert clearings(POLICY) < 12 < clearings(Default(least=0))


def test_it_asks_for_the_tools_of_both_with_one_text_that_repeats_nothing() -> None:
    terms = POLICY.terms()
    assert set(terms.tools) == {*self_managed.TOOLS, *scoped.TOOLS, "dashboard"}
    assert len(terms.tools) == len(set(terms.tools))
    told = terms.protocol.split("\n\n")
    assert len(told) == len(set(told))
    usual = SelfManaged(board="changes").terms().protocol.split("\n\n")
    assert {*usual, protocol.paragraph("leaving")} <= set(told)
    assert (terms.board, terms.handles, terms.ladder, terms.batch) == ("changes", True, {}, 0)


@pytest.mark.parametrize("made", [{"low_water": 2}, {"least": -1}, {"keep": -1}])
def test_a_knob_that_makes_no_sense_is_refused(made: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"is a (share of the budget|number)"):
        Default(**made)  # type: ignore[arg-type]
