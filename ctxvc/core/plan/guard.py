"""The preflight guard: what leaves when the prompt would pass the budget, and in which order.

VISTA (appendix, "preflight"): the largest raw tool results first, until the prompt is at 98 % of the budget. Here it
goes on to a low-water mark, since each time costs the cached prefix. Where results are not enough, whole steps leave as
a group, oldest first, and last the results of the step that just ended, and blocks one by one of which a group would
save nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ctxvc.core.ledger.ledger import Ledger
from ctxvc.core.ledger.numbering import is_human
from ctxvc.core.plan.plan import Action, Plan, Rehearsal
from ctxvc.core.plan.protected import protected
from ctxvc.core.plan.rehearse import fewest_actions, rehearse
from ctxvc.core.view.view import View

ACTOR = "guard"
#: The share of the effective budget that is left where there is enough to take away.
LOW_WATER = 0.9


def guard(view: View, spare: int = 0) -> Rehearsal | None:
    """A rehearsed plan that brings the prompt below the guard, as far as possible; None if it is below already.

    `spare` tokens are kept free beside it, for what is about to be added.
    """
    target = view.budget.guard - spare
    if view.used <= target:
        return None
    low = min(target, int(view.budget.effective * LOW_WATER))
    rehearsal: Rehearsal | None = None
    protect = protected(view.ledger)
    newest = _newest_results(view.ledger)
    results, steps = _results(view, protect), tuple(_steps(view, protect))
    single = (Action(verb="archive", targets=(block,)) for step in steps for block in step.targets)
    for actions, spared in (
        (results, protect),
        ((*results, *steps), protect),
        ((*results, *steps, *_results(view, protect - newest, only=newest), *single), protect - newest),
    ):
        rehearsal = _enough(view, actions, low, spared)
        if view.calibrated(rehearsal.tokens_after) <= target:
            return rehearsal
    return rehearsal


def _enough(view: View, actions: tuple[Action, ...], target: int, protect: frozenset[str]) -> Rehearsal:
    """The shortest beginning of `actions` that reaches the target without roll-up; all of them if none does."""
    plan = Plan(actions=actions, actor=ACTOR, reason=f"the prompt is over {view.budget.guard:,} tokens", pressure=True)
    needed, _ = fewest_actions(view, plan, target, protect=protect)
    return rehearse(view, msgspec.structs.replace(plan, actions=needed), protect=protect, roll_up=True)


def _results(view: View, protect: frozenset[str], only: frozenset[str] | None = None) -> tuple[Action, ...]:
    """Archives of tool results that stand whole, largest first."""
    results = [
        row
        for row in view.ledger.rows()
        if row.kind == "tool_result"
        and row.state in ("visible", "masked")
        and row.id not in protect
        and (only is None or row.id in only)
    ]
    results.sort(key=lambda row: (-view.price.body(row), row.number))
    return tuple(Action(verb="archive", targets=(row.id,)) for row in results)


def _steps(view: View, protect: frozenset[str]) -> Iterator[Action]:
    """Archives of what is left of old steps, oldest first: all between two texts of humans is one group."""
    run: list[str] = []
    for row in view.ledger.rows():
        if is_human(row.role, row.origin) or row.id in protect or row.state == "pinned" or row.kind == "note":
            if run:
                yield Action(verb="archive", targets=tuple(run))
            run = []
        elif row.state in ("visible", "masked") and row.kind not in ("tool_result", "dashboard", "thinking"):
            run.append(row.id)
    if run:
        yield Action(verb="archive", targets=tuple(run))


def _newest_results(ledger: Ledger) -> frozenset[str]:
    """The results of the newest step that has a reply. The reply itself, with its thinking, never leaves here."""
    results: list[str] = []
    replied = 0
    for row in ledger.backwards():
        if row.step < replied:
            break
        if row.role == "assistant":
            replied = row.step
        elif row.kind == "tool_result":
            results.append(row.id)
    return frozenset(results)
