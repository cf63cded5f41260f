"""Checks that the groups of a scope and its rows agree. Pure; compares only what changed, since the rest was checked
before.

Members point to their group, and a group lists its members. A change on one side is compared with the other side, so
that a group costs as much as changed in it, not as much as it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache

from ctxvc.core.ledger.block import group_number
from ctxvc.core.ledger.ledger import Group, Row

Groups = Mapping[str, Group]

#: (block or group, what is wrong with it)
Disagreement = tuple[str, str]


def disagreements(
    old: Groups,
    new: Groups,
    touched: Collection[str],
    rows: Mapping[str, tuple[Row | None, Row | None]],
    row: Callable[[str], Row | None],
) -> Iterator[Disagreement]:
    """The disagreements. `touched` are the groups and `rows` the rows that differ; `row` gives a row's current
    version."""
    look = _Look(new, row)
    for block, (was, now) in rows.items():
        yield from look.pointer(block, was.group if was else "", now.group if now else None)
    for name in sorted(touched):
        before, after = old.get(name), new.get(name)
        yield from look.pointer(name, before.group if before else "", after.group if after else None)
        if after is not None:
            yield from look.group(before, after)
        elif before is not None:
            yield from look.removed(name, before.members)


class _Look:
    """The groups and rows of a commit, as they are now."""

    def __init__(self, groups: Groups, row: Callable[[str], Row | None]) -> None:
        self._groups = groups
        self._row = row
        self._members = lru_cache(maxsize=None)(self._members_of)

    def pointer(self, member: str, before: str, now: str | None) -> Iterator[Disagreement]:
        """A member has moved from one group (empty: from none) to another; None: it was removed."""
        if now == before:
            return
        if now and now not in self._groups:
            yield member, f"{member} is in {now}, which does not exist"
        elif now and member not in self._members(now):
            yield member, f"{member} is in {now}, which does not contain it"
        if before in self._groups and member in self._members(before):
            yield before, _complaint(before, member, now)

    def group(self, before: Group | None, group: Group) -> Iterator[Disagreement]:
        """A group that is new or changed."""
        members = self._members(group.id)
        members_before = frozenset(before.members) if before else frozenset()
        if not members or len(members) != len(group.members):
            yield group.id, f"{group.id} has no members, or a duplicate one"
        for member in sorted(members - members_before):
            if (pointer := self._group_of(member)) != group.id:
                yield group.id, _complaint(group.id, member, pointer)
        yield from self.removed(group.id, members_before - members)
        if before is None or before.level != group.level or members != members_before:
            for member in group.members:
                yield from self._levels(group, self._groups.get(member))
        if group.group in self._groups:
            yield from self._levels(self._groups[group.group], group)
        yield from self._itself(before, group)

    def removed(self, name: str, members: Collection[str]) -> Iterator[Disagreement]:
        """Members that left a group must not point to it any more."""
        for member in sorted(members):
            if self._group_of(member) == name:
                lost = "which does not contain it" if name in self._groups else "which does not exist"
                yield member, f"{member} is in {name}, {lost}"

    def _levels(self, outer: Group, inner: Group | None) -> Iterator[Disagreement]:
        if inner is not None and inner.level >= outer.level:
            yield outer.id, f"{outer.id} has level {outer.level} and contains {inner.id} of level {inner.level}"

    def _itself(self, before: Group | None, group: Group) -> Iterator[Disagreement]:
        try:
            group_number(group.id)
        except ValueError as error:
            yield group.id, str(error)
        if before is not None and (before.summary, before.before) == (group.summary, group.before):
            return
        for block in (*group.summary, *filter(None, [group.before])):
            if self._group_of(block) is None:
                yield group.id, f"the stub of {group.id} needs {block}, which does not exist"

    def _group_of(self, member: str) -> str | None:
        """The group that a block or group points to; None if there is no such member."""
        if member.startswith("G"):
            return self._groups[member].group if member in self._groups else None
        row = self._row(member)
        return None if row is None else row.group

    def _members_of(self, name: str) -> frozenset[str]:
        return frozenset(self._groups[name].members)


def _complaint(group: str, member: str, pointer: str | None) -> str:
    return f"{group} has {member}, which " + ("does not exist" if pointer is None else f"is in {pointer or 'no group'}")
