"""What a compaction costs: a host's summary against a prompt that is kept, in the prices of the provider's cache."""

from __future__ import annotations

import pytest

from ctxvc.core.plan.payoff import LEAST, beside_summary, break_even, lossless, summarised, target
from ctxvc.core.plan.timing import USUAL


@pytest.mark.parametrize("cold", [False, True])
def test_the_break_even_is_the_largest_prompt_that_costs_no_more_than_the_summary(cold: bool) -> None:
    size = break_even(200_000, cold=cold)
    assert lossless(size) <= summarised(200_000, cold=cold) < lossless(size + 1)


def test_a_summary_of_what_is_in_no_cache_costs_the_price_of_writing_it() -> None:
    more = summarised(100_000, cold=True) - summarised(100_000)
    assert more == pytest.approx(100_000 * (USUAL.write_price - USUAL.read_price))


def test_what_a_summary_leaves_decides_what_a_kept_prompt_costs_beside_it() -> None:
    assert beside_summary(200_000, break_even(200_000), 150_000) == pytest.approx(1, abs=0.001)
    # 10,000 of 40,000 tokens are the host's own, and a summary of 3,000 stands for the rest
    assert beside_summary(40_000, 13_000, 30_000) < 1 < beside_summary(40_000, 20_000, 30_000)
    assert target(LEAST) == break_even(LEAST)
    assert target(LEAST - 1) < 0.7 * LEAST
