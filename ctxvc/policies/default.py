"""The default policy: keeps recently used blocks and words that occur nowhere else; the agent has its own tools."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import translate
from typing import ClassVar, Literal

import msgspec

from ctxvc.core.ledger.facts import facts
from ctxvc.core.ledger.ledger import Ledger, Row
from ctxvc.core.ledger.numbering import turn_answers
from ctxvc.core.ledger.pairs import calls_and_results, results_of
from ctxvc.core.plan import admission, rollup, timing
from ctxvc.core.plan.plan import Action, Plan
from ctxvc.core.plan.rehearse import rehearse
from ctxvc.core.plan.value import CLASSES, STUB, WEIGHTS, Class, Departure, class_of, departures, runs_of
from ctxvc.core.policy import REACH, Globs, Policy, Share, Terms, Tokens, Weights
from ctxvc.core.prompt import cut
from ctxvc.core.view.budget import Budget, is_narrow
from ctxvc.core.view.view import View
from ctxvc.policies import context_text, scoped, self_managed
from ctxvc.policies.candidates import cost_in_prompt, leaving, old_stubs, removable, standing

#: The tool whose arguments are a plan that the user agreed to, if the call did not fail.
_PLAN = "exitplanmode"
#: The most that summary, plan, task list and files that the user named may keep of the budget; beyond it they leave
#: like others.
_KEPT = 0.2
#: The most that the summary may take of the budget: it is all that the prompt has of what left before it. Of 37 that
#: hosts recorded 14 are below a fifth of 12,000 tokens, and 31 below this.
_SUMMARY = 0.3
#: θ in a narrow window, where a quarter is less than a file: recordings keep a third more of what is at risk.
_NARROW_OFFLOAD = 0.5
#: What a call weighs at least in a narrow window: most results leave there, and it is all that stays of an exchange.
_NARROW_CALL = 2.0
#: The context tools in a narrow window.
_FEW = ("archive", *REACH)
_PATH = re.compile(r"[^\s\"'`,;:()\[\]{}<>|=]+")


class Default(Policy, frozen=True, kw_only=True):
    """Admission and guard, a rule over blocks of every kind, the agent's own tools, and scopes; no planner.

    Source: a composition of VISTA (tools, dashboard, admission, guard), explicit scopes, and our own rule, found by
    replaying recorded sessions (`core.plan.value`, docs/policies.md). Admission and the guard belong to the session,
    whatever the policy; the rule is `propose`: above `trigger`, blocks whose words mostly occur elsewhere and that have
    not been used for long leave in one batch. A result leaves a short stub if its call stays; everything else that
    leaves in a turn becomes one group. Knobs:

    - `trigger`, `low_water`: shares of the budget at which a batch starts, and down to which it archives.
    - `narrow_low_water`: `low_water` in a window below 16,000 tokens, if higher; fewer tools are offered there.
    - `cold_low_water`: once the provider's cache has expired, a change breaks nothing: a batch starts above this share
      already, and goes down to it (in a window below 16,000 tokens to `narrow_low_water`, if higher).
    - `ceiling`: the most tokens of a prompt, even in a larger window; the shares then refer to it (0: none). Beyond
      such a size a run costs more without doing better (CWL, section 6.4).
    - `weights`: value of a block's words by kind of work, for kinds that differ, as in `read=1|test=0.1`.
    - `protect`: path patterns of files that stay in the prompt, as in `docs/*.md|SPEC.txt`.
    - `tools`: `few` offers the fewer, shortly described tools of a narrow window in every window: for other agents.

    Human text, pins, notes, instruction files and the newest step stay under every policy. Here the host's newest
    summary of what left, the plan that the user agreed to, the newest task list and the files of `protect` also stay,
    up to a fifth of the budget, the summary up to three tenths.
    """

    name: ClassVar[str] = "default"
    source: ClassVar[str] = "VISTA, explicit scopes, and a rule of our own"
    decides: ClassVar[str] = "agent, then rule"
    sees: ClassVar[str] = "dashboard and stubs"
    ascending: ClassVar[tuple[str, ...]] = ("low_water", "trigger")

    trigger: Share = 0.98
    low_water: Share = 0.6
    narrow_low_water: Share = 0.73
    cold_low_water: Share = 0.55
    ceiling: Tokens = 200_000
    weights: Weights = ()
    protect: Globs = ()
    tools: Literal["all", "few"] = "all"

    def __post_init__(self) -> None:
        super().__post_init__()
        _weights(self.weights)

    def propose(self, view: View) -> Plan:
        before, trigger = view.used, self.high(view.budget)
        high, target = trigger, int(self._soft_limit(view.budget) * self.low(view.budget.window))
        cold = view.idle > timing.USUAL.lifetime
        if cold:
            cold_low = int(self._soft_limit(view.budget) * self.cold_low(view.budget.window))
            high, target = min(high, cold_low), min(target, cold_low)
        if before <= high:
            return Plan(actions=(), actor=self.actor, reason=standing(view, before, high, "the trigger"))
        actions = self._batch(view, target)
        pressure = bool(actions) and before > trigger
        plan = Plan(actions=(*actions, *_old_stubs(view, actions)), actor=self.actor, pressure=pressure)
        rehearsal = rehearse(view, plan)
        now = rehearsal.after
        # Old stubs leave only beside something else: otherwise those of this batch would leave with the next call.
        if not any(action.verb == "archive" for action in rehearsal.done):
            plan, now = msgspec.structs.replace(plan, actions=actions), view.ledger
        count = sum(len(action.targets) for action in plan.actions)
        what = f"{count} block{'' if count == 1 else 's'} removed whose words occur elsewhere or are unused"
        until_cut = replace(view, ledger=now).used
        after = replace(view, ledger=cut.with_cut(now)).used if now is not view.ledger else until_cut
        reason = leaving(view, before, after, what)
        if after < until_cut > view.budget.effective:
            reason += f"; {until_cut - view.budget.effective:,} over the budget until its cut takes effect"
        return msgspec.structs.replace(plan, reason=reason, rolls_up=cold)

    def relief(self, view: View, target: int) -> Sequence[Action]:
        actions = self._batch(view, target)
        return (*actions, *_old_stubs(view, actions))

    def low(self, window: int) -> float:
        """The share of the budget that a batch goes down to, by the window's tokens."""
        return max(self.low_water, min(self.narrow_low_water, self.trigger)) if is_narrow(window) else self.low_water

    def cold_low(self, window: int) -> float:
        """The share above which a batch starts, and down to which it goes, once the provider's cache has expired."""
        return max(self.cold_low_water, self.low(window)) if is_narrow(window) else self.cold_low_water

    def high(self, budget: Budget) -> int:
        return int(self._soft_limit(budget) * self.trigger)

    def terms(self) -> Terms:
        ladder = {"soft_limit": self.ceiling} if self.ceiling else {}
        if self.tools == "few":
            return _few(ladder)
        tools = tuple(dict.fromkeys((*self_managed.TOOLS, *scoped.TOOLS)))
        return Terms(tools=tools, protocol=context_text.text(tools), ladder=ladder)

    def terms_in(self, window: int) -> Terms:
        return _few({"offload": _NARROW_OFFLOAD}) if is_narrow(window) else self.terms()

    def _soft_limit(self, budget: Budget) -> int:
        """The tokens that the shares refer to."""
        return min(budget.soft_limit, self.ceiling or budget.soft_limit)

    def _batch(self, view: View, target: int) -> tuple[Action, ...]:
        """The actions that bring the prompt down to `target` tokens, as far as foreseen."""
        # A batch comes with a cut, so what that takes need not be freed.
        ahead = replace(view, ledger=cut.with_cut(view.ledger))
        used, freed = ahead.used, 0
        if used <= target:
            return ()
        stays = _stays(view, self.protect)
        free = [row for row in removable(ahead) if row.id not in stays and row.kind not in cut.CUT]
        free += _oversized(ahead)
        batch: list[Departure] = []
        answers = view.ledger.derived(turn_answers)
        for departure in departures(ahead, free, _weights(self.weights), answers, _NARROW_CALL):
            if used - view.part(freed) <= target:
                break
            batch.append(departure)
            freed += departure.freed
        batch, freed = _without_excess(batch, freed, lambda tokens: used - view.part(tokens) <= target)
        return _actions(view, batch)


