"""`log`: the commits of a scope."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Annotated

import click

from ctxvc.cli import answers
from ctxvc.cli.answers import Answer, CommitId, Item, LogItem, ScopeName, SessionName, TimeText, described
from ctxvc.cli.app import App, command, complete_revisions, json_option
from ctxvc.cli.commit_table import SHORT, log_item
from ctxvc.cli.output import Cell, Column, Output, Table, Timestamp, counted, encode, iso, safe
from ctxvc.store import revision as revisions
from ctxvc.store.format import HEADS
from ctxvc.store.git import program
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.revision import Entry, Snapshot
from ctxvc.store.store import Store
from ctxvc.tokens import models


@command("log", "ctxvc log -n 20")
@click.argument("revision", metavar="[REV]", default="HEAD", shell_complete=complete_revisions)
@click.option(
    "-n", "number", metavar="N", type=click.IntRange(min=0), help="At most N commits, or with --usage N calls."
)
@click.option("--graph", is_flag=True, help="Draw all scopes of the session, or what REV came from.")
@click.option("--usage", is_flag=True, help="Tokens and cost of each call, of all scopes or of REV.")
@click.option(
    "--jsonl",
    is_flag=True,
    help="The trace: one JSON object a commit, oldest first, of all scopes or what REV came from.",
)
@json_option
@click.pass_obj
def log(app: App, revision: str, number: int | None, graph: bool, usage: bool, jsonl: bool) -> None:
    """A step is one reply of the model with what came in before it and the results of its calls. REV is a scope, a
    commit, `step:12`, or SESSION/SCOPE; `~3` behind it goes three commits back.

    With --jsonl what happens later is printed behind what was there, so it can be followed; -n gives the last N.
    """
    with app.reading() as stored:
        snapshot = revisions.resolve(stored.store, stored, revision)
        if graph:
            app.output.lines(_graph(stored, "" if revision == "HEAD" else snapshot.commit, number))
            return
        every = revision == "HEAD"
        tips = map(stored.tip, stored.scopes()) if every else [snapshot.commit]
        if usage:
            newest = reversed([*revisions.trace(stored.store, tips)])
            answer = _used(snapshot, "" if every else snapshot.scope, islice(_calls(stored.store, newest), number))
            app.output.value(answer) if app.output.json else app.output.lines(_usage_lines(app.output, answer))
            return
        if jsonl:
            trace = deque(revisions.trace(stored.store, tips), maxlen=number)
            app.output.lines(encode(item) for item in _items(stored.store, trace))
            return
        items = _items(stored.store, islice(revisions.history(stored.store, snapshot.commit), number))
        if app.output.json:
            listed = list(items)
            app.output.value(
                Log(session=snapshot.session, scope=snapshot.scope, waiting=snapshot.waiting, items=listed)
            )
        else:
            app.output.lines(_log_lines(app.output, items))
            _note_waiting(app.output, snapshot)


def _calls(store: Store, entries: Iterable[Entry]) -> Iterator[UsageItem]:
    """The model's calls whose commits record their usage."""
    for entry in entries:
        if entry.usage:
            used = models.usage_of(entry.usage)
            model = entry.trailers.get("Ctxvc-Model", "")
            yield UsageItem(
                commit=entry.commit, time=iso(entry.time), scope=store.reader.meta(entry.commit).scope,
                subject=entry.subject, model=model, dollars=models.dollars(model, used), **used._asdict(),
            )  # fmt: skip


def _used(snapshot: Snapshot, scope: str, calls: Iterable[UsageItem]) -> Usage:
    """The usage of the calls, with its sums."""
    items = list(calls)
    names = models.Usage._fields
    return Usage(
        session=snapshot.session, scope=scope, prices=models.MODELS_DATE, calls=len(items),
        dollars=sum((item.dollars or 0.0 for item in items), 0.0),
        unpriced=sum(item.dollars is None for item in items),
        **{name: sum(getattr(item, name) for item in items) for name in names}, items=items,
    )  # fmt: skip


