"""Undoing: reverts a verb's changes to rows and groups, whatever has been appended, read or counted since."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ctxvc.core.ledger.ledger import Group, Ledger, Meta, Row, blocks_of
from ctxvc.core.ledger.pairs import results_of
from ctxvc.core.plan.draft import header
from ctxvc.core.plan.plan import Problem
from ctxvc.core.prompt.cut import is_cut

Inverse = tuple[tuple[Row, ...], tuple[Group, ...], tuple[Problem, ...]]


def inverse(before: Ledger, after: Ledger, now: Ledger) -> Inverse:
    """The rows and groups that revert, in `now`, what one verb changed (`before` → `after`).

    Only what verbs set is reverted: state, level, group, stub, who removed it. What was changed again since is left as
    it is, with a problem. A block or group that has merely joined another group since, as by stub roll-up, is removed
    from it, and so is the other half of its pair, if that left with it. A group without members is deleted.
    """
    rows: dict[str, Row] = {}
    problems: list[Problem] = []
    for was, then in _touched(before, after):
        current = now.get(then.id)
        if current is None:
            problems.append(_stale(then.id, "it is no longer here"))
        elif not _same(current, then):
            problems.append(_stale(then.id, f"it has changed since, and is {current.state} now"))
        else:
            rows[then.id] = _like(current, was)
    _add_halves(after, now, rows)
    groups = dict(now.groups)
    for name in sorted(before.groups.keys() | after.groups.keys(), key=_number):
        was_group, then_group, group = before.groups.get(name), after.groups.get(name), now.groups.get(name)
        if was_group is None or was_group == then_group:
            continue
        if then_group and group and group.group != then_group.group and then_group.group:
            problems.append(_stale(name, "it has been moved since"))
        else:
            groups[name] = was_group
    groups = _consistent(before, now, rows, groups)
    changed = [row for row in rows.values() if row != now[row.id]]
    emptied = [msgspec.structs.replace(now.groups[name], members=()) for name in now.groups.keys() - groups.keys()]
    new = [group for name, group in groups.items() if group != now.groups.get(name)]
    return (
        tuple(sorted(changed, key=lambda row: row.number)),
        tuple(sorted([*emptied, *new], key=lambda group: _number(group.id))),
        tuple(problems),
    )


def withdrawn(before: Ledger, after: Ledger, now: Ledger, actor: str) -> tuple[tuple[Row, ...], tuple[Problem, ...]]:
    """The blocks that a change added (`before` → `after`), deleted from the prompt by `actor`, without a stub.

    One that was changed again since is left as it is, with a problem.
    """
    rows: list[Row] = []
    problems: list[Problem] = []
    for then in after.since(before):
        current = now.get(then.id) if before.get(then.id) is None else None
        if current is None:
            continue
        if _same(current, then):
            rows.append(msgspec.structs.replace(_like(current, then), state="deleted", stub="", removed_by=actor))
        else:
            problems.append(_stale(then.id, f"it has changed since, and is {current.state} now"))
    return tuple(rows), tuple(problems)


def rendering(before: Meta, after: Meta, now: Meta) -> dict[str, Any]:
    """The fields of `ctxvc.json` that revert the cut of a change (`before` → `after`), and the end of overflow.

    Empty if another cut was made since. Only for a change after which nothing was sent.
    """
    names = ["refused"] if now.refused == after.refused else []
    names += ["cuts", "render"] if now.cuts == after.cuts else []
    return {name: value for name in names if (value := getattr(before, name)) != getattr(now, name)}


def lost(before: Ledger, after: Ledger, now: Ledger) -> Iterator[Problem]:
    """The thinking and dashboards that a change's cut (`before` → `after`) removed, and `now` still lacks."""
    if before.meta.cuts == after.meta.cuts:
        return
    for row in before.rows():
        cut_by_change = is_cut(row, after.meta) and not is_cut(row, before.meta)
        if cut_by_change and row.present and is_cut(row, now.meta):
            text = f"{row.id} does not come back: it left with a cut, and a prompt has been sent without it since"
            yield Problem(target=row.id, why="gone", text=text)


def alters(rows: tuple[Row, ...], groups: tuple[Group, ...], now: Ledger) -> bool:
    """Whether these rows and groups in `now` change the prompt's text: pins alone do not show."""
    in_full = {"visible", "pinned"}
    return bool(groups) or any(not {row.state, now[row.id].state} <= in_full for row in rows)


