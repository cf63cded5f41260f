"""`status` and `context`: what is in the prompt, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import NamedTuple

import click
import msgspec

from ctxvc.cli import schemas, usage
from ctxvc.cli.app import App, command, complete_revisions, json_option
from ctxvc.cli.output import Cell, Column, Output, Share, Styled, Table, counted
from ctxvc.core.display import decode, one_line
from ctxvc.core.view import dashboard_text
from ctxvc.core.view.budget import Budget
from ctxvc.core.view.dashboard import Cost, Dashboard, Line, dashboard, folded
from ctxvc.core.view.view import View
from ctxvc.store import revision as revisions
from ctxvc.store.revision import Snapshot
from ctxvc.store.store import Store
from ctxvc.tokens.meter import Meter, Prices, budget_of

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


#: What the provider calls the parts of a call's input, and how many commits back one is looked for.
_INPUT = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "prompt_tokens")
_NEAR = 20
#: Characters of a note beside the dashboard.
_NOTE = 200


class Page(NamedTuple):
    """A dashboard with what stands beside it: the newest notes, the newest last, and how many are older."""

    board: Dashboard
    notes: list[str]
    older: int


@command("status", "ctxvc status")
@click.argument("revision", metavar="[REV]", default="HEAD", shell_complete=complete_revisions)
@click.option("--all", "every", is_flag=True, help="Every block on a line of its own; --json always does that.")
@click.option("--text", "as_text", is_flag=True, help="The dashboard as a model is given it, to the byte.")
@json_option
@click.pass_obj
def status(app: App, revision: str, every: bool, as_text: bool) -> None:
    """Show the dashboard: what is in the prompt and what it costs.

    One line a block or archived group: its tokens, its age in steps, its state, and what it says. Of many, small old
    neighbours share a line. A block that left the prompt stays in the list: `ctxvc show ID` reads it. REV is a scope, a
    step, a commit; by default what stands now. docs/dashboard.md explains every column.
    """
    if as_text and (every or app.json):
        raise click.UsageError("--text is the whole answer: it goes with neither --all nor --json")
    with app.reading() as session:
        moment = revisions.resolve(session.store, session, revision)
        meter = Meter(session.store, moment.ledger.meta.tokenizer)
        costs = meter.costs(moment)
        page = page_of(moment, meter, costs)
        blocks = _board(moment, meter, costs, every=True).lines if every or app.json else ()
        reported = _reported(session.store, moment)
        words = _text(page, budget_of(moment.ledger), meter) if as_text else ""
    if app.json:
        app.output.value(_status(moment, page, blocks, reported, estimated=meter.estimated))
    elif as_text:
        app.output.lines(words.splitlines())
    else:
        lines = blocks or tuple(folded(page.board.lines))
        app.output.lines(_board_lines(app.output, moment, page, lines, reported))


def page_of(moment: Snapshot, meter: Meter, costs: Mapping[str, Cost]) -> Page:
    """The dashboard of a moment. `costs` are those of its blocks."""
    return Page(_board(moment, meter, costs), *dashboard_text.recent_notes(moment.ledger, moment.bodies.body))


@command("context", "ctxvc context --by tool")
@click.argument("revision", metavar="[REV]", default="HEAD", shell_complete=complete_revisions)
@click.option("--by", type=click.Choice(["kind", "tool", "turn", "file"]), help="What to add up by (kind).")
@click.option("--episodes", is_flag=True, help="The episodes instead: type, state, level, tokens, dependencies.")
@json_option
@click.pass_obj
def context(app: App, revision: str, by: usage.By | None, episodes: bool) -> None:
    """Show what uses the context, by kind, tool, turn or file.

    Only what is in the prompt counts, by default now. Above the table stand the thresholds at which a policy acts, how
    far each is, and what the provider counted in the newest call that the recording has its usage of. Episodes are
    those that the model marked with `delimiter`; where it marked none, they are derived from its calls, and say so.
    """
    if by and episodes:
        raise click.UsageError("--by or --episodes, not both")
    by = by or "kind"
    with app.reading() as session:
        moment = revisions.resolve(session.store, session, revision)
        meter = Meter(session.store, moment.ledger.meta.tokenizer)
        if episodes:
            _episodes(app.output, moment, meter)
            return
        costs, overhead = meter.costs(moment), meter.overhead(moment)
        items = usage.categories(moment.ledger, costs, overhead, by, moment.bodies.body)
        board = _board(moment, meter, costs)
        reported = _reported(session.store, moment)
    answer = schemas.Context(
        session=moment.session,
        scope=moment.scope,
        by=by,
        window=board.window,
        used=board.used,
        percent=board.percent,
        estimated=meter.estimated,
        reported=reported,
        thresholds=usage.thresholds(board.used, budget_of(moment.ledger)),
        items=items,
    )
    if app.output.json:
        app.output.value(answer)
    else:
        app.output.lines(_context_lines(app.output, board, answer))


def _episodes(output: Output, moment: Snapshot, meter: Meter) -> None:
    from ctxvc.policies.episodes import graph as episodes
    from ctxvc.policies.episodes.policy import Episodes

    price = Prices(meter, moment.bodies, moment.ledger.meta.model)
    price.load(moment.ledger.rows())
    view = View(
        ledger=moment.ledger,
        price=price,
        budget=budget_of(moment.ledger),
        words=lambda row: decode(moment.bodies.body(row)),
    )
    lines = episodes.lines(view.ledger, Episodes(derive=True).graph(view), price)
    answer = schemas.Episodes(
        session=moment.session,
        scope=moment.scope,
        items=[schemas.EpisodeItem(**{**msgspec.structs.asdict(line), "dependencies": list(line.dependencies)})
               for line in lines],
    )  # fmt: skip
    if output.json:
        output.value(answer)
        return
    names = ("tokens", "in the prompt", "blocks")
    columns = (
        Column("type"), Column("episode", least=12), Column("state"), Column("level"),
        *(Column(name, right=True) for name in names), Column("depends on", least=10), Column("made"),
    )  # fmt: skip
    rows: list[list[Cell]] = [
        [line.type, line.name, line.state, line.level, line.tokens, line.shown, line.blocks,
         ", ".join(line.dependencies), line.made]
        for line in lines
    ]  # fmt: skip
    output.table(Table(columns, rows))


def _board(moment: Snapshot, meter: Meter, costs: Mapping[str, Cost], *, every: bool = False) -> Dashboard:
    ledger = moment.ledger
    return dashboard(
        ledger,
        costs,
        budget_of(ledger).effective,
        meter.overhead(moment),
        calibration=ledger.meta.calibration,
        every=every,
    )


def _text(page: Page, budget: Budget, meter: Meter) -> str:
    cap = dashboard_text.room("full", 0, dashboard_text.cap_of(budget, page.board.calibration))
    return dashboard_text.board_text(page.board, page.notes, page.older, cap=cap, count=meter.count)


def _status(
    moment: Snapshot, page: Page, blocks: tuple[Line, ...], reported: int | None, *, estimated: bool
) -> schemas.Status:
    board = page.board
    return schemas.Status(
        session=board.session,
        scope=board.scope,
        commit=moment.commit,
        model=moment.ledger.meta.model,
        window=board.window,
        used=board.used,
        overhead=board.overhead,
        conversation=board.conversation,
        dashboard=board.dashboards,
        percent=board.percent,
        estimated=estimated,
        prompt=board.prompt,
        missing=list(board.missing),
        reported=reported,
        waiting=moment.waiting,
        notes=page.notes,
        older_notes=page.older,
        groups=[_item(line) for line in board.lines if line.type == "group"],
        items=[_item(line) for line in blocks],
    )


def _item(line: Line) -> schemas.StatusLine:
    return schemas.StatusLine(**{name: getattr(line, name) for name in schemas.StatusLine.__struct_fields__})


def _reported(store: Store, moment: Snapshot) -> int | None:
    """The input tokens that the provider counted in the newest reply whose usage is known; None where none is near."""
    for entry in islice(revisions.history(store, moment.commit), _NEAR):
        if entry.trailers.get("Ctxvc-Op") != "step":
            continue
        counts = [entry.usage[name] for name in _INPUT if name in entry.usage]
        if counts:
            return sum(counts)
    return None


def _board_lines(
    output: Output, moment: Snapshot, page: Page, lines: tuple[Line, ...], reported: int | None
) -> Iterator[str]:
    meta, board = moment.ledger.meta, page.board
    yield from output.facts(
        [
            ("session", f"{board.session}/{board.scope}"),
            ("model", meta.model or "unknown"),
            ("budget", _budget(output, board)),
            ("overhead", board.overhead),
            ("conversation", board.conversation),
            *([("dashboard", board.dashboards)] if board.dashboards else []),
            ("blocks", f"{len(moment.ledger)}, step {meta.counters.step}, turn {meta.counters.turn}"),
            *([("provider counted", reported)] if reported else []),
            ("prompt", board.prompt + (f"; missing: {', '.join(board.missing)}" if board.missing else "")),
            *([("not committed", f"{counted(moment.waiting, 'record')} of an open step")] if moment.waiting else []),
            *([("older notes", page.older)] if page.older else []),
            *(("note", one_line(note, _NOTE)) for note in page.notes),
        ]
    )
    yield ""
    gone = frozenset(number for number, line in enumerate(lines) if not line.shown)
    yield from output.table_lines(Table(COLUMNS, [columns_of(line) for line in lines], dim=gone))


def columns_of(line: Line) -> list[str | int | None]:
    """What stands in the columns of a line."""
    status = f"{line.status} by {line.removed_by}" if line.removed_by else line.status
    return [line.id, line.tokens, f"{line.age}r", line.type, line.level, line.parent, status, line.reads, line.label]


def _budget(output: Output, board: Dashboard) -> Styled:
    color = "red" if board.percent >= 90 else "yellow" if board.percent >= 70 else "green"
    used, window = output.cell(board.used), output.cell(board.window)
    return Styled(f"[{board.bar}] {board.percent} %  {used} / {window} tokens", color)


def _context_lines(output: Output, board: Dashboard, answer: schemas.Context) -> Iterator[str]:
    yield from output.facts(
        [
            ("session", f"{answer.session}/{answer.scope}"),
            ("budget", _budget(output, board)),
            *((f"{each.name} at {each.percent} %", _ahead(output, each)) for each in answer.thresholds),
            *([("provider counted", answer.reported)] if answer.reported else []),
        ]
    )
    yield ""
    yield from output.table_lines(
        Table(
            columns=[
                Column(answer.by, least=12),
                Column("blocks", right=True),
                Column("~tokens", right=True),
                Column("share", right=True),
            ],
            rows=[[item.name, item.blocks, item.tokens, Share(item.share)] for item in answer.items],
        )
    )


def _ahead(output: Output, threshold: schemas.Threshold) -> str:
    tokens = output.cell(abs(threshold.ahead))
    return f"{tokens} tokens ahead" if threshold.ahead >= 0 else f"passed by {tokens} tokens"
