"""Self-GC: a planner reads the whole prompt from beside it and says which objects may leave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import ClassVar, Literal, NamedTuple

import msgspec

from ctxvc.core.ledger.ledger import Ledger
from ctxvc.core.ledger.objects import objects
from ctxvc.core.ledger.skills import skills
from ctxvc.core.plan.plan import Action, Plan
from ctxvc.core.plan.rehearse import fewest_actions, rehearse
from ctxvc.core.plan.timing import Timing
from ctxvc.core.plan.value import is_fence
from ctxvc.core.policy import Answer, Ask, Calls, Policy, Price, PromptShare, Seconds, Share, Tokens
from ctxvc.core.prompt.stub import escaped
from ctxvc.core.view.budget import Budget
from ctxvc.core.view.view import View
from ctxvc.policies.candidates import (
    STEPS,
    MovableObject,
    batches,
    edge,
    movable,
    tokens_of,
)
from ctxvc.policies.planned import planner
from ctxvc.policies.planned.plan_text import FAULTS, Entry, GcPlan, parse

ACTOR = "planner"

#: Tokens that a question is worth at least, whatever the knobs say.
LEAST = 1_000

#: The share of `trigger` that fixed rules aim at where there is no target.
AIM = 0.7

#: The default marks, and those of fixed rules in a small window: there what is always in the prompt
#: leaves so little room that a batch down to the usual target takes what the next calls need (docs/decisions/0076). A
#: model's question needs the room from the usual trigger to the guard.
_TRIGGER, _TARGET = 0.85, 0.6
_SMALL_TRIGGER, _SMALL_TARGET = 0.95, 0.8
#: The largest small window, in tokens.
_SMALL = 64_000

#: When rounds begin: where the prompt passes a share of the budget, or then, but only when a turn begins.
Round = Literal["pressure", "turn"]
#: How often fixed rules plan again on what their plan leaves.
_ROUNDS = 4
#: Names of what a plan had wrong, in its reason, for each way to be wrong.
_NAMED = 3


class Marks(NamedTuple):
    """Shares of the budget: above which a round starts, at which it ends, above which the latest turn is included."""

    trigger: float
    target: float
    tight: float


class Planned(Policy, frozen=True, kw_only=True):
    """A planner, which is a model or fixed rules, decides which objects to fold, mask and prune.

    Source: Self-GC, "Reflective Planning, Rehearsal, and Commit" and Listing 5. A round starts when the prompt exceeds
    `trigger` and at least `least` new tokens have come since a model was last asked and since the last round. The
    planner gets the prompt and one block after it: size, target, and an index of the objects. Its plan is parsed
    strictly, overlaps are removed, and actions that the engine would refuse are dropped. Its actions are applied in its
    order until the prompt is at `target`; the rest waits until the prompt exceeds `trigger` again. `moment` decides
    when it is committed. A model is asked only if the question fits below the guard and enough could leave; if it is
    not asked or gives no plan, fixed rules make one, and the commit says why.

    Differs from the paper: it plans at turn boundaries and commits a whole plan, as `round=turn,target=off` does; here
    the default is by pressure, since a coding agent's turn may be the whole session. Names are in an index instead of
    in the messages, where tags have their numbers; a reply with its calls (`conversation:step:n`) is an object, too.
    Mask and prune can be undone, since all bytes stay; human text stays, even if its turn is folded; the pointer of a
    folded object is in its place and nowhere else. Above `tight` the latest turn is included if other turns are not
    enough, by fixed rules like them: its tools and replies, and of its span the oldest parts, ten steps at a time.

    - `round`: `pressure`, or `turn`: only when a turn begins or the hard budget would be exceeded.
    - `trigger`: share of the budget at which a round starts; `auto` is 0.85, or 0.95 for fixed rules in windows up to
      64,000 tokens: above that no question to a model fits.
    - `target`: share of the budget down to which a plan is applied; `off` applies all of it. `auto` is 0.6, where
      `trigger` is 0.95 by itself 0.8.
    - `tight`: share of the budget above which the latest turn is included, except for its latest step; `auto` is 0.85,
      or `trigger` if that is more.
    - `least`: new tokens between two rounds.
    - `saving`: the least share of the prompt that a plan must free.
    - `share`, `lifetime` (seconds), `read_price`, `write_price` (of a fresh token), `calls`: as in `timing.Timing`.
    """

    name: ClassVar[str] = "planned"
    source: ClassVar[str] = "Self-GC: Reflective Planning, Rehearsal, and Commit; Listing 5"
    decides: ClassVar[str] = "planner"
    sees: ClassVar[str] = "stubs"
    recovers: ClassVar[str] = "yes (there: folds)"
    ascending: ClassVar[tuple[str, ...]] = ("read_price", "write_price")

    ask: Ask | None = None
    round: Round = "pressure"
    trigger: Share | None = None
    target: Share | None = None
    tight: Share | None = None
    least: Tokens = 4_000
    saving: PromptShare = 0.0
    share: PromptShare = 0.3
    lifetime: Seconds = 300.0
    read_price: Price = 0.1
    write_price: Price = 1.25
    calls: Calls = 0.0

    def __post_init__(self) -> None:
        trigger, target, tight = self.marks(_SMALL + 1)
        if not 0 <= target < trigger <= 1:
            raise ValueError(f"target {target:g} and trigger {trigger:g} are not 0 <= target < trigger <= 1")
        if not trigger <= tight <= 1:
            raise ValueError(f"trigger {trigger:g} and tight {tight:g} are not trigger <= tight <= 1")
        super().__post_init__()

    @property
    def actor(self) -> str:
        return ACTOR

    def marks(self, budget: int) -> Marks:
        """The shares that apply, by the budget's tokens."""
        is_small = self.trigger is None and self.ask is None and budget <= _SMALL
        trigger = self.trigger if self.trigger is not None else _SMALL_TRIGGER if is_small else _TRIGGER
        target = self.target if self.target is not None else _SMALL_TARGET if is_small else _TARGET
        return Marks(trigger, target, max(trigger, _TRIGGER) if self.tight is None else self.tight)

    def high(self, budget: Budget) -> int:
        return int(budget.effective * self.marks(budget.effective).trigger)

    def propose(self, view: View) -> Plan:
        budget = view.budget
        total = view.used
        marks = self.marks(budget.effective)
        trigger, tight = int(budget.effective * marks.trigger), int(budget.effective * marks.tight)
        used = f"{total:,} of {budget.effective:,} tokens"
        hard = total > budget.guard
        if total <= trigger:
            return Plan(actions=(), actor=ACTOR, reason=f"{used}: a round starts above {trigger:,}")
        if self.round == "turn" and not hard and not _turn_begins(view.ledger):
            return Plan(actions=(), actor=ACTOR, reason=f"{used}: a round starts with a turn")
        by_name = objects(view.ledger)
        candidates = movable(view, by_name.values(), latest=total > tight)
        if not candidates:
            return Plan(actions=(), actor=ACTOR, reason=f"{used}: nothing more can leave below {tight:,}")
        if not hard and (new := self._new(view, candidates)) < self.least:
            why = f"{new:,} new tokens since the last round, less than {self.least:,}"
            return Plan(actions=(), actor=ACTOR, reason=f"{used}: {why}")
        answer, fallback = self._answer(view, candidates, total)
        gc_plan = parse(answer.text, by_name) if answer.put else None
        if gc_plan and not gc_plan.usable:
            fallback = f"its answer is not a plan ({_LeftOut(gc_plan)})"
        if by_rule := gc_plan is None or not gc_plan.usable:
            aim = marks.target or marks.trigger * AIM
            free = int(total - budget.effective * aim) * 1000 // max(1, view.calibration[0]) + 1
            gc_plan = parse(planner.rules(view, by_name, candidates, free, hard=hard), by_name)
        plan = self._plan(view, gc_plan, candidates, trigger, by_rule=by_rule)
        if by_rule and hard:
            plan = self._with_rest(view, plan, trigger)
        after = view.used if not plan.actions else fewest_actions(view, plan, 0)[1]
        reason = f"{used}: {plan.reason}"
        if fallback:
            reason += f"; fixed rules replaced the planner: {fallback}"
        if plan.actions and total - after < total * self.saving:
            reason += f"; dropped, since it frees only {total - after:,} tokens, less than {self.saving:.0%}"
            plan, after = msgspec.structs.replace(plan, actions=(), later=()), total
        if after > budget.effective:
            reason += f"; {after:,} tokens left, {after - budget.effective:,} over the budget"
        return msgspec.structs.replace(
            plan,
            reason=reason,
            pressure=hard and bool(plan.actions),
            asked=answer.put,
            cost=answer.tokens,
            fallback=fallback,
        )

    def _with_rest(self, view: View, plan: Plan, trigger: int) -> Plan:
        """The plan with what may leave only beside what it takes, if the prompt is above the trigger after it.

        Blocks too small for a stub of their own join a group next to them. Left to the next call, they would make the
        same policy do more on an unchanged view.
        """
        for _ in range(_ROUNDS):
            rehearsal = rehearse(view, plan)
            then = replace(view, ledger=rehearsal.after, next_group=view.next_group + len(rehearsal.groups))
            if not rehearsal or then.used <= trigger:
                break
            by_name = objects(then.ledger)
            candidates = movable(then, by_name.values(), latest=True)
            free = then.counted
            gc_plan = parse(planner.rules(then, by_name, candidates, free, hard=True), by_name)
            more = self._plan(then, gc_plan, candidates, trigger, by_rule=True).actions
            if not more or not rehearse(then, msgspec.structs.replace(plan, actions=more)):
                break
            plan = msgspec.structs.replace(plan, actions=(*plan.actions, *more))
        return plan

    def _plan(
        self, view: View, gc_plan: GcPlan, candidates: Sequence[MovableObject], trigger: int, *, by_rule: bool
    ) -> Plan:
        """A planner's actions: in its order until the target is reached, the others for later."""
        left_out = _LeftOut(gc_plan)
        older, latest = _chosen(view, gc_plan, candidates, left_out, hard=view.used > view.budget.guard)
        target = int(view.budget.effective * self.marks(view.budget.effective).target)
        if by_rule:  # which weighed the turns against each other
            places = {entry.target: place for place, entry in enumerate(gc_plan.entries)}
            older, latest = sorted([*older, *latest], key=lambda pair: places[pair.entry.target]), []
        actions, after, later = _down_to(view, older, target, by_rule=by_rule)
        if after > trigger and latest:
            actions, after, later = _down_to(view, [*older, *latest], target, by_rule=by_rule)
        else:
            left_out.add("object of the latest turn, not needed", _entries(latest))
        left_out.add("not needed to reach the target", _entries(later))
        pending = () if by_rule else tuple(_actions(view, later, by_rule=False))
        reason = _outcome(gc_plan, actions, left_out)
        return Plan(actions=actions, actor=ACTOR, reason=reason, later=pending if actions else ())

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

    def _answer(self, view: View, candidates: Sequence[MovableObject], total: int) -> tuple[Answer, str]:
        """The model's answer, and the reason if a model was available but gave none."""
        unasked = Answer("", put=False)
        if not self.ask:
            return unasked, ""
        gain = view.part(sum(one.tokens for one in candidates if one.object.is_turn))
        target = int(view.budget.effective * self.marks(view.budget.effective).target)
        if gain < LEAST or gain < min(self.least, total - target):
            return unasked, f"at most {gain:,} tokens could leave, which is not worth asking"
        question = planner.trailing_block(view, candidates, target=target)
        if not question:
            return unasked, f"no room for the question below {view.budget.guard:,} tokens"
        answer = self.ask(view, question)
        if not answer.put:
            return answer, f"no room for the question below {view.budget.guard:,} tokens"
        return answer, "" if answer.text else "it gave no answer"


