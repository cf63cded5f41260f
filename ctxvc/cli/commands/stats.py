"""`stats`: what the sessions of one store or of all stores spent and did."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated, get_args

import click

from ctxvc.cli.answers.shared import Answer, Item, described, struct_of
from ctxvc.cli.app import App, all_projects_option, command, json_option, raise_unreadable
from ctxvc.cli.options.values import time_option
from ctxvc.cli.output import UNKNOWN, Cell, Column, Share, Styled, Table, Tokens
from ctxvc.cli.terminal import charts
from ctxvc.cli.terminal.progress import Progress
from ctxvc.errors import CtxvcError
from ctxvc.sharing import remotes
from ctxvc.store.store import Store
from ctxvc.tables import stats as statistics
from ctxvc.tables.stats import By, Line, Source

NAMES = [name for name in get_args(By) if name]
#: Cells of the chart, and the largest lines of it on a terminal, where the rest is one.
_BAR, _MOST = 16, 40


@command("stats", "ctxvc stats --since 30d --by model")
@click.option("--by", type=click.Choice(NAMES), default="day", show_default=True, help="Group by this.")
@time_option("--since", "Only calls from that day on, as in 2026-02-10, 30d.")
@all_projects_option
@click.option("--remote", metavar="NAME", is_flag=False, flag_value="", default=None,
              help="Only sessions on this remote that the store has, too.")  # fmt: skip
@json_option
@click.pass_obj
def stats(app: App, by: By, since: str, all_projects: bool, remote: str | None) -> None:
    """Tokens are the provider's counts of committed steps: `fresh`, `read` from its cache, `written` into it, and the
    `output`; `cached` is the share of the prompts that was read. Costs are at list prices, `–` where none is known.
    `model time` and `tool time` are the time spent waiting. `left` counts the blocks that left the prompt, `reads` how
    often they were read back. Days are in UTC.

    `tool` and `file` divide what a model call took evenly among the tools that it called or the files that it touched;
    `person` is the clone that recorded a session. In a pipe, the table is complete and has no chart.
    """
    if remote is not None and all_projects:
        raise click.UsageError("--remote and --all-projects cannot be combined")
    unreadable: list[CtxvcError] = []
    (answer,) = answers(app, (by,), since, unreadable, all_projects=all_projects, remote=remote)
    since_when = f" since {answer.since}" if answer.since else ""
    none = "" if answer.items else f"no calls{since_when}: `ctxvc import` imports sessions"
    app.output.answer(answer, _table(answer, terminal=app.output.terminal), none)
    raise_unreadable(unreadable)


def answers(
    app: App,
    kinds: Sequence[By],
    since: str,
    unreadable: list[CtxvcError],
    *,
    all_projects: bool = False,
    remote: str | None = None,
) -> list[Statistics]:
    """The sums of the project's sessions, of all projects', or of those that a remote has, by each of these kinds.

    The errors of sessions that cannot be read go into `unreadable`.
    """
    first = since[: len("2026-02-10")]
    only: Collection[str] | None = None
    sources: dict[By, list[Source]] = {by: [] for by in kinds}
    if all_projects:
        for store in app.all_stores(unreadable):
            _add_sources(sources, store, unreadable)
    else:
        with app.store() as store:
            if remote is not None:
                from ctxvc.cli.remotes import remote_sessions

                only = remote_sessions.names(app, store, remote)
            _add_sources(sources, store, unreadable)
    return [answer_of(own, by, first, only) for by, own in sources.items()]


def _add_sources(sources: dict[By, list[Source]], store: Store, unreadable: list[CtxvcError]) -> None:
    """Adds a store to those of each kind. What it has by a tool is what it has by all else but files."""
    by_parts: dict[bool, Source] = {}
    for by, own in sources.items():
        is_file = by == "file"
        if is_file not in by_parts:
            problems: list[CtxvcError] = []
            by_parts[is_file] = _source(store, by, problems)
            reported = {str(error) for error in unreadable}
            unreadable += [error for error in problems if str(error) not in reported]
        own.append(by_parts[is_file])


def answer_of(sources: Sequence[Source], by: By, first: str = "", only: Collection[str] | None = None) -> Statistics:
    """The sums by name, from the `first` day on, of these sessions alone if they are given."""
    return Statistics(
        by=by,
        since=first,
        items=[_item(line) for line in statistics.lines(sources, by, first, only)],
        total=_item(statistics.total(sources, first, only)),
    )


def _source(store: Store, by: By, unreadable: list[CtxvcError]) -> Source:
    with Progress("reading", format=lambda number: f"{number:,} sessions") as bar:
        sessions = statistics.summed(store, by, unreadable, bar.reach)
    return Source(str(store.path.parent), sessions, remotes.writers(store))


def _item(line: Line) -> StatsItem:
    sums = line.sums
    usage = sums.usage
    return struct_of(
        StatsItem,
        line,
        sums,
        usage,
        cache_read=usage.read,
        cache_written=usage.written,
        output=usage.reply,
        cached=usage.read / usage.prompt if usage.prompt else 0.0,
        cost=sums.cost if sums.calls > sums.uncounted + sums.unpriced else None,
    )


def _table(answer: Statistics, *, terminal: bool) -> Table:
    """The lines, with the total below them; on a terminal with a chart of the costs, or of tokens without any."""
    columns = [
        Column(answer.by, least=20), Column("sessions", right=True, rank=6), Column("turns", right=True, rank=8),
        Column("calls", right=True), Column("fresh", right=True, rank=2), Column("read", right=True, rank=1),
        Column("written", right=True, rank=3), Column("output", right=True), Column("cached", right=True, rank=4),
        Column("cost", right=True), Column("model time", right=True, rank=9), Column("tool time", right=True, rank=9),
        Column("tool calls", right=True, rank=10),
        Column("failed", right=True, rank=5), Column("compactions", right=True, rank=12),
        Column("left", right=True, rank=11), Column("reads", right=True, rank=13),
    ]  # fmt: skip
    rows = [_cells(item) for item in answer.items]
    if terminal:
        part = slice(-_MOST, None) if answer.by in ("day", "week") else slice(0, _MOST)
        items = answer.items[part]
        values = [item.cost or 0.0 for item in items]
        if not any(values):
            values = [float(item.fresh + item.cache_read + item.cache_written) for item in items]
        largest = max(values, default=0.0)
        rows = [
            [*cells, Styled(charts.bar(value, largest, _BAR), "cyan")]
            for cells, value in zip(rows[part], values, strict=True)
        ]
        columns.append(Column("", least=_BAR))
        if len(answer.items) > len(rows):
            rows.append([f"and {len(answer.items) - len(rows):,} more: in a pipe", *[""] * (len(columns) - 1)])
    if terminal and len(answer.items) > 1:
        rows.append([*_cells(answer.total), ""])
    return Table(columns, rows)


def _cells(item: StatsItem) -> list[Cell]:
    cost = UNKNOWN if item.cost is None else f"${item.cost:,.2f}"
    return [
        item.name, item.sessions, item.turns, item.calls, Tokens(item.fresh), Tokens(item.cache_read),
        Tokens(item.cache_written), Tokens(item.output), Share(item.cached), cost, time_text(item.waited_model),
        time_text(item.waited_tools), item.tool_calls, item.failed, item.compactions, item.blocks_left, item.reads,
    ]  # fmt: skip


def time_text(seconds: int | None) -> str:
    """`1:02:03`"""
    return UNKNOWN if seconds is None else f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


class StatsItem(Item, frozen=True, kw_only=True):
    """The sums of calls that have a day, a model, … in common."""

    name: Annotated[str, described("`2026-11-28`, `2026-W48`, a model, …; `(none)` for calls of no tool or file")]
    sessions: int
    turns: Annotated[int, described("turns that began there; 0 by tool and by file")]
    calls: Annotated[int, described("calls of models; by tool and by file, one counts for each that it has")]
    uncounted: Annotated[int, described("those without a count of the provider, which add no tokens")]
    fresh: Annotated[int, described("tokens of prompts that were neither read from the cache nor written into it")]
    cache_read: int
    cache_written: int
    output: Annotated[int, described("tokens of replies")]
    cached: Annotated[float, described("share of the prompts' tokens that was read from the cache")]
    cost: Annotated[float | None, described("in dollars, of the calls with a known price; null if there are none")]
    unpriced: Annotated[int, described("calls that are counted and have no known price")]
    waited_model: Annotated[int | None, described("seconds, as far as times are recorded; null if none are")]
    waited_tools: Annotated[int | None, described("likewise, of the calls that called tools")]
    tool_calls: int
    failed: Annotated[int, described("tool calls with an error as their result")]
    compactions: Annotated[int, described("of hosts, and summaries of ours; 0 by tool and by file")]
    blocks_left: Annotated[int, described("blocks of these calls that are out of the prompt; 0 by file")]
    bytes_left: int
    reads: Annotated[int, described("how often such blocks were read; 0 by file")]


class Statistics(Answer, frozen=True, kw_only=True, tag="ctxvc.stats/1"):
    """`stats`"""

    by: str
    since: Annotated[str, described("the first day; empty for all")]
    items: Annotated[list[StatsItem], described("days and weeks in order, all else by cost")]
    total: Annotated[StatsItem, described("all of them, each call once; its name is empty")]
