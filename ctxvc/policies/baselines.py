"""The baselines for the five systems, in the same engine: from keeping everything to a single summary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from typing import ClassVar

from ctxvc.core.ledger.ledger import Row
from ctxvc.core.ledger.numbering import is_human
from ctxvc.core.plan.guard import largest_results
from ctxvc.core.plan.plan import Action, Plan
from ctxvc.core.plan.rehearse import fewest_actions
from ctxvc.core.policy import Ask, Names, Policy, Results, Share, Steps, StepsOrNone, Triggered
from ctxvc.core.prompt import stub
from ctxvc.core.view.view import View
from ctxvc.policies.candidates import (
    TURN,
    cost_in_prompt,
    excess,
    leaving,
    old_results,
    removable,
    standing,
    steps,
)
from ctxvc.policies.summaries import Span, contract, extracted, parsed, since_asked

#: A header as long as that of a summary's stub, for its price.
_HEADER = "[archived G99999@000000, steps 99,999–99,999: 99,999 blocks, 99.9M]"


class Keep(Policy, frozen=True, kw_only=True):
    """Nothing ever leaves: the linear conversation, the baseline for the others.

    Source: the linear agent loop of "explicit context management" (section 1.1). Differs: if the prompt does not fit,
    the reason says so, and the guard acts; without a guard the provider refuses the call.
    """

    name: ClassVar[str] = "keep"
    source: ClassVar[str] = "linear baseline of explicit scopes, section 1.1"
    decides: ClassVar[str] = "nobody"
    sees: ClassVar[str] = "everything"

    def relief(self, view: View, target: int) -> Sequence[Action]:
        return largest_results(view, target)

    def propose(self, view: View) -> Plan:
        before, effective = view.used, view.budget.effective
        reason = f"{before:,} of {effective:,} tokens: everything is kept"
        if before > effective:
            reason += f"; that is {before - effective:,} too many, but this policy removes nothing"
        return Plan(actions=(), actor=self.actor, reason=reason)


class Window(Policy, frozen=True, kw_only=True):
    """ReAct: everything is appended until it does not fit, then the oldest replies leave with their results.

    Source: VISTA, baseline "ReAct (append until truncation)", as its harness does it: one assistant message with its
    results at a time, never a user message. Knob: `low_water`, the share of the budget down to which a truncation goes;
    at 1 it stops as soon as the prompt fits, like the original, and breaks the cached prefix at each call. Differs:
    removed blocks can be requested by id; it starts at the guard, not at the limit after it.
    """

    name: ClassVar[str] = "window"
    source: ClassVar[str] = "VISTA (arXiv 2606.30005), appendix D, baseline ReAct"
    sees: ClassVar[str] = "nothing"
    recovers: ClassVar[str] = "yes (there: no)"

    low_water: Share = 0.9

    def propose(self, view: View) -> Plan:
        before, guard = view.used, view.budget.guard
        if before <= guard:
            return Plan(actions=(), actor=self.actor, reason=standing(view, before, guard, "the guard"))
        conversation = [row for row in removable(view) if row.role == "assistant" or row.kind == "tool_result"]
        pruned = tuple(Action(verb="prune", targets=tuple(row.id for row in step)) for step in steps(conversation))
        plan = Plan(actions=pruned, actor=self.actor, pressure=True)
        actions, after = fewest_actions(view, plan, min(guard, int(view.budget.effective * self.low_water)))
        reason = leaving(view, before, after, f"oldest replies removed with their results: {len(actions)}")
        return Plan(actions=actions, actor=self.actor, reason=reason, pressure=bool(actions))


class Clear(Triggered, frozen=True, kw_only=True):
    """Tool-result clearing: above a share of the budget, all results except the newest leave; their calls stay.

    Source: VISTA's baseline "Tool-result Clearing", which removes old pairs of call and result past a threshold that
    it does not give; and LangChain's context editing (`ClearToolUsesEdit`), which clears only the results and supplies
    the rule and `keep=3` here. LangChain starts at 100,000 tokens, whatever the window; a share of it, 0.6, is
    jutul-agent's setting, which keeps 6 (3 in a window below 100,000), and `trigger=0.6` follows that. Knobs:
    `trigger`, share of the budget above which it acts; `keep`, number of results that stay; `least`, share of the
    budget that a batch must free (0 in LangChain, which therefore clears one more result at each call); `exclude`,
    tools whose results stay; `errors`, whether results of failed calls leave too, as in LangChain; `pairs`, whether a
    result takes its call with it, as in VISTA. Differs: the place of a result names its block, which can be read
    again; LangChain writes `[cleared]`, and the model cannot get the result back. A batch frees a twentieth of the
    budget, since each breaks the cached prefix; parallel results stay together; failed results stay; a result shorter
    than its replacement stays.
    """

    name: ClassVar[str] = "clear"
    source: ClassVar[str] = "VISTA (arXiv 2606.30005), appendix D, baseline tool-result clearing"
    sees: ClassVar[str] = "ids"
    recovers: ClassVar[str] = "yes (there: no)"

    trigger: Share = 0.6
    keep: Results = 3
    least: Share = 0.05
    exclude: Names = ()
    errors: bool = False
    pairs: bool = False

    def propose(self, view: View) -> Plan:
        total, effective = view.counted, view.budget.effective
        before, mark = view.calibrated(total), int(effective * self.trigger)
        if before <= mark:
            return Plan(actions=(), actor=self.actor, reason=standing(view, before, mark, "the threshold"))
        old = old_results(view, self.keep, tools=self.exclude, errors=self.errors)
        gains = [(rows, saved) for row in old for rows, saved in [self._saving(view, row)] if saved > 0]
        after = view.calibrated(total - sum(saved for _, saved in gains))
        least = int(effective * self.least)
        if not gains or before - after < least:
            reason = leaving(view, before, before, f"clearing would free only {before - after:,}, less than {least:,}")
            return Plan(actions=(), actor=self.actor, reason=reason)
        action = Action(verb="prune", targets=tuple(row.id for rows, _ in gains for row in rows))
        reason = leaving(view, before, after, f"results cleared: {len(gains)}, all but the newest {self.keep}")
        return Plan(actions=(action,), actor=self.actor, reason=reason)

    def _saving(self, view: View, result: Row) -> tuple[tuple[Row, ...], int]:
        """The rows that leave when this result is cleared, itself included, and the tokens saved."""
        call = view.ledger.get(result.parent) if self.pairs and result.parent else None
        if call is not None and call.kind == "tool_use" and call.state == "visible":
            return (call, result), cost_in_prompt(view, call) + cost_in_prompt(view, result)
        return (result,), cost_in_prompt(view, result) - view.price.text(f"[pruned {result.id}]")


class Mask(Policy, frozen=True, kw_only=True):
    """Stale-observation masking: results of old steps keep only head and tail; reasoning and calls stay whole.

    Source: VISTA's baseline "fixed stale masking". Knobs: `age`, steps after which a result is stale; `batch`, steps
    whose results are masked together, so that the cached prefix breaks once per batch (1: at each step). Differs: a
    mask keeps both ends of a result, and the whole can be read again. The paper says neither what a mask keeps nor when
    a result is stale: 10 steps are ours.
    """

    name: ClassVar[str] = "mask"
    source: ClassVar[str] = "VISTA (arXiv 2606.30005), appendix D, baseline fixed stale masking"
    sees: ClassVar[str] = "both ends"
    recovers: ClassVar[str] = "yes (there: no)"

    age: Steps = 10
    batch: Steps = 10

    def propose(self, view: View) -> Plan:
        total = view.counted
        stale_to = (view.ledger.meta.counters.step - self.age) // self.batch * self.batch
        stale = [
            (row, saved)
            for row in removable(view)
            if row.kind == "tool_result" and row.state == "visible" and row.step <= stale_to
            if (saved := view.price.body(row) - view.price.mask(row)) > 0
        ]
        before, after = view.calibrated(total), view.calibrated(total - sum(saved for _, saved in stale))
        what = f"results masked, up to step {stale_to}: {len(stale)}" if stale else "no result became stale"
        actions = (Action(verb="mask", targets=tuple(row.id for row, _ in stale)),) if stale else ()
        return Plan(actions=actions, actor=self.actor, reason=leaving(view, before, after, what))


class Skeleton(Triggered, frozen=True, kw_only=True):
    """Structured compression: old steps are reduced to their calls and the first line of each result.

    Source: VISTA's baseline "skeleton compression", after compressors that are tools themselves. Knobs: `trigger` and
    `low_water`, shares of the budget at which it starts and stops; `keep`, newest steps that stay whole; `chunk`, the
    most steps in one skeleton; `least`, share that must be freed if that is not enough to stop. Oldest first; human
    text stays between the skeletons. Differs: the skeleton is made by rule, not by a model; the blocks it replaces are
    one group that can be recovered. The paper's own is "inspired by" such
    compressors and not published; its form and marks here are ours.
    """

    name: ClassVar[str] = "skeleton"
    source: ClassVar[str] = "VISTA (arXiv 2606.30005), appendix D, baseline skeleton compression"
    sees: ClassVar[str] = "calls and first lines"
    recovers: ClassVar[str] = "yes (there: no)"
    ascending: ClassVar[tuple[str, ...]] = ("low_water", "trigger")

    trigger: Share = 0.85
    low_water: Share = 0.6
    keep: StepsOrNone = 6
    chunk: Steps = 20
    least: Share = 0.05

    def propose(self, view: View) -> Plan:
        before, effective = view.used, view.budget.effective
        mark = int(effective * self.trigger)
        if before <= mark:
            return Plan(actions=(), actor=self.actor, reason=standing(view, before, mark, "the threshold"))
        last = view.ledger.meta.counters.step - self.keep
        old = [row for row in removable(view) if row.step <= last]
        summaries = tuple(
            Action(verb="summarise", targets=tuple(row.id for row in rows), index=_skeleton(rows))
            for rows in _chunks(old, self.chunk)
        )
        plan = Plan(actions=summaries, actor=self.actor)
        low = int(effective * self.low_water)
        actions, after = fewest_actions(view, plan, low)
        if after > low and before - after < int(effective * self.least):
            reason = leaving(view, before, before, f"skeletons would free only {before - after:,}, too little")
            return Plan(actions=(), actor=self.actor, reason=reason)
        reason = leaving(view, before, after, f"old steps replaced by skeletons: {len(actions)}")
        return Plan(actions=actions, actor=self.actor, reason=reason)


class Summary(Triggered, frozen=True, kw_only=True):
    """Summary only: above a share of the budget, all but the newest part of the prompt becomes one summary.

    Source: VISTA's baseline SLIM, which summarises older context once the budget is exceeded. Knobs, shares of the
    budget: `trigger`, where it acts; `keep`, the end that stays verbatim; `room`, the most that a summary may cost;
    `least`, the least that must be available to summarise, and new since a model was last asked. `ask` is the model
    that writes; without one, the summary is made of sentences from the conversation and says so. Differs: human text
    stays; the blocks that the summary replaces are a group that can be recovered; summaries are not summarised again.
    """

    name: ClassVar[str] = "summary"
    source: ClassVar[str] = "VISTA (arXiv 2606.30005), appendix D, baseline SLIM"
    decides: ClassVar[str] = "rule; a model writes"
    sees: ClassVar[str] = "a summary"
    recovers: ClassVar[str] = "yes (there: no)"

    trigger: Share = 0.85
    keep: Share = 0.1
    room: Share = 0.02
    least: Share = 0.1
    ask: Ask | None = None

    def propose(self, view: View) -> Plan:
        total, effective = view.counted, view.budget.effective
        before, mark = view.calibrated(total), int(effective * self.trigger)
        if before <= mark:
            return Plan(actions=(), actor=self.actor, reason=standing(view, before, mark, "the threshold"))
        span = self._span(view)
        if span is None or view.part(span.shown) < int(effective * self.least):
            freeable = view.part(span.shown) if span else 0
            reason = leaving(view, before, before, f"only {freeable:,} could be summarised, too little")
            return Plan(actions=(), actor=self.actor, reason=reason)
        if self.ask and view.ledger.meta.asked and (new := since_asked(view)) < int(effective * self.least):
            reason = leaving(view, before, before, f"only {new:,} new tokens since a model was asked")
            return Plan(actions=(), actor=self.actor, reason=reason)
        summary, cost = self._summary(view, span)
        with_model = self.ask is not None
        size = view.price.text(f"{_HEADER}\n{stub.guarded(summary)}")
        if not summary.strip() or size >= span.shown:
            reason = leaving(view, before, before, "the model gave no shorter summary")
            return Plan(actions=(), actor=self.actor, reason=reason, asked=with_model, cost=cost)
        reason = (
            f"{before:,} of {effective:,} tokens: {len(span.rows)} blocks of {span.shown:,} become a summary of about "
            f"{size:,}{excess(view, view.calibrated(total - span.shown + size))}"
        )
        summarise = Action(verb="summarise", targets=span.targets, index=summary)
        return Plan(actions=(summarise,), actor=self.actor, reason=reason, asked=with_model, cost=cost)

    def _span(self, view: View) -> Span | None:
        """Everything removable before the newest part, as one span; None if there is nothing."""
        held_back, newest = 0, 0
        for row in view.ledger.backwards():
            held_back += cost_in_prompt(view, row) if row.present else 0
            if view.part(held_back) > view.budget.effective * self.keep:
                break
            newest = row.step
        old = [row for row in removable(view, alone=True) if not newest or row.step < newest]
        if not old:
            return None
        opener = next((row for row in view.ledger.rows() if is_human(row.role, row.origin)), None)
        return Span(
            targets=tuple(row.id for row in old),
            rows=tuple(old),
            opener=opener,
            shown=sum(cost_in_prompt(view, row) for row in old),
            room=int(view.budget.effective * self.room),
        )

    def _summary(self, view: View, span: Span) -> tuple[str, int]:
        """The summary, empty if the model wrote none, and its cost in tokens."""
        if self.ask is None:
            return extracted(span, view.words), 0
        answer = self.ask(view, contract([span]))
        return parsed(answer.text, [span]).get(span.name, ""), answer.tokens


def _chunks(rows: Iterable[Row], size: int) -> Iterator[list[Row]]:
    """The rows in parts of at most `size` steps; no part spans two turns."""
    for _, turn in groupby(rows, key=TURN):
        of_turn = list(steps(turn))
        for start in range(0, len(of_turn), size):
            yield list(chain.from_iterable(of_turn[start : start + size]))


def _skeleton(rows: Sequence[Row]) -> str:
    """One line for each call, reply and client text; a call's line includes the label of its result."""
    answers = {row.parent: row.label for row in rows if row.kind == "tool_result"}
    lines = [f"what was done in steps {rows[0].step} to {rows[-1].step}, in short:"]
    for row in rows:
        if row.kind == "tool_use":
            lines.append(f"- {row.label} -> {answers.get(row.id, '')}".rstrip())
        elif row.kind in ("assistant", "user"):
            lines.append(f"- {'said' if row.kind == 'assistant' else 'put in'}: {row.label}")
    return "\n".join(lines)
