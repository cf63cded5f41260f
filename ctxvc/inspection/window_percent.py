"""How full the window is: what the provider last counted, and what of it stands in the store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ctxvc.core.ledger.ledger import Row
from ctxvc.core.view.dashboard import Cost, is_protocol
from ctxvc.store.read.revision import Snapshot
from ctxvc.store.store import Store
from ctxvc.tokens import reported
from ctxvc.tokens.calibration import Calibration
from ctxvc.tokens.meter import Meter, WindowOrigin, budget_of, window_of
from ctxvc.tokens.reported import Count

#: Parts of a prompt, by the kind of the block; what clients and people wrote is window_by apart by its origin.
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


#: The part of a prompt that is none of the conversation.
OVERHEAD = "system prompt and tools"


class Occupancy(NamedTuple):
    """The tokens in the window, as the provider counts them.

    Where `by_provider`, `tokens` is the provider's own count of the newest call, prompt and reply, and `since` is what
    came after it, as we count; otherwise it is our figure of the prompt as it stands now. `recorded` has the parts of
    `tokens` that the store has, `unrecorded` is the rest. `newest` is the newest count, even where the prompt has
    changed since; None if there is none. `compacts` is where the recorded host compacts by itself, 0 if nothing
    tells it; `calibration` is the line from our counts to the provider's.
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
    newest: Count | None
    calibration: tuple[int, int]

    @property
    def percent(self) -> int:
        """Of the window, floored; above 100 where more was counted than it should hold."""
        return self.tokens * 100 // self.window


def occupancy(store: Store, snapshot: Snapshot, meter: Meter, costs: Mapping[str, Cost]) -> Occupancy:
    """The occupancy of the window at a snapshot. `costs` are those of its blocks."""
    ledger, overhead = snapshot.ledger, meter.overhead(snapshot)
    count = reported.newest(store, snapshot)
    line = Calibration(*ledger.meta.calibration)
    if count is not None and reported.is_uncalibrated(ledger.meta):
        line = reported.recorded_line(store, count, meter, costs if count.snapshot is snapshot else None)
    if holds := count is not None and reported.still_holds(count, ledger):
        assert count is not None
        in_count = [row for row in ledger.rows() if row.number <= count.end]
        since = [row for row in ledger.rows() if row.number > count.end]
        tokens = count.tokens
    else:
        in_count, since = list(ledger.rows()), []
        ours = overhead + sum(cost.shown for cost in costs.values())
        tokens = max(0, ours * line.a_milli // 1000 + line.b) if ours else 0  # as plans reckon: `View.calibrated`
    parts = _parts(in_count, costs, overhead)
    recorded = _scaled(parts, min(tokens, sum(parts.values()) * line.a_milli // 1000))
    after = _parts(since, costs, 0)
    window, window_by = window_of(ledger)
    return Occupancy(
        tokens=tokens,
        by_provider=holds,
        recorded=recorded,
        unrecorded=tokens - sum(recorded.values()),
        since=_scaled(after, sum(after.values()) * line.a_milli // 1000),
        window=window,
        window_by=window_by,
        compacts=ledger.meta.compacts,
        reserve=budget_of(ledger).reserve,
        newest=count,
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
    """The part of a prompt that a block is in: `you`, `client`, `results`, …, `stubs` where it left."""
    if not row.present:
        return "stubs"
    if is_protocol(row):
        return OVERHEAD
    if row.kind in ("system", "user"):
        return "you" if row.origin == "human" else "client"
    return _PARTS[row.kind]


def _scaled(parts: Mapping[str, int], total: int) -> dict[str, int]:
    """The parts, the largest first, in proportion and together exactly `total`."""
    unscaled = sum(parts.values())
    if not unscaled:
        return {}
    scaled = {name: tokens * total // unscaled for name, tokens in parts.items()}
    largest = max(scaled, key=lambda name: scaled[name])
    scaled[largest] += total - sum(scaled.values())
    return dict(sorted(scaled.items(), key=lambda part: (-part[1], part[0])))
