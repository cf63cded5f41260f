"""Cut points, as the papers have them: what one plan takes from the calls after it.

Source: Self-GC, arXiv:2607.00692. There a judge is shown the prompt before and after a plan and the real future; here
the uses of that future decide.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from operator import attrgetter

import msgspec

from ctxvc.replay.conversation import Prompt
from ctxvc.replay.measures.anchors import AnchorKind
from ctxvc.replay.measures.retention import LOST, ROUTED, VISIBLE, Counts, Gauge, Lookup, wilson
from ctxvc.replay.measures.uses import Category

#: The paper counts plans that save this share of the prompt.
SAVING = 0.3


class CutPoint(msgspec.Struct, frozen=True):
    """A plan's prompt against the one without it.

    `prune` is 1 − |C′|/|C|. `dependencies` are the anchors that were visible before, that the future uses, and that no
    block after the cut holds before it does: by what they are in the prompt after. `misses` are the places of those
    uses that are neither visible nor routed in it, `losses` and `kinds` count these by category and by kind.
    """

    call: int
    prune: float
    dependencies: Counts
    misses: tuple[int, ...]
    losses: Mapping[Category, int] = {}
    kinds: Mapping[AnchorKind, int] = {}

    @property
    def no_impact(self) -> bool:
        """Whether all that the future uses is still visible or routed."""
        return not self.misses


class CutPoints(msgspec.Struct, frozen=True):
    """The paper's two figures over plans: the mean `prune`, and the share without impact with its 95 % interval."""

    plans: int
    prune: float
    no_impact: float
    low: float
    high: float


def cut_point(
    lookup: Lookup,
    before: Prompt,
    after: Prompt,
    *,
    horizon: int | None = None,
    archive: bool = True,
    search: bool = True,
    unreachable: Collection[int] = frozenset(),
) -> CutPoint:
    """The effect of the plan that makes `after` of `before`, both prompts of one call.

    Of a use that several later replies make, the first counts. `horizon` bounds how many calls, from the cut's own on,
    are its future.
    """
    call = after.call
    limit = lookup.seen_by(call)
    start = bisect_left(lookup.uses, call, key=attrgetter("call"))
    end = len(lookup.uses) if horizon is None else bisect_left(lookup.uses, call + horizon, key=attrgetter("call"))
    future = [number for number in range(start, end) if lookup.uses[number].blocks[-1] < limit]
    was = Gauge(lookup, archive=archive, search=search).classify(before, future)
    needed = [number for number, outcome in zip(future, was, strict=True) if outcome == VISIBLE]
    outcomes = Gauge(lookup, archive=archive, search=search).classify(after, needed, unreachable)
    misses = tuple(place for place, outcome in zip(needed, outcomes, strict=True) if outcome > ROUTED)
    return CutPoint(
        call=call,
        prune=1 - after.tokens / before.tokens if before.tokens else 0.0,
        dependencies=Counts(*(outcomes.count(outcome) for outcome in range(LOST + 1))),
        misses=misses,
        losses=Counter(lookup.uses[place].category for place in misses),
        kinds=Counter(lookup.uses[place].kind for place in misses),
    )


def cut_points(points: Iterable[CutPoint], saving: float = SAVING) -> CutPoints | None:
    """The figures over the plans that save at least this share; None if there are none."""
    enough = [point for point in points if point.prune >= saving]
    if not enough:
        return None
    harmless = sum(point.no_impact for point in enough)
    low, high = wilson(harmless, len(enough))
    prune = sum(point.prune for point in enough) / len(enough)
    return CutPoints(len(enough), prune, harmless / len(enough), low, high)
