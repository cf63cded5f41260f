"""Calls and blocks, added up by day and by model, tool or file. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from ctxvc.core.ledger.block import PRESENT
from ctxvc.tables.rows import CallRow, Rows
from ctxvc.tables.session import COMPACTIONS
from ctxvc.tokens.models import Usage

#: The name for calls without a tool or a file.
NONE = "(none)"


class _Part(NamedTuple):
    """The usage, cost and waits of a call, or of a part of it."""

    usage: Usage
    cost: float
    unpriced: int
    waited_model: int | None
    waited_tools: int | None


class Sums(msgspec.Struct, array_like=True, kw_only=True):
    """Sums of calls and blocks.

    `calls` are model calls; `uncounted` ones lack the provider's count, `unpriced` ones have a count but no price.
    `waited_model` and `waited_tools` are seconds, of calls with known times; None if there are none. `blocks_left` and
    `bytes_left` are those of blocks out of the prompt, `reads` the times that such blocks were read.
    """

    calls: int = 0
    uncounted: int = 0
    usage: Usage = Usage()
    cost: float = 0.0
    unpriced: int = 0
    turns: int = 0
    tool_calls: int = 0
    failed: int = 0
    waited_model: int | None = None
    waited_tools: int | None = None
    compactions: int = 0
    blocks_left: int = 0
    bytes_left: int = 0
    reads: int = 0

    def take(self, part: _Part) -> None:
        """Adds a call, or a part of it."""
        self.usage += part.usage
        self.cost += part.cost
        self.unpriced += part.unpriced
        self.waited_model = _sum(self.waited_model, part.waited_model)
        self.waited_tools = _sum(self.waited_tools, part.waited_tools)

    def add(self, addend: Sums) -> None:
        for name in _COUNTS:
            if value := getattr(addend, name):
                setattr(self, name, getattr(self, name) + value)
        for name in _WAITS:
            setattr(self, name, _sum(getattr(self, name), getattr(addend, name)))


_WAITS = ("waited_model", "waited_tools")
_COUNTS = tuple(name for name in Sums.__struct_fields__ if name not in _WAITS)


def _sum(one: int | None, another: int | None) -> int | None:
    """The sum of two values, None counting as unknown; None if both are."""
    return one if another is None else another if one is None else one + another


class Cell(msgspec.Struct, frozen=True, array_like=True):
    """The sums of a session's calls on one day for a name: of a model, a tool or a file."""

    day: str
    name: str
    sums: Sums


def by_model(rows: Rows) -> list[Cell]:
    """A session's sums by day and model."""
    cells = _Cells()
    models: dict[tuple[str, int], tuple[str, str]] = {}
    turns: set[tuple[str, int]] = set()
    for call in rows.calls:
        place = call.time[:10], call.model
        models.setdefault((call.scope, call.step), place)
        sums = cells.at(*place)
        sums.take(_part(call))
        sums.calls += 1
        sums.uncounted += not call.has_usage
        sums.tool_calls += len(call.tools)
        sums.failed += len(call.failed)
        if not call.planner and (call.scope, call.turn) not in turns:
            turns.add((call.scope, call.turn))
            sums.turns += 1
    default = rows.sessions[0].model
    for event in rows.events:
        day, model = event.time[:10], models.get((event.scope, event.step), ("", default))[1]
        cells.at(day, model).compactions += event.op in COMPACTIONS
    for block in rows.blocks:
        if block.state not in PRESENT or block.reads:
            sums = cells.at(*models.get((block.scope, block.step), (block.time[:10], default)))
            _add_block(sums, block.state, block.bytes, block.reads)
    return cells.all()


def by_tool(rows: Rows) -> list[Cell]:
    """A session's sums by day and tool. A model call is divided evenly among its tool calls, and counts once for each
    tool."""
    cells = _Cells()
    for call in rows.calls:
        names = call.tools or [NONE]
        for name, part in zip(names, _divided(call, len(names)), strict=True):
            sums = cells.at(call.time[:10], name)
            sums.take(part)
            sums.tool_calls += name != NONE
        for name in dict.fromkeys(names):
            sums = cells.at(call.time[:10], name)
            sums.calls += 1
            sums.uncounted += not call.has_usage
        for name in call.failed:
            cells.at(call.time[:10], name).failed += 1
    for block in rows.blocks:
        if block.tool and (block.state not in PRESENT or block.reads):
            _add_block(cells.at(block.time[:10], block.tool), block.state, block.bytes, block.reads)
    return cells.all()


def by_file(rows: Rows) -> list[Cell]:
    """A session's sums by day and file. A model call is divided evenly among the files that it touched, else it is
    `(none)`."""
    cells = _Cells()
    touched: dict[str, dict[str, tuple[int, int]]] = {}
    for file in rows.files:
        count, failed = touched.setdefault(file.commit, {}).get(file.path, (0, 0))
        touched[file.commit][file.path] = count + 1, failed + file.error
    for call in rows.calls:
        files = touched.get(call.commit) or {NONE: (0, 0)}
        for (name, (count, failed)), part in zip(files.items(), _divided(call, len(files)), strict=True):
            sums = cells.at(call.time[:10], name)
            sums.take(part)
            sums.calls += 1
            sums.uncounted += not call.has_usage
            sums.tool_calls += count
            sums.failed += failed
    return cells.all()


class _Cells:
    def __init__(self) -> None:
        self._sums: dict[tuple[str, str], Sums] = {}

    def at(self, day: str, name: str) -> Sums:
        sums = self._sums.get((day, name))
        if sums is None:
            sums = self._sums[day, name] = Sums()
        return sums

    def all(self) -> list[Cell]:
        return [Cell(day, name, sums) for (day, name), sums in self._sums.items()]


def _part(call: CallRow) -> _Part:
    usage = Usage(call.fresh, call.cache_written, call.cache_read, call.output, call.cache_hour)
    unpriced = int(call.has_usage and call.cost is None)
    return _Part(usage, call.cost or 0.0, unpriced, call.waited_model, call.waited_tools)


def _divided(call: CallRow, parts: int) -> list[_Part]:
    """A call in parts that add up to it; tokens and seconds stay whole, so the first parts may have one more."""
    undivided = _part(call)
    if parts == 1:
        return [undivided]
    counts = (*undivided.usage, undivided.waited_model, undivided.waited_tools)
    shares = zip(*(_shares(count, parts) for count in counts), strict=True)
    return [
        _Part(Usage(*usage), undivided.cost / parts, undivided.unpriced if number == 0 else 0, model, tools)
        for number, (*usage, model, tools) in enumerate(shares)
    ]


def _shares(count: int | None, parts: int) -> Sequence[int | None]:
    if count is None:
        return [None] * parts
    share, more = divmod(count, parts)
    return [share + (number < more) for number in range(parts)]


def _add_block(sums: Sums, state: str, size: int, reads: int) -> None:
    if state not in PRESENT:
        sums.blocks_left += 1
        sums.bytes_left += size
    sums.reads += reads
