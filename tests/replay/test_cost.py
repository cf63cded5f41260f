"""Cost, on paper: prompts of four pieces, and recoveries in the conversation of `login`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.replay.measures.anchors import NONE
from ctxvc.replay.measures.cost import CacheSimulation, DemandRecovery, shared_prefix
from ctxvc.replay.measures.retention import Counts, Gauge, Lookup, Split, wilson
from ctxvc.replay.measures.uses import uses
from ctxvc.replay.results.result import Cost, Tokens, Visible
from ctxvc.replay.results.totals import totals
from tests.replay.login import SIZES, everything, login, nothing
from tests.replay.test_results_file import result


def test_what_is_shared_is_read_and_what_is_new_is_written() -> None:
    """100 × 1.25; 100 × .1 + 50 × 1.25; 100 × .1 + 30 × 1.25; 150 and 100 × 1.25 as the cache was 301 s old."""
    cache = CacheSimulation()

    read = [
        cache.send(("a",), (100,), 0),
        cache.send(("a", "b"), (100, 50), 60),
        cache.send(("a", "c"), (100, 30), 360),
        cache.send(("a", "c", "d"), (100, 30, 20), 661),
        cache.send(("b",), (100,), 962),
    ]

    assert read == [0, 100, 100, 0, 0]
    assert cache.cost().prompts == pytest.approx(125 + 72.5 + 47.5 + 187.5 + 125)
    assert cache.breaks == 1  # the last is another prompt, but there was nothing left to break


def test_a_prompt_that_only_lost_its_end_broke() -> None:
    cache = CacheSimulation()
    cache.send(("a", "b"), (100, 50))

    assert (cache.send(("a",), (100,)), cache.breaks) == (100, 1)


def test_without_times_nothing_expires() -> None:
    cache = CacheSimulation()
    cache.send(("a",), (100,), 0)
    cache.send(("a",), (100,))

    assert cache.send(("a",), (100,), 300) == 100


def test_other_calls_stand_apart_and_in_the_total() -> None:
    cache = CacheSimulation()
    cache.send(("a",), (80,))

    assert cache.ask("planner", cached=1_000, fresh=20, output=10) == pytest.approx(100 + 20 + 50)
    cache.ask("summariser", fresh=30)
    cache.ask("recovery", written=8)

    cost = cache.cost()
    assert (cost.prompts, cost.planner, cost.summariser, cost.recovery) == (100, pytest.approx(170), 30, 10)
    assert cost.total == pytest.approx(310)


@given(st.lists(st.integers(0, 2)), st.lists(st.integers(0, 2)), st.lists(st.integers(0, 2)))
def test_the_shared_prefix_is_the_longest(start: list[int], one: list[int], other: list[int]) -> None:
    before, after = tuple(start + one), tuple(start + other)
    pairs = list(zip(before, after, strict=False))
    expected = next((at for at, (a, b) in enumerate(pairs) if a != b), len(pairs))

    assert shared_prefix(before, after) == expected


def test_a_block_is_recovered_once_for_all_its_uses() -> None:
    """At call 6 without a block: B3 (40 tokens) for 48213 and the rest, B2 (10) for the path; each over 400 tokens."""
    conversation = login()
    own = uses(conversation, NONE)
    lookup = Lookup(conversation, own)
    demand = DemandRecovery(own, SIZES)

    prompt = nothing(6)
    demand.add(prompt, range(1, 6), Gauge(lookup).add(prompt))

    assert demand.calls == 2
    assert demand.cost == pytest.approx(40 * 1.25 + 10 * 1.25 + 2 * 400 * 0.1)


def test_a_run_that_shows_everything_recovers_nothing_and_one_without_a_way_back_cannot() -> None:
    conversation = login()
    own = uses(conversation, NONE)
    lookup = Lookup(conversation, own)
    shown, lost = DemandRecovery(own, SIZES), DemandRecovery(own, SIZES)

    prompt = everything(conversation, 6)
    shown.add(prompt, range(1, 6), Gauge(lookup).add(prompt))
    lost.add(nothing(6), range(1, 6), Gauge(lookup, archive=False).add(nothing(6)))

    assert (shown.calls, shown.cost) == (0, 0)
    assert (lost.calls, lost.cost) == (0, 0)


@pytest.mark.parametrize(("later", "calls"), [(19, 1), (20, 2)])
def test_a_block_is_recovered_again_after_twenty_steps(later: int, calls: int) -> None:
    own = uses(login(), NONE)
    demand = DemandRecovery(own, SIZES)
    for call in (0, later):
        demand.add(nothing(call), [1], bytes([3]))

    assert demand.calls == calls


# --- results added up, by hand on paper


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
