"""The dashboard: the view as a table.

`dashboard` builds the table once; people see it folded, programs in full, and models as text (`model_dashboard`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import chain
from operator import attrgetter
from typing import Literal

import msgspec

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.ledger import Ledger, Row, outermost
from ctxvc.core.prompt.cut import is_cut

BAR = 20
#: Rows that a folded dashboard lists singly: the newest, and the biggest of the others.
NEWEST = 24
BIGGEST = 12

#: Marks, in a row's `extra.ctxvc`, the block that contains a policy's protocol.
PROTOCOL = "protocol"

_SHOWN = attrgetter("shown")


class Cost(msgspec.Struct, frozen=True, gc=False):
    """Tokens of a block: of its body, and of what is now in the prompt for it."""

    body: int
    shown: int


class Line(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A row of the dashboard: a block, an archived group, or a range of small old ones folded together.

    `tokens` are those of the bodies, `shown` those in the prompt, both uncalibrated; `age` is in steps, 0 the newest,
    and `parent` the nearest ancestor that is in the prompt. The line covers the blocks numbered `first` to `last`; a
    group may have further blocks later on.
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
    first: int = 0
    last: int = 0


class Dashboard(msgspec.Struct, frozen=True, kw_only=True):
    """Budget and lines. `limit` is the most that the prompt may cost: the effective budget.

    `overhead` is system prompt, tools and protocol, `dashboards` the sent dashboards still in the prompt, and
    `conversation` the other messages, which the lines represent. These three are in the provider's tokens: they include
    the `calibration` (a, b), in thousandths and tokens; the lines do not.
    """

    session: str
    scope: str
    limit: int
    overhead: int
    conversation: int
    lines: tuple[Line, ...]
    prompt: Literal["exact", "reconstructed"]
    missing: tuple[str, ...] = ()
    dashboards: int = 0
    step: int = 0
    calibration: tuple[int, int] = (1000, 0)

    @property
    def used(self) -> int:
        return self.overhead + self.conversation + self.dashboards

    @property
    def percent(self) -> int:
        """Percent of the limit used, rounded down, at most 100."""
        return min(100, self.used * 100 // self.limit) if self.limit > 0 else 100

    @property
    def cells(self) -> int:
        """Full cells of the bar's 20."""
        return min(BAR, self.used * BAR // self.limit) if self.limit > 0 else BAR

    @property
    def bar(self) -> str:
        return "█" * self.cells + "░" * (BAR - self.cells)


def dashboard(
    ledger: Ledger,
    costs: Mapping[str, Cost],
    limit: int,
    overhead: int = 0,
    *,
    calibration: tuple[int, int] = (1000, 0),
    every: bool = False,
) -> Dashboard:
    """The dashboard of a ledger, with a line for each block or archived group. `costs` has every row.

    With `every`, the members of groups have lines of their own instead. Sent dashboards have no lines, nor has the
    protocol, which counts as overhead.
    """
    lines = tuple(_lines(ledger, costs, every=every))
    conversation = sum(map(_SHOWN, lines))
    protocol_tokens = sum(costs[row.id].shown for row in protocol(ledger))
    sent = sum(costs[row.id].shown for row in ledger.rows()) - conversation - protocol_tokens
    return msgspec.structs.replace(
        totals(ledger, conversation, sent, limit, overhead + protocol_tokens, calibration=calibration), lines=lines
    )


def protocol(ledger: Ledger) -> tuple[Row, ...]:
    """The rows in the prompt that explain the context tools to the model."""
    return tuple(chain.from_iterable(ledger.by_segment(_protocol_rows)))


def _protocol_rows(rows: tuple[Row, ...]) -> list[Row]:
    return [row for row in rows if row.present and is_protocol(row)]


def is_protocol(row: Row) -> bool:
    """Whether the harness added the row to explain the context tools to the model."""
    return wire.own_metadata(row.extra).get(PROTOCOL) is True


def totals(
    ledger: Ledger,
    conversation: int,
    sent: int,
    limit: int,
    overhead: int = 0,
    *,
    calibration: tuple[int, int] = (1000, 0),
) -> Dashboard:
    """A dashboard without lines. `sent` are the tokens of sent dashboards, `conversation` those of other messages."""
    meta = ledger.meta
    counted = overhead + conversation + sent
    a, b = calibration
    total = counted * a // 1000 + b if counted else 0
    conversation, sent = conversation * a // 1000, sent * a // 1000
    return Dashboard(
        session=meta.session,
        scope=meta.scope,
        limit=limit,
        overhead=max(0, total - conversation - sent),
        conversation=conversation,
        lines=(),
        prompt="reconstructed" if meta.source else "exact",
        missing=meta.source.missing if meta.source else (),
        dashboards=sent,
        step=meta.counters.step,
        calibration=calibration,
    )


def outer_groups(ledger: Ledger) -> dict[str, str]:
    """Group → the outermost group around it, which is the one with a line."""
    return {name: outermost(ledger.groups, name) for name in ledger.groups}


def folded(
    lines: Sequence[Line], newest: int = NEWEST, biggest: int = BIGGEST, *, gaps: frozenset[int] = frozenset()
) -> list[Line]:
    """The newest lines, the biggest of the others (on a tie the newer), and one line for each run of the rest.

    `gaps` are the indices in `lines` before which something was omitted: no run extends across a gap.
    """
    if len(lines) <= newest + biggest:
        return list(lines)
    old = lines[: len(lines) - newest]
    single = {line.id for line in nlargest(biggest, reversed(old), key=_SHOWN) if line.shown}
    joined: list[Line] = []
    run: list[Line] = []
    for at, line in enumerate(old):
        alone = line.id in single
        if alone or at in gaps:
            joined += _range(run)
            run = []
        if alone:
            joined.append(line)
        else:
            run.append(line)
    return [*joined, *_range(run), *lines[len(old) :]]


def _lines(ledger: Ledger, costs: Mapping[str, Cost], *, every: bool) -> Iterator[Line]:
    """A line for each block, or for the group that it left in, at the place of the group's first block."""
    around = {} if every else outer_groups(ledger)
    parents: dict[str, str] = {}  # block → its nearest ancestor in the prompt, or itself
    members: dict[str, list[Row]] = {}  # group → its rows
    lasts: dict[str, int] = {}  # group → the number at which its first run of neighbours ends
    places: list[Row | str] = []  # a row, or a group's name
    for row in ledger.rows():
        present = row.present
        parents[row.id] = row.id if present else parents.get(row.parent, "")
        group = "" if present or not row.group else around.get(row.group, "")
        if not group:
            if row.kind != "dashboard" and not (present and is_protocol(row)):
                places.append(row)
            continue
        if group not in members:
            members[group] = []
            places.append(group)
        members[group].append(row)
        if places[-1] == group:
            lasts[group] = row.number
    for place in places:
        if isinstance(place, str):
            rows = members[place]
            yield _group(ledger, place, rows, costs, parents.get(rows[0].parent, ""), lasts[place])
        else:
            yield _line(ledger, place, costs[place.id], parents.get(place.parent, ""))


def _line(ledger: Ledger, row: Row, cost: Cost, parent: str) -> Line:
    meta = ledger.meta
    status: str = row.state
    if row.present and is_cut(row, meta):
        status = "cut"
    elif row.group in ledger.groups and not row.present:
        status = f"{row.state} in {row.group}"
    return Line(
        id=row.id,
        type=row.kind,
        tokens=cost.body,
        shown=cost.shown,
        age=meta.counters.step - row.step,
        status=status,
        label=row.label,
        level=row.level,
        parent=parent,
        reads=row.reads,
        removed_by=row.removed_by,
        first=row.number,
        last=row.number,
    )


def _group(ledger: Ledger, name: str, rows: Sequence[Row], costs: Mapping[str, Cost], parent: str, last: int) -> Line:
    group = ledger.groups[name]
    states = Counter(row.state for row in rows)
    kinds: Counter[str] = Counter(row.kind for row in rows)
    return Line(
        id=name,
        type="group",
        tokens=sum(costs[row.id].body for row in rows),
        shown=sum(costs[row.id].shown for row in rows),
        age=ledger.meta.counters.step - max(row.step for row in rows),
        status=states.most_common(1)[0][0],
        label=group.label or _amount(len(rows), kinds),
        level=group.level,
        parent=parent,
        reads=sum(row.reads for row in rows),
        blocks=len(rows),
        removed_by=group.removed_by,
        first=rows[0].number,
        last=last,
    )


def _range(run: Sequence[Line]) -> list[Line]:
    """One line for all of `run`; a single line is unchanged."""
    if len(run) < 2:
        return list(run)
    kinds = Counter(line.type for line in run)
    states = Counter(line.status for line in run)
    for line in run:
        if line.blocks > 1:  # blocks of a group are counted one by one
            kinds[line.type] += line.blocks - 1
            states[line.status] += line.blocks - 1
    if inside := kinds.pop("group", 0):
        kinds["in groups"] = inside
    blocks = sum(kinds.values())
    return [
        Line(
            id=f"B{run[0].first}–B{run[-1].last}",
            type="range",
            tokens=sum(line.tokens for line in run),
            shown=sum(map(_SHOWN, run)),
            age=min(line.age for line in run),
            status=_tally(states),
            label=_amount(blocks, kinds),
            reads=sum(line.reads for line in run),
            blocks=blocks,
            first=run[0].first,
            last=run[-1].last,
        )
    ]


def _amount(blocks: int, kinds: Counter[str]) -> str:
    return f"{blocks} block{'' if blocks == 1 else 's'}: {_tally(kinds)}"


def _tally(counts: Counter[str]) -> str:
    """`16 archived, 8 visible`: the most frequent first, ties in order of appearance."""
    return ", ".join(f"{count} {name}" for name, count in counts.most_common())
