"""The dashboard for people: its rows, columns and budget bar."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ctxvc.cli.output import (
    STATE_COLORS,
    Cell,
    Column,
    Output,
    Styled,
    Table,
    Timestamp,
    Tokens,
    counted,
    iso,
)
from ctxvc.cli.terminal import charts
from ctxvc.core.display import human_tokens, one_line
from ctxvc.core.ledger.ledger import Meta, Source
from ctxvc.core.view import model_dashboard
from ctxvc.core.view.budget import Budget
from ctxvc.core.view.dashboard import BAR, Cost, Dashboard, Line, dashboard
from ctxvc.errors import render
from ctxvc.inspection.window_percent import Occupancy
from ctxvc.phrases import COMMAND_LINE
from ctxvc.store.read.revision import Snapshot
from ctxvc.tokens import calibration as calibrations
from ctxvc.tokens.meter import Meter, WindowOrigin, budget_of
from ctxvc.tokens.models import MODELS_DATE

#: The columns of the dashboard.
COLUMNS = (
    Column("ID"),
    Column("~tokens", right=True),
    Column("age", right=True),
    Column("type"),
    Column("level", right=True, rank=3),
    Column("parent", rank=2),
    Column("status", least=12),
    Column("reads", right=True, rank=1),
    Column("label", least=32),
)

#: What tells the window (`tokens.meter.WindowOrigin`), in words.
WINDOW_BY: Mapping[WindowOrigin, str] = {
    "budget": "the session's budget",
    "set": "as set for this session",
    "host": "as {host} recorded it",
    "name": "by the model's name",
    "command": "as `/model` set it",
    "count": "inferred from a prompt of more than 200k",
    "compaction": "inferred from {host}'s own compaction",
    "settings": "by {host}'s settings",
    "models": "by {host}'s table of models",
    "table": f"by our table of {MODELS_DATE}: none is recorded",
    "assumed": "assumed: none is recorded, and our table lacks the model",
}

#: Why a session is the one that is shown.
CHOSEN_BY = {
    "option": ", by --session",
    "variable": ", by CTXVC_SESSION",
    "use": ", chosen with `ctxvc use`",
    "last": ", the last recorded or imported",
    "revision": "",
}
#: How many parts of the window are named.
_MOST_PARTS = 4
#: Characters of a note beside the dashboard.
_NOTE = 200


class Page(NamedTuple):
    """A dashboard with the newest notes, the newest last, and the number of older ones."""

    dashboard: Dashboard
    notes: list[str]
    older: int


def page_of(
    snapshot: Snapshot, meter: Meter, costs: Mapping[str, Cost], calibration: tuple[int, int] | None = None
) -> Page:
    """The dashboard of a snapshot. `costs` are those of its blocks, `calibration` the scope's where it is another."""
    return Page(
        dashboard_of(snapshot, meter, costs, calibration),
        *model_dashboard.recent_notes(snapshot.ledger, snapshot.bodies.body),
    )


def dashboard_of(
    snapshot: Snapshot,
    meter: Meter,
    costs: Mapping[str, Cost],
    calibration: tuple[int, int] | None = None,
    *,
    every: bool = False,
) -> Dashboard:
    ledger = snapshot.ledger
    return dashboard(
        ledger,
        costs,
        budget_of(ledger).effective,
        meter.overhead(snapshot),
        calibration=calibration or ledger.meta.calibration,
        every=every,
    )


def text_of(page: Page, budget: Budget, meter: Meter) -> str:
    cap = model_dashboard.room("full", 0, model_dashboard.cap_of(budget, page.dashboard.calibration))
    return model_dashboard.full_text(page.dashboard, page.notes, page.older, cap=cap, count=meter.count)


