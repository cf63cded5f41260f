"""The ledger under rehearsal: blocks and groups as they would be, and the cost of their places in the prompt.

Costs are those of `prompt.outline`, a block at a time, so that one change of many can be judged without the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from ctxvc.core.display import one_line
from ctxvc.core.ledger.block import group_number
from ctxvc.core.ledger.ledger import Group, Ledger, Row, blocks_of, digest, outermost
from ctxvc.core.prompt import stub as stubs
from ctxvc.core.prompt.cut import is_cut
from ctxvc.core.prompt.outline import in_prompt_order, results_of
from ctxvc.core.view.view import Price


def header(group: Group, rows: Iterable[Row], tokens: int | None, *, way_back: bool = True) -> str:
    """The stub of a group of these blocks, of so many `tokens` (None: not counted, bytes are given instead).

    If the group had a summary, that stays.
    """
    rows = list(rows)
    _, summarised, summary = group.stub.partition("\n")
    titled = msgspec.structs.replace(group, label="") if summarised else group
    size = sum(row.bytes for row in rows)
    stub = stubs.group_stub(titled, blocks=len(rows), tokens=tokens, size=size, digest=digest(rows), way_back=way_back)
    return f"{stub}\n{summary}" if summarised else stub


def contents(rows: list[Row]) -> str:
    """An index text for a group that nobody gave one: its first and last label, and what it has of each kind."""
    labels = list(dict.fromkeys(label for row in (rows[0], rows[-1]) if (label := one_line(row.label, 60))))
    kinds: dict[str, int] = {}
    for row in rows:
        kinds[row.kind] = kinds.get(row.kind, 0) + 1
    return "; ".join([*([" / ".join(labels)] if labels else []), ", ".join(f"{n} {kind}" for kind, n in kinds.items())])


class Reach(NamedTuple):
    """Blocks and outermost groups whose cost is compared before and after a change."""

    blocks: list[str]
    groups: list[str]


def _pairs(ledger: Ledger) -> tuple[dict[str, str], dict[str, str]]:
    """A call's block → its result's, and the reverse."""
    results = {call: result.id for call, result in results_of(ledger.rows()).items()}
    return results, {result: call for call, result in results.items()}


def _places(ledger: Ledger) -> dict[str, int]:
    """A block → where it is in the order of the prompt."""
    return {row.id: place for place, row in enumerate(in_prompt_order(ledger, list(ledger.rows())))}


@dataclass(slots=True)
class LedgerDraft:
    """The working copy. `rows` and `groups` are as they would be; `put` and `put_group` change them.

    `results` gives a call's block the result that answers it, `calls` the reverse: who answers whom does not depend on
    any state. `groups` has an entry for none that is gone. Without `handles`, stubs do not name the way back.
    """

    ledger: Ledger
    price: Price
    next_group: int
    handles: bool = True
    rows: dict[str, Row] = field(init=False)
    groups: dict[str, Group] = field(init=False)
    results: Mapping[str, str] = field(init=False)
    calls: Mapping[str, str] = field(init=False)
    _undo: list[tuple[str, Row | Group | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rows = {row.id: row for row in self.ledger.rows()}
        self.groups = dict(self.ledger.groups)
        self.results, self.calls = self.ledger.derived(_pairs)

    # --- changes

    def put(self, row: Row) -> None:
        self._undo.append((row.id, self.rows[row.id]))
        self.rows[row.id] = row

    def put_group(self, group: Group) -> None:
        """The group is new or as given; without members it goes."""
        self._undo.append((group.id, self.groups.get(group.id)))
        if group.members:
            self.groups[group.id] = group
        else:
            self.groups.pop(group.id, None)

    def mark(self) -> int:
        """A moment to go `back` to."""
        return len(self._undo)

    def back(self, mark: int) -> None:
        while len(self._undo) > mark:
            name, was = self._undo.pop()
            if isinstance(was, Row):
                self.rows[name] = was
            elif was is not None:
                self.groups[name] = was
            else:
                del self.groups[name]

    def changed(self) -> tuple[tuple[Row, ...], tuple[Group, ...]]:
        """The rows and groups that differ from the ledger, ordered by number; a removed group has no members."""
        first: dict[str, Row | Group | None] = {}
        for name, was in self._undo:
            first.setdefault(name, was)
        rows: list[Row] = []
        groups: list[Group] = []
        for name, was in first.items():
            now = self.rows.get(name) or self.groups.get(name)
            if isinstance(was, Group) and now is None:
                groups.append(msgspec.structs.replace(was, members=()))
            elif isinstance(now, Row) and now != was:
                rows.append(now)
            elif isinstance(now, Group) and now != was:
                groups.append(now)
        rows.sort(key=lambda row: row.number)
        groups.sort(key=lambda group: group_number(group.id))
        return tuple(rows), tuple(groups)

    # --- stubs and groups

    def stub(self, row: Row, index: str = "") -> str:
        """The stub of a block that leaves by itself."""
        call = self.rows.get(self.calls.get(row.id, ""))
        return stubs.stub(
            row,
            tokens=self.price.body(row),
            index=index,
            called=call is not None and call.present,
            call=stubs.arguments(call),
            truncated=stubs.is_truncated(row),
            way_back=self.handles,
        )

    def around(self, row: Row) -> str:
        """The outermost group that an absent block is in; empty where it is in none."""
        return "" if row.present or not row.group else outermost(self.groups, row.group)

    def inside(self, name: str) -> list[Row]:
        """The blocks of a group."""
        return [self.rows[block] for block in blocks_of(self.groups, name) if block in self.rows]

    def header(self, group: Group, rows: Iterable[Row]) -> str:
        """The stub of a group that has these blocks."""
        rows = list(rows)
        return header(group, rows, self._tokens(rows), way_back=self.handles)

    def gather(self, units: Iterable[str], *, label: str, actor: str, summary: str = "") -> Group:
        """A new group of these blocks and groups; the blocks that are in the prompt leave it."""
        mixed = [(self.inside(unit)[0] if unit[0] == "G" else self.rows[unit], unit) for unit in units]
        members = [unit for _, unit in sorted(mixed, key=lambda pair: pair[0].number)]
        level = 0
        name = f"G{self.next_group}"
        self.next_group += 1
        for member in members:
            if member[0] == "G":
                level = max(level, self.groups[member].level)
                self.put_group(msgspec.structs.replace(self.groups[member], group=name))
                continue
            row = self.rows[member]
            level = max(level, self.level(row))
            by = row.removed_by if row.state == "archived" else actor
            self.put(msgspec.structs.replace(row, state="archived", level=1, group=name, removed_by=by))
        group = Group(id=name, members=tuple(members), level=level + 1, removed_by=actor)
        self.put_group(group)
        inside = self.inside(name)
        group = msgspec.structs.replace(group, label=one_line(label or summary or contents(inside), stubs.INDEX))
        if summary:
            group = msgspec.structs.replace(group, stub=stubs.summary("", summary))
        group = msgspec.structs.replace(group, stub=self.header(group, inside))
        self.put_group(group)
        return group

    def take_out(self, blocks: Iterable[str]) -> None:
        """The blocks leave their groups. A group that is emptied goes, one that stays gets a stub with its new size."""
        leaving: dict[str, set[str]] = {}
        for block in blocks:
            row = self.rows[block]
            if row.group in self.groups:
                leaving.setdefault(row.group, set()).add(block)
            self.put(msgspec.structs.replace(row, group=""))
        emptied: set[str] = set()
        while leaving:
            name = min(leaving, key=lambda group_id: (self.groups[group_id].level, group_number(group_id)))
            leavers, group = leaving.pop(name), self.groups[name]
            emptied.add(name)
            members = tuple(member for member in group.members if member not in leavers)
            group = msgspec.structs.replace(group, members=members)
            self.put_group(group)
            if members and group.stub:
                inside = self.inside(name)
                self.put_group(msgspec.structs.replace(group, stub=self.header(group, inside)))
            if group.group in self.groups and group.group not in emptied:
                leaving.setdefault(group.group, set()).update(() if members else (name,))

    @staticmethod
    def level(row: Row) -> int:
        """0 in the prompt or never in it, 1 archived by itself."""
        return 1 if row.state == "archived" else 0

    def _tokens(self, rows: Iterable[Row]) -> int:
        return sum(self.price.body(row) for row in rows)

    # --- costs

    def reach(self, blocks: Iterable[str]) -> Reach:
        """Everything whose cost a change of these blocks may affect: they, their pairs' other halves, their groups."""
        halves = list(dict.fromkeys(half for block in blocks for half in self.pair(block)))
        groups = {name for half in halves if (name := self.around(self.rows[half]))}
        return Reach(halves, sorted(groups))

    def cost(self, reach: Reach) -> int:
        """The tokens of what stands now for these blocks and groups, and for the groups that the blocks are in now."""
        groups = {name for group in reach.groups if (name := outermost(self.groups, group))}
        total = 0
        for block in reach.blocks:
            row = self.rows[block]
            if name := self.around(row):
                groups.add(name)
            else:
                total += self._alone(row)
        return total + sum(map(self._together, groups))

    def cost_in_place(self, unit: str) -> int:
        """The tokens in the place of a block or group itself; 0 if it is inside a group."""
        if unit in self.groups:
            return self._together(unit) if outermost(self.groups, unit) == unit else 0
        return 0 if self.around(self.rows[unit]) else self._alone(self.rows[unit])

    def pair(self, block: str) -> list[str]:
        """The block, and with it the result of the call or the call of the result that it is."""
        other = self.results.get(block) or self.calls.get(block)
        return [block, other] if other else [block]

    def _alone(self, row: Row) -> int:
        """The cost of a block that is in no group."""
        if is_cut(row, self.ledger.meta):
            return 0
        if row.present:
            return self.price.mask(row) if row.state == "masked" else self.price.body(row)
        if row.stub and row.state != "pruned":
            return self.price.text(row.stub)
        return self._answer(row)

    def _together(self, name: str) -> int:
        """The cost of an outermost group: its stub, and a short answer for each result that a call waits for."""
        group = self.groups[name]
        absent = [row for row in self.inside(name) if not row.present and not is_cut(row, self.ledger.meta)]
        heads = [row for row in absent if row.state != "pruned"] if group.stub else []
        places = self.ledger.derived(_places) if len(heads) > 1 else {}
        head = min(heads, key=lambda row: places[row.id]) if places else next(iter(heads), None)
        others = sum(self._answer(row) for row in absent if row is not head)
        return others + (self.price.text(group.stub) if head else 0)

    def _answer(self, row: Row) -> int:
        """The cost of an absent block without a stub: nothing, unless a call in the prompt waits for it."""
        call = self.calls.get(row.id)
        return self.price.text(stubs.absent(row)) if call and self.rows[call].present else 0
