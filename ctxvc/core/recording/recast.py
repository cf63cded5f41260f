"""A prompt that a host's plugin put together anew, as a change of the ledger: most of it are blocks that stood there.

A host gives its plugin messages of text, calls and results, and writes what comes back as new messages. Here they
become the blocks again that they were: calls and results by their ids, texts by role and content, in order. So a result
with another text is that block archived, with that text for its stub; a message that is given back twice is there once.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain

import msgspec

from ctxvc.core import display
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message, Part
from ctxvc.core.ledger.ledger import Group, Ledger, Row

#: The text with which a row stands in the prompt: all of it, or what a mask leaves.
ShownText = Callable[[Row], str]

_TEXTS = frozenset({"user", "assistant", "note", "system"})
#: Characters of white space that a host may add to a text or take from it.
_MARGIN = 8


@dataclass(slots=True)
class Recast:
    """What became of the blocks of a ledger: `kept` are those that the prompt has, with the key of their message now.

    `changed` are results with another text than theirs, `groups` those whose stub the prompt has. `added` is what
    nothing was found for, each with the block that it stands before, empty for the end.
    """

    kept: dict[str, str] = field(default_factory=dict)
    changed: dict[str, str] = field(default_factory=dict)
    groups: set[str] = field(default_factory=set)
    added: list[tuple[Message, str]] = field(default_factory=list)


def recast(ledger: Ledger, prompt: Sequence[Message], shown: ShownText) -> Recast:
    """The blocks of `ledger` that the messages of `prompt` are."""
    search, result = _Search(ledger, shown), Recast()
    added: list[tuple[Message, int]] = []
    places: list[str] = []  # the blocks of the prompt, in its order
    for message in prompt:
        new = tuple(part for part in message.parts if not search.place(part, message.key, result, places))
        if new:
            added.append((msgspec.structs.replace(message, parts=new), len(places)))
    result.added = [(message, places[at] if at < len(places) else "") for message, at in added]
    return result


def applied(ledger: Ledger, recast: Recast, added: Sequence[tuple[str, list[Row]]], actor: str, group: int) -> Ledger:
    """The ledger with the prompt of `recast`, where `added` are the rows of its new messages, as in `recast.added`.

    What is not in the prompt any more leaves it in groups without a stub, numbered from `group` on.
    """
    draft = _Draft(ledger, actor, group)
    for block, key in recast.kept.items():
        draft.keep(ledger[block], key)
    for block, text in recast.changed.items():
        if not ledger[block].present and ledger[block].stub == text:
            continue  # it had left before, and is as it was
        draft.put(msgspec.structs.replace(draft.alone(block), state="archived", level=1, stub=text, removed_by=actor))
    staying = recast.kept.keys() | recast.changed.keys()
    draft.leave([row for row in ledger.rows() if row.id not in staying], recast.groups, added)
    return draft.ledger()


class _Search:
    """The rows of a ledger by what a host tells of them. Each is given out once."""

    def __init__(self, ledger: Ledger, shown: ShownText) -> None:
        self._ledger = ledger
        self._shown = shown
        self._taken: set[str] = set()
        self._newest = 0  # the number of the newest row that was placed
        self._by_call: dict[tuple[str, str], Row] = {}
        self._by_text: dict[tuple[str, str], list[Row]] = defaultdict(list)
        self._by_size: dict[tuple[str, int], list[Row]] = defaultdict(list)
        self._stubs: dict[str, str] = {}
        for row in ledger.rows():
            if row.call and row.kind in ("tool_use", "tool_result"):
                earlier = self._by_call.get((row.kind, row.call))
                if earlier is None or row.present or not earlier.present:
                    self._by_call[row.kind, row.call] = row
            elif row.kind in _TEXTS:
                self._by_text[row.role, row.sha256].append(row)
                self._by_size[row.role, row.bytes].append(row)
            if row.stub and not row.present and not row.group:
                self._stubs[row.stub.strip()] = row.id
        for group in ledger.groups.values():
            if group.stub and not group.group:
                self._stubs[group.stub.strip()] = group.id

    def place(self, part: Part, key: str, result: Recast, places: list[str]) -> bool:
        """Whether a part of the prompt is a block or a stub of the ledger; it is noted in `result` and `places`."""
        if part.kind in ("tool_use", "tool_result"):
            row = self._by_call.get((part.kind, part.call))
            if row is None:
                return False
            if row.id in self._taken:
                return True
            text = display.decode(part.body)
            if part.kind == "tool_use" or self._is_result(row, part, text):
                result.kept[row.id] = key
            else:
                result.changed[row.id] = text
        elif (stubbed := self._stubs.get(display.decode(part.body).strip())) and part.role == "user":
            if stubbed.startswith("G"):
                result.groups.add(stubbed)
            else:
                result.changed[stubbed] = self._ledger[stubbed].stub
            return True
        else:
            candidates = self._by_text.get((part.role, _sha256(part.body))) or self._trimmed(part)
            if not candidates:
                return False
            row = self._next(candidates)
            if row is None:
                return True  # the host gave it back twice
            result.kept[row.id] = key
        self._taken.add(row.id)
        if row.present:
            places.append(row.id)
            self._newest = max(self._newest, row.number)
        return True

    def _is_result(self, row: Row, part: Part, text: str) -> bool:
        """Whether the result still has its own text, or the stub that it had before."""
        if row.state == "masked" or (row.present and wire.items(b"[]", row.extra) is not None):
            return self._shown(row).strip() == text.strip()
        if not row.present and row.stub.strip() == text.strip():
            return False  # as it was: `changed` puts the same stub
        return row.sha256 == _sha256(part.body) or (
            abs(row.bytes - len(part.body)) <= _MARGIN and self._shown(row).strip() == text.strip()
        )

    def _trimmed(self, part: Part) -> list[Row]:
        """Texts that differ only in the white space at their ends."""
        text = display.decode(part.body).strip()
        size = len(text.encode("utf-8", "surrogatepass"))
        near = chain.from_iterable(self._by_size.get((part.role, size + more), ()) for more in range(_MARGIN + 1))
        return [row for row in near if self._shown(row).strip() == text]

    def _next(self, candidates: Iterable[Row]) -> Row | None:
        """The first that is not placed yet: of those in the prompt behind the newest placed, then of those before it,
        then of all."""
        free = sorted((row for row in candidates if row.id not in self._taken), key=lambda row: row.number)
        present = [row for row in free if row.present]
        behind = [row for row in present if row.number > self._newest]
        return next(iter(behind or present or free), None)


class _Draft:
    """Changes of a ledger's rows and groups."""

    def __init__(self, ledger: Ledger, actor: str, group: int) -> None:
        self._ledger = ledger
        self._actor = actor
        self._group = group
        self._rows: dict[str, Row] = {}
        self._groups: dict[str, Group] = {}

    def ledger(self) -> Ledger:
        return self._ledger.with_rows(self._rows.values()).with_groups(self._groups.values())

    def put(self, row: Row) -> None:
        self._rows[row.id] = row

    def alone(self, block: str) -> Row:
        """The row, out of all groups."""
        row = self._rows.get(block) or self._ledger[block]
        member, name = block, row.group
        while group := self._groups.get(name) or self._ledger.groups.get(name):
            members = tuple(other for other in group.members if other != member)
            self._groups[name] = msgspec.structs.replace(group, members=members)
            if members:
                break
            member, name = name, group.group
        return msgspec.structs.replace(row, group="")

    def keep(self, row: Row, key: str) -> None:
        """The row stays, or comes back; later lines of the host name it by `key`."""
        if not row.present:
            row = msgspec.structs.replace(self.alone(row.id), state="visible", level=0, stub="", removed_by="")
        own = {**wire.own_metadata(row.extra), "key": key}
        self.put(msgspec.structs.replace(row, extra={**row.extra, "ctxvc": own}) if key else row)

    def leave(self, rows: Sequence[Row], shown: set[str], added: Sequence[tuple[str, list[Row]]]) -> None:
        """The rows and groups that are not in the prompt leave it, around the added rows that stand before a block."""
        rows = [row for row in rows if row.present or (row.stub and not row.group)]
        outer = {
            name: group
            for name, group in self._ledger.groups.items()
            if not group.group and name not in shown and self._groups.get(name, group).members
        }
        staying = {name for name, group in outer.items() if not all(map(self._left(rows), group.summary))}
        unplaced: list[str] = [*(outer.keys() - staying), *(row.id for row in rows)]
        unplaced.sort(key=self._first)
        moves = _moves(added)
        for number, (before, summary) in enumerate(moves):
            # A group has the members up to its summary's place; the last one has all the rest.
            last = number == len(moves) - 1
            until = len(unplaced) if last else sum(self._first(member) < _number(before) for member in unplaced)
            self._gather(unplaced[:until], summary, before)
            unplaced = unplaced[until:]
        if not moves:
            self._gather(unplaced, (), "")

    def _left(self, rows: Sequence[Row]) -> Callable[[str], bool]:
        leaving = {row.id for row in rows}
        return lambda block: block in leaving or not self._ledger[block].present

    def _first(self, member: str) -> int:
        """The number of a block, or of the first block in a group."""
        seen: set[str] = set()
        while member.startswith("G") and member not in seen:
            seen.add(member)
            group = self._groups.get(member) or self._ledger.groups[member]
            member = min(group.members, key=lambda name: (name[0] == "G", _number(name)))
        return _number(member)

    def _gather(self, members: Sequence[str], summary: tuple[str, ...], before: str) -> None:
        if not members:
            return
        name, level = f"G{self._group}", 1
        self._group += 1
        for member in members:
            if member.startswith("G"):
                inner = self._groups.get(member) or self._ledger.groups[member]
                level = max(level, inner.level + 1)
                self._groups[member] = msgspec.structs.replace(inner, group=name)
                continue
            row = self._rows.get(member) or self._ledger[member]
            by = self._actor if row.present else row.removed_by
            self.put(msgspec.structs.replace(row, state="archived", level=1, group=name, removed_by=by))
        self._groups[name] = Group(
            id=name,
            members=tuple(members),
            level=level,
            label=f"{len(members)} blocks, compacted by {self._actor}",
            summary=summary,
            before=before,
            removed_by=self._actor,
        )


def _moves(added: Sequence[tuple[str, list[Row]]]) -> list[tuple[str, tuple[str, ...]]]:
    """The added rows that stand before a block: block → rows, in order."""
    moves: dict[str, list[str]] = {}
    for before, rows in added:
        if before:
            moves.setdefault(before, []).extend(row.id for row in rows)
    return sorted(((before, tuple(summary)) for before, summary in moves.items()), key=lambda move: _number(move[0]))


def _number(name: str) -> int:
    return int(name[1:])


def _sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
