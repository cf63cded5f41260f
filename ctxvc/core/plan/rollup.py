"""Stub roll-up: where stubs alone cost too much, whole steps that are nothing but stubs leave as one group.

Without it the stubs of a long run pass any ceiling. What a human wrote, notes and pins stay where they are
and end a run of steps. A result that is smaller than its stub would be counts as one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import NamedTuple

from ctxvc.core.ledger.ledger import Group, Ledger, Row, outermost
from ctxvc.core.ledger.numbering import is_human
from ctxvc.core.plan.draft import LedgerDraft, header
from ctxvc.core.prompt.outline import Slot
from ctxvc.core.prompt.stub import is_summary
from ctxvc.core.view.view import View

#: Of the wanted size of a prompt, in hundredths: what stubs may cost, and down to what they are then brought.
MOST = 5
LEAST = 3
#: The same under pressure for stubs with the previews below them, which are worth more.
MOST_WITH_PREVIEWS = 10
LEAST_WITH_PREVIEWS = 5
#: A group's name → that of the outermost around it.
Outermost = Callable[[str], str]


def gather(
    view: View,
    draft: LedgerDraft,
    slots: Iterable[Slot],
    *,
    actor: str,
    protect: frozenset[str],
    previews: bool = False,
) -> tuple[Group, ...]:
    """Gathers stubs on a draft until they cost at most 3 % of the budget, as far as that can be; gives the new groups.

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
    stub_steps = {draft.rows[block].step for block in stubs}
    outer = cache(partial(outermost, draft.groups))
    for run in _runs(draft, outer, _steps(draft), protect):
        if not any(step.number in stub_steps for step in run) or not _is_several(draft, outer, run):
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


def _steps(draft: LedgerDraft) -> dict[int, list[Row]]:
    """The rows of each step on the draft. Of steps that are as an earlier ledger had them, mostly the same lists."""
    steps = dict(draft.ledger.derived(_of_ledger))
    for number in {row.step for row in draft.changed()[0]}:
        steps[number] = [draft.rows[row.id] for row in steps[number]]
    return steps


def _of_ledger(ledger: Ledger) -> dict[int, list[Row]]:
    steps: dict[int, list[Row]] = {}
    for of_segment in ledger.by_segment(_of_segment):
        for number, rows in of_segment.items():
            steps[number] = [*steps[number], *rows] if number in steps else rows
    return steps


def _of_segment(rows: tuple[Row, ...]) -> dict[int, list[Row]]:
    steps: dict[int, list[Row]] = {}
    for row in rows:
        steps.setdefault(row.step, []).append(row)
    return steps


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
    return dict.fromkeys(draft.around(row) or row.id for row in rows if _member(row))


def _is_several(draft: LedgerDraft, outer: Outermost, run: Iterable[_Step]) -> bool:
    """Whether the steps of a run are in more than one unit."""
    units: set[str] = set()
    for step in run:
        if step.groups is None:
            units.update(draft.around(row) or row.id for row in step.rows if _member(row))
        else:
            units.update(map(outer, step.groups))
        if len(units) > 1:
            return True
    return False


def _member(row: Row) -> bool:
    """Whether the row joins a group: deleted and pruned rows have left already, dashboards leave with the next cut."""
    return row.state not in ("deleted", "pruned") and row.kind != "dashboard"


class _Step(NamedTuple):
    """What of a step may leave. What stays may stand before its reply, so that a run begins here, or behind its last
    result, so that a run ends here; not in between. `groups` are those that all of it has left in, None if not all."""

    number: int
    rows: list[Row]
    begins: bool
    ends: bool
    groups: frozenset[str] | None


def _runs(
    draft: LedgerDraft, outer: Outermost, steps: Mapping[int, list[Row]], stay: frozenset[str]
) -> list[list[_Step]]:
    """Runs of steps that may leave, oldest first; each has the groups that it touches as a whole."""
    stay |= {block for group in draft.groups.values() for block in group.summary}
    numbers = sorted(steps)
    parts = list(_parts(draft, outer, numbers, steps, stay))
    fit = {step.number: step for part in parts for step in part.steps}
    insides = _insides(outer, parts)
    while True:
        runs: list[list[_Step]] = [[]]
        places: dict[int, int] = {}
        for number in numbers:
            step = fit.get(number)
            if runs[-1] and (step is None or step.begins or runs[-1][-1].ends):
                runs.append([])
            if step:
                runs[-1].append(step)
                places[number] = len(runs)
        split = {number for inside in insides if inside.is_split(places) for number in inside.steps}
        if not split & fit.keys():
            return [run for run in runs if run]
        fit = {number: step for number, step in fit.items() if number not in split}


class _Part(NamedTuple):
    """What was worked out for neighbouring steps, and what it depends on: their rows, the calls in them, the groups
    that they name and those around these. `leaving` are a group's steps in which something of it may leave, `outside`
    those in which something of it stands beside what may.
    """

    rows: list[list[Row]]
    calls: frozenset[str]
    around: dict[str, Group | None]
    steps: list[_Step]
    leaving: dict[str, set[int]]
    outside: dict[str, set[int]]


