"""Growth handled in layers, the cheapest first: large results are offloaded, old ones cleared, the rest summarised."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import ClassVar, NamedTuple

from ctxvc.core.ledger.ledger import Ledger, Row, outermost
from ctxvc.core.ledger.numbering import is_human, speaks
from ctxvc.core.plan.plan import Action, Plan
from ctxvc.core.plan.protected import protected
from ctxvc.core.plan.rehearse import fewest_actions, rehearse
from ctxvc.core.policy import Ask, Focus, Names, Policy, Results, Share, Terms
from ctxvc.core.prompt.cut import latest_step
from ctxvc.core.prompt.stub import is_summary
from ctxvc.core.view.budget import Budget
from ctxvc.core.view.view import View, costs_in_prompt
from ctxvc.policies import summaries
from ctxvc.policies.summaries import Span

#: What a summary is to cost: this share of its part, at least these tokens, and at most this share of the budget.
SHARE = 0.125
SHORTEST = 120
LONGEST = 0.02
#: Beyond all steps.
_ALL = 1 << 62
#: The newest replies that no summary stands for: with their results the eight messages of the source's `/compact`.
REPLIES = 4


class Layered(Policy, frozen=True, kw_only=True):
    """Three layers, cheapest first: each measures what the one before it left, and acts only if that is not enough.

    1. A result above the budget's offload threshold leaves; its head and tail stay visible.
    2. Above `clear`, old results leave, oldest first, each replaced by a stub: all except the newest `keep`, errors,
       and those of the tools in `exclude`.
    3. Above `summarise`, everything older than the newest `verbatim` and the newest four replies is replaced by
       summaries, oldest first down to `low_water`, one for each part between two blocks that stay: by the model `ask`,
       or without one by rule, as the summary then states.

    Knobs: `offload` turns layer 1 on or off. `clear`, `summarise` (0: the ladder's), `low_water` and `verbatim` are
    shares of the budget. `keep` is in results (0: 6, or 3 in a window below 100,000 tokens); results of parallel calls
    are kept all or none. `exclude` is a list of tool names. Blocks that contain one of the words of
    `focus` are neither cleared nor summarised, unless the prompt is over the guard without them, and the model that
    writes summaries is asked to dwell on them.

    The newest turn stays whole while anything older can be summarised, unless the prompt is over the guard.

    Source: the documentation page "Context handling" of jutul-agent, section "Growth and its limits". Differences:
    - There the summary is triggered by the history before clearing, as if nothing had been cleared.
    - There all old results are cleared on each call above the threshold, one more each time, which breaks the cached
      prefix each time. Here a batch goes down to `low_water`; one that would free less than half of the distance
      between the two waits, unless the prompt is over the guard.
    - Cleared results have an address and can be recovered; a result smaller than its stub stays.
    - `low_water` is ours: the page gives none.
    - A summary covers whole steps, so that no result loses its call, and never human text, a note, an instruction, a
      tool in `exclude`, or an earlier summary. It is committed together with the archive of the blocks it replaces. A
      part that the model did not summarise stays.
    """

    name: ClassVar[str] = "layered"
    source: ClassVar[str] = 'jutul-agent documentation, "Context handling", section "Growth and its limits"'
    recovers: ClassVar[str] = "yes (there: offloads)"

    ask: Ask | None = None
    offload: bool = True
    keep: Results = 0
    clear: Share = 0.0
    low_water: Share = 0.50
    exclude: Names = ()
    summarise: Share = 0.0
    verbatim: Share = 0.10
    focus: Focus = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if 0 < self.summarise <= self.clear:
            raise ValueError("clear must be below summarise")

    def terms(self) -> Terms:
        own = {"clear": self.clear, "summarise": self.summarise}
        return Terms(ladder={name: share for name, share in own.items() if share})

    def propose(self, view: View) -> Plan:
        before = view.used
        marks = self._marks(view.budget, before)
        stand = self._all_layers(view, marks, self._touched(view) if before > marks.clear else frozenset())
        if stand.focus and stand.tokens > view.budget.guard:
            stand = self._all_layers(view, marks, frozenset(), stand)
        remarks = list(stand.remarks) or [f"clearing starts above {marks.clear:,}"]
        if stand.tokens > view.budget.effective:
            remarks.append(_excess(stand))
        return Plan(
            actions=stand.actions,
            actor=self.actor,
            reason=f"{before:,} of {view.budget.effective:,} tokens: {'; '.join(remarks)}",
            pressure=before > view.budget.guard,
            asked=stand.asked,
            cost=stand.cost,
        )

    def _all_layers(self, view: View, marks: _Marks, focus: frozenset[str], first: _Stand | None = None) -> _Stand:
        """The state after all layers: first without the newest turn, and with it where nothing older remains.

        A model is asked for either part by itself: a plan that left the second to the next call would not be
        idempotent. One that gave no summary, or that was asked for a `first` attempt at this plan, is not asked again.
        """
        stand = _Stand(view, protected(view.ledger), view.used, focus=focus)
        if first:
            stand = replace(stand, asked=first.asked, cost=first.cost)
        stand = self._layers(replace(stand, end=self._older(view, stand) or _ALL), marks)
        if stand.end == _ALL or stand.tokens <= marks.clear:
            return stand
        rehearsal = rehearse(view, self._plan(stand.actions), protect=stand.protect)
        then = replace(view, ledger=rehearsal.after, next_group=view.next_group + len(rehearsal.groups))
        if stand.tokens <= view.budget.guard and self._older(then, stand):
            return stand
        answered = any(action.verb == "summarise" for action in stand.actions)
        again = stand.asked and not (answered and not (first and first.asked))
        second = replace(stand, view=then, end=_ALL, offloaded=None, actions=(), waiting=(), remarks=(), asked=again)
        second = self._layers(second, marks)
        return replace(
            stand,
            tokens=second.tokens,
            actions=(*stand.actions, *second.actions),
            remarks=(*stand.remarks, *(second.remarks if second.actions else ())),
            asked=stand.asked or second.asked,
            cost=second.cost,
        )

    def _layers(self, stand: _Stand, marks: _Marks) -> _Stand:
        if self.offload:
            stand = self._offloaded(stand)
        if stand.tokens > marks.clear:
            stand = self._cleared(stand, marks)
        return self._summarised(stand, marks) if stand.tokens > marks.summarise else stand

    def _older(self, view: View, stand: _Stand) -> int:
        """The step that the newest turn begins with, if anything before it could be summarised; else 0."""
        ledger, costs = view.ledger, costs_in_prompt(view.ledger, view.price)
        first = next((row.step for row in ledger.rows() if row.turn == ledger.meta.counters.turn), 0)
        end = min(first, _end(view, costs, int(view.budget.effective * self.verbatim)))
        return first if _spans(view, costs, self._staying(ledger, stand.staying, end), end) else 0

    def high(self, budget: Budget) -> int:
        return int(budget.effective * self.clear) if self.clear else budget.clear

    def _marks(self, budget: Budget, tokens: int) -> _Marks:
        clear = self.high(budget)
        low = min(int(budget.effective * self.low_water), clear)
        summarise = int(budget.effective * self.summarise) if self.summarise else budget.summarise
        least = 0 if tokens > budget.guard else (clear - low) // 2  # whatever helps, before the guard acts
        return _Marks(clear=clear, low=low, least=least, summarise=summarise)

    def _plan(self, actions: tuple[Action, ...]) -> Plan:
        return Plan(actions=actions, actor=self.actor)

    def _touched(self, view: View) -> frozenset[str]:
        """The blocks in the prompt that contain a word of `focus`, with the other halves of their pairs."""
        if not self.focus:
            return frozenset()
        word = re.compile("|".join(map(re.escape, self.focus)), re.IGNORECASE)
        rows = [row for row in view.ledger.rows() if row.present and row.kind != "dashboard"]
        calls = {row.call for row in rows if row.call and word.search(view.words(row))}
        return frozenset(row.id for row in rows if (row.call in calls if row.call else word.search(view.words(row))))

    # --- layer 1

    def _offloaded(self, stand: _Stand) -> _Stand:
        view, limit = stand.view, stand.view.budget.offload
        large = tuple(
            Action(verb="archive", targets=(row.id,), preview=True)
            for row in view.ledger.rows()
            if row.kind == "tool_result" and row.state == "visible" and row.id not in stand.protect
            if view.part(view.price.body(row)) > limit
        )
        if not large:
            return stand
        rehearsal = rehearse(view, self._plan(large), protect=stand.protect)
        return replace(
            stand,
            offloaded=rehearsal.after,
            tokens=view.calibrated(rehearsal.tokens_after),
            actions=rehearsal.done,
            remarks=(f"{_count(rehearsal.done, 'result')} over {limit:,} offloaded",) if rehearsal else (),
        )

    # --- layer 2

    def _cleared(self, stand: _Stand, marks: _Marks) -> _Stand:
        view = replace(stand.view, ledger=stand.offloaded or stand.view.ledger)
        rows = (row for row in self._old(view, stand.staying) if row.step < stand.end)
        old = tuple(Action(verb="archive", targets=(row.id,)) for row in rows)
        batch, after = fewest_actions(view, self._plan(old), marks.low, protect=stand.protect)
        freed = stand.tokens - after
        if not batch:
            return replace(stand, remarks=(*stand.remarks, "no old result is left to clear"))
        if after > marks.low and freed < marks.least:
            remark = f"clearing would free only {freed:,} and waits until it frees {marks.least:,}"
            return replace(stand, waiting=batch, remarks=(*stand.remarks, remark))
        remark = f"{_count(batch, 'old result')} cleared, {after:,} left"
        return replace(stand, tokens=after, actions=(*stand.actions, *batch), remarks=(*stand.remarks, remark))

    def _old(self, view: View, protect: AbstractSet[str]) -> Iterator[Row]:
        """The results that may be cleared, oldest first."""
        newest = self._newest_results(view)
        for row in view.ledger.rows():
            if (
                row.kind == "tool_result"
                and row.state in ("visible", "masked")
                and not row.error
                and row.tool not in self.exclude
                and row.id not in newest
                and row.id not in protect
            ):
                yield row

    def _newest_results(self, view: View) -> AbstractSet[str]:
        """The newest results, with all of the step that the oldest of them is of."""
        keep = self.keep or view.budget.kept_results
        results: set[str] = set()
        step = 0
        for row in view.ledger.backwards():
            if row.kind == "tool_result":
                if len(results) >= keep and row.step != step:
                    break
                results.add(row.id)
                step = row.step
        return results

    # --- layer 3

    def _summarised(self, stand: _Stand, marks: _Marks) -> _Stand:
        cleared = rehearse(stand.view, self._plan((*stand.actions, *stand.waiting)), protect=stand.protect)
        view = replace(stand.view, ledger=cleared.after)
        costs = costs_in_prompt(view.ledger, view.price)
        end = min(stand.end, _end(view, costs, int(view.budget.effective * self.verbatim)))
        spans = _spans(view, costs, self._staying(view.ledger, stand.staying, end), end)
        if not spans:
            return replace(stand, remarks=(*stand.remarks, "no part is old enough to summarise"))
        spans = _needed(view, spans, cleared.tokens_after, marks.low)
        freed = stand.tokens - view.calibrated(cleared.tokens_after - sum(span.shown - span.room for span in spans))
        if freed < marks.least:
            remark = f"summaries would free only about {freed:,} and wait until they free {marks.least:,}"
            return replace(stand, remarks=(*stand.remarks, remark))
        if stand.asked:
            return replace(stand, remarks=(*stand.remarks, "the model was asked already"))
        if self.ask and view.ledger.meta.asked and (new := summaries.since_asked(view)) < marks.least:
            remark = f"summaries wait: only {new:,} new tokens since a model was asked, less than {marks.least:,}"
            return replace(stand, remarks=(*stand.remarks, remark))
        texts, cost = self._texts(stand.view, spans)
        stand = replace(stand, asked=self.ask is not None, cost=stand.cost + cost)
        actions = [
            Action(verb="summarise", targets=span.targets, index=texts[span.name])
            for span in spans
            if span.name in texts
        ]
        if not actions:
            return replace(stand, remarks=(*stand.remarks, "the model gave no summary in the requested form"))
        summarised = {target for action in actions for target in action.targets}
        kept_actions = [
            action for action in (*stand.actions, *stand.waiting) if not summarised.issuperset(action.targets)
        ]
        rehearsal = rehearse(stand.view, self._plan((*kept_actions, *actions)), protect=stand.protect)
        count = sum(action.verb == "summarise" for action in rehearsal.done)
        after = view.calibrated(rehearsal.tokens_after)
        remark = (
            f"without summaries {view.calibrated(cleared.tokens_after):,} would remain; {count:,} of "
            f"{_count(spans, 'part')} summarised by {'the model' if self.ask else 'rule'}, {after:,} left"
        )
        return replace(stand, tokens=after, actions=rehearsal.done, remarks=(remark,))

    def _texts(self, view: View, spans: Sequence[Span]) -> tuple[Mapping[str, str], int]:
        """part → its summary, where there is one, and the tokens that it took to make them."""
        if self.ask is None:
            return {span.name: summaries.extracted(span, view.words) for span in spans}, 0
        answer = self.ask(view, summaries.contract(spans, self.focus))
        return summaries.parsed(answer.text, spans), answer.tokens

    def _staying(self, ledger: Ledger, protect: AbstractSet[str], end: int) -> AbstractSet[str]:
        """The blocks that no summary may stand for, and those of step `end` and later.

        Of a call and its result both stay or none; of a group, all blocks.
        """
        groups = ledger.groups
        around = {row.id: outermost(groups, row.group) for row in ledger.rows() if row.group and not row.present}
        groups_staying = {name for name, group in groups.items() if not group.stub or is_summary(group.stub)}
        groups_staying |= {name for block, name in around.items() if name and ledger[block].step >= end}
        stay = {block for group in groups.values() for block in group.summary}
        calls: set[str] = set()
        for row in ledger.rows():
            group = around.get(row.id)
            if row.step >= end or (group in groups_staying if group else row.id in protect or self._stays(row)):
                stay.add(row.id)
            if row.kind == "tool_use":
                calls.add(row.id)
            elif row.kind == "tool_result" and row.parent in calls and not stay.isdisjoint((row.id, row.parent)):
                stay |= {row.id, row.parent}
        return stay

    def _stays(self, row: Row) -> bool:
        return (
            row.state == "pinned"
            or row.kind == "note"
            or row.role == "system"
            or is_human(row.role, row.origin)
            or (row.kind in ("tool_use", "tool_result") and row.tool in self.exclude)
        )


class _Marks(NamedTuple):
    """In tokens: where clearing begins and what a batch goes down to, what it frees at least, where summaries begin."""

    clear: int
    low: int
    least: int
    summarise: int


@dataclass(frozen=True, slots=True)
class _Stand:
    """The state after some layers. `view` is the one given, `tokens` the cost of the prompt after `actions`.

    From step `end` on nothing is cleared or summarised, and nowhere what is in `focus`.

    `offloaded` is the ledger after layer 1, if that did anything. `waiting` are actions that free too little by
    themselves, `remarks` go into the reason of the plan, `asked` says whether a model was asked.
    """

    view: View
    protect: frozenset[str]
    tokens: int
    end: int = _ALL
    focus: frozenset[str] = frozenset()
    offloaded: Ledger | None = None
    actions: tuple[Action, ...] = ()
    waiting: tuple[Action, ...] = ()
    remarks: tuple[str, ...] = ()
    asked: bool = False
    cost: int = 0

    @property
    def staying(self) -> frozenset[str]:
        return self.protect | self.focus


def _end(view: View, costs: Mapping[str, int], verbatim: int) -> int:
    """The step from which on everything stays: the latest, and as many before it as fit into `verbatim` tokens.

    The newest `REPLIES` stay in any case, unless they are more than half the budget: else a prompt that was compacted
    once would lose its newest turn when it is compacted again.
    """
    rows = list(view.ledger.rows())
    end = latest_step(view.ledger)
    kept_cost = 0
    replies: set[int] = set()
    for step, step_rows in groupby(reversed(rows), key=attrgetter("step")):
        kept_cost += sum(costs.get(row.id, 0) for row in step_rows)
        newest = len(replies) < REPLIES and view.part(kept_cost) <= view.budget.effective // 2
        if view.part(kept_cost) > verbatim and not newest:
            break
        replies.add(step)
        end = min(end, step)
    return end


def _spans(view: View, costs: Mapping[str, int], stay: AbstractSet[str], end: int) -> list[Span]:
    """The parts that may be summarised and cost at least twice their summary."""
    longest = int(view.budget.effective * LONGEST)
    spans = []
    for opener, part in _parts(view.ledger, stay, end):
        cost = sum(costs.get(row.id, 0) for row in part)
        room = max(SHORTEST, min(int(cost * SHARE), longest))
        if cost >= 2 * room:
            units = (row.id if row.present else outermost(view.ledger.groups, row.group) or row.id for row in part)
            targets = tuple(dict.fromkeys(units))
            spans.append(Span(targets=targets, rows=tuple(part), opener=opener, shown=cost, room=room))
    return spans


def _needed(view: View, spans: Sequence[Span], tokens: int, low: int) -> list[Span]:
    """The oldest of the parts, as many as bring a prompt of `tokens` down to the low-water mark."""
    oldest: list[Span] = []
    for span in spans:
        if view.calibrated(tokens) <= low:
            break
        oldest.append(span)
        tokens -= span.shown - span.room
    return oldest


def _parts(ledger: Ledger, stay: AbstractSet[str], end: int) -> Iterator[tuple[Row | None, list[Row]]]:
    """The parts between two blocks that stay, each with the human text before it. A result goes with its call."""
    parts: list[tuple[Row | None, list[Row]]] = [(None, [])]
    places: dict[str, list[Row]] = {}  # a call, or a group → the part that it is in
    for row in ledger.rows():
        if row.step >= end:
            break
        if row.kind == "dashboard" or row.state in ("deleted", "pruned"):
            continue  # has left, or leaves with the next cut
        opener, part = parts[-1]
        if row.id in stay:
            opener = row if speaks(row.kind, row.role, row.origin) else opener
            parts.append((opener, []))
            continue
        group = "" if row.present else outermost(ledger.groups, row.group)
        home = places.setdefault(group, part) if group else places.get(row.parent, part)
        home.append(row)
        if row.kind == "tool_use":
            places[row.id] = home
    return (part for part in parts if part[1])


def _excess(stand: _Stand) -> str:
    """By how many tokens the budget is exceeded, and what accounts for them."""
    view = stand.view
    human = sum(view.price.body(row) for row in view.ledger.rows() if row.present and is_human(row.role, row.origin))
    return (
        f"{stand.tokens - view.budget.effective:,} over the budget: {view.overhead:,} are system prompt and tools, "
        f"{human:,} are human text, the rest is new, protected or smaller than its stub"
    )


def _count(things: Sequence[object], name: str) -> str:
    return f"{len(things):,} {name}{'' if len(things) == 1 else 's'}"
