"""Which policy and which budget to take, by what their replays measured."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ctxvc.replay.results.result import foresees
from ctxvc.replay.results.totals import Totals

#: The share of all uses that should be visible.
ENOUGH = 0.95


class Advice(msgspec.Struct, frozen=True):
    """A choice, and the candidate that keeps most visible.

    `enough` says whether the choice keeps enough; where none does, it is the one that keeps most.
    """

    choice: Totals
    fullest: Totals
    enough: bool


def advice(candidates: Iterable[Totals]) -> Advice | None:
    """The cheapest of the candidates that keep enough visible, recoveries of the rest included in the price.

    One that sends a prompt over its budget, or cannot make one, is taken only where all do. The oracle is no candidate.
    None if nothing was used again, so that there is nothing to judge by.
    """
    policies = (one for one in candidates if one.retention.all.total and not foresees(one.policy))
    judged = sorted(policies, key=rank)
    if not judged:
        return None
    fullest = max(judged, key=lambda candidate: (not _unsent(candidate), visible(candidate)))
    return Advice(judged[0], fullest, visible(judged[0]) >= ENOUGH)


def rank(candidate: Totals) -> tuple[bool, bool, float, int, str]:
    """Sorts the best first: what sends each call, then what keeps enough; then the cheaper, or the fuller."""
    share, price = visible(candidate), candidate.cost.relative_with_demand
    return (
        _unsent(candidate) > 0,
        share < ENOUGH,
        price if share >= ENOUGH else -share,
        candidate.budget,
        candidate.policy,
    )


def visible(candidate: Totals) -> float:
    """The share of all uses that are visible; 1 if there are none."""
    share = candidate.share("all", "visible")
    return 1.0 if share is None else share


def _unsent(candidate: Totals) -> int:
    return candidate.over + candidate.failed + candidate.invalid
