"""Checks that a commit's ledger follows from the one before it and the laws."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter

import msgspec

from ctxvc.core.ledger.block import group_number
from ctxvc.core.ledger.ledger import Counters, Group, Row, segment_of
from ctxvc.errors import Damaged
from ctxvc.store import format as fmt
from ctxvc.store.git.objects import FILE, Change, Unreadable, entry
from ctxvc.store.verify.decoded import Regrouped, Trees
from ctxvc.store.verify.finding import EDITED, Finding, damage

#: The fields of a row that no verb changes; so is all of `extra` except our own metadata in it.
IDENTITY = (
    "kind", "role", "origin", "msg", "step", "turn", "call", "tool", "error", "ext", "files", "bytes", "sha256",
)  # fmt: skip

_identity = attrgetter(*IDENTITY)

_EXT = re.compile(r"[A-Za-z0-9]{1,16}")
_GROUP = re.compile(r"G[1-9][0-9]{0,11}")
_SUFFIX = re.compile(r"[1-9][0-9]{0,5}\.[A-Za-z0-9]{1,16}")


@dataclass(slots=True)
class LedgerChanges:
    """The rows and groups that a commit changes, before and after; complete once `findings` is exhausted."""

    trees: Trees
    rows: dict[str, tuple[Row | None, Row | None]] = field(default_factory=dict)
    groups: Regrouped | None = None

    def findings(self, same_scope: bool) -> Iterator[Finding]:
        """The faults. With `same_scope`, the commit before is of the same scope, so its rows must still be there."""
        for change in self.trees.diff("ledger", 1):
            if change.new is not None and change.new.mode != FILE:
                yield self.trees.foreign(change.path)
            elif change.path == fmt.GROUPS:
                yield from self._changed_groups(change)
            else:
                yield from self._segment(change)
        yield from self._edited(same_scope)
        yield from self._grouping()

    def beyond(self, counters: Counters, same_scope: bool) -> Iterator[Finding]:
        """Blocks and groups with numbers above the counters."""
        for _, row in self.rows.values():
            if row is not None and row.number > counters.block:
                what = f"{row.id} exceeds the counter of blocks, {counters.block}"
                yield damage(what, self.trees.at(fmt.META, row.id), EDITED)
        if self.groups is not None:
            looked_at = self.groups.touched & self.groups.new.keys() if same_scope else self.groups.new
            newest = max((int(name[1:]) for name in looked_at if _GROUP.fullmatch(name)), default=0)
            if newest > counters.group:
                what = f"G{newest} exceeds the counter of groups, {counters.group}"
                yield damage(what, self.trees.at(fmt.META), EDITED)

    # --- rows

    def _segment(self, change: Change) -> Iterator[Finding]:
        """Reads the rows of a segment that differ."""
        trees = self.trees
        try:
            segment = fmt.segment_number(change.path)
        except ValueError:
            segment = -1
        if segment < 0 or fmt.segment_path(segment) != change.path:
            yield trees.foreign(change.path)
            return
        try:
            was, now = self._versions(change)
        except Unreadable as error:
            trees.note(error, change.path)
            trees.forget(change.path)
            return
        except Damaged as error:
            yield damage(str(error), trees.at(change.path))
            trees.forget(change.path)
            return
        for block in was.keys() | now.keys():
            if was.get(block) != now.get(block):
                self.rows[block] = was.get(block), now.get(block)
        for row in now.values():
            if segment_of(row.number) != segment:
                yield damage(f"the row of {row.id} is in another row's place", trees.at(change.path, row.id), EDITED)

    def _versions(self, change: Change) -> tuple[Mapping[str, Row], Mapping[str, Row]]:
        """The rows before and after, possibly without rows that both have. Raises: Unreadable, Damaged."""
        contents = self.trees.contents
        if change.old and change.new and (added := contents.added(change.old.id, change.new.id)):
            return {}, {row.id: row for row in added}
        old = contents.rows(change.old.id) if change.old else {}
        return old, contents.rows(change.new.id) if change.new else {}

    def _edited(self, same_scope: bool) -> Iterator[Finding]:
        for block, (old, new) in self.rows.items():
            if new is None:
                if same_scope:
                    yield damage(
                        f"the row of {block} is missing, which no verb causes", self.trees.row_at(block), EDITED
                    )
                continue
            if not _EXT.fullmatch(new.ext) or not all(map(_SUFFIX.fullmatch, new.files)):
                what = f"the row of {block} names a file that cannot be a block's"
                yield damage(what, self.trees.row_at(block), EDITED)
            if old is not None and (names := altered(old, new)):
                what = f"the row of {block} was edited: different {', '.join(names)}, which no verb changes"
                yield damage(what, self.trees.row_at(block), EDITED)

    # --- groups

    def _changed_groups(self, change: Change) -> Iterator[Finding]:
        old, new = change.old.id if change.old else None, change.new.id if change.new else None
        try:
            self.groups = self.trees.contents.regrouped(old, new)
        except Unreadable as error:
            self.trees.note(error, change.path)
        except Damaged as error:
            yield damage(str(error), self.trees.at(change.path))

    def _grouping(self) -> Iterator[Finding]:
        """Checks that groups and rows point to each other, where either changed."""
        moved = any((old.group if old else "") != (new.group if new else "") for old, new in self.rows.values())
        if self.groups is None and not moved:
            return
        try:
            if self.groups is None:
                groups_entry = entry(self.trees.child("ledger"), b"groups.jsonl")
                groups_there = self.trees.contents.groups(groups_entry.id) if groups_entry else {}
                self.groups = Regrouped(groups_there, groups_there, frozenset())
            for block, what in disagreements(*self.groups, self.rows, self._row):
                where = msgspec.structs.replace(self.trees.where, block=block, path=fmt.GROUPS)
                yield damage(what, where, EDITED)
        except (Unreadable, Damaged):
            return  # reported at the commit where that file changed

    def _row(self, block: str) -> Row | None:
        """The row of a block in this commit. Raises: Unreadable, Damaged."""
        if block in self.rows:
            return self.rows[block][1]
        try:
            segment = self.trees.segment(block)
        except ValueError:
            return None
        return self.trees.contents.rows(segment.id).get(block) if segment else None


def altered(old: Row, new: Row) -> list[str]:
    """The names of fields that differ although no verb changes them."""
    names = []
    if _identity(old) != _identity(new):
        names = [name for name in IDENTITY if getattr(old, name) != getattr(new, name)]
    if old.extra != new.extra and _received(old) != _received(new):
        names.append("extra")
    return names


def _received(row: Row) -> dict[str, object]:
    return {name: value for name, value in row.extra.items() if name != "ctxvc"}


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
    """The contradictions between groups and rows.

    `touched` names the groups that differ, and `rows` has the rows that differ; `row` returns a row's current version.
    """
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
    """A commit's groups and rows."""

    def __init__(self, groups: Groups, row: Callable[[str], Row | None]) -> None:
        self._groups = groups
        self._row = row
        self._members = lru_cache(maxsize=None)(lambda name: frozenset(groups[name].members))

    def pointer(self, member: str, before: str, now: str | None) -> Iterator[Disagreement]:
        """Checks a member that moved from group `before` (empty: from none) to `now` (None: it was removed)."""
        if now == before:
            return
        if now and now not in self._groups:
            yield member, f"{member} is in {now}, which does not exist"
        elif now and member not in self._members(now):
            yield member, f"{member} is in {now}, which does not contain it"
        if before in self._groups and member in self._members(before):
            yield before, _complaint(before, member, now)

    def group(self, before: Group | None, group: Group) -> Iterator[Disagreement]:
        """Checks a new or changed group."""
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
        """Checks that members that left a group no longer point to it."""
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


def _complaint(group: str, member: str, pointer: str | None) -> str:
    return f"{group} has {member}, which " + ("does not exist" if pointer is None else f"is in {pointer or 'no group'}")
