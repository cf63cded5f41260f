"""The guard: what leaves when the prompt would exceed the budget, and in which order.

VISTA (appendix, "preflight"): the largest raw tool results first, until the prompt is at 98 % of the budget. Here it
continues to a low-water mark, since each time costs the cached prefix, and a policy may choose another order
(`Relief`). If that is not enough, all old results leave, then whole steps as a group, oldest first, then the results of
the step that just ended, and single blocks where a group would save nothing. If that step alone is too large, its calls
and texts leave as a group, and as many of its results stay as fit, because nobody has seen them yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

import msgspec

from ctxvc.core.ledger.ledger import Ledger, Row
from ctxvc.core.ledger.numbering import is_human
from ctxvc.core.ledger.pairs import pairs
from ctxvc.core.plan.admission import is_large
from ctxvc.core.plan.plan import Action, Plan, Rehearsal
from ctxvc.core.plan.protected import latest_step, protected
from ctxvc.core.plan.rehearse import fewest_actions, rehearse
from ctxvc.core.prompt import cut
from ctxvc.core.view.view import View, costs_in_prompt

ACTOR = "guard"
#: The share of the guard's budget to which it reduces the prompt if enough can be removed.
LOW_WATER = 0.9

#: What leaves first, for a view and the tokens that its prompt must come down to: the guard takes as many of the
#: actions, in their order, as it needs.
Relief = Callable[[View, int], Sequence[Action]]


def guard(view: View, spare: int = 0, relief: Relief | None = None) -> Rehearsal | None:
    """A rehearsed plan that brings the prompt below the guard, as far as possible; None if it is already below.

    `spare` tokens are kept free for what is about to be added. `relief` decides what leaves first, by default the
    largest results.
    """
    target = view.budget.guard - spare
    if view.used <= target:
        return None
    low = min(target, int(view.budget.guarded * LOW_WATER) - spare)
    protect = protected(view.ledger)
    newest, reply = _newest_results(view.ledger), _reply(view.ledger)
    first = tuple((relief or largest_results)(view, low))
    steps = tuple(_steps(view, protect))
    old = (*first, *_results(view, protect), *steps)
    single = tuple(Action(verb="archive", targets=(block,)) for action in steps for block in action.targets)
    results = _results(view, protect - newest, only=newest)
    rehearsal: Rehearsal | None = None
    again = tuple(_again(view, protect - newest))
    for actions, spared in ((first, protect), (old, protect), ((*old, *results, *single, *again), protect - newest)):
        rehearsal = _enough(view, actions, low, target, spared)
        if view.calibrated(rehearsal.tokens_after) <= target:
            return rehearsal
    if not reply:
        return rehearsal
    before = {row.id: row for row in (*_bound_thinking(view.ledger), *_owed(view, newest))}
    alone = replace(view, ledger=view.ledger.with_rows(before.values()))
    results = _results(alone, protect - newest, only=newest)
    again = tuple(_again(alone, protect - newest - set(reply)))
    actions = (*old, *single, Action(verb="archive", targets=reply), *results, *again)
    ended = _enough(alone, actions, low, target, protect - newest - set(reply))
    if all(not row.present for row in map(ended.after.__getitem__, reply) if row.kind == "tool_use"):
        rows = before | {row.id: row for row in ended.rows}
        return msgspec.structs.replace(ended, rows=tuple(sorted(rows.values(), key=lambda row: row.number)))
    return rehearsal


def largest_results(view: View, target: int) -> Sequence[Action]:  # noqa: ARG001 - the guard takes what it needs
    """Archives of the tool results shown in full, largest first. Source: VISTA, appendix, "preflight"."""
    return _results(view, protected(view.ledger))


def oldest_steps(view: View, target: int) -> Sequence[Action]:
    """Archives of the oldest steps, whole, as many as bring the prompt to `target` tokens: calls, results and texts.

    Everything that leaves between two blocks that stay is one group.
    """
    units = _old_steps(view)
    deficit = view.used - target
    count = freed = 0
    actions: Sequence[Action] = ()
    while deficit > 0 and count < len(units):
        while count < len(units) and freed <= deficit:
            freed += view.part(units[count].tokens)
            count += 1
        actions = _grouped(units[:count])
        _, after = fewest_actions(view, Plan(actions=tuple(actions), actor=ACTOR, pressure=True), 0)
        if after <= target:
            break
        deficit = freed + after - target  # stubs replace what left, and some of it may not leave
    return actions


class _Unit(NamedTuple):
    """Blocks of a step that leave together, their cost in the prompt, and the number of their run."""

    run: int
    blocks: list[str]
    tokens: int


def _old_steps(view: View) -> list[_Unit]:
    """What may leave of each step before the latest, oldest first. A call and its result leave together or stay."""
    ledger = view.ledger
    stays = set(protected(ledger)).union(row.id for row in _standing(ledger) if _fence(row))
    results, calls = pairs(ledger)
    stays |= {half for block in stays if (half := results.get(block) or calls.get(block))}
    tokens = costs_in_prompt(ledger, view.price)
    latest = cut.latest_step(ledger)
    units: list[_Unit] = []
    run, number = 0, -1
    for row in _standing(ledger, stays):
        if row.step >= latest:
            break
        if row.id in stays:
            run, number = run + 1, -1
        elif row.state in ("visible", "masked", "blocked") and not row.group and row.kind not in cut.CUT:
            if row.step != number:
                units.append(_Unit(run, [], 0))
                number = row.step
            unit = units[-1]
            unit.blocks.append(row.id)
            units[-1] = unit._replace(tokens=unit.tokens + tokens.get(row.id, 0))
    return units


def _grouped(units: Sequence[_Unit]) -> Sequence[Action]:
    """One archive of all units for each run."""
    runs: dict[int, list[str]] = {}
    for unit in units:
        runs.setdefault(unit.run, []).extend(unit.blocks)
    return tuple(Action(verb="archive", targets=tuple(blocks)) for blocks in runs.values())


def _standing(ledger: Ledger, more: Iterable[str] = ()) -> list[Row]:
    """The rows in the prompt, blocked from it or fenced, and the blocks `more`, in order; few even in long sessions."""
    rows = list(chain.from_iterable(ledger.by_segment(_of_prompt)))
    absent = [row for block in more if (row := ledger.get(block)) and not _in_prompt(row)]
    return sorted([*rows, *absent], key=lambda row: row.number) if absent else rows


def _of_prompt(rows: tuple[Row, ...]) -> list[Row]:
    return [row for row in rows if _in_prompt(row)]


def _in_prompt(row: Row) -> bool:
    return row.state in ("visible", "masked", "blocked") or _fence(row)


def _fence(row: Row) -> bool:
    """Whether a row stays in place, whatever surrounds it."""
    return is_human(row.role, row.origin) or row.state == "pinned" or row.kind in ("note", "system")


def _enough(view: View, actions: Sequence[Action], low: int, target: int, protect: frozenset[str]) -> Rehearsal:
    """Rehearses the fewest of `actions` that reach `low` without roll-up, else `target`, else all of them.

    Stubs are rolled up if the hard budget is at risk; at a ceiling below it, only if that pays.
    """
    reason = f"the prompt is over {view.budget.guard:,} tokens"
    plan = Plan(actions=tuple(actions), actor=ACTOR, reason=reason, pressure=True, rolls_up=True)
    is_hard = view.used > target + view.budget.hard_guard - view.budget.guard
    needed, after = fewest_actions(view, plan, low, protect=protect)
    if low < after <= target:
        needed, _ = fewest_actions(view, plan, target, protect=protect)
    return rehearse(view, msgspec.structs.replace(plan, actions=needed), protect=protect, roll_up=is_hard)


def _results(view: View, protect: frozenset[str], only: frozenset[str] | None = None) -> tuple[Action, ...]:
    """Archives of tool results shown in full, largest first."""
    results = [
        row
        for row in _standing(view.ledger)
        if row.kind == "tool_result"
        and row.state in ("visible", "masked")
        and row.id not in protect
        and (only is None or row.id in only)
    ]
    results.sort(key=lambda row: (-view.price.body(row), row.number))
    return tuple(Action(verb="archive", targets=(row.id,)) for row in results)


def _again(view: View, protect: frozenset[str]) -> Iterator[Action]:
    """Archives of what is left between two texts that stay, first together, then block by block.

    Next to blocks that have left by now, a block joins their group, and saves tokens that it did not save before.
    """
    runs: list[list[str]] = [[]]
    for row in _standing(view.ledger, protect):
        if _fence(row) or row.id in protect:
            runs.append([])
        elif row.state in ("visible", "masked") and row.kind not in cut.CUT:
            runs[-1].append(row.id)
    yield from (Action(verb="archive", targets=tuple(run)) for run in runs if len(run) > 1)
    yield from (Action(verb="archive", targets=(block,)) for run in runs for block in run)


def _steps(view: View, protect: frozenset[str]) -> Iterator[Action]:
    """Archives of what is left of old steps, oldest first: everything between two human texts is one group."""
    run: list[str] = []
    for row in _standing(view.ledger, protect):
        if is_human(row.role, row.origin) or row.id in protect or row.state == "pinned" or row.kind == "note":
            if run:
                yield Action(verb="archive", targets=tuple(run))
            run = []
        elif row.state in ("visible", "masked") and row.kind not in ("tool_result", "dashboard", "thinking"):
            run.append(row.id)
    if run:
        yield Action(verb="archive", targets=tuple(run))


def _reply(ledger: Ledger) -> tuple[str, ...]:
    """The blocks of the newest reply, except its thinking; none while one of its calls has no result."""
    step = latest_step(ledger)
    answered = {row.call for row in step if row.kind == "tool_result"}
    reply = [row for row in step if row.role == "assistant" and row.kind != "thinking"]
    if any(row.kind == "tool_use" and row.call not in answered for row in reply):
        return ()
    return tuple(row.id for row in reply if row.state in ("visible", "masked"))


def _bound_thinking(ledger: Ledger) -> tuple[Row, ...]:
    """The newest reply's thinking as removed with its calls: nothing requires it then.

    A cut is not used for it, since that would also remove the thinking of the previous reply, which becomes the newest
    in the prompt.
    """
    thinking = (row for row in latest_step(ledger) if row.kind == "thinking" and row.present)
    return tuple(msgspec.structs.replace(row, state="pruned", removed_by=ACTOR) for row in thinking)


def _owed(view: View, newest: frozenset[str]) -> Iterator[Row]:
    """The newest results that were blocked only for lack of room, restored for when the calls make room."""
    for row in map(view.ledger.__getitem__, sorted(newest)):
        if row.state == "blocked" and not row.group and not is_large(view, view.price.body(row)):
            yield msgspec.structs.replace(row, state="visible", level=0, stub="", removed_by="")


def _newest_results(ledger: Ledger) -> frozenset[str]:
    """The results of the newest step that has a reply."""
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