def _touched(before: Ledger, after: Ledger) -> Iterator[tuple[Row, Row]]:
    """The rows that the verb changed: before it, and after it."""
    for segment in after.segments.changed_since(before.segments):
        old = before.segments.get(segment)
        by_id = {row.id: row for row in old}
        for then in after.segments[segment]:
            was = by_id.get(then.id)
            if was is not None and _like(then, was) != then:
                yield was, then


def _like(row: Row, was: Row) -> Row:
    """`row` with the fields that verbs set taken from `was`."""
    return msgspec.structs.replace(
        row, state=was.state, level=was.level, group=was.group, stub=was.stub, removed_by=was.removed_by
    )


def _same(current: Row, then: Row) -> bool:
    """Whether the row is unchanged since, except that it may have joined a group."""
    if then.group or not current.group:
        return _like(current, then) == current
    return _like(current, then) == msgspec.structs.replace(current, group="", level=then.level)


def _add_halves(after: Ledger, now: Ledger, rows: dict[str, Row]) -> None:
    """Adds calls and results that were in the prompt and left since with the other half, which now comes back."""
    back = [row.id for row in rows.values() if row.present and now[row.id].group]
    if not back:
        return
    results = {call: result.id for call, result in results_of(now.rows()).items()}
    calls = {result: call for call, result in results.items()}
    for block in back:
        half = now.get(results.get(block) or calls.get(block) or block)
        then = after.get(half.id) if half else None
        if half and then and half.id not in rows and then.present and half.group == now[block].group:
            rows[half.id] = _like(half, then)


def _consistent(before: Ledger, now: Ledger, rows: Mapping[str, Row], groups: Mapping[str, Group]) -> dict[str, Group]:
    """The groups with exactly the members whose rows and groups refer to them, each with a correct stub."""
    restored = dict(groups)
    for name in [*(row.group for row in rows.values()), *(group.group for group in groups.values())]:
        while name not in restored and name in before.groups:  # it was removed since, and is needed again
            restored[name] = before.groups[name]
            name = restored[name].group  # noqa: PLW2901
    arriving: dict[str, list[str]] = {}
    for member, place in [
        *((row.id, row.group) for row in rows.values()),
        *((name, restored[name].group) for name in restored),
    ]:
        arriving.setdefault(place, []).append(member)

    def is_in(member: str, name: str) -> bool:
        if member[0] == "G":
            return member in restored and restored[member].group == name
        row = rows.get(member) or now.get(member)
        return row is not None and row.group == name

    while True:
        for name, group in restored.items():
            current_members = now.groups[name].members if name in now.groups else ()
            members = dict.fromkeys([*group.members, *current_members, *sorted(arriving.get(name, ()), key=_number)])
            members_inside = tuple(member for member in members if is_in(member, name))
            restored[name] = msgspec.structs.replace(group, members=members_inside)
        empty = [name for name, group in restored.items() if not group.members]
        if not empty:
            break
        for name in empty:
            del restored[name]
    touched: set[str] = set()
    for name, group in restored.items():
        inner = name if group != now.groups.get(name) else ""
        while inner in restored and inner not in touched:
            touched.add(inner)
            inner = restored[inner].group
    return {
        name: _with_true_stub(restored[name], restored, before, now, rows) if name in touched else restored[name]
        for name in restored
    }


def _with_true_stub(
    group: Group, groups: Mapping[str, Group], before: Ledger, now: Ledger, rows: Mapping[str, Row]
) -> Group:
    """The group with the stub that it had when it contained these blocks, else with a new one."""
    blocks = blocks_of(groups, group.id)
    for earlier in (before.groups, now.groups):
        if group.id in earlier and blocks_of(earlier, group.id) == blocks:
            return msgspec.structs.replace(group, stub=earlier[group.id].stub)
    inside = [rows.get(block) or now[block] for block in blocks]
    return msgspec.structs.replace(group, stub=header(group, inside, None)) if group.stub else group


def _stale(target: str, reason: str) -> Problem:
    return Problem(target=target, why="stale", text=f"cannot undo the change to {target}: {reason}")


def _number(name: str) -> tuple[str, int]:
    return name[0], int(name[1:])
