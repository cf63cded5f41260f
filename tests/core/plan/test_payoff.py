"""What a compaction costs: a host's summary against a prompt that is kept, in the prices of the provider's cache."""

from __future__ import annotations

import pytest

from ctxvc.core.plan.payoff import LEAST, beside_summary, lossless, summarised, target


@pytest.mark.parametrize("before", [LEAST, 200_000])
def test_the_target_is_the_largest_prompt_that_costs_no_more_than_the_summary(before: int) -> None:
    assert lossless(target(before)) <= summarised(before) < lossless(target(before) + 1)


def test_what_a_summary_leaves_decides_what_a_kept_prompt_costs_beside_it() -> None:
    assert beside_summary(200_000, target(200_000), 150_000) == pytest.approx(1, abs=0.001)
    # 10,000 of 40,000 tokens are the host's own, and a summary of 3,000 stands for the rest
    assert beside_summary(40_000, 13_000, 30_000) < 1 < beside_summary(40_000, 20_000, 30_000)
    assert target(LEAST - 1) < 0.7 * LEAST
