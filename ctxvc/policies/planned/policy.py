"""Self-GC: a planner reads the whole prompt from beside it and says which objects may leave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import ClassVar

import msgspec

from ctxvc.core.plan.plan import Action, Plan
from ctxvc.core.plan.rehearse import fewest_actions
from ctxvc.core.plan.timing import Timing
from ctxvc.core.policy import Answer, Ask, Calls, Policy, Price, PromptShare, Seconds, Share, Tokens
from ctxvc.core.prompt.stub import escaped
from ctxvc.core.view.budget import Budget
from ctxvc.core.view.view import View
from ctxvc.policies.knobs import numbers, ordered, shares
from ctxvc.policies.planned import planner
from ctxvc.policies.planned.objects import ContextObject, MovableObject, movable, objects
from ctxvc.policies.planned.plan_text import FAULTS, Entry, GcPlan, parse

ACTOR = "planner"
#: Names of what a plan had wrong, in its reason, for each way to be wrong.
_NAMED = 3


class Planned(Policy, frozen=True, kw_only=True):
    """Objects fold, mask and prune as a planner says, which is a model, or fixed rules where there is none.

    Source: Self-GC, "Reflective Planning, Rehearsal, and Commit" and Listing 5. A round begins when the prompt passes
    `trigger` and at least `least` tokens came since a model was last asked, and since what the last round took. The
    planner gets the prompt and one block behind it, its plan is read strictly, overlaps are taken out, and what the
    engine would refuse is dropped. `moment` says when it is committed.

    What differs from the paper: names stand in an index and not in the messages; mask and prune can be undone, as all
    bytes stay; what a human wrote stays, also where a turn is folded; the pointer of what was folded stands in its
    place, and nowhere else; in one long turn, where other turns do not suffice, its older steps may leave from `tight`
    on, since a session that never ends its turn would have nothing to plan.

    - `trigger`: share of the budget from which a round begins.
    - `target`: share of the budget that the fixed rules aim at; a model decides by itself.
    - `tight`: share of the budget from which the latest turn is worked on too, but for its latest step.
    - `least`: new tokens between two rounds.
    - `saving`: share of the prompt that a plan has to free to be made at all.
    - `share`, `lifetime` (seconds), `read_price`, `write_price` (of a fresh token), `calls`: as in `timing.Timing`.
    """

    name: ClassVar[str] = "planned"
    source: ClassVar[str] = "Self-GC: Reflective Planning, Rehearsal, and Commit; Listing 5"
    decides: ClassVar[str] = "planner"
    sees: ClassVar[str] = "stubs"
    recovers: ClassVar[str] = "yes (there: folds)"

    ask: Ask | None = None
    trigger: Share = 0.6
    target: Share = 0.4
    tight: Share = 0.85
    least: Tokens = 4_000
    saving: PromptShare = 0.0
    share: PromptShare = 0.3
    lifetime: Seconds = 300.0
    read_price: Price = 0.1
    write_price: Price = 1.25
    calls: Calls = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.target < self.trigger <= 1:
            raise ValueError(f"target {self.target:g} and trigger {self.trigger:g} are not 0 < target < trigger <= 1")
        shares(self, "tight")
        shares(self, "saving", "share", of="prompt")
        ordered(self, "trigger", "tight")
        numbers(self, 0, "least", "lifetime", "read_price", "write_price", "calls")
        ordered(self, "read_price", "write_price")

    @property
    def actor(self) -> str:
        return ACTOR

    def high(self, budget: Budget) -> int:
        return int(budget.effective * self.trigger)

    def propose(self, view: View) -> Plan:
        budget = view.budget
        total = view.used
        trigger, tight = int(budget.effective * self.trigger), int(budget.effective * self.tight)
        used = f"{total:,} of {budget.effective:,} tokens"
        if total <= trigger:
            return Plan(actions=(), actor=ACTOR, reason=f"{used}: a round begins above {trigger:,}")
        by_name = objects(view.ledger)
        candidates = movable(view, by_name.values(), latest=total > tight)
        hard = total > budget.guard
        if not candidates:
            return Plan(actions=(), actor=ACTOR, reason=f"{used}: nothing is left that may leave before {tight:,}")
        if not hard and (new := self._new(view, candidates)) < self.least:
            why = f"{new:,} new tokens since the last round, less than {self.least:,}"
            return Plan(actions=(), actor=ACTOR, reason=f"{used}: {why}")
        answer = self._answer(view, by_name, candidates, total, hard=hard)
        gc_plan = parse(answer.text, by_name)
        actions, left_out = _actions(gc_plan, candidates, view.calibrated, total, trigger)
        plan = Plan(actions=actions, actor=ACTOR, pressure=hard, asked=self.ask is not None, cost=answer.tokens)
        actions, after = fewest_actions(view, plan, 0)
        reason = f"{used}: {_outcome(gc_plan, actions, left_out)}"
        if actions and total - after < total * self.saving:
            reason += f"; dropped, as it frees {total - after:,} tokens, less than {self.saving:.0%}"
            actions, after = (), total
        if after > budget.effective:
            reason += f"; {after:,} tokens are left, {after - budget.effective:,} over the budget"
        return msgspec.structs.replace(plan, actions=actions, reason=reason, pressure=hard and bool(actions))

    @property
    def timing(self) -> Timing:
        return Timing(
            share=self.share,
            read_price=self.read_price,
            write_price=self.write_price,
            lifetime=self.lifetime,
            calls=self.calls,
        )

    def _new(self, view: View, candidates: Iterable[MovableObject]) -> int:
        """The tokens that could be planned over and came since a model was asked, or what a planner took last."""
        newest = view.ledger.meta.asked
        newest = max(newest, next((row.number for row in view.ledger.backwards() if _took(row.removed_by)), 0))
        turns = (one for one in candidates if one.object.family == "conversation")
        return sum(view.price.body(row) for one in turns for row in one.rows if row.number > newest)

    def _answer(
        self,
        view: View,
        by_name: Mapping[str, ContextObject],
        candidates: Sequence[MovableObject],
        total: int,
        *,
        hard: bool,
    ) -> Answer:
        if self.ask:
            return self.ask(view, planner.trailing_block(view, candidates))

        def above(share: float) -> int:
            return int(total - view.budget.effective * share) * 1000 // max(1, view.calibration[0]) + 1

        free, least = above(self.target), above(self.trigger)
        return Answer(planner.rules(view, by_name, candidates, free, least=least, hard=hard))


def _took(actor: str) -> bool:
    """Whether it was a planner, alone or in a composition, that took a block."""
    return actor == ACTOR or Planned.name in actor.removeprefix("policy:").split("+")


class _LeftOut:
    """The left-out parts of a plan: by reason their number, and the first names."""

    def __init__(self, gc_plan: GcPlan) -> None:
        self.counts = Counter({FAULTS[why]: number for why, number in gc_plan.faults.items()})
        self.names: dict[str, list[str]] = {}
        for dropped in gc_plan.dropped:
            self.names.setdefault(FAULTS[dropped.why], []).append(dropped.what)

    def add(self, why: str, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self.counts[why] += 1
            self.names.setdefault(why, []).append(entry.target)

    def __str__(self) -> str:
        return ", ".join(f"{number} × {why}{self._listed(why)}" for why, number in sorted(self.counts.items()))

    def _listed(self, why: str) -> str:
        names = [escaped(name, 40) for name in self.names.get(why, ())[:_NAMED]]
        return f" ({', '.join(names)}{', …' if self.counts[why] > len(names) else ''})" if names else ""


def _actions(
    gc_plan: GcPlan, candidates: Sequence[MovableObject], calibrated: Callable[[int], int], total: int, trigger: int
) -> tuple[tuple[Action, ...], _LeftOut]:
    """The entries of a plan as actions on blocks, older turns first, and what was left out of it.

    A turn that leaves takes its tools with it. The latest turn stays where the others bring the prompt to `trigger`.
    """
    left_out = _LeftOut(gc_plan)
    free = {one.object.id: one for one in candidates}
    chosen = [(free[entry.target], entry) for entry in gc_plan.entries if entry.target in free]
    turns_leaving = {
        one.object.turn for one, entry in chosen if entry.verb != "mask" and one.object.family == "conversation"
    }
    alone = {row.id for one, _ in chosen if one.object.family == "function" for row in one.rows}
    actions: list[Action] = []
    left_out.add("object that stays", (entry for entry in gc_plan.entries if entry.target not in free))
    for latest in (False, True):
        part = [pair for pair in chosen if pair[0].latest == latest]
        if latest and part and total <= trigger:
            left_out.add("object of the latest turn, without need", (entry for _, entry in part))
            break
        for one, entry in part:
            if one.object.family == "function" and one.object.turn in turns_leaving:
                left_out.add("tool in a turn that leaves", [entry])
            elif (action := _action(one, entry, alone)).targets:
                actions.append(action)
                total -= calibrated(max(0, one.tokens - planner.STUB))
    return tuple(actions), left_out


def _action(one: MovableObject, entry: Entry, alone: Container[str]) -> Action:
    """An entry as an action on blocks. A turn's mask is for those of its results that have no entry of their own."""
    blocks = tuple(row.id for row in one.rows)
    match entry.verb:
        case "fold":
            return Action(verb="archive", targets=blocks, index=_index(one, entry))
        case "prune":
            return Action(verb="prune", targets=blocks, index=escaped(entry.reason, 120))
        case "mask":
            whole = [row.id for row in one.rows if row.kind == "tool_result" and row.state == "visible"]
            targets = [block for block in whole if one.object.family == "function" or block not in alone]
            return Action(verb="mask", targets=tuple(targets), index=escaped(entry.reason, 120))


def _index(one: MovableObject, entry: Entry) -> str:
    """The way back in words: what a planner said of it, and what the conversation itself calls it."""
    label = one.object.label if one.object.family == "conversation" or len(one.rows) > 1 else one.rows[-1].label
    return escaped("; ".join(part for part in (entry.reason, label) if part), 120)


def _outcome(gc_plan: GcPlan, actions: Sequence[Action], left_out: _LeftOut) -> str:
    """The planner's summary and the outcome of its plan, for the commit."""
    count = Counter({"archive": 0, "mask": 0, "prune": 0})
    count.update(action.verb for action in actions)
    parts = [f"fold {count['archive']}, mask {count['mask']}, prune {count['prune']}"]
    if gc_plan.summary:
        parts.append(escaped(gc_plan.summary, 200).rstrip("."))
    if left_out.counts:
        parts.append(f"left out: {left_out}")
    return "; ".join(parts)
