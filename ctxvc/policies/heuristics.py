"""The four heuristics that Self-GC is compared with. They go by place, kind or size, not by what is needed later.

Source: Self-GC, section "Baselines". The paper describes each in a line and gives no thresholds; here all four start at
one share of the budget and go down to another in one batch. Human text, protected blocks and the latest turn stay;
under pressure the latest turn's older steps may leave too, as in `planned`, so that one long turn cannot block them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

import msgspec

from ctxvc.core.ledger.objects import objects
from ctxvc.core.plan.plan import Action, Plan
from ctxvc.core.plan.rehearse import fewest_actions
from ctxvc.core.policy import Bytes, Share, Triggered
from ctxvc.core.view.view import View
from ctxvc.policies.candidates import MovableObject, batches, movable, results


class Heuristic(Triggered, frozen=True, kw_only=True):
    """The common part of the four: when they start, where they stop, and older turns first.

    - `trigger`: share of the budget above which content is removed.
    - `target`: share of the budget at which removal stops.
    - `tight`: share of the budget above which the latest turn is included, except for its latest step.
    """

    source: ClassVar[str] = "Self-GC: Baselines"
    ascending: ClassVar[tuple[str, ...]] = ("trigger", "tight")

    trigger: Share = 0.6
    target: Share = 0.4
    tight: Share = 0.85

    def __post_init__(self) -> None:
        if not 0 < self.target < self.trigger <= 1:
            raise ValueError(f"target {self.target:g} and trigger {self.trigger:g} are not 0 < target < trigger <= 1")
        super().__post_init__()

    def propose(self, view: View) -> Plan:
        budget = view.budget
        total = view.used
        trigger, target = int(budget.effective * self.trigger), int(budget.effective * self.target)
        used = f"{total:,} of {budget.effective:,} tokens"
        if total <= trigger:
            return Plan(actions=(), actor=self.actor, reason=f"{used}: nothing leaves below {trigger:,}")
        candidates = movable(view, objects(view.ledger).values(), latest=total > budget.effective * self.tight)
        older = self.actions([one for one in candidates if not one.latest])
        newest = self.actions([one for one in candidates if one.latest])
        hard = total > budget.guard
        plan = Plan(actions=(*older, *newest), actor=self.actor, pressure=hard)
        actions, after = fewest_actions(view, plan, target)
        reason = f"{used}: down to {after:,}"
        if after > target:
            reason += f", since no more may leave; the target was {target:,}"
        if after > budget.effective:
            reason += f", {after - budget.effective:,} over the budget"
        return msgspec.structs.replace(plan, actions=actions, reason=reason, pressure=hard and bool(actions))

    def actions(self, candidates: Sequence[MovableObject]) -> list[Action]:
        """The actions on `candidates`, in order of application."""
        raise NotImplementedError


class OldestTurn(Heuristic, frozen=True, kw_only=True):
    """Whole turns are folded, oldest first; a fold can be undone, as in the paper.

    Source: Self-GC, "Baselines": "chronologically folds the oldest conversational spans while preserving the latest
    user turn". Differs: human text stays, since no rule removes it here; the paper folds it with its turn. Above
    `tight` the older steps of the latest turn leave too, ten at a time, because a coding agent's turn may be the whole
    session. The paper gives no thresholds: `trigger` and `target` are ours.
    """

    name: ClassVar[str] = "oldest_turn"

    def actions(self, candidates: Sequence[MovableObject]) -> list[Action]:
        return _folds(candidates)


class ToolPrune(Heuristic, frozen=True, kw_only=True):
    """Tool results leave without a pointer, largest first; their calls stay.

    Source: Self-GC, "Baselines": "greedily removes tool outputs under token pressure". Differs: a pruned result can be
    read by its id, since no byte is lost here; the paper's prune guarantees no recovery. That the largest go first is
    our reading of greedy; the paper gives neither an order nor thresholds. Skills are never pruned: those in use stay,
    and others are left to policies that fold.
    """

    name: ClassVar[str] = "tool_prune"
    sees: ClassVar[str] = "ids"
    recovers: ClassVar[str] = "yes (there: no)"

    def actions(self, candidates: Sequence[MovableObject]) -> list[Action]:
        return _prunes(candidates)


class ToolMaskPrune(Heuristic, frozen=True, kw_only=True):
    """Long results are masked, largest first; if that is not enough, results are pruned as in `tool_prune`.

    Source: Self-GC, "Baselines": "first masks low-signal tool spans and then prunes remaining tool outputs when
    additional budget is needed". Differs: both can be undone here, and neither in the paper. The paper does not say
    which spans are low-signal, and no rule without a model can tell: here the long ones.

    - `long`: bytes above which a result counts as low-signal.
    """

    name: ClassVar[str] = "tool_mask_prune"
    sees: ClassVar[str] = "both ends, then ids"
    recovers: ClassVar[str] = "yes (there: no)"

    long: Bytes = 1_600

    def actions(self, candidates: Sequence[MovableObject]) -> list[Action]:
        masks = [
            Action(verb="mask", targets=(one.rows[-1].id,))
            for one in _largest(candidates)
            if one.rows[-1].bytes > self.long
        ]
        return [*masks, *_prunes(candidates)]


class Hybrid(Heuristic, frozen=True, kw_only=True):
    """The older half of the turns is folded, oldest first; then results of the others are pruned, largest first.

    Source: Self-GC, "Baselines": "combines chronological turn folding with tool-output pruning". Differs: the paper
    does not say how the two are combined; here, if they are not enough, the other turns are folded as well. Pruned
    results can be restored; in the paper only folds can. Human text stays.
    """

    name: ClassVar[str] = "hybrid"
    sees: ClassVar[str] = "stubs and ids"
    recovers: ClassVar[str] = "yes (there: folds)"

    def actions(self, candidates: Sequence[MovableObject]) -> list[Action]:
        folds = _folds(candidates)
        half = len(folds) // 2
        return [*folds[:half], *_prunes(candidates), *folds[half:]]


def _folds(candidates: Iterable[MovableObject]) -> list[Action]:
    """Archives each turn as one group, but the latest turn in several, so that no more of it leaves than necessary."""
    turns = (one for one in candidates if one.object.is_turn)
    parts = (part for one in turns for part in batches(one))
    return [Action(verb="archive", targets=tuple(row.id for row in part)) for part in parts]


def _prunes(candidates: Iterable[MovableObject]) -> list[Action]:
    return [Action(verb="prune", targets=(one.rows[-1].id,)) for one in _largest(candidates)]


def _largest(candidates: Iterable[MovableObject]) -> list[MovableObject]:
    return sorted(results(candidates), key=lambda one: (-one.rows[-1].bytes, one.rows[-1].number))
