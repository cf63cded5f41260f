"""`log` and `diff`: what happened, and what it changed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice

import click

from ctxvc.cli import schemas
from ctxvc.cli.app import App, command, complete_revisions, json_option
from ctxvc.cli.output import Cell, Column, Moment, Output, Styled, Table, counted, encode, iso, safe
from ctxvc.errors import Refused
from ctxvc.inspection.diff import Change, difference
from ctxvc.store import revision as revisions
from ctxvc.store.format import HEADS
from ctxvc.store.git import program
from ctxvc.store.log.stored_session import Writer
from ctxvc.store.revision import Entry, Snapshot
from ctxvc.store.store import Store
from ctxvc.tokens import models
from ctxvc.tokens.meter import Meter

#: Digits of a commit's id that people are shown.
SHORT = 12
_MARKS = {"entered": ("+", "green"), "left": ("-", "red"), "changed": ("~", "yellow")}


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
    """List the commits of a scope, newest first.

    A step is one reply of the model with what came in before it and the results of its calls. REV is a scope, a
    commit, `step:12`, or SESSION/SCOPE; `~3` behind it goes three commits back.

    With --jsonl what happens later is printed behind what was there, so it can be followed; -n gives the last N.
    """
    with app.reading() as session:
        moment = revisions.resolve(session.store, session, revision)
        if graph:
            app.output.lines(_graph(session, "" if revision == "HEAD" else moment.commit, number))
            return
        every = revision == "HEAD"
        tips = map(session.tip, session.scopes()) if every else [moment.commit]
        if usage:
            newest = reversed([*revisions.trace(session.store, tips)])
            answer = _used(moment, "" if every else moment.scope, islice(_calls(session.store, newest), number))
            app.output.value(answer) if app.output.json else app.output.lines(_usage_lines(app.output, answer))
            return
        if jsonl:
            made = deque(revisions.trace(session.store, tips), maxlen=number)
            app.output.lines(encode(item) for item in _items(session.store, made))
            return
        items = _items(session.store, islice(revisions.history(session.store, moment.commit), number))
        if app.output.json:
            listed = list(items)
            app.output.value(
                schemas.Log(session=moment.session, scope=moment.scope, waiting=moment.waiting, items=listed)
            )
        else:
            app.output.lines(_log_lines(app.output, items))
            _note_waiting(app.output, moment)


@command("diff", "ctxvc diff step:5 HEAD")
@click.argument("before", metavar="A", shell_complete=complete_revisions)
@click.argument("after", metavar="[B]", default="HEAD", shell_complete=complete_revisions)
@json_option
@click.pass_obj
def diff(app: App, before: str, after: str) -> None:
    """Show what entered and left the prompt between two revisions.

    `+` entered, `-` left, `~` stands otherwise. B is by default what stands now.
    """
    with app.reading() as session:
        old = revisions.resolve(session.store, session, before)
        new = revisions.resolve(session.store, session, after)
        if old.session != new.session:
            raise Refused(
                f"{before} is of session {old.session}, {after} of {new.session}: their blocks have nothing in common",
                hint="compare revisions of one session",
            )
        answer = schemas.Diff(
            before=_side(session.store, old),
            after=_side(session.store, new),
            request=[name for name in ("system", "tools") if getattr(old, name) != getattr(new, name)],
            items=changes(session.store, old, new),
        )
    if app.output.json:
        app.output.value(answer)
    else:
        app.output.lines(_diff_lines(app.output, answer))


def _calls(store: Store, entries: Iterable[Entry]) -> Iterator[schemas.UsageItem]:
    """The calls of a model whose commits tell what they took."""
    for entry in entries:
        if entry.usage:
            used = models.usage_of(entry.usage)
            model = entry.trailers.get("Ctxvc-Model", "")
            yield schemas.UsageItem(
                commit=entry.commit, time=iso(entry.time), scope=store.reader.meta(entry.commit).scope,
                subject=entry.subject, model=model, dollars=models.dollars(model, used), **used._asdict(),
            )  # fmt: skip


def _used(moment: Snapshot, scope: str, calls: Iterable[schemas.UsageItem]) -> schemas.Usage:
    """The calls, and their sums."""
    items = list(calls)
    names = models.Usage._fields
    return schemas.Usage(
        session=moment.session, scope=scope, prices=models.MODELS_DATE, calls=len(items),
        dollars=sum((item.dollars or 0.0 for item in items), 0.0),
        unpriced=sum(item.dollars is None for item in items),
        **{name: sum(getattr(item, name) for item in items) for name in names}, items=items,
    )  # fmt: skip


def _usage_lines(output: Output, answer: schemas.Usage) -> Iterator[str]:
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


def log_item(store: Store, entry: Entry) -> schemas.LogItem:
    """A commit, for JSON and for the list."""
    meta = store.reader.meta(entry.commit)
    return schemas.LogItem(
        commit=entry.commit,
        scope=meta.scope,
        parents=list(entry.parents),
        step=meta.counters.step,
        time=iso(entry.time),
        actor=entry.trailers.get("Ctxvc-Actor", entry.actor),
        subject=entry.subject,
        body=entry.body,
        trailers=entry.trailers,
    )


def changes(store: Store, old: Snapshot, new: Snapshot) -> list[schemas.Change]:
    """What stands otherwise, with what it costs."""
    meter = Meter(store, new.ledger.meta.tokenizer)
    found = difference(old.ledger, new.ledger)
    in_new = meter.bodies(((change.row, new.bodies) for change in found if change.now), new.ledger.meta.model)
    in_old = meter.bodies(((change.row, old.bodies) for change in found if not change.now), old.ledger.meta.model)
    return [_change(change, (in_new if change.now else in_old)[change.row.id]) for change in found]


def change_table(items: Iterable[schemas.Change]) -> Table:
    return Table(
        columns=[
            Column("move"),
            Column("ID"),
            Column("~tokens", right=True),
            Column("type"),
            Column("was"),
            Column("now", least=12),
            Column("label", least=12),
        ],
        rows=[
            [
                Styled(*_MARKS[item.move]),
                item.id,
                item.tokens,
                item.type,
                item.was,
                " ".join(filter(None, [item.now, item.group and f"in {item.group}", _by(item.removed_by)])),
                item.label,
            ]
            for item in items
        ],
    )


def _by(who: str) -> str:
    return f"by {who}" if who else ""


def _change(change: Change, tokens: int) -> schemas.Change:
    row = change.row
    return schemas.Change(
        move=change.move,
        id=row.id,
        type=row.kind,
        tokens=tokens,
        was=change.was,
        now=change.now,
        group=row.group,
        removed_by=row.removed_by,
        label=row.label,
    )


def _side(store: Store, moment: Snapshot) -> schemas.Side:
    meter = Meter(store, moment.ledger.meta.tokenizer)
    shown = sum(cost.shown for cost in meter.costs(moment).values())
    return schemas.Side(
        commit=moment.commit,
        session=moment.session,
        scope=moment.scope,
        step=moment.ledger.meta.counters.step,
        tokens=shown + meter.overhead(moment),
    )


def _items(store: Store, entries: Iterable[Entry]) -> Iterator[schemas.LogItem]:
    return (log_item(store, entry) for entry in entries)


def _log_lines(output: Output, items: Iterable[schemas.LogItem]) -> Iterator[str]:
    if not output.terminal:
        yield "commit\tstep\ttime\tactor\tsubject"
    for item in items:
        cells = [
            item.commit[:SHORT], output.cell(item.step), output.cell(Moment(item.time)), output.cell(item.actor),
            output.cell(item.subject),
        ]  # fmt: skip
        if not output.terminal:
            yield "\t".join(cells)
            continue
        commit, step, time, actor, subject = cells
        yield f"{output.style(commit, fg='yellow')}  {step:>4}  {time:<10}  {actor:<8}  {subject}"


def _graph(session: Writer, commit: str, number: int | None) -> Iterator[str]:
    """git's own drawing, made safe to print."""
    refs = [commit] if commit else [f"{HEADS}{session.name}/{scope}" for scope in session.scopes()]
    limit = [] if number is None else [f"--max-count={number}"]
    drawn = program.run(
        session.store.path, "log", "--graph", "--format=%h  %an: %s", f"--abbrev={SHORT}", *limit, *refs, "--"
    )
    return (safe(line) for line in drawn.decode("utf-8", "replace").splitlines())


def _note_waiting(output: Output, moment: Snapshot) -> None:
    if moment.waiting:
        output.note(f"{counted(moment.waiting, 'record')} of an open step not committed yet")


def _diff_lines(output: Output, answer: schemas.Diff) -> Iterator[str]:
    sides = (("before", answer.before), ("after", answer.after))
    growth = answer.after.tokens - answer.before.tokens
    yield from output.facts(
        [
            *((name, f"{_named(side)}  {output.cell(side.tokens)} tokens") for name, side in sides),
            ("change", f"{'+' if growth >= 0 else '-'}{output.cell(abs(growth))} tokens"),
            *([("differs too", " and ".join(answer.request))] if answer.request else []),
        ]
    )
    yield ""
    yield from output.table_lines(change_table(answer.items))


def _named(side: schemas.Side) -> str:
    return f"{side.session}/{side.scope} step {side.step}, {side.commit[:SHORT]}"
