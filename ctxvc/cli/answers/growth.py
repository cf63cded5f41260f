"""How the context of a scope grew, call by call, as `context --growth` answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from ctxvc.cli.answers.shared import Answer, CommitId, Item, ScopeName, SessionName, TokenCount, described
from ctxvc.cli.output import Cell, Column, Output, Table, Tokens, counted
from ctxvc.cli.terminal.charts import WIDTH
from ctxvc.core.display import one_line
from ctxvc.store.read.revision import Snapshot
from ctxvc.store.store import Store
from ctxvc.tokens.meter import Meter, budget_of

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
        output.value(Growth(session=snapshot.session, scope=snapshot.scope, limit=limit, items=items))
    elif items:
        output.table(_table(items, _LINES if output.terminal else len(items)))
    else:
        output.say("no call of the model is recorded")


def _table(items: Sequence[GrowthItem], lines: int) -> Table:
    """A line for each of so many spans of calls, with the largest prompt in it."""
    lines = min(lines, len(items))
    maximum = max(1, *(item.unmanaged for item in items))
    columns = (
        Column("step"), Column("tokens", right=True), Column("if all kept", right=True, rank=2),
        Column("", least=WIDTH), Column("before it", least=12),
    )  # fmt: skip
    return Table(columns, [_line(span, maximum) for span in _spans(items, lines)])


def _spans(items: Sequence[GrowthItem], lines: int) -> Iterator[Sequence[GrowthItem]]:
    for line in range(lines):
        yield items[line * len(items) // lines : (line + 1) * len(items) // lines]


def _line(span: Sequence[GrowthItem], maximum: int) -> list[Cell]:
    peak = max(span, key=lambda item: item.tokens)
    full, unmanaged = peak.tokens * WIDTH // maximum, peak.unmanaged * WIDTH // maximum
    events = [event for item in span for event in item.events]
    label = events[0] if len(events) == 1 else counted(len(events), "change") if events else ""
    steps = str(span[0].step) if len(span) == 1 else f"{span[0].step}–{span[-1].step}"
    bar = "█" * full + "░" * (unmanaged - full)
    return [steps, Tokens(peak.tokens), Tokens(peak.unmanaged), bar, one_line(label, _EVENT)]


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
