"""`context`: the use of the context by category, and the distance of the thresholds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import click

from ctxvc.cli.answers.shared import (
    Answer,
    CommitId,
    Item,
    ScopeName,
    SessionName,
    TokenCount,
    described,
    struct_of,
    table_of,
)
from ctxvc.cli.app import App, command, json_option, revision_argument
from ctxvc.cli.output import Cell, Column, Guess, Output, Share, Styled, Table, Tokens, counted
from ctxvc.cli.terminal.charts import WIDTH
from ctxvc.cli.terminal.dashboard import WindowAnswer, dashboard_of, used_tokens, window_facts
from ctxvc.core.display import decode, one_line
from ctxvc.core.ledger.ledger import Source
from ctxvc.core.view.view import View
from ctxvc.inspection import usage
from ctxvc.inspection.window_percent import Occupancy, occupancy
from ctxvc.store.read.revision import Snapshot
from ctxvc.store.store import Store
from ctxvc.tokens import prompt_size
from ctxvc.tokens.meter import Meter, Prices, budget_of


@command("context", "ctxvc context --by tool")
@revision_argument()
@click.option("--by", type=click.Choice(["kind", "tool", "turn", "file"]), help="What to group the tokens by (kind).")
@click.option("--growth", is_flag=True, help="Show instead how it grew over the calls, and what happened in between.")
@click.option("--episodes", is_flag=True, help="Show episodes instead: type, state, level, tokens, dependencies.")
@json_option
@click.pass_obj
def context(app: App, revision: str, by: usage.By | None, growth: bool, episodes: bool) -> None:
    """Only blocks in the prompt count. Above the table are the use of the window and the thresholds at which a policy
    acts. Episodes are those that the model marked with `delimiter`, else derived from its calls.
    """
    if sum(map(bool, (by, growth, episodes))) > 1:
        raise click.UsageError("give only one of --by, --growth and --episodes")
    by = by or "kind"
    with app.reading() as stored:
        snapshot = app.revision(stored, revision)
        meter = app.meter(stored.store, snapshot.ledger)
        if growth:
            show_growth(app.output, stored.store, snapshot, meter)
            return
        if episodes:
            _episodes(app.output, snapshot, meter)
            return
        costs, overhead = meter.costs(snapshot), meter.overhead(snapshot)
        categories = usage.categories(snapshot.ledger, costs, overhead, by, snapshot.bodies.body)
        window = occupancy(stored.store, snapshot, meter, costs)
        dashboard = dashboard_of(snapshot, meter, costs, window.calibration)
        sizes = () if app.json else prompt_size.counted_sizes(stored.store, snapshot.commit)
    answer = struct_of(
        Context,
        window,
        snapshot,
        by=by,
        **used_tokens(window),
        limit=dashboard.limit,
        estimated=meter.estimated,
        thresholds=[
            struct_of(Threshold, point) for point in usage.thresholds(dashboard.used, budget_of(snapshot.ledger))
        ],
        items=[struct_of(Category, category) for category in categories],
    )
    if app.output.json:
        app.output.value(answer)
    else:
        app.output.lines(_context_lines(app.output, window, snapshot.ledger.meta.source, answer, sizes))


def _episodes(output: Output, snapshot: Snapshot, meter: Meter) -> None:
    from ctxvc.policies.episodes import graph as episodes
    from ctxvc.policies.episodes.policy import Episodes

    price = Prices(meter, snapshot.bodies, snapshot.ledger.meta.model)
    price.load(snapshot.ledger.rows())
    view = View(
        ledger=snapshot.ledger,
        price=price,
        budget=budget_of(snapshot.ledger),
        words=lambda row: decode(snapshot.bodies.body(row)),
    )
    lines = episodes.lines(view.ledger, Episodes(derive=True).graph(view), price)
    answer = struct_of(EpisodeList, snapshot, items=[struct_of(EpisodeItem, line) for line in lines])
    output.answer(answer, table_of(EpisodeItem, answer.items))


def _context_lines(
    output: Output, window: Occupancy, source: Source | None, answer: Context, sizes: Sequence[int]
) -> Iterator[str]:
    yield from output.facts(
        [
            ("session", f"{answer.session}/{answer.scope}"),
            *window_facts(output, window, source, sizes),
            *(
                (f"{threshold.name} at {threshold.percent} %", _ahead(output, threshold))
                for threshold in answer.thresholds
            ),
        ]
    )
    yield ""
    yield from output.table_lines(table_of(Category, answer.items, heading=answer.by))


def _ahead(output: Output, threshold: Threshold) -> Cell:
    tokens = output.estimate(abs(threshold.ahead))
    if threshold.ahead >= 0:
        return f"{tokens} tokens to go"
    return Styled(f"exceeded by {tokens} tokens", "yellow" if threshold.percent < 85 else "red")


class Category(Item, frozen=True, kw_only=True):
    """A category of the context."""

    TABLE = "name blocks tokens share"

    name: Annotated[str, Column("", least=12)]
    blocks: Annotated[int, Column("blocks", right=True)]
    tokens: Annotated[int, described("in the prompt now"), Column("~tokens", right=True, cell=Tokens)]
    share: Annotated[float, described("of everything in the prompt, 0 to 1"), Column("share", right=True, cell=Share)]


class Threshold(Item, frozen=True, kw_only=True):
    """A fill level of the window at which a policy acts."""

    name: str
    percent: Annotated[int, described("of `limit`")]
    tokens: TokenCount
    ahead: Annotated[int, described("tokens until it is reached; negative if exceeded")]


class Context(WindowAnswer, frozen=True, kw_only=True, tag="ctxvc.context/2"):
    """`context`"""

    session: SessionName
    scope: ScopeName
    by: Annotated[str, described("`kind`, `tool`, `turn` or `file`")]
    limit: Annotated[int, described("tokens allowed for a prompt: the window without the reply's reserve")]
    estimated: Annotated[bool, described("whether tokens are estimates")]
    thresholds: list[Threshold]
    items: list[Category]


class EpisodeItem(Item, frozen=True, kw_only=True):
    """An episode."""

    TABLE = "type name state level tokens shown blocks dependencies made"

    type: Annotated[str, described("`expl` or `act`"), Column("type")]
    name: Annotated[str, Column("episode", least=12)]
    state: Annotated[str, described("whether it is open, closed, or evicted in part or in full"), Column("state")]
    level: Annotated[str, described("degree of eviction"), Column("level", rank=1)]
    tokens: Annotated[int, described("of its bodies"), Column("~tokens", right=True, cell=Tokens)]
    shown: Annotated[int, described("in the prompt now"), Column("~in the prompt", right=True, cell=Tokens)]
    blocks: Annotated[int, Column("blocks", right=True)]
    dependencies: Annotated[list[str], Column("depends on", least=10, rank=2, cell=", ".join)]
    made: Annotated[
        str, described("its origin: the model's marks, or derived from its calls"), Column("origin", rank=3)
    ]


class EpisodeList(Answer, frozen=True, kw_only=True, tag="ctxvc.episodes/1"):
    """`context --episodes`"""

    session: SessionName
    scope: ScopeName
    items: list[EpisodeItem]


#: Lines of the table on a terminal, at most; columns of what happened.
_LINES, _EVENT = 30, 60
#: Marks that say nothing of the size.
_QUIET = frozenset({"break", "note"})


def show_growth(output: Output, store: Store, snapshot: Snapshot, meter: Meter) -> None:
    """Prints how the context grew up to a snapshot's commit."""
    from ctxvc.report.session import calls_of

    calls, marks = calls_of(store, snapshot.commit, meter)
    events: dict[int, list[str]] = {}
    for mark in marks:
        if mark.kind not in _QUIET:
            events.setdefault(mark.call, []).append(mark.label)
    items = [
        GrowthItem(
            step=calls.step[call],
            commit=calls.commit[call],
            tokens=calls.total[call],
            unmanaged=calls.unmanaged[call],
            reported=calls.reported[call],
            events=events.get(call, []),
        )
        for call in range(calls.n)
    ]
    limit = budget_of(snapshot.ledger).effective
    if output.json:
        output.value(struct_of(Growth, snapshot, limit=limit, items=items))
    elif items:
        output.table(_table(items, _LINES if output.terminal else len(items)))
    else:
        output.say("no call of the model is recorded")


