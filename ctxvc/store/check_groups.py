"""Do the groups of a scope and its rows agree? Pure; looks only at what changed, the rest having been looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ctxvc.core.blocks import group_number
from ctxvc.core.ledger import Group, Row

Groups = Mapping[str, Group]


def disagreements(
    old: Groups, new: Groups, rows: Mapping[str, tuple[Row | None, Row | None]], row: Callable[[str], Row | None]
) -> Iterator[tuple[str, str]]:
    """(block or group, what is wrong with it). `rows` are those that changed, `row` gives any row as it is now."""
    touched = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
    for block, (_, now) in rows.items():
        if now is None or not now.group:
            continue
        if now.group not in new:
            yield block, f"{block} is in {now.group}, which is not there"
        elif block not in new[now.group].members:
            yield block, f"{block} is in {now.group}, which does not have it"
    # A row that left its group, or the ledger, and the group that may still have it.
    left = {was.group for was, now in rows.values() if was and was.group != (now.group if now else "")}
    touched |= left & new.keys()
    for name in sorted(touched):
        if name in new:
            yield from _members(new[name], new, row)
            yield from _place(new[name], new, row)
        else:
            for member in old[name].members:
                if _group_of(member, new, row) == name:
                    yield member, f"{member} is in {name}, which is not there"


def _members(group: Group, groups: Groups, row: Callable[[str], Row | None]) -> Iterator[tuple[str, str]]:
    if not group.members or len(set(group.members)) != len(group.members):
        yield group.id, f"{group.id} has no members, or one twice"
    for member in group.members:
        pointer = _group_of(member, groups, row)
        if pointer is None:
            yield group.id, f"{group.id} has {member}, which is not there"
        elif pointer != group.id:
            yield group.id, f"{group.id} has {member}, which is in {pointer or 'no group'}"
        elif member in groups and groups[member].level >= group.level:
            yield group.id, f"{group.id} is of level {group.level} and holds {member} of level {groups[member].level}"


def _place(group: Group, groups: Groups, row: Callable[[str], Row | None]) -> Iterator[tuple[str, str]]:
    try:
        group_number(group.id)
    except ValueError as error:
        yield group.id, str(error)
    if group.group and (group.group not in groups or group.id not in groups[group.group].members):
        yield group.id, f"{group.id} is in {group.group}, which is not there or does not have it"
    for block in (*group.summary, *filter(None, [group.before])):
        if _group_of(block, groups, row) is None:
            yield group.id, f"the stub of {group.id} needs {block}, which is not there"


def _group_of(member: str, groups: Groups, row: Callable[[str], Row | None]) -> str | None:
    """The group that a block or group says it is in; None where there is no such member."""
    if member.startswith("G"):
        return groups[member].group if member in groups else None
    held = row(member)
    return None if held is None else held.group
