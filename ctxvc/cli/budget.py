"""`status` and `context`: what is in the prompt, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import click

from ctxvc.cli import schemas, usage
from ctxvc.cli.app import App, command, complete_revisions, json_option
from ctxvc.cli.measure import Meter, window_of
from ctxvc.cli.output import Column, Output, Share, Styled, Table, counted
from ctxvc.core.view import Dashboard, Line, dashboard
from ctxvc.store import revisions
from ctxvc.store.revisions import Snapshot
from ctxvc.store.store import Store

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


@command("status", "ctxvc status")
@click.argument("revision", metavar="[REV]", default="HEAD", shell_complete=complete_revisions)
@click.option("--all", "every", is_flag=True, help="Every block on a line of its own; --json always does that.")
@json_option
@click.pass_obj
def status(app: App, revision: str, every: bool) -> None:
    """Show the dashboard: what is in the prompt and what it costs.

    One line a block: its tokens, its age in steps, its state, and what it says. Of many blocks, small old neighbours
    share a line. A block that left the prompt stays in the list: `ctxvc show ID` reads it. REV is a scope, a step, a
    commit; by default what stands now.
    """
    with app.reading() as session:
        moment = revisions.resolve(session.store, session, revision)
        meter = Meter(session.store, moment.ledger.meta.tokenizer)
        board = dashboard(
            moment.ledger,
            meter.costs(moment),
            window_of(moment.ledger),
            meter.overhead(moment),
            folded=not (every or app.json),
        )
        reported = _reported(session.store, moment)
    if app.output.json:
        app.output.value(_status(moment, board, reported, estimated=meter.estimated))
    else:
        app.output.lines(_board_lines(app.output, moment, board, reported))


@command("context", "ctxvc context --by tool")
@click.argument("revision", metavar="[REV]", default="HEAD", shell_complete=complete_revisions)
@click.option("--by", type=click.Choice(["kind", "tool", "turn", "file"]), default="kind", help="What to add up by.")
@json_option
@click.pass_obj
def context(app: App, revision: str, by: usage.By) -> None:
    """Show what uses the context, by kind, tool, turn or file.

    Only what is in the prompt counts, by default now. Above the table stand the thresholds at which a policy acts.
    """
    with app.reading() as session:
        moment = revisions.resolve(session.store, session, revision)
        meter = Meter(session.store, moment.ledger.meta.tokenizer)
        costs, overhead = meter.costs(moment), meter.overhead(moment)
        items = usage.categories(moment.ledger, costs, overhead, by, moment.bodies.body)
    board = dashboard(moment.ledger, costs, window_of(moment.ledger), overhead)
    answer = schemas.Context(
        session=moment.session,
        scope=moment.scope,
        by=by,
        window=board.window,
        used=board.used,
        percent=board.percent,
        thresholds=usage.thresholds(board.used, board.window),
        items=items,
    )
    if app.output.json:
        app.output.value(answer)
    else:
        app.output.lines(_context_lines(app.output, board, answer))


def _status(moment: Snapshot, board: Dashboard, reported: int | None, *, estimated: bool) -> schemas.Status:
    return schemas.Status(
        session=board.session,
        scope=board.scope,
        commit=moment.commit,
        model=moment.ledger.meta.model,
        window=board.window,
        used=board.used,
        overhead=board.overhead,
        conversation=board.conversation,
        percent=board.percent,
        estimated=estimated,
        prompt=board.prompt,
        missing=list(board.missing),
        reported=reported,
        waiting=moment.waiting,
        items=[
            schemas.StatusLine(**{name: getattr(line, name) for name in schemas.StatusLine.__struct_fields__})
            for line in board.lines
        ],
    )


def _reported(store: Store, moment: Snapshot) -> int | None:
    """The input tokens that the provider counted in the newest call whose usage is known; None where none is near."""
    for entry in islice(revisions.history(store, moment.commit), _NEAR):
        usage = dict(word.partition("=")[::2] for word in entry.trailers.get("Ctxvc-Usage", "").split())
        counts = [usage[name] for name in _INPUT if usage.get(name, "").isdigit()]
        if counts:
            return sum(map(int, counts))
    return None


def _board_lines(output: Output, moment: Snapshot, board: Dashboard, reported: int | None) -> Iterator[str]:
    meta = moment.ledger.meta
    yield from output.facts(
        [
            ("session", f"{board.session}/{board.scope}"),
            ("model", meta.model or "unknown"),
            ("budget", _budget(output, board)),
            ("overhead", board.overhead),
            ("conversation", board.conversation),
            ("blocks", f"{len(moment.ledger)}, step {meta.counters.step}, turn {meta.counters.turn}"),
            *([("provider counted", reported)] if reported else []),
            ("prompt", board.prompt + (f"; missing: {', '.join(board.missing)}" if board.missing else "")),
            *([("not committed", f"{counted(moment.waiting, 'record')} of an open step")] if moment.waiting else []),
        ]
    )
    yield ""
    gone = frozenset(number for number, line in enumerate(board.lines) if not line.shown)
    yield from output.table_lines(Table(COLUMNS, [columns_of(line) for line in board.lines], dim=gone))


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
