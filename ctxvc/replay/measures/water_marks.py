"""The marks of each policy: between which shares of the budget it works, so that the oracle runs between the same."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import ceil
from typing import NamedTuple

import msgspec

from ctxvc.core.plan.guard import LOW_WATER
from ctxvc.core.policy import Policy
from ctxvc.core.view.budget import Budget, Ladder
from ctxvc.policies.baselines import Clear, Keep, Mask, Skeleton, Summary, Window
from ctxvc.policies.composed import Composed
from ctxvc.policies.default import Default
from ctxvc.policies.episodes.policy import Episodes
from ctxvc.policies.heuristics import Heuristic
from ctxvc.policies.layered import Layered
from ctxvc.policies.planned.policy import Planned
from ctxvc.policies.scoped import Scoped
from ctxvc.policies.self_managed import SelfManaged

#: A prompt that is smaller than the one before by more than this share of the budget is one after a batch.
_BATCH = 0.05
_STEP = 0.05


class WaterMarks(NamedTuple):
    """Shares of the budget: above `high` something leaves, until the prompt is at `low`."""

    high: float
    low: float


def water_marks(policy: Policy, budget: int = 0) -> WaterMarks:
    """The marks of a policy with its knobs, at a budget of so many tokens (0: below every threshold in tokens).

    Where a policy does not say at which share it stops, `low` is the highest at which it can: the oracle beside it is
    to be no worse off. One of a person's own is asked for the knobs `trigger` and `low_water` or `target`. Of several
    policies those count that begin first, and of these those that go down furthest. No mark is above the guard, which
    acts whatever the policy.
    """
    ladder = msgspec.structs.replace(Ladder(), **policy.terms().ladder)
    parts = policy.parts if isinstance(policy, Composed) else (policy,)
    pairs = [_shares(part, ladder, budget) for part in parts]
    high, low = min(pairs)
    high = min(high, ladder.guard)
    return WaterMarks(high, min(low, high))


def worked(declared: WaterMarks, totals: Sequence[int], budget: int) -> WaterMarks:
    """The marks between which a run really worked, never below the declared ones, in steps of 5 %.

    `totals` are the tokens of its prompts. A policy that may take away results only often stays above its low mark: an
    oracle that went down to it all the same would have less to show than the policy.
    """
    levels = [tokens / budget for tokens in totals]
    lows = [after for before, after in pairwise(levels) if after < before - _BATCH]
    low = max(declared.low, _up(sum(lows) / len(lows))) if lows else declared.low
    high = min(max(declared.high, _up(max(levels, default=0.0))), Ladder().guard)
    return WaterMarks(high, min(low, high))


def _up(share: float) -> float:
    return round(ceil(share / _STEP - 1e-9) * _STEP, 2)


def _shares(policy: Policy, ladder: Ladder, budget: int) -> tuple[float, float]:
    match policy:
        case Default():
            factor = min(policy.ceiling / budget, 1.0) if policy.ceiling and budget else 1.0
            return policy.trigger * factor, policy.low(budget) * factor
        case Layered():  # its second layer: the third begins only where that was not enough
            return policy.clear or ladder.clear, policy.low_water
        case Planned():  # with a model, `target` is what the rules aim at that stand for it
            marks = policy.marks(budget or Budget().window)
            return marks.trigger, marks.target
        case Heuristic():
            return policy.trigger, policy.target
        case Skeleton():
            return policy.trigger, policy.low_water
        case Window():
            return ladder.guard, policy.low_water
        case Episodes():  # its low mark is a share of a ceiling in tokens
            defaults = Budget(window=budget, ladder=ladder)
            ceiling = min(ladder.guard, (policy.ceiling or defaults.ceiling) / budget) if budget else ladder.guard
            return ceiling, ceiling * policy.low_water
        case Clear():  # all goes that it may take, which is `least` at the least
            return policy.trigger, policy.trigger - policy.least
        case Summary():  # likewise, less the room of the summary
            return policy.trigger, policy.trigger - max(policy.least - policy.room, 0.0)
        case SelfManaged(archive=True):  # its safety net's: the agent archives when it likes
            return ladder.guard, policy.low_water if policy.agent else policy.share
        case SelfManaged() | Keep():  # nothing leaves by their rule, so the guard's
            return ladder.guard, LOW_WATER
        case Mask() | Scoped():  # they act by age and by task, however full the prompt is
            return ladder.guard, ladder.guard
    high = float(getattr(policy, "trigger", 0.0)) or ladder.guard
    low = float(getattr(policy, "low_water", 0.0) or getattr(policy, "target", 0.0)) or high
    return high, low