def dashboard_lines(
    output: Output,
    snapshot: Snapshot,
    page: Page,
    lines: tuple[Line, ...],
    window: Occupancy,
    chosen_by: str,
    sizes: Sequence[int],
) -> Iterator[str]:
    meta, dashboard = snapshot.ledger.meta, page.dashboard
    yield from output.facts(
        [
            ("session", f"{dashboard.session}/{dashboard.scope}{CHOSEN_BY[chosen_by]}"),
            ("model", meta.model or "unknown"),
            *([("vocabulary", remark)] if (remark := vocabulary_remark(meta)) else []),
            *window_facts(output, window, meta.source, sizes),
            ("blocks", f"{len(snapshot.ledger)}, step {meta.counters.step}, turn {meta.counters.turn}"),
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


def vocabulary_remark(meta: Meta) -> str:
    """The remark that a model's token counts are a guess; empty if they are not."""
    remark = calibrations.guess_remark(meta.calibration, meta.counters.step)
    return render(remark, COMMAND_LINE) if remark else ""


def columns_of(line: Line) -> list[Cell]:
    """The cells of a dashboard line."""
    status = f"{line.status} by {line.removed_by}" if line.removed_by else line.status
    return [
        line.id,
        Tokens(line.tokens),
        f"{line.age}r",
        line.type,
        line.level,
        line.parent,
        Styled(status, STATE_COLORS[line.status]) if line.status in STATE_COLORS else status,
        line.reads,
        line.label,
    ]


def window_facts(
    output: Output, window: Occupancy, source: Source | None, sizes: Sequence[int] = ()
) -> list[tuple[str, Cell]]:
    """How full the window is, by whose count, and what of it is known; how it grew, by the `sizes` of the calls."""
    percent, mark = window.percent, "" if window.by_provider else "~"
    color = "red" if percent >= 90 else "yellow" if percent >= 70 else "green"
    full = min(BAR, window.tokens * BAR // window.window)
    bar = "█" * full + "░" * (BAR - full)
    facts: list[tuple[str, Cell]] = [
        (
            "context",
            Styled(
                f"[{bar}] {percent} %  {mark}{human_tokens(window.tokens)} of {human_tokens(window.window)} tokens",
                color,
            ),
        ),
        ("counted", _count_line(output, window)),
        ("window", _window(window, source)),
    ]
    if window.recorded:
        facts.append(("held here", f"~{human_tokens(sum(window.recorded.values()))}: {_parts(window.recorded)}"))
    if by_kind := charts.kinds(window):
        facts.append(("by kind", by_kind))
    if window.unrecorded:
        facts.append(("not recorded", f"~{human_tokens(window.unrecorded)}: {_unrecorded(source)}"))
    if window.since:
        facts.append(("since then", f"~{human_tokens(sum(window.since.values()))}: {_parts(window.since)}"))
    if grew := charts.growth(sizes):
        facts.append(("growth", grew))
    return facts


def _count_line(output: Output, window: Occupancy) -> str:
    call = window.counted_call
    if call is None:
        return "estimated by ctxvc; the provider's count is not recorded"
    when = output.cell(Timestamp(iso(call.entry.time)))
    if window.by_provider:
        return f"by the provider: the prompt of step {call.step}, {when}"
    size = human_tokens(call.usage.prompt)
    return f"estimated by ctxvc; the provider's newest count is {size}, the prompt of step {call.step}, {when}"


def _window(window: Occupancy, source: Source | None) -> str:
    """What tells the window, and where its host acts."""
    from ctxvc import importers

    host = importers.HOSTS.get(source.format, "the recording") if source else "the recording"
    origin = WINDOW_BY[window.window_by].format(host=host)
    notes = [f"{human_tokens(window.reserve)} of it reserved for the reply"] if window.reserve else []
    notes += [f"{host} compacts from {human_tokens(window.compacts)} on"] if window.compacts else []
    return "; ".join([f"{human_tokens(window.window)}, {origin}", *notes])


def _parts(parts: Mapping[str, int]) -> str:
    """The largest parts; the others together."""
    largest = dict(list(parts.items())[:_MOST_PARTS])
    remainder = sum(parts.values()) - sum(largest.values())
    if remainder:
        largest["other"] = largest.get("other", 0) + remainder
    return ", ".join(f"{name} {human_tokens(tokens)}" for name, tokens in largest.items())


def _unrecorded(source: Source | None) -> str:
    """The parts of a prompt that the store lacks, in a few words."""
    if source is None:
        return "provider overhead"
    lacks = " ".join(source.missing)
    names = (("system prompt", "system prompt"), ("tool definitions", "tools"))
    parts = [short for long, short in names if long in lacks]
    return ", ".join([*parts, "hidden thinking"])