def _usage_lines(output: Output, answer: Usage) -> Iterator[str]:
    rows: list[list[Cell]] = [
        [
            item.commit[:SHORT], item.scope, item.model,
            item.fresh, item.written, item.read, item.reply, _money(item.dollars),
        ]
        for item in answer.items
    ]  # fmt: skip
    names = ("fresh", "cache written", "cache read", "reply", "cost")
    columns = (
        Column("commit"),
        Column("scope", least=8),
        Column("model", least=12),
        *(Column(name, right=True) for name in names),
    )
    yield from output.table_lines(Table(columns, rows))
    prompt = answer.fresh + answer.written + answer.read
    share = f", {answer.read / prompt:.0%} of them from the cache" if prompt else ""
    yield f"{counted(answer.calls, 'call')}: {prompt:,} tokens of prompts{share}; {answer.reply:,} of replies"
    left_out = f"; {counted(answer.unpriced, 'call')} of models without a price" if answer.unpriced else ""
    yield f"{_money(answer.dollars)} by the prices of {answer.prices}{left_out}"


def _money(dollars: float | None) -> str:
    return "?" if dollars is None else f"${dollars:,.4f}"


def _items(store: Store, entries: Iterable[Entry]) -> Iterator[answers.LogItem]:
    return (log_item(store, entry) for entry in entries)


def _log_lines(output: Output, items: Iterable[answers.LogItem]) -> Iterator[str]:
    if not output.terminal:
        yield "commit\tstep\ttime\tactor\tsubject"
    for item in items:
        cells = [
            item.commit[:SHORT], output.cell(item.step), output.cell(Timestamp(item.time)), output.cell(item.actor),
            output.cell(item.subject),
        ]  # fmt: skip
        if not output.terminal:
            yield "\t".join(cells)
            continue
        commit, step, time, actor, subject = cells
        yield f"{output.style(commit, fg='yellow')}  {step:>4}  {time:<10}  {actor:<8}  {subject}"


def _graph(stored: StoredSession, commit: str, number: int | None) -> Iterator[str]:
    """git's own drawing, made safe to print."""
    refs = [commit] if commit else [f"{HEADS}{stored.name}/{scope}" for scope in stored.scopes()]
    limit = [] if number is None else [f"--max-count={number}"]
    drawn = program.run(
        stored.store.path, "log", "--graph", "--format=%h  %an: %s", f"--abbrev={SHORT}", *limit, *refs, "--"
    )
    return (safe(line) for line in drawn.decode("utf-8", "replace").splitlines())


def _note_waiting(output: Output, snapshot: Snapshot) -> None:
    if snapshot.waiting:
        output.note(f"{counted(snapshot.waiting, 'record')} of an open step not committed yet")


class Log(Answer, frozen=True, kw_only=True, tag="ctxvc.log/1"):
    """`log`"""

    session: SessionName
    scope: ScopeName
    waiting: Annotated[int, described("records that are acknowledged and in no commit yet")]
    items: list[LogItem]


class UsageItem(Item, frozen=True, kw_only=True):
    """A call of a model, by the commit of its reply, or of what a policy asked."""

    commit: CommitId
    time: TimeText
    scope: ScopeName
    subject: str
    model: str
    fresh: Annotated[int, described("tokens of the prompt that came from no cache")]
    written: Annotated[int, described("tokens of the prompt that went into the provider's cache")]
    read: Annotated[int, described("tokens of the prompt that came from it")]
    reply: Annotated[int, described("tokens of the reply")]
    dollars: Annotated[float | None, described("by the dated price table; null for a model that it does not have")]


class Usage(Answer, frozen=True, kw_only=True, tag="ctxvc.usage/1"):
    """`log --usage`. The sums of its items."""

    session: SessionName
    scope: Annotated[str, described("the scope of REV; empty for all of the session")]
    prices: Annotated[str, described("date of the price table")]
    calls: int
    fresh: int
    written: int
    read: int
    reply: int
    dollars: float
    unpriced: Annotated[int, described("calls that are not in `dollars`")]
    items: list[UsageItem]
