"""The marks of each policy: between which shares of the budget it works, so that the oracle runs between the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ctxvc.core.plan import guard
from ctxvc.core.policy import Policy
from ctxvc.core.view.budget import Budget, Ladder
from ctxvc.policies import Composed


class Marks(NamedTuple):
    """Shares of the budget: above `high` something leaves, until the prompt is at `low`."""

    high: float
    low: float


def marks(policy: Policy, budget: int = 0) -> Marks:
    """The marks of a policy with its knobs, at a budget of so many tokens (0: below all thresholds in tokens).

    A policy that says where it stops has that as its low mark, else the highest that its rule can stop at. One that
    works at each call, or at a task's end, however full the prompt is, has only the guard's mark, and so has one of a
    person's own without such knobs. Of several policies those count that begin first.
    """
    if isinstance(policy, Composed):
        return max((marks(part, budget) for part in policy.parts), key=lambda part: -part.high)
    ladder = Ladder(**{name: share for name, share in policy.terms().ladder.items() if name in _SHARES})
    find = _MARKS.get(policy.name, _by_knobs)
    high, low = find(policy, ladder, budget)
    high = min(high, ladder.guard)
    return Marks(high, min(low, high))


_SHARES = frozenset({"offload", "clear", "summarise", "guard"})


def _by_knobs(policy: Any, ladder: Ladder, budget: int) -> tuple[float, float]:
    """`trigger` and `low_water` or `target`, as far as there are such knobs."""
    high = getattr(policy, "trigger", 0.0) or ladder.guard
    low = getattr(policy, "low_water", 0.0) or getattr(policy, "target", 0.0) or high
    return float(high), float(low)


def _default(policy: Any, ladder: Ladder, budget: int) -> tuple[float, float]:
    return ladder.clear, policy.low_water


def _layered(policy: Any, ladder: Ladder, budget: int) -> tuple[float, float]:
    """Its second layer's: the third begins only where that is not enough."""
    return policy.clear or ladder.clear, policy.low_water


def _self_managed(policy: Any, ladder: Ladder, budget: int) -> tuple[float, float]:
    """Those of its safety net; the agent itself archives when it likes, and so has none."""
    if not policy.archive:
        return _guard(policy, ladder, budget)
    return ladder.guard, policy.low_water if policy.agent else policy.share


def _episodes(policy: Any, ladder: Ladder, budget: int) -> tuple[float, float]:
    """Its ceiling is in tokens, and never above the guard."""
    ceiling = ladder.guard
    if budget:
        ceiling = min(ceiling, (policy.ceiling or Budget(window=budget, ladder=ladder).ceiling) / budget)
    return ceiling, ceiling * policy.low_water


def _clear(policy: Any, ladder: Ladder, budget: int) -> tuple[float, float]:
    """It clears all that it may, which is `least` at the least."""
    return policy.trigger, policy.trigger - policy.least


def _summary(policy: Any, ladder: Ladder, budget: int) -> tuple[float, float]:
    """It summarises all but the newest part, which frees `least`, less the summary, at the least."""
    return policy.trigger, policy.trigger - max(policy.least - policy.room, 0.0)


def _guard(policy: Any, ladder: Ladder, budget: int) -> tuple[float, float]:
    """Nothing leaves by its own rule: the guard acts, and goes down to its own low mark."""
    return ladder.guard, guard.LOW_WATER


def _none(policy: Any, ladder: Ladder, budget: int) -> tuple[float, float]:
    """It works however full the prompt is, so the oracle takes away only what does not fit."""
    return ladder.guard, ladder.guard


_MARKS: dict[str, Callable[[Any, Ladder, int], tuple[float, float]]] = {
    "default": _default,  # above the ladder's `clear`, down to `low_water`
    "self_managed": _self_managed,
    "planned": _by_knobs,  # `trigger`, `target`: what the rules aim at that stand for a model
    "layered": _layered,
    "episodes": _episodes,
    "scoped": _none,  # at a task's end
    "oldest_turn": _by_knobs,  # `trigger`, `target`
    "tool_prune": _by_knobs,
    "tool_mask_prune": _by_knobs,
    "hybrid": _by_knobs,
    "keep": _guard,
    "window": _by_knobs,  # the guard, `low_water`
    "clear": _clear,
    "mask": _none,  # at each batch of steps
    "skeleton": _by_knobs,  # `trigger`, `low_water`
    "summary": _summary,
}
