"""Which policy and which budget to take, by what their replays measured."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ctxvc.replay.totals import Totals

#: The share of the non-trivial uses that should be met in sight: visible, or led to by something visible.
ENOUGH = 0.9


class Advice(msgspec.Struct, frozen=True):
    """A choice. `enough` says whether it keeps enough in sight; where none does, it is the one that keeps most."""

    choice: Totals
    enough: bool


def advice(candidates: Iterable[Totals]) -> Advice | None:
    """The cheapest of the candidates that keep enough in sight, recoveries of the rest included in the price.

    One that sends a prompt over its budget, or cannot make one, is taken only where all do. None if nothing was used
    again, so that there is nothing to judge by.
    """
    counted = [candidate for candidate in candidates if candidate.retention.nt.total]
    sound = [candidate for candidate in counted if not (candidate.over or candidate.failed or candidate.invalid)]
    ranked = sorted(sound or counted, key=rank)
    return Advice(ranked[0], in_sight(ranked[0]) >= ENOUGH) if ranked else None


def rank(candidate: Totals) -> tuple[bool, float, int, str]:
    """The best first: enough in sight before too little, then the cheaper, or of those with too little the fuller."""
    share = in_sight(candidate)
    price = candidate.cost.relative_with_demand
    return share < ENOUGH, price if share >= ENOUGH else -share, candidate.budget, candidate.policy


def in_sight(candidate: Totals) -> float:
    """The share of the non-trivial uses that are visible or routed; 1 if there are none."""
    share = candidate.share("nt", "visible", "routed")
    return 1.0 if share is None else share
