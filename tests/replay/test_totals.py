"""Results added up, by hand on paper."""

from __future__ import annotations

import pytest

from ctxvc.replay.measures.retention import Counts, Split, wilson
from ctxvc.replay.results.result import Cost, Tokens, Visible
from ctxvc.replay.results.totals import totals
from tests.replay.test_results_file import result


def test_a_large_conversation_counts_more_in_the_micro_average_and_as_much_in_the_macro_average() -> None:
    large = Split(nt=Counts(visible=10, routed=20, lost=70))
    small = Split(nt=Counts(visible=2))
    (total,) = totals(
        [
            result(conversation="large", retention=large, oracle=Visible(nt=40), belady=Visible(nt=20)),
            result(conversation="small", retention=small, oracle=Visible(nt=2), belady=Visible(nt=1)),
            result(conversation="without uses"),
        ]
    )

    assert total.conversations == 3
    assert total.share("nt", "visible") == pytest.approx(12 / 102)
    assert total.share("nt", "visible", "routed") == pytest.approx(32 / 102)
    assert total.of_oracle("nt") == pytest.approx(12 / 42)
    assert total.interval("nt") == wilson(12, 102)
    assert total.macro["nt"] == pytest.approx({"visible": 0.55, "routed": 0.1, "oracle": 0.7, "belady": 0.35})
    assert total.share("ar", "visible") is None
    assert total.of_oracle("ar") is None
    assert total.macro["ar"] == {}


def test_costs_add_up_before_they_are_compared_with_keep() -> None:
    (total,) = totals(
        [
            result(cost=Cost(prompts=10.0, keep=100.0, planner=5.0, demand=20.0), calls=30, prefix_breaks=3),
            result(cost=Cost(prompts=100.0, keep=100.0, recovery=5.0), calls=70, prefix_breaks=1),
        ]
    )

    assert total.cost.relative == pytest.approx(0.6)
    assert total.cost.relative_with_demand == pytest.approx(0.7)
    assert total.breaks_per_100_calls == pytest.approx(4.0)


def test_the_peak_is_the_largest_and_tokens_are_sums() -> None:
    (total,) = totals(
        [result(tokens=Tokens(peak=9, total=20, keep=40)), result(tokens=Tokens(peak=30, total=30, keep=60))]
    )

    assert total.tokens == Tokens(peak=30, total=50, keep=100)
    assert total.tokens.prune_rate == pytest.approx(0.5)


def test_nothing_to_count_is_no_division_by_zero() -> None:
    (total,) = totals([result()])

    assert (total.cost.relative, total.tokens.prune_rate, total.breaks_per_100_calls) == (1.0, 0.0, 0.0)
    assert totals([]) == []


def test_policies_and_budgets_come_in_the_order_of_the_results() -> None:
    made = [result(policy, budget) for policy in ("window", "keep") for budget in (8_000, 80_000)] * 2

    assert [(total.policy, total.budget, total.conversations) for total in totals(made)] == [
        ("window", 8_000, 2),
        ("window", 80_000, 2),
        ("keep", 8_000, 2),
        ("keep", 80_000, 2),
    ]
