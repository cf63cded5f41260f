"""Runs of steps that roll-up may gather whole: they contain only calls, texts, and stubs of results.

Most of a long session is unchanged since the last plan. Steps are therefore examined 64 at a time, and the result is
reused if everything that it depends on is the same.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ctxvc.core.ledger.ledger import Group, Ledger, Row
from ctxvc.core.ledger.numbering import is_human
from ctxvc.core.plan.draft import LedgerDraft
from ctxvc.core.prompt.stub import is_summary
from ctxvc.core.view.view import Price

#: A group's name → the name of the outermost group around it.
Outermost = Callable[[str], str]


class Step(NamedTuple):
    """The rows of a step that may leave.

    What stays may precede its reply, so that a run begins here, or follow its last result, so that a run ends here, but
    not be in between. `groups` are those that all of it has left in, None if some of it has not left.
    """

    number: int
    rows: list[Row]
    begins: bool
    ends: bool
    groups: frozenset[str] | None


Run = Sequence[Step]


def runs(draft: LedgerDraft, outer: Outermost, stay: frozenset[str]) -> Sequence[Run]:
    """Runs of steps that may leave, oldest first; a group that a run touches is entirely in it."""
    stay |= {block for group in draft.groups.values() for block in group.summary}
    parts = list(_parts(draft, outer, stay))
    insides = _insides(outer, parts)
    all_runs: Sequence[Run] = _joined(parts)
    without: set[int] = set()
    while True:
        places = _Places(all_runs)
        split = {number for inside in insides if inside.is_split(places) for number in inside.steps}
        if not any(places.get(number) is not None for number in split):
            return all_runs
        without |= split
        all_runs = _joined(part.without(without) for part in parts)


def is_member(row: Row) -> bool:
    """Whether the row joins a group: deleted and pruned rows have left already, dashboards leave with the next cut."""
    return row.state not in ("deleted", "pruned") and row.kind != "dashboard"


class _Places:
    """A step → the index of its run."""

    def __init__(self, all_runs: Sequence[Run]) -> None:
        self._runs = all_runs
        self._first = [run[0].number for run in all_runs]

    def get(self, number: int) -> int | None:
        place = bisect_right(self._first, number) - 1
        return place if place >= 0 and number <= self._runs[place][-1].number else None


class _Terms(NamedTuple):
    """What a part depends on besides its rows and groups: its blocks that stay, the prices, and the form of stubs."""

    stay: frozenset[str]
    price: Price
    handles: bool


class _Part(NamedTuple):
    """The result for neighbouring steps, and what it depends on.

    That is the terms, the rows, the calls in them, the groups that they name and those around these. `leaving` maps a
    group to the steps in which some of it may leave, `outside` to those in which some of it is beside what may. `runs`
    are those of `steps`.
    """

    terms: _Terms
    rows: dict[int, list[Row]]
    calls: frozenset[str]
    around: dict[str, Group | None]
    steps: dict[int, Step]
    leaving: dict[str, set[int]]
    outside: dict[str, set[int]]
    runs: list[Run]

    def without(self, numbers: set[int]) -> _Part:
        """The part without these steps, which may not leave."""
        if numbers.isdisjoint(self.steps):
            return self
        steps = {number: step for number, step in self.steps.items() if number not in numbers}
        return self._replace(steps=steps, runs=_runs_in(self.rows, steps))

    def goes_on(self, following: _Part) -> bool:
        """Whether its last run continues in the first run of the following part."""
        last, first = self.steps.get(next(reversed(self.rows))), following.steps.get(next(iter(following.rows)))
        return last is not None and first is not None and not last.ends and not first.begins


#: Steps of a part.
_PART = 64


def _parts(draft: LedgerDraft, outer: Outermost, stay: frozenset[str]) -> Iterator[_Part]:
    """All steps, in parts; a part is reused if everything that it depends on is the same."""
    steps = _steps(draft)
    numbers = sorted(steps)
    starts = numbers[::_PART]
    staying: dict[int, set[str]] = {}
    for block in stay:
        if row := draft.rows.get(block):
            staying.setdefault(bisect_right(starts, row.step) - 1, set()).add(block)
    cache: dict[int, _Part] = draft.ledger.cache_of(_parts)
    for at, start in enumerate(starts):
        rows = {number: steps[number] for number in numbers[at * _PART : (at + 1) * _PART]}
        terms = _Terms(frozenset(staying.get(at, ())), draft.price, draft.handles)
        part = cache.get(start)
        if (
            part is None
            or part.rows != rows
            or part.terms != terms
            or not part.calls <= draft.results.keys()
            or any(draft.groups.get(outer(name)) is not group for name, group in part.around.items())
        ):
            part = _part(draft, outer, rows, terms)
            if not any(_depends(draft, row, of_step) for of_step in rows.values() for row in of_step):
                cache[start] = part
        yield part


def _part(draft: LedgerDraft, outer: Outermost, rows: dict[int, list[Row]], terms: _Terms) -> _Part:
    names = {row.group: None for of_step in rows.values() for row in of_step if row.group}
    around = {name: draft.groups.get(outer(name)) for name in names}
    calls = frozenset(row.id for of_step in rows.values() for row in of_step if row.kind == "tool_use")
    steps: dict[int, Step] = {}
    leaving: dict[str, set[int]] = {}
    outside: dict[str, set[int]] = {}
    for number, of_step in rows.items():
        step = _fit(draft, number, of_step, terms.stay)
        if step:
            steps[number] = step
        body = {row.id for row in step.rows} if step and (step.begins or step.ends) else None
        for row in of_step:
            if row.group and not row.present:
                where = leaving if body is None or row.id in body else outside
                where.setdefault(row.group, set()).add(number)
    return _Part(terms, rows, calls, around, steps, leaving, outside, _runs_in(rows, steps))


def _runs_in(numbers: Iterable[int], steps: Mapping[int, Step]) -> list[Run]:
    """The runs of the steps that may leave (`steps`), among all these numbers."""
    inside: list[list[Step]] = [[]]
    for number in numbers:
        step = steps.get(number)
        if inside[-1] and (step is None or step.begins or inside[-1][-1].ends):
            inside.append([])
        if step:
            inside[-1].append(step)
    return [run for run in inside if run]


def _joined(parts: Iterable[_Part]) -> list[Run]:
    """The runs of all parts; one may continue in the next part."""
    joined: list[Run] = []
    before: _Part | None = None
    for part in parts:
        of_part = part.runs
        if before and before.goes_on(part):
            joined[-1] = [*joined[-1], *of_part[0]]
            of_part = of_part[1:]
        joined += of_part
        before = part
    return joined


class _Inside(NamedTuple):
    """The steps of a group's blocks; those where one may leave, and those where one is beside what may leave."""

    steps: set[int]
    leaving: set[int]
    outside: set[int]

    def is_split(self, places: _Places) -> bool:
        """Whether its blocks are in several runs, or some in one and some in none."""
        places_of_group = set(map(places.get, self.leaving))
        return len(places_of_group | {None} if self.outside else places_of_group) > 1


