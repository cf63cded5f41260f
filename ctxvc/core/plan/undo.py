"""Undoing: what a verb did to rows and groups is set back, whatever has been appended, read or counted since."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from ctxvc.core.ledger.ledger import Group, Ledger, Row, blocks_of
from ctxvc.core.plan.draft import header
from ctxvc.core.plan.plan import Problem
from ctxvc.core.prompt.outline import results_of

Inverse = tuple[tuple[Row, ...], tuple[Group, ...], tuple[Problem, ...]]


def inverse(before: Ledger, after: Ledger, now: Ledger) -> Inverse:
    """The rows and groups with which `now` has what one verb changed (`before` → `after`) as it was before.

    Only what verbs set is set back: state, level, group, stub, who removed it. What was changed again since is left as
    it is, with a problem. A block or group that has only gone into another group since, as by stub roll-up, is taken
    out of it, and so is the other half of its pair, if that left with it. A group without members goes.
    """
    rows: dict[str, Row] = {}
    problems: list[Problem] = []
    for was, then in _touched(before, after):
        held = now.get(then.id)
        if held is None:
            problems.append(_stale(then.id, "it is not here any more"))
        elif not _same(held, then):
            problems.append(_stale(then.id, f"it was changed again since, and is {held.state} now"))
        else:
            rows[then.id] = _like(held, was)
    _add_halves(after, now, rows)
    groups = dict(now.groups)
    for name in sorted(before.groups.keys() | after.groups.keys(), key=_number):
        was_group, then_group, held_group = before.groups.get(name), after.groups.get(name), now.groups.get(name)
        if was_group is None or was_group == then_group:
            continue
        if then_group and held_group and held_group.group != then_group.group and then_group.group:
            problems.append(_stale(name, "it was moved again since"))
        else:
            groups[name] = was_group
    groups = _consistent(before, now, rows, groups)
    changed = [row for row in rows.values() if row != now[row.id]]
    gone = [msgspec.structs.replace(now.groups[name], members=()) for name in now.groups.keys() - groups.keys()]
    new = [group for name, group in groups.items() if group != now.groups.get(name)]
    return (
        tuple(sorted(changed, key=lambda row: row.number)),
        tuple(sorted([*gone, *new], key=lambda group: _number(group.id))),
        tuple(problems),
    )


def _touched(before: Ledger, after: Ledger) -> Iterator[tuple[Row, Row]]:
    """The rows that the verb set, as they were and as they were then."""
    for segment in after.segments.changed_since(before.segments):
        old = before.segments.get(segment)
        by_id = {row.id: row for row in old}
        for then in after.segments[segment]:
            was = by_id.get(then.id)
            if was is not None and _like(then, was) != then:
                yield was, then


def _like(row: Row, was: Row) -> Row:
    """`row` with what verbs set as it is in `was`."""
    return msgspec.structs.replace(
        row, state=was.state, level=was.level, group=was.group, stub=was.stub, removed_by=was.removed_by
    )


def _same(held: Row, then: Row) -> bool:
    """Whether nothing has happened to the row since, or no more than that it went into a group."""
    if then.group or not held.group:
        return _like(held, then) == held
    return _like(held, then) == msgspec.structs.replace(held, group="", level=then.level)


def _add_halves(after: Ledger, now: Ledger, rows: dict[str, Row]) -> None:
    """Calls and results that were in the prompt, and left it since with the other half that comes back, come too."""
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
    """The groups with the members that say they are in them, each with a stub that is true of it."""
    held = dict(groups)
    for name in [*(row.group for row in rows.values()), *(group.group for group in groups.values())]:
        while name not in held and name in before.groups:  # it has gone since, and is needed again
            held[name] = before.groups[name]
            name = held[name].group  # noqa: PLW2901
    arriving: dict[str, list[str]] = {}
    for member, place in [
        *((row.id, row.group) for row in rows.values()),
        *((name, held[name].group) for name in held),
    ]:
        arriving.setdefault(place, []).append(member)

    def is_in(member: str, name: str) -> bool:
        if member[0] == "G":
            return member in held and held[member].group == name
        row = rows.get(member) or now.get(member)
        return row is not None and row.group == name

    while True:
        for name, group in held.items():
            known = now.groups[name].members if name in now.groups else ()
            members = dict.fromkeys([*group.members, *known, *sorted(arriving.get(name, ()), key=_number)])
            kept = tuple(member for member in members if is_in(member, name))
            held[name] = msgspec.structs.replace(group, members=kept)
        empty = [name for name, group in held.items() if not group.members]
        if not empty:
            break
        for name in empty:
            del held[name]
    touched: set[str] = set()
    for name, group in held.items():
        inner = name if group != now.groups.get(name) else ""
        while inner in held and inner not in touched:
            touched.add(inner)
            inner = held[inner].group
    return {name: _told(held[name], held, before, now, rows) if name in touched else held[name] for name in held}


def _told(group: Group, groups: Mapping[str, Group], before: Ledger, now: Ledger, rows: Mapping[str, Row]) -> Group:
    """The group with the stub that it had when it had these blocks, else with a new one."""
    blocks = blocks_of(groups, group.id)
    for known in (before.groups, now.groups):
        if group.id in known and blocks_of(known, group.id) == blocks:
            return msgspec.structs.replace(group, stub=known[group.id].stub)
    inside = [rows.get(block) or now[block] for block in blocks]
    return msgspec.structs.replace(group, stub=header(group, inside, None)) if group.stub else group


def _stale(target: str, reason: str) -> Problem:
    return Problem(target=target, why="stale", text=f"cannot undo what was done to {target}: {reason}")


def _number(name: str) -> tuple[str, int]:
    return name[0], int(name[1:])
