"""The dashboard and the window that it fills: for people, and the parts of answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from ctxvc.cli.answers.shared import Answer, Item, described, struct_of, table_of
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
    """The dashboard and newest notes of a snapshot. `costs` are its blocks'; `calibration` replaces the scope's."""
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
    """The dashboard of a snapshot; with `every`, each block has a line of its own."""
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
    """The dashboard exactly as a model gets it."""
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
    """The lines of `status`: the facts, then the table of these `lines`."""
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
    yield from output.table_lines(table_of_lines(lines))


def vocabulary_remark(meta: Meta) -> str:
    """The remark that the model's token counts are a guess; empty if they are not."""
    remark = calibrations.guess_remark(meta.calibration, meta.counters.step)
    return render(remark, COMMAND_LINE) if remark else ""


def window_facts(
    output: Output, window: Occupancy, source: Source | None, sizes: Sequence[int] = ()
) -> list[tuple[str, Cell]]:
    """The facts of the window: how full it is, by whose count, of what, and how it grew, by the calls' `sizes`."""
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


# --- as answers


class WindowAnswer(Answer, frozen=True, kw_only=True):
    """How full the window is. `recorded` and `unrecorded` are together `used`."""

    window: Annotated[int, described("tokens of the window")]
    window_by: Annotated[
        str,
        described(
            "source of the window: `host` (the recording itself), `name` (the model's), `command` (`/model`), "
            "`count`, `compaction`, `settings`, `models` (the host's table), `budget`, `set`, `table` (ours), "
            "`assumed`"
        ),
    ]
    compacts: Annotated[int, described("tokens at which the recorded host compacts automatically; 0 if unknown")]
    used: Annotated[
        int,
        described(
            "tokens of the newest call's prompt; of the prompt as it stands now if something of that left or came back"
        ),
    ]
    percent: Annotated[int, described("of the window, rounded down; above 100 if more was counted than it should hold")]
    by_provider: Annotated[
        bool,
        described(
            "whether `used` is the provider's count; false if it is our estimate, since the prompt has changed or "
            "that call's count is not recorded"
        ),
    ]
    reported: Annotated[int | None, described("the provider's newest count: the prompt of that call")]
    reported_step: Annotated[int | None, described("the step of that call")]
    reported_at: Annotated[str, described("the time of that call, ISO 8601; empty if there is none")]
    recorded: Annotated[dict[str, int], described("recorded part of `used`, by kind")]
    unrecorded: Annotated[int, described("unrecorded part of `used`: system prompt, tools and thinking")]
    since: Annotated[
        dict[str, int], described("what came after that prompt, its reply included, by our count; not in `used`")
    ]


def used_tokens(window: Occupancy) -> dict[str, Any]:
    """The fields of `WindowAnswer` that `window` has by other names."""
    call = window.counted_call
    return {
        "used": window.tokens,
        "reported": call.usage.prompt if call else None,
        "reported_step": call.step if call else None,
        "reported_at": iso(call.entry.time) if call else "",
    }


class StatusLine(Item, frozen=True, kw_only=True):
    """A block of the ledger, or an archived group of them, as the dashboard shows it."""

    TABLE = "id tokens age type level parent state reads label"

    id: Annotated[str, described("`B17`; of a group `G3`"), Column("ID")]
    type: Annotated[str, described("the block's kind, or `group`"), Column("type")]
    tokens: Annotated[
        int, described("of the body, or of all bodies in a group"), Column("~tokens", right=True, cell=Tokens)
    ]
    shown: Annotated[int, described("tokens of its representation in the prompt: body, masked body, stub, or nothing")]
    age: Annotated[int, described("in steps; 0 is the newest"), Column("age", right=True, cell="{}r".format)]
    status: Annotated[str, described("state, and its group; `cut` for thinking that a cut took out of the prompt")]
    label: Annotated[str, Column("label", least=32)]
    level: Annotated[int, Column("level", right=True, rank=3)]
    parent: Annotated[
        str,
        described(
            "a result's call, or the opener of any other block's turn; if that is not in the prompt, the nearest "
            "one above it"
        ),
        Column("parent", rank=2),
    ]
    reads: Annotated[int, described("how often it was recovered"), Column("reads", right=True, rank=1)]
    removed_by: Annotated[str, described("who removed it from the prompt")]
    blocks: Annotated[int, described("number of blocks it represents")]

    @property
    def state(self) -> Annotated[Cell, Column("status", least=12)]:
        status = f"{self.status} by {self.removed_by}" if self.removed_by else self.status
        return Styled(status, STATE_COLORS[self.status]) if self.status in STATE_COLORS else status


def table_of_lines(lines: Iterable[Line]) -> Table:
    """The table of a dashboard's lines; what is not in the prompt is dimmed."""
    items = [struct_of(StatusLine, line) for line in lines]
    return table_of(StatusLine, items, dim=lambda item: not item.shown)