def _insides(outer: Outermost, parts: Iterable[_Part]) -> list[_Inside]:
    """The steps of each outermost group."""
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


def _depends(draft: LedgerDraft, row: Row, step: Sequence[Row]) -> bool:
    """Whether a block depends on more than its part's terms, rows and groups.

    That may be a pending answer, a skill that its stub names, or a call in another step.
    """
    if row.kind == "tool_use":
        return row.id not in draft.results
    if row.kind != "tool_result" or not row.present:
        return False
    call = draft.calls.get(row.id, "")
    return bool(draft.mention(row)) or not any(of_step.id == call for of_step in step)


def _fit(draft: LedgerDraft, number: int, rows: list[Row], stay: frozenset[str]) -> Step | None:
    """The step if it contains only calls, texts and stubs of results; None if something inside it stays."""
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
        return None  # a summary, from a host or ours, is not a stub to roll up
    members = [row for row in body if is_member(row)]
    groups = frozenset(row.group for row in members) if all(map(draft.around, members)) else None
    return Step(number, body, begins=bool(before), ends=bool(behind), groups=groups)


def _small(draft: LedgerDraft, result: Row) -> bool:
    """Whether a result is only there because its stub would cost as much; it leaves with its neighbours."""
    return result.state == "visible" and draft.price.body(result) <= draft.price.text(draft.stub(result))


def _stays(row: Row) -> bool:
    return row.kind == "note" or row.state == "pinned" or is_human(row.role, row.origin)


def _steps(draft: LedgerDraft) -> dict[int, list[Row]]:
    """The rows of each step on the draft; for unchanged steps mostly the same lists as in an earlier ledger."""
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