def _without_excess(
    batch: Sequence[Departure], freed: int, enough: Callable[[int], bool]
) -> tuple[list[Departure], int]:
    """The batch without what need not leave, as others that came later freed more; and the tokens that it frees.

    The last that was chosen stays first: it is worth most. A result stays with its call only.
    """
    remaining: list[Departure] = []
    folded: set[str] = set()
    for departure in reversed(batch):
        bound = departure.stubbed and departure.rows[0].parent in folded
        if not bound and enough(freed - departure.freed):
            freed -= departure.freed
            continue
        remaining.append(departure)
        folded |= {row.id for row in departure.rows}
    return remaining[::-1], freed


def _weights(overrides: Iterable[str]) -> Mapping[Class, float]:
    """The weights of all classes, with those that `overrides` give. Raises: ValueError."""
    weights = dict(WEIGHTS)
    for word in overrides:
        name, _, value = word.partition("=")
        kind = next((own for own in CLASSES if own == name), None)
        try:
            weight = float(value)
        except ValueError:
            weight = -1.0
        if kind is None or not 0 <= weight <= 1_000:
            raise ValueError(
                f"weights: {word[:40]!r} is not a weight; write CLASS=NUMBER, with CLASS one of {', '.join(CLASSES)}"
            )
        weights[kind] = weight
    return weights


