"""What a compaction costs: a host's summary against a prompt that is kept, in the prices of the provider's cache."""

from __future__ import annotations

import pytest

from ctxvc.core.plan.payoff import break_even, lossless, summarised
from ctxvc.core.plan.timing import USUAL


@pytest.mark.parametrize("cold", [False, True])
def test_the_break_even_is_the_largest_prompt_that_costs_no_more_than_the_summary(cold: bool) -> None:
    size = break_even(200_000, cold=cold)

    assert lossless(size) <= summarised(200_000, cold=cold) < lossless(size + 1)


def test_a_summary_of_what_is_in_no_cache_costs_the_price_of_writing_it() -> None:
    more = summarised(100_000, cold=True) - summarised(100_000)

    assert more == pytest.approx(100_000 * (USUAL.write_price - USUAL.read_price))
