"""How full the window is: the size of the newest call's prompt, the part that the store has, and what came since."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ctxvc.core.ledger.ledger import Row
from ctxvc.core.view.dashboard import Cost, is_protocol
from ctxvc.store.read.revision import Snapshot
from ctxvc.store.store import Store
from ctxvc.tokens import prompt_size
from ctxvc.tokens.meter import Meter, WindowOrigin, budget_of, window_of
from ctxvc.tokens.models import Usage
from ctxvc.tokens.prompt_size import Call

#: Kind of a block → the part of a prompt that it is in; text of clients and people is divided by origin instead.
_PARTS = {
    "tool_result": "results",
    "tool_use": "calls",
    "assistant": "answers",
    "thinking": "thinking",
    "note": "notes",
    "dashboard": "dashboards",
    "image": "images",
    "document": "documents",
    "other": "other",
}


#: The part of a prompt that is not in the conversation, and the part that is not in the store.
OVERHEAD, UNRECORDED = "system prompt and tools", "not recorded"


class Occupancy(NamedTuple):
    """The tokens in the window, as the provider counts them.

    `tokens` is the size of the newest call's prompt, counted `by_provider` or estimated (`tokens.prompt_size`), and
    `since` is the estimate of what came after it, its reply first. If part of that prompt has left or come back, or
    there is no call yet, `tokens` is the estimated size of the current prompt.

    `recorded` has the parts of `tokens` that the store has, `unrecorded` is the rest. `counted_call` is the newest call
    that the provider counted, even if the prompt has changed since; None if there is none. `compacts` is the size at
    which the recorded host compacts by itself, 0 if unknown; `calibration` is the line from our counts to the
    provider's.
    """

    tokens: int
    by_provider: bool
    recorded: dict[str, int]
    unrecorded: int
    since: dict[str, int]
    window: int
    window_by: WindowOrigin
    compacts: int
    reserve: int
    counted_call: Call | None
    calibration: tuple[int, int]

    @property
    def percent(self) -> int:
        """The percentage of the window in use, rounded down; above 100 if the provider counted more than fits."""
        return percent_of(self.tokens, self.window)


def percent_of(tokens: int, window: int) -> int:
    """`tokens` as a percentage of the window, rounded down."""
    return tokens * 100 // max(1, window)


def occupancy(store: Store, snapshot: Snapshot, meter: Meter, costs: Mapping[str, Cost]) -> Occupancy:
    """The occupancy of the window at a snapshot. `costs` are those of its blocks."""
    ledger, overhead = snapshot.ledger, meter.overhead(snapshot)
    call, counted_call = prompt_size.newest(store, snapshot)
    learned = None
    if counted_call is not None and prompt_size.is_uncalibrated(ledger.meta):
        learned = prompt_size.recorded_line(counted_call, meter, costs if counted_call.snapshot is snapshot else None)
    line = prompt_size.line_of(ledger.meta, learned)
    sent = call if call is not None and prompt_size.still_holds(call, ledger) else None
    rows = list(ledger.rows())
    parts = _parts([row for row in rows if sent is None or row.number <= sent.last], costs, overhead)
    size = prompt_size.size(sum(parts.values()), sent.usage if sent else Usage(), line, ledger.meta)
    after = _parts([row for row in rows if sent is not None and row.number > sent.last], costs, 0)
    window, window_by = window_of(ledger)
    return Occupancy(
        tokens=size.tokens,
        by_provider=size.by_provider,
        recorded=scaled(parts, size.recorded),
        unrecorded=size.unrecorded,
        since=scaled(after, sum(after.values()) * line.a_milli // 1000),
        window=window,
        window_by=window_by,
        compacts=ledger.meta.compacts,
        reserve=budget_of(ledger).reserve,
        counted_call=counted_call,
        calibration=(line.a_milli, line.b),
    )


def _parts(rows: list[Row], costs: Mapping[str, Cost], overhead: int) -> dict[str, int]:
    """The tokens of each part of a prompt, as we count."""
    parts = {OVERHEAD: overhead} if overhead else {}
    for row in rows:
        if tokens := costs[row.id].shown:
            name = part_of(row)
            parts[name] = parts.get(name, 0) + tokens
    return parts


def part_of(row: Row) -> str:
    """The part of a prompt that a block is in: `you`, `client`, `results`, …, or `stubs` if the block left."""
    if not row.present:
        return "stubs"
    if is_protocol(row):
        return OVERHEAD
    if row.kind in ("system", "user"):
        return "you" if row.origin == "human" else "client"
    return _PARTS[row.kind]


def scaled(parts: Mapping[str, int], total: int) -> dict[str, int]:
    """The parts, scaled in proportion to a sum of exactly `total`, largest first."""
    unscaled = sum(parts.values())
    if not unscaled:
        return {}
    scaled = {name: tokens * total // unscaled for name, tokens in parts.items()}
    largest = max(scaled, key=lambda name: scaled[name])
    scaled[largest] += total - sum(scaled.values())
    return dict(sorted(scaled.items(), key=lambda part: (-part[1], part[0])))
