"""Stub roll-up: where stubs alone cost too much, whole steps that are nothing but stubs leave as one group.

Without it the stubs of a long run pass any ceiling. What a human wrote, notes and pins stay where they are
and end a run of steps. A result that is smaller than its stub would be counts as one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, partial

from ctxvc.core.ledger.ledger import Group, Row, outermost
from ctxvc.core.plan.draft import LedgerDraft, header
from ctxvc.core.plan.runs import Outermost, Run, Step, is_member, runs
from ctxvc.core.prompt.outline import Slot
from ctxvc.core.prompt.stub import is_summary
from ctxvc.core.view.view import View

#: Of the wanted size of a prompt, in hundredths: what stubs may cost, and down to what they are then brought.
MOST = 5
LEAST = 3
#: The same under pressure for stubs with the previews below them, which are worth more.
MOST_WITH_PREVIEWS = 10
LEAST_WITH_PREVIEWS = 5


def gather(
    view: View,
    draft: LedgerDraft,
    slots: Iterable[Slot],
    *,
    actor: str,
    protect: frozenset[str],
    previews: bool = False,
) -> tuple[Group, ...]:
    """Gathers stubs on a draft until they cost at most 3 % of the budget, where possible; returns the new groups.

    None if they cost no more than 5 %. Each new group costs less than what it replaces. `slots` are the draft's
    prompt; the blocks of `protect` stay.

    With `previews`, what of its text stands below a block's stub counts too where both cost more than 10 %: then down
    to 5 %.
    """
    lines: dict[str, int] = {}  # block → what the stub in its place costs
    texts: dict[str, int] = {}  # the same with what stands below it
    for slot in slots:
        if slot.show == "text" and slot.text:
            # A block's own stub may have a preview below it; a group's has lines only where it is a summary.
            is_preview = is_summary(slot.text) and not slot.row.group
            line = slot.text.partition("\n")[0] if is_preview else "" if is_summary(slot.text) else slot.text
            lines[slot.row.id] = lines.get(slot.row.id, 0) + (view.price.text(line) if line else 0)
            text = slot.text if is_preview else line
            texts[slot.row.id] = texts.get(slot.row.id, 0) + (view.price.text(text) if text else 0)
    hundredth = view.budget.soft_limit / 100
    if previews and view.part(sum(texts.values())) > MOST_WITH_PREVIEWS * hundredth:
        stubs, target = texts, LEAST_WITH_PREVIEWS * hundredth
    elif view.part(sum(lines.values())) > MOST * hundredth:
        stubs, target = lines, LEAST * hundredth
    else:
        return ()
    total = sum(stubs.values())
    groups: list[Group] = []
    stub_steps = sorted({draft.rows[block].step for block in stubs})
    outer = cache(partial(outermost, draft.groups))
    for run in runs(draft, outer, protect):
        if not _is_among(stub_steps, run) or not _is_several(draft, outer, run):
            continue
        rows = [row for step in run for row in step.rows]
        if not any(row.id in stubs for row in rows):
            continue  # nothing to gather, whatever it would say
        likely = view.price.text(header(Group(id=f"G{draft.next_group}", members=(), label=draft.label(rows)), rows, 0))
        leaving: list[Row] = []
        freed = 0
        for part in _beginnings(draft, [step.rows for step in run]):
            leaving += part
            freed += sum(stubs.get(row.id, 0) for row in part)
            if view.part(total - freed + likely) <= target:
                break
        group = _group(draft, leaving, actor) if freed else None
        if group:
            groups.append(group)
            total += view.price.text(group.stub) - freed
        if view.part(total) <= target:
            break
    return tuple(groups)


def pays(view: View, slots: Iterable[Slot]) -> bool:
    """Whether stubs that stand side by side could save what roll-up goes down by: it goes through all steps.

    Where people's words stand between nearly all of them, it would do so for nothing with each plan.
    """
    saved = 0
    run: list[int] = []
    for slot in slots:
        if slot.show == "text" and slot.text and not is_summary(slot.text):
            run.append(view.price.text(slot.text))
        elif slot.kind != "tool_use" and (slot.text or slot.show != "text"):
            saved += sum(run) - max(run, default=0)
            run = []
    return view.part(saved + sum(run) - max(run, default=0)) >= (MOST - LEAST) * view.budget.soft_limit / 100


def _group(draft: LedgerDraft, rows: Sequence[Row], actor: str) -> Group | None:
    """The rows as a new group; None, and nothing changed, where that saves nothing."""
    units = _units(draft, rows)
    if len(units) < 2:
        return None
    reach, mark, number = draft.reach(row.id for row in rows), draft.mark(), draft.next_group
    before = draft.cost(reach)
    group = draft.gather(units, label="", actor=actor)
    if draft.cost(reach) < before:
        return group
    draft.back(mark)
    draft.next_group = number
    return None


def _units(draft: LedgerDraft, rows: Iterable[Row]) -> dict[str, None]:
    """The blocks and outermost groups that rows are in, in their order."""
    return dict.fromkeys(draft.around(row) or row.id for row in rows if is_member(row))


def _is_among(numbers: Sequence[int], run: Run) -> bool:
    """Whether one of these numbers, in ascending order, is that of a step of a run."""
    newest = bisect_right(numbers, run[-1].number) - 1
    return newest >= 0 and numbers[newest] >= run[0].number


def _is_several(draft: LedgerDraft, outer: Outermost, run: Iterable[Step]) -> bool:
    """Whether the steps of a run are in more than one unit."""
    units: set[str] = set()
    for step in run:
        if step.groups is None:
            units.update(draft.around(row) or row.id for row in step.rows if is_member(row))
        else:
            units.update(map(outer, step.groups))
        if len(units) > 1:
            return True
    return False


def _beginnings(draft: LedgerDraft, run: Sequence[list[Row]]) -> Iterator[list[Row]]:
    """The rows of a run in parts of whole steps, none of which shares a group with another."""
    names = [{name for row in rows if (name := draft.around(row))} for rows in run]
    last = {name: at for at, of_part in enumerate(names) for name in of_part}
    part: list[Row] = []
    reach = 0
    for at, rows in enumerate(run):
        part += rows
        reach = max([reach, *(last[name] for name in names[at])])
        if reach <= at:
            yield part
            part = []
