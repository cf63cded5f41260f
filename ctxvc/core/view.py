"""The view: what would be sent now and what it costs; and the dashboard, the view as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from ctxvc.core.ledger import Ledger, Row

BAR = 20
#: Rows of a folded dashboard that stay single: the newest, and the biggest of the others.
NEWEST = 24
BIGGEST = 12


class Cost(msgspec.Struct, frozen=True):
    """Tokens of a block: its body, and what stands for it in the prompt now."""

    body: int
    shown: int


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the dashboard: a block, or a range of small old ones folded together.

    `tokens` are those of the body, `shown` those in the prompt; `age` is in steps, 0 the newest.
    """

    id: str
    type: str
    tokens: int
    shown: int
    age: int
    status: str
    label: str
    level: int = 0
    parent: str = ""
    reads: int = 0
    blocks: int = 1
    removed_by: str = ""


class Dashboard(msgspec.Struct, frozen=True, kw_only=True):
    """Budget and lines. `overhead` is system prompt and tools, `conversation` everything in the messages."""

    session: str
    scope: str
    window: int
    overhead: int
    conversation: int
    lines: tuple[Line, ...]
    prompt: Literal["exact", "reconstructed"]
    missing: tuple[str, ...] = ()

    @property
    def used(self) -> int:
        return self.overhead + self.conversation

    @property
    def percent(self) -> int:
        """Of the window, floored, at most 100."""
        return min(100, self.used * 100 // self.window) if self.window else 100

    @property
    def bar(self) -> str:
        full = min(BAR, self.used * BAR // self.window) if self.window else BAR
        return "█" * full + "░" * (BAR - full)


def dashboard(
    ledger: Ledger, costs: Mapping[str, Cost], window: int, overhead: int = 0, *, folded: bool = True
) -> Dashboard:
    """The dashboard of a ledger. `costs` has every row; `folded` joins old small neighbours into ranges."""
    meta = ledger.meta
    rows = list(ledger.rows())
    lines = [_line(row, costs[row.id], meta.counters.step) for row in rows]
    return Dashboard(
        session=meta.session,
        scope=meta.scope,
        window=window,
        overhead=overhead,
        conversation=sum(line.shown for line in lines),
        lines=tuple(_folded(lines) if folded else lines),
        prompt="reconstructed" if meta.source else "exact",
        missing=meta.source.missing if meta.source else (),
    )


def _line(row: Row, cost: Cost, step: int) -> Line:
    return Line(
        id=row.id,
        type=row.kind,
        tokens=cost.body,
        shown=cost.shown,
        age=step - row.step,
        status=row.state if not row.group else f"{row.state} in {row.group}",
        label=row.label,
        level=row.level,
        parent=row.parent,
        reads=row.reads,
        removed_by=row.removed_by,
    )


def _folded(lines: list[Line]) -> Iterator[Line]:
    """The newest and the biggest stay single; runs of others become one line each."""
    if len(lines) <= NEWEST + BIGGEST:
        yield from lines
        return
    old = lines[:-NEWEST]
    single = {line.id for line in sorted(old, key=lambda line: line.shown, reverse=True)[:BIGGEST] if line.shown}
    run: list[Line] = []
    for line in old:
        if line.id not in single:
            run.append(line)
            continue
        yield from _range(run)
        run = []
        yield line
    yield from _range(run)
    yield from lines[-NEWEST:]


def _range(run: list[Line]) -> Iterator[Line]:
    if len(run) < 2:
        yield from run
        return
    kinds: dict[str, int] = {}
    states: dict[str, int] = {}
    for line in run:
        kinds[line.type] = kinds.get(line.type, 0) + 1
        state = line.status.split(" ")[0]
        states[state] = states.get(state, 0) + 1
    yield Line(
        id=f"{run[0].id}–{run[-1].id}",
        type="range",
        tokens=sum(line.tokens for line in run),
        shown=sum(line.shown for line in run),
        age=run[-1].age,
        status=", ".join(f"{count} {state}" for state, count in sorted(states.items(), key=lambda item: -item[1])),
        label=", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items(), key=lambda item: -item[1])),
        reads=sum(line.reads for line in run),
        blocks=len(run),
    )