def _actions(view: View, batch: Iterable[Departure]) -> tuple[Action, ...]:
    """A result whose call stays leaves by itself; all else that leaves between two texts that stay is one group."""
    why: dict[str, str] = {}
    folded: set[str] = set()
    alone: dict[str, Row] = {}
    for departure in batch:
        reason = f"value {departure.value:.3g}, unused {departure.idle}r, words nowhere else {departure.unique}"
        why.update({row.id: reason for row in departure.rows})
        if departure.stubbed:
            alone[departure.rows[0].id] = departure.rows[0]
        else:
            folded |= {row.id for row in departure.rows}
    folded |= {block for block, row in alone.items() if row.parent in folded}
    groups: dict[int, list[str]] = {}
    for block, run in runs_of(view.ledger).items():
        if block in folded:
            groups.setdefault(run, []).append(block)
    targets = [*((block,) for block in alone if block not in folded), *map(tuple, groups.values())]
    return tuple(
        Action(verb="archive", targets=blocks, why={block: why[block] for block in blocks if block in why})
        for blocks in targets
    )


def _old_stubs(view: View, batch: Sequence[Action]) -> tuple[Action, ...]:
    """The oldest stubs, where all, with those of the batch, cost more than roll-up begins at."""
    return old_stubs(view, rollup.MOST, rollup.LEAST, more=len(batch) * STUB)[0]


def _stays(view: View, globs: Sequence[str]) -> frozenset[str]:
    """The host's newest summary of what left, the plan that the user agreed to, the newest task list, and calls on
    files of these patterns, with results.

    The summary first, if it is no more than `_SUMMARY` of the budget, then the newest, as long as all are together no
    more than `_KEPT` of it.
    """
    ledger = view.ledger
    matches = re.compile("|".join(translate(glob) for glob in globs)).match if globs else None
    calls = [row for row in removable(view) if row.kind == "tool_use"]
    results = results_of(calls_and_results(ledger, {call.call for call in calls}))
    stays: set[str] = set()
    room = int(view.budget.soft_limit * _KEPT)
    for row in _summary(ledger):
        if (cost := view.part(cost_in_prompt(view, row))) <= view.budget.soft_limit * _SUMMARY:
            stays.add(row.id)
            room -= cost
    states: set[str] = set()  # the kinds of state of which the newest is enough
    for call in reversed(calls):
        result = results.get(call.id)
        state = _PLAN if call.tool.lower() == _PLAN else class_of(call, None)
        newest = state in (_PLAN, "todo") and state not in states and not (result and result.error)
        if newest or (matches and any(map(matches, _paths(_arguments(view, call))))):
            rows = [call, *([result] if result else [])]
            states |= {state}
            room -= (cost := view.part(sum(cost_in_prompt(view, row) for row in rows)))
            if room >= 0:
                stays |= {row.id for row in rows}
            else:
                room += cost
    return frozenset(stays)


def _few(ladder: Mapping[str, float]) -> Terms:
    text = context_text.text(_FEW, board="status", wording="brief")
    return Terms(tools=_FEW, protocol=text, board="status", nudges=False, brief=True, ladder=ladder)


def _oversized(view: View) -> list[Row]:
    """What the client put in since the latest reply, such as the output of a person's command, where a piece is so
    large that as a result it would have come in as a preview."""
    return [
        row
        for row in view.ledger.of_step(view.ledger.meta.counters.step)
        if row.kind == "user"
        and row.origin == "client"
        and row.state == "visible"
        and admission.is_large(view, cost_in_prompt(view, row))
    ]


def _summary(ledger: Ledger) -> Iterator[Row]:
    """The newest summary in the prompt that a host put in the place of what left."""
    for group in reversed(list(ledger.groups.values())):
        rows = [row for block in group.summary if (row := ledger.get(block)) and row.present]
        if rows and group.removed_by == "host":
            yield from rows
            return


def _arguments(view: View, call: Row) -> str:
    """The objects of a call: files, patterns, commands. A label has only the first 80 characters."""
    if not view.readable:
        return call.label
    return "\n".join(fact.object for fact in facts(call.tool, view.words(call), call.ext))


def _paths(arguments: str) -> Iterable[str]:
    """The words of a call's arguments that may be paths, with the last part of each."""
    for word in _PATH.findall(arguments):
        yield word
        yield word.rpartition("/")[2]
