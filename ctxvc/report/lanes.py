"""The life of each block, by calls: its states, its readings, and who changed it why."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from ctxvc.core.ledger.ledger import Group, Ledger, Meta, Row, outermost
from ctxvc.core.prompt.cut import CUT
from ctxvc.core.view.view import Price
from ctxvc.report.data import STATES
from ctxvc.report.lines import Change

_STATE = {name: number for number, name in enumerate(STATES)}
MASKED = _STATE["masked"]
PRESENT = frozenset({_STATE["visible"], _STATE["pinned"], MASKED})
#: A row's state → its state on the page, unless a group decides.
_BY_STATE = {"visible": "visible", "pinned": "pinned", "masked": "masked", "pruned": "gone", "deleted": "deleted"}
_VERBS = {"archived": "archive", "masked": "mask", "pruned": "prune", "deleted": "delete", "blocked": "offload"}


@dataclass(slots=True)
class Lane:
    """A block of a scope. `spans` are (first call, state), in order; `reads` are the calls after a reading."""

    row: Row
    spans: list[tuple[int, int]] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)
    cut: bool = False
    #: Whether it was too large to be shown at all.
    withheld: bool = False
    #: Whether it left, even if no prompt ever had it.
    was_removed: bool = False
    #: Whether it was in the prompt, or was never shown for its size.
    counts: bool = False

    @property
    def state(self) -> int:
        return self.spans[-1][1]

    @property
    def departed(self) -> bool:
        """Whether it left the prompt, or was withheld; never for dashboards, which newer ones replace."""
        return self.row.kind != "dashboard" and (self.withheld or self.was_removed)

    @property
    def returned(self) -> bool:
        """Whether it came back into the prompt."""
        return (False, True) in pairwise(state in PRESENT for _, state in self.spans)

    def turn(self, call: int, state: int) -> None:
        """Sets its state from a call on."""
        if self.spans and self.spans[-1][0] == call:
            self.spans.pop()
        if not self.spans or self.spans[-1][1] != state:
            self.spans.append((call, state))

    def intervals(self, end: int) -> list[int]:
        """A flat list of from, to, state for each span; the last one ends at `end`."""
        flat: list[int] = []
        for place, (start, state) in enumerate(self.spans):
            stop = self.spans[place + 1][0] if place + 1 < len(self.spans) else end
            if stop > start:
                flat += (start, stop, state)
        return flat


@dataclass(frozen=True, slots=True)
class Turned:
    """A change of a block by a commit, and the first call that sees it."""

    lane: Lane
    call: int
    verb: str
    change: Change


class Lanes:
    """The lanes of one scope. `take` each call in order; `missing` are the tokens of what has left so far."""

    def __init__(self, price: Price) -> None:
        self.missing = 0
        self._price = price
        self.lanes: dict[str, Lane] = {}
        self.turned: list[Turned] = []
        self._group_stubs: dict[str, tuple[tuple[str, ...], bool]] = {}  # group → its members, and if they have a stub
        self._cuttable: list[int] = []
        self._cut = 0

    def take(self, call: int, fresh: Sequence[tuple[Row, Change]], groups: Iterable[Group], ledger: Ledger) -> None:
        """Adds the changes between a call's prompt and the one before."""
        touched: dict[str, None] = {}
        for row, change in fresh:
            lane = self.lanes.get(row.id)
            if lane is None:
                lane = self.lanes[row.id] = Lane(row)
                if row.kind in CUT:
                    self._cuttable.append(row.number)
                if row.state == "blocked":
                    lane.withheld = True
                    self.turned.append(Turned(lane, call, "offload", change))
            elif lane.row.state != row.state:
                lane.was_removed = lane.was_removed or (lane.row.present and not row.present)
                self.turned.append(Turned(lane, call, _verb(lane.row, row), change))
            if row.reads > lane.row.reads and lane.row is not row:
                lane.reads.append(call)
                self.turned.append(Turned(lane, call, "recover", change))
            lane.row = row
            touched[row.id] = None
        for group in groups:
            touched.update(dict.fromkeys(self._regrouped(group.id, ledger.groups)))
        touched.update(dict.fromkeys(self._cut_blocks(ledger.meta, fresh)))
        for name in touched:
            if lane := self.lanes.get(name):
                self._turn(lane, call, _STATE["gone"] if lane.cut else _state(lane.row, ledger.groups))

    def _regrouped(self, name: str, groups: Mapping[str, Group]) -> Iterator[str]:
        """The blocks of a changed group; those of its inner groups only if these got or lost a stub.

        A group around all earlier ones need not touch each of their blocks, which would take quadratic time.
        """
        outer = groups.get(outermost(groups, name))
        has_stub = outer is not None and bool(outer.stub)
        pending = [name]
        while pending:
            group = groups.get(pending.pop())
            if group is None or self._group_stubs.get(group.id) == (group.members, has_stub):
                continue
            self._group_stubs[group.id] = group.members, has_stub
            yield from (member for member in group.members if member.startswith("B"))
            pending += [member for member in group.members if not member.startswith("B")]

    def _turn(self, lane: Lane, call: int, state: int) -> None:
        if not lane.spans:
            lane.counts = lane.row.state == "blocked" or state in PRESENT
        self.missing -= self._absent(lane)
        lane.turn(call, state)
        self.missing += self._absent(lane)

    def _absent(self, lane: Lane) -> int:
        """The tokens of a block that are missing from the prompt because it left."""
        if not (lane.counts and lane.spans) or lane.row.kind == "dashboard":
            return 0
        if lane.state == MASKED:
            return max(0, self._price.body(lane.row) - self._price.mask(lane.row))
        return 0 if lane.state in PRESENT else self._price.body(lane.row)

    def _cut_blocks(self, meta: Meta, fresh: Sequence[tuple[Row, Change]]) -> list[str]:
        """The blocks that a cut removed since the last call, or an undo brought back."""
        last = meta.cuts[-1] if meta.cuts else 0
        low, high = sorted((last, self._cut))
        between = self._cuttable[bisect_right(self._cuttable, low) : bisect_right(self._cuttable, high)]
        came = [row.number for row, _ in fresh if row.kind in CUT and row.number <= low]
        names = [f"B{number}" for number in between + came]
        for name in names:
            lane = self.lanes[name]
            lane.cut = lane.row.number <= last
        self._cut = last
        return names


def _state(row: Row, groups: Mapping[str, Group]) -> int:
    name = _BY_STATE.get(row.state)
    if name is None:  # archived or blocked: a stub of its own, or one of its group
        group = groups.get(outermost(groups, row.group)) if row.group else None
        name = "stub" if (group.stub if group else row.stub) else "gone"
    return _STATE[name]


def _verb(before: Row, after: Row) -> str:
    if after.state == "visible":
        return "unpin" if before.state == "pinned" else "restore"
    return "pin" if after.state == "pinned" else _VERBS[after.state]