def _turn_begins(ledger: Ledger) -> bool:
    """Whether nothing was answered to the newest human text yet."""
    newest = next((row for row in ledger.backwards() if row.role == "assistant" or row.turn), None)
    return newest is not None and newest.role != "assistant" and newest.kind != "tool_result"


def _took(actor: str) -> bool:
    """Whether a block was removed by a planner, alone or in a composition."""
    return actor == ACTOR or Planned.name in actor.removeprefix("policy:").split("+")


class _LeftOut:
    """The dropped parts of a plan: their number and first names, by reason."""

    def __init__(self, gc_plan: GcPlan) -> None:
        self.counts = Counter({FAULTS[why]: number for why, number in gc_plan.faults.items()})
        self.names: dict[str, list[str]] = {}
        for dropped in gc_plan.dropped:
            self.names.setdefault(FAULTS[dropped.fault], []).append(dropped.excerpt)

    def add(self, why: str, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self.counts[why] += 1
            self.names.setdefault(why, []).append(entry.target)

    def __str__(self) -> str:
        return ", ".join(f"{number} × {why}{self._listed(why)}" for why, number in sorted(self.counts.items()))

    def _listed(self, why: str) -> str:
        names = [escaped(name, 40) for name in self.names.get(why, ())[:_NAMED]]
        return f" ({', '.join(names)}{', …' if self.counts[why] > len(names) else ''})" if names else ""


class _Chosen(NamedTuple):
    """The entry of a plan and the object that it moves."""

    one: MovableObject
    entry: Entry


def _chosen(
    view: View, gc_plan: GcPlan, candidates: Sequence[MovableObject], left_out: _LeftOut, *, hard: bool
) -> tuple[list[_Chosen], list[_Chosen]]:
    """The entries of a plan that can be applied, in its order: those of older turns, and those of the latest.

    A turn that leaves takes its replies and tools with it; of the latest turn parts leave, oldest first.
    """
    free = {one.object.id: one for one in candidates}
    left_out.add("object that must stay", (entry for entry in gc_plan.entries if entry.target not in free))
    pairs = [_Chosen(free[entry.target], entry) for entry in gc_plan.entries if entry.target in free]
    leaving = [one.object for one, entry in pairs if entry.verb != "mask"]
    turns = {one.turn for one in leaving if one.is_turn and one.turn < edge(view.ledger)[0]}
    steps = {one.step for one in leaving if one.is_step}
    applied: list[_Chosen] = []
    for one, entry in pairs:
        if not one.object.is_turn and one.object.turn in turns:
            left_out.add("part of a turn that leaves", [entry])
        elif one.object.family != "conversation" and one.object.step in steps:
            left_out.add("tool of a reply that leaves", [entry])
        elif one.object.family == "skill":
            applied.append(_Chosen(one, msgspec.structs.replace(entry, verb="fold")))  # its stub says where it is
        else:
            applied.append(_Chosen(one, entry))
    latest: list[_Chosen] = []
    newest = edge(view.ledger)[1] - (0 if hard else STEPS)
    for one, entry in (pair for pair in applied if pair.one.latest):
        if not one.object.is_turn or entry.verb == "mask":
            latest.append(_Chosen(one, entry))
            continue
        for part in batches(one):
            if rows := tuple(row for row in part if row.step <= newest):
                split = msgspec.structs.replace(one, rows=rows, tokens=tokens_of(view, rows))
                latest.append(_Chosen(split, entry))
    return [pair for pair in applied if not pair.one.latest], latest


def _entries(pairs: Iterable[_Chosen]) -> list[Entry]:
    """The entries, each once."""
    return list({entry.target: entry for _, entry in pairs}.values())


def _down_to(
    view: View, pairs: Sequence[_Chosen], target: int, *, by_rule: bool
) -> tuple[tuple[Action, ...], int, Sequence[_Chosen]]:
    """The actions for the first of these entries that bring the prompt to `target`, the tokens after them, and the
    entries that are not needed for it."""
    actions: tuple[Action, ...] = ()
    after, count = view.used, 0
    while after > target and count < len(pairs):
        freed = 0
        while after - freed > target and count < len(pairs):
            freed += view.part(_most_saved(view, *pairs[count]))
            count += 1
        plan = Plan(actions=tuple(_actions(view, pairs[:count], by_rule=by_rule)), actor=ACTOR)
        actions, after = fewest_actions(view, plan, 0)
    return actions, after, pairs[count:]


def _most_saved(view: View, one: MovableObject, entry: Entry) -> int:
    """The tokens that an action on an object saves at most, about."""
    if entry.verb == "mask":
        return one.tokens - sum(view.price.mask(row) for row in one.rows if row.kind == "tool_result")
    return one.tokens


def _actions(view: View, pairs: Sequence[_Chosen], *, by_rule: bool) -> list[Action]:
    """Entries as actions on blocks. What is folded with its calls is one group for each reason, as far as no person
    spoke in between; the stub of a result stands under its call.

    A mask of a turn or reply is for those of its results that have no entry of their own.
    """
    alone = {row.id for one, _ in pairs if one.object.family != "conversation" for row in one.rows}
    loaded = {skill.row.id for skill in skills(view.ledger)}
    actions: list[Action] = []
    folded: dict[str, list[MovableObject]] = {}
    for one, entry in pairs:
        is_tool = one.object.family != "conversation"
        blocks = tuple(row.id for row in one.rows)
        if entry.verb == "mask":
            visible_results = [row.id for row in one.rows if row.kind == "tool_result" and row.state == "visible"]
            targets = tuple(block for block in visible_results if is_tool or block not in alone)
            actions.append(Action(verb="mask", targets=targets, index=escaped(entry.reason, 120)))
        elif entry.verb == "prune":
            pruned = tuple(block for block in blocks if block not in loaded)
            actions.append(Action(verb="prune", targets=pruned, index=escaped(entry.reason, 120)))
            actions += (Action(verb="archive", targets=(block,)) for block in blocks if block in loaded)
        elif one.object.is_turn or (is_tool and len(blocks) == 1):
            index = "" if by_rule else _index(entry.reason, [one.object.label])
            actions.append(Action(verb="archive", targets=blocks, index=index))
        else:
            folded.setdefault(entry.reason, []).append(one)
    for reason, spans in folded.items():
        labels = {one.rows[-1].id: one.object.label for one in spans}
        for group in _groups(view, {row.id for one in spans for row in one.rows}):
            inside = [labels[block] for block in group if block in labels]
            index = "" if by_rule else _index(reason, inside)
            actions.append(Action(verb="archive", targets=tuple(group), index=index))
    return [action for action in actions if action.targets]


def _groups(view: View, folded: AbstractSet[str]) -> Iterator[list[str]]:
    """These blocks in order, parted where a person spoke or a turn ended."""
    group: list[str] = []
    turn = 0
    for row in view.ledger.rows():
        if group and (is_fence(row) or row.turn != turn):
            yield group
            group = []
        if row.id in folded:
            group.append(row.id)
        turn = row.turn
    if group:
        yield group


def _index(reason: str, labels: Sequence[str]) -> str:
    """The index text: the planner's reason, and the label of the first object."""
    more = f" and {len(labels) - 1} more" if len(labels) > 1 else ""
    return escaped("; ".join(part for part in (reason, f"{labels[0]}{more}" if labels else "") if part), 120)


def _outcome(gc_plan: GcPlan, actions: Sequence[Action], left_out: _LeftOut) -> str:
    """The planner's summary and the outcome of its plan, for the commit."""
    count = Counter({"archive": 0, "mask": 0, "prune": 0})
    count.update(action.verb for action in actions)
    parts = [f"fold {count['archive']}, mask {count['mask']}, prune {count['prune']}"]
    if gc_plan.summary:
        parts.append(escaped(gc_plan.summary, 200).rstrip("."))
    if left_out.counts:
        parts.append(f"skipped: {left_out}")
    return "; ".join(parts)