#: Steps of a part. Of most parts of a long session nothing changes any more.
_PART = 64


def _parts(
    draft: LedgerDraft, outer: Outermost, numbers: Sequence[int], steps: Mapping[int, list[Row]], stay: frozenset[str]
) -> Iterator[_Part]:
    """All steps, in parts. One in which nothing is to `stay` is taken over where all that it depends on is the same."""
    guarded = {row.step for block in stay if (row := draft.rows.get(block))}
    cache: dict[tuple[int, int], _Part] = draft.ledger.cache_of(_parts)
    for start in range(0, len(numbers), _PART):
        inside = numbers[start : start + _PART]
        rows = [steps[number] for number in inside]
        reuse = guarded.isdisjoint(inside)
        part = cache.get((inside[0], inside[-1])) if reuse else None
        if (
            part is None
            or part.rows != rows
            or not part.calls <= draft.results.keys()
            or any(draft.groups.get(outer(name)) is not group for name, group in part.around.items())
        ):
            part = _part(draft, outer, inside, rows, stay)
            if reuse and not any(_depends(draft, row) for of_step in rows for row in of_step):
                cache[inside[0], inside[-1]] = part
        yield part


def _part(
    draft: LedgerDraft, outer: Outermost, numbers: Sequence[int], rows: list[list[Row]], stay: frozenset[str]
) -> _Part:
    names = {row.group: None for of_step in rows for row in of_step if row.group}
    around = {name: draft.groups.get(outer(name)) for name in names}
    calls = frozenset(row.id for of_step in rows for row in of_step if row.kind == "tool_use")
    part = _Part(rows, calls, around, [], {}, {})
    for number, of_step in zip(numbers, rows, strict=True):
        step = _fit(draft, number, of_step, stay)
        if step:
            part.steps.append(step)
        body = {row.id for row in step.rows} if step and (step.begins or step.ends) else None
        for row in of_step:
            if row.group and not row.present:
                where = part.leaving if body is None or row.id in body else part.outside
                where.setdefault(row.group, set()).add(number)
    return part


class _Inside(NamedTuple):
    """The steps of a group's blocks; those in which one may leave, and those in which one stands beside what may."""

    steps: set[int]
    leaving: set[int]
    outside: set[int]

    def is_split(self, places: Mapping[int, int]) -> bool:
        """Whether its blocks are in several runs, or some in one and some in none, with the places of steps in runs."""
        runs = set(map(places.get, self.leaving))
        return len(runs | {None} if self.outside else runs) > 1


def _insides(outer: Outermost, parts: Iterable[_Part]) -> list[_Inside]:
    """What is in each outermost group."""
    insides: dict[str, _Inside] = {}

    def of(group: str) -> _Inside:
        inside = insides.get(outer(group))
        return inside if inside is not None else insides.setdefault(outer(group), _Inside(set(), set(), set()))

    for part in parts:
        for group, numbers in part.leaving.items():
            of(group).steps.update(numbers)
            of(group).leaving.update(numbers)
        for group, numbers in part.outside.items():
            of(group).steps.update(numbers)
            of(group).outside.update(numbers)
    insides.pop("", None)
    return list(insides.values())


def _depends(draft: LedgerDraft, row: Row) -> bool:
    """Whether more than the rows and groups of a step decides on a block: the price of a result, an answer to come."""
    return row.present if row.kind == "tool_result" else row.kind == "tool_use" and row.id not in draft.results


def _fit(draft: LedgerDraft, number: int, rows: list[Row], stay: frozenset[str]) -> _Step | None:
    """The step, where it is nothing but calls, words and stubs of results; none if something in it stays."""
    core = [at for at, row in enumerate(rows) if row.role == "assistant" or row.kind == "tool_result"]
    stays = [at for at, row in enumerate(rows) if row.id in stay or _stays(row)]
    before = [at for at in stays if core and at < core[0]]
    behind = [at for at in stays if core and at > core[-1]]
    if len(before) + len(behind) < len(stays):
        return None
    body = rows[before[-1] + 1 if before else 0 : behind[0] if behind else len(rows)]
    results = [row for row in body if row.kind == "tool_result"]
    in_prompt = any(row.present and row.kind != "dashboard" for row in body)
    if any(row.present and not _small(draft, row) for row in results) or (in_prompt and not results):
        return None
    if any(row.kind == "tool_use" and row.id not in draft.results for row in body):
        return None
    outer = [draft.groups[name] for row in body if (name := draft.around(row))]
    if any(not group.stub or is_summary(group.stub) for group in outer):
        return None  # a summary, of a host or of ours, is no stub to be rolled up
    members = [row for row in body if _member(row)]
    groups = frozenset(row.group for row in members) if all(map(draft.around, members)) else None
    return _Step(number, body, begins=bool(before), ends=bool(behind), groups=groups)


def _small(draft: LedgerDraft, result: Row) -> bool:
    """Whether a result is still there only because its stub would cost as much: it goes with its neighbours."""
    return result.state == "visible" and draft.price.body(result) <= draft.price.text(draft.stub(result))


def _stays(row: Row) -> bool:
    return row.kind == "note" or row.state == "pinned" or is_human(row.role, row.origin)


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