def _table(items: Sequence[GrowthItem], lines: int) -> Table:
    """A line for each of so many spans of calls, with the largest prompt in it."""
    lines = min(lines, len(items))
    spans = [items[line * len(items) // lines : (line + 1) * len(items) // lines] for line in range(lines)]
    maximum = max(1, *(item.unmanaged for item in items))
    columns = (
        Column("step"), Column("tokens", right=True), Column("if all kept", right=True, rank=2),
        Column("", least=WIDTH), Column("before it", least=12),
    )  # fmt: skip
    return Table(columns, [_line(span, maximum) for span in spans])


def _line(span: Sequence[GrowthItem], maximum: int) -> list[Cell]:
    peak = max(span, key=lambda item: item.tokens)
    full, unmanaged = peak.tokens * WIDTH // maximum, peak.unmanaged * WIDTH // maximum
    events = [event for item in span for event in item.events]
    label = events[0] if len(events) == 1 else counted(len(events), "change") if events else ""
    steps = str(span[0].step) if len(span) == 1 else f"{span[0].step}–{span[-1].step}"
    bar = "█" * full + "░" * (unmanaged - full)
    size = Guess(peak.tokens) if peak.reported is None else Tokens(peak.tokens)
    return [steps, size, size if peak.tokens == peak.unmanaged else Guess(peak.unmanaged), bar, one_line(label, _EVENT)]


class GrowthItem(Item, frozen=True, kw_only=True):
    """A call of the model."""

    step: int
    commit: Annotated[CommitId, described("of the step")]
    tokens: Annotated[TokenCount, described("the size of its prompt: `reported`, or our estimate")]
    unmanaged: Annotated[TokenCount, described("the same, had nothing left the prompt")]
    reported: Annotated[int | None, described("tokens of its prompt by the provider's count; null if not recorded")]
    events: Annotated[list[str], described("what changed the prompt before it")]


class Growth(Answer, frozen=True, kw_only=True, tag="ctxvc.growth/2"):
    """`context --growth`"""

    session: SessionName
    scope: ScopeName
    limit: Annotated[int, described("tokens allowed for a prompt: the window without the reply's reserve")]
    items: list[GrowthItem]
