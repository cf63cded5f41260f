"""Stub roll-up: if stubs alone cost too much, whole steps that consist only of stubs leave as one group.

Otherwise the stubs of a long run would exceed any ceiling. Human text, notes and pinned blocks stay in place and end a
run of steps. A result that is smaller than its stub would be counts as a stub.
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

#: In hundredths of a prompt's desired size: what stubs may cost, and what they are then reduced to.
MOST = 5
LEAST = 3
#: The same under pressure for stubs including their previews, which are worth more.
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
    """Gathers a draft's stubs until they cost at most 3 % of the budget, if possible; returns the new groups.

    There are none if the stubs cost no more than 5 %. Each new group costs less than what it replaces. `slots` are the
    draft's prompt; the blocks of `protect` stay. With `previews`, the previews below blocks' stubs count too if both
    together cost more than 10 %; they are then reduced to 5 %.
    """
    lines: dict[str, int] = {}  # block → the cost of its stub
    texts: dict[str, int] = {}  # the same including what is below the stub
    for slot in slots:
        if slot.show == "text" and slot.text:
            # A block's own stub may have a preview below it; a group's has several lines only if it is a summary.
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
            continue  # nothing to gather, whatever the label
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
    """Whether rolling up adjacent stubs could save enough to be worth examining all steps.

    If human texts separate nearly all of the steps, each plan would examine them for nothing.
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
    """The rows as a new group; None, with nothing changed, if that saves nothing."""
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
    """The rows' blocks and outermost groups, in order."""
    return dict.fromkeys(draft.around(row) or row.id for row in rows if is_member(row))


def _is_among(numbers: Sequence[int], run: Run) -> bool:
    """Whether one of these numbers, in ascending order, is that of a step of a run."""
    newest = bisect_right(numbers, run[-1].number) - 1
    return newest >= 0 and numbers[newest] >= run[0].number


def _is_several(draft: LedgerDraft, outer: Outermost, run: Iterable[Step]) -> bool:
    """Whether the steps of a run form more than one unit."""
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
