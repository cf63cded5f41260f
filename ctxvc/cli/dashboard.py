"""The dashboard for people: its rows, columns and budget bar."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

import msgspec

from ctxvc.cli.output import Column, Output, Styled, Table, counted
from ctxvc.core.display import one_line
from ctxvc.core.ledger import caption
from ctxvc.core.ledger.ledger import Row
from ctxvc.core.view import dashboard_text
from ctxvc.core.view.budget import Budget
from ctxvc.core.view.dashboard import Cost, Dashboard, Line, dashboard
from ctxvc.errors import Damaged
from ctxvc.store import revision as revisions
from ctxvc.store.revision import Snapshot
from ctxvc.store.store import Store
from ctxvc.tokens.meter import Meter, budget_of

#: The columns of the dashboard.
COLUMNS = (
    Column("ID"),
    Column("~tokens", right=True),
    Column("age", right=True),
    Column("type"),
    Column("level", right=True),
    Column("parent"),
    Column("status", least=12),
    Column("reads", right=True),
    Column("label", least=12),
)

#: The provider's names of the parts of a call's input, and how many commits back to search for one.
_INPUT = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "prompt_tokens")
_NEAR = 20

#: Characters of a note beside the dashboard.
_NOTE = 200


class Page(NamedTuple):
    """A dashboard with the newest notes, the newest last, and the number of older ones."""

    dashboard: Dashboard
    notes: list[str]
    older: int


def page_of(snapshot: Snapshot, meter: Meter, costs: Mapping[str, Cost]) -> Page:
    """The dashboard of a snapshot. `costs` are those of its blocks."""
    return Page(
        dashboard_of(snapshot, meter, costs), *dashboard_text.recent_notes(snapshot.ledger, snapshot.bodies.body)
    )


def dashboard_of(snapshot: Snapshot, meter: Meter, costs: Mapping[str, Cost], *, every: bool = False) -> Dashboard:
    ledger = snapshot.ledger
    return dashboard(
        ledger,
        costs,
        budget_of(ledger).effective,
        meter.overhead(snapshot),
        calibration=ledger.meta.calibration,
        every=every,
    )


def text_of(page: Page, budget: Budget, meter: Meter) -> str:
    cap = dashboard_text.room("full", 0, dashboard_text.cap_of(budget, page.dashboard.calibration))
    return dashboard_text.full_text(page.dashboard, page.notes, page.older, cap=cap, count=meter.count)


def tokens_reported(store: Store, snapshot: Snapshot) -> int | None:
    """The provider's input tokens for the newest reply with known usage; None if none is near."""
    for entry in islice(revisions.history(store, snapshot.commit), _NEAR):
        if entry.trailers.get("Ctxvc-Op") != "step":
            continue
        counts = [entry.usage[name] for name in _INPUT if name in entry.usage]
        if counts:
            return sum(counts)
    return None


def dashboard_lines(
    output: Output, snapshot: Snapshot, page: Page, lines: tuple[Line, ...], reported: int | None
) -> Iterator[str]:
    meta, dashboard = snapshot.ledger.meta, page.dashboard
    yield from output.facts(
        [
            ("session", f"{dashboard.session}/{dashboard.scope}"),
            ("model", meta.model or "unknown"),
            ("budget", budget_line(output, dashboard)),
            ("overhead", dashboard.overhead),
            ("conversation", dashboard.conversation),
            *([("dashboard", dashboard.dashboards)] if dashboard.dashboards else []),
            ("blocks", f"{len(snapshot.ledger)}, step {meta.counters.step}, turn {meta.counters.turn}"),
            *([("provider counted", reported)] if reported else []),
            ("prompt", dashboard.prompt + (f"; missing: {', '.join(dashboard.missing)}" if dashboard.missing else "")),
            *(
                [("not committed", f"{counted(snapshot.waiting, 'record')} of an open step")]
                if snapshot.waiting
                else []
            ),
            *([("older notes", page.older)] if page.older else []),
            *(("note", one_line(note, _NOTE)) for note in page.notes),
        ]
    )
    yield ""
    absent = frozenset(number for number, line in enumerate(lines) if not line.shown)
    yield from output.table_lines(Table(COLUMNS, [columns_of(line) for line in lines], dim=absent))


def captioned(lines: Iterable[Line], snapshot: Snapshot) -> tuple[Line, ...]:
    """The lines with labels for people: a result is called by its call, and paths are whole."""
    captions: list[Line] = []
    for line in lines:
        row = snapshot.ledger.get(line.id) if line.type not in ("group", "range") else None
        captions.append(msgspec.structs.replace(line, label=label_of(row, snapshot)) if row else line)
    return tuple(captions)


def label_of(row: Row, snapshot: Snapshot) -> str:
    """What a block is, in a few words for people."""

    def body_of(call: Row) -> bytes:
        try:
            return snapshot.bodies.body(call)
        except Damaged:
            return b""  # the label that its row has is still there

    return caption.of_row(row, snapshot.ledger, body_of)


def columns_of(line: Line) -> list[str | int | None]:
    """The cells of a dashboard line."""
    status = f"{line.status} by {line.removed_by}" if line.removed_by else line.status
    return [line.id, line.tokens, f"{line.age}r", line.type, line.level, line.parent, status, line.reads, line.label]


def budget_line(output: Output, dashboard: Dashboard) -> Styled:
    color = "red" if dashboard.percent >= 90 else "yellow" if dashboard.percent >= 70 else "green"
    used, window = output.cell(dashboard.used), output.cell(dashboard.limit)
    return Styled(f"[{dashboard.bar}] {dashboard.percent} %  {used} / {window} tokens", color)
