"""`grep` and `blame`: where something is, and what became of it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import get_args

import click

from ctxvc.cli import schemas
from ctxvc.cli.app import App, command, json_option, timeout_option
from ctxvc.cli.history import SHORT, log_item
from ctxvc.cli.output import Cell, Column, Moment, Output, Table, counted
from ctxvc.cli.progress import Progress
from ctxvc.core import display, patterns
from ctxvc.core.ledger.block import Kind
from ctxvc.core.ledger.ledger import Group, Row
from ctxvc.errors import NotFound
from ctxvc.inspection import blame as blaming
from ctxvc.inspection import grep as searching
from ctxvc.inspection.bodies import Held, Place, bodies, read
from ctxvc.store import address as addresses
from ctxvc.store.address import Found
from ctxvc.store.log.stored_session import Writer
from ctxvc.store.store import Store
from ctxvc.tokens.meter import Meter, Prices

#: Lines that `grep` lists unless more are asked for.
LISTED = 1000
#: What a table says of a commit.
COMMIT_COLUMNS = (
    Column("commit"),
    Column("step", right=True),
    Column("time"),
    Column("actor"),
    Column("subject", least=20),
)


def commit_cells(item: schemas.LogItem | None) -> list[Cell]:
    """The cells of a commit in a table with `COMMIT_COLUMNS`; None for what is not committed yet."""
    if item is None:
        return ["", None, "", "", "not committed yet"]
    return [item.commit[:SHORT], item.step, Moment(item.time), item.actor, item.subject]


def writer_of(session: Writer, found: Found) -> Writer:
    """The session that something was found in."""
    if found.moment.session == session.name:
        return session
    other = session.store.writer(found.moment.session, found.moment.scope)
    other.leave()
    return other


# --- grep


@command("grep", "ctxvc grep -i timeout")
@click.argument("source", metavar="PATTERN")
@click.option("--kind", "kinds", metavar="KIND", multiple=True, type=click.Choice(get_args(Kind)),
              help="Only blocks of this kind; may be given several times.")  # fmt: skip
@click.option("--scope", "scope", metavar="NAME", help="Only this scope.")
@click.option("--all", "--all-sessions", "everywhere", is_flag=True, help="In all sessions, not in one.")
@click.option("--archived", "gone", is_flag=True, help="Only what is not in the prompt.")
@click.option("--live", is_flag=True, help="Only what is in the prompt.")
@click.option("-i", "--ignore-case", is_flag=True, help="Take capitals and small letters for the same.")
@click.option("-F", "--fixed-strings", "fixed", is_flag=True, help="Take PATTERN as a text, not a regular expression.")
@click.option("-n", "--limit", metavar="N", type=click.IntRange(min=0), default=LISTED,
              help=f"List at most N lines ({LISTED:,}); 0 for all.")  # fmt: skip
@timeout_option
@json_option
@click.pass_context
def grep(
    ctx: click.Context, source: str, kinds: Sequence[str], scope: str | None, everywhere: bool, gone: bool, live: bool,
    ignore_case: bool, fixed: bool, limit: int, timeout: float,
) -> None:  # fmt: skip
    """Search all blocks, and say where each hit is now.

    Every body is searched once, in the prompt or not, in all scopes of the session; an output that the model saw cut,
    as a whole. PATTERN is a regular expression of Python, matched line by line. Exits with 1 where nothing is found,
    and where the pattern takes too long for a body, or the time is over: what was found is listed.
    """
    app = ctx.ensure_object(App)
    if everywhere and scope:
        raise click.UsageError("--scope names a scope of one session: leave out --all")
    if gone and live:
        raise click.UsageError("--archived and --live leave nothing to search")
    pattern = patterns.compiled(source, fixed=fixed, ignore_case=ignore_case).until(timeout, time.monotonic)
    states = {True: live, False: gone}

    def wanted(row: Row) -> bool:
        return (not kinds or row.kind in kinds) and (states[row.present] or not (gone or live))

    with app.reading() as session:
        held = bodies(_sessions(session, scope, everywhere=everywhere), wanted, whole=True)
        with Progress("searching", sum(each.places[0].row.bytes for each in held)) as progress:
            search = searching.Search(_watched(read(session.store, held), progress), pattern)
            found = iter(search)
            listed = [_hit(hit) for hit in islice(found, limit or None)]
            more = sum(1 for _ in found) if limit else 0
    answer = schemas.Grepped(
        pattern=source, bodies=len(held), searched=search.searched, skipped=search.skipped, more=more, items=listed
    )
    if app.output.json:
        app.output.value(answer)
    elif listed:
        app.output.table(_hits_table(answer.items))
    if more:
        app.output.note(f"and {counted(more, 'more line')}: -n 0 lists all")
    if search.slow:
        raise _unfinished(search, search.slow, len(held))
    if not listed:
        app.output.note(f"nothing matches '{display.one_line(source, 60)}' in {_bodies_words(len(held))}")
        ctx.exit(1)


def _unfinished(search: searching.Search, slow: patterns.Slow, count: int) -> patterns.Slow:
    """How far the search came, and what to do. More time helps only where that was over."""
    skipped = f"{_bodies_words(search.skipped)} given up on, for a line in each" if search.skipped else ""
    if not search.over:
        hint = "a simpler pattern, with no repeats within repeats, or -F for a fixed text"
        return patterns.Slow(f"{slow}: {skipped}; all others of {count:,} were searched", hint=hint)
    hint = "a simpler pattern, -F for a fixed text, --scope or --kind to search less, --timeout for more time"
    reached = f"{search.searched:,} of {_bodies_words(count)} were searched"
    return patterns.Slow(f"{slow}: {reached}{skipped and f', {skipped}'}", hint=hint)


def _sessions(session: Writer, scope: str | None, *, everywhere: bool) -> Iterator[tuple[Writer, Sequence[str]]]:
    """The sessions that are meant, with their scopes, the current one first."""
    if scope is not None:
        session.ledger(scope)  # raises where there is none
        yield session, [scope]
        return
    yield session, sorted(session.scopes(), key=lambda name: name != session.scope)
    for name in session.store.sessions() if everywhere else []:
        if name != session.name:
            other = session.store.writer(name)
            other.leave()  # whoever only looks writes nothing
            yield other, other.scopes()


def _watched(found: Iterator[tuple[Held, bytes]], progress: Progress) -> Iterator[tuple[Held, bytes]]:
    for held, body in found:
        yield held, body
        progress.add(len(body))


def _hit(hit: searching.Hit) -> schemas.Hit:
    first, *others = hit.places
    return schemas.Hit(
        address=first.address,
        session=first.session,
        scope=first.scope,
        block=first.row.id,
        type=first.row.kind,
        state=first.row.state,
        step=first.row.step,
        line=hit.line,
        text=hit.text,
        also=[_standing(place) for place in others],
    )


def _standing(place: Place) -> schemas.Standing:
    return schemas.Standing(address=place.address, state=place.row.state)


def _hits_table(items: Sequence[schemas.Hit]) -> Table:
    return Table(
        columns=[
            Column("block"),
            Column("state"),
            Column("step", right=True),
            Column("line", right=True),
            Column("text", least=20),
            Column("also in", least=8),
        ],
        rows=[
            [
                item.address,
                item.state,
                item.step,
                item.line,
                item.text,
                ", ".join(f"{each.address} {each.state}" for each in item.also),
            ]
            for item in items
        ],
    )


def _bodies_words(number: int) -> str:
    return "1 body" if number == 1 else f"{number:,} bodies"


# --- blame


@command("blame", "ctxvc blame B17")
@click.argument("name", metavar="ID")
@json_option
@click.pass_obj
def blame(app: App, name: str) -> None:
    """Show what became of a block or a group, who did it and why.

    And what it cost: how much of it was sent with each call of the model. ID is `B17` or `G3`, also of elsewhere, as
    in `SCOPE:B17`, or the id of a call.
    """
    with app.reading() as session:
        address = addresses.parse(name)
        found = addresses.named(session, name)
        if found is None or (address and address.file):
            raise NotFound(f"{name[:80]!r} is no block or group", hint="as in `ctxvc blame B17`; `ctxvc status --all`")
        answer = _blamed(writer_of(session, found), found)
    if app.output.json:
        app.output.value(answer)
    else:
        app.output.lines(_blame_lines(app.output, answer))


def _blamed(session: Writer, found: Found) -> schemas.Blamed:
    moment, item = found.moment, found.row or found.group
    assert item is not None
    ledger = moment.ledger
    met = blaming.events(session, moment.scope, item.id)
    prices = Prices(Meter(session.store, ledger.meta.tokenizer), moment.bodies, ledger.meta.model)
    stays = [_stay(stay, prices) for stay in blaming.stays(met, ledger) if stay.calls]
    model = met[0].entry.trailers.get("Ctxvc-Model", "") if met and met[0].entry else ""
    row = found.row
    return schemas.Blamed(
        session=moment.session,
        scope=moment.scope,
        id=item.id,
        handle=row.handle if row else item.id,
        type=row.kind if row else "group",
        origin=row.origin if row else "",
        model=model or ("" if met and met[0].entry else ledger.meta.model),
        tokens=prices.body(row) if row else _shown(item, prices),
        reads=row.reads if row else 0,
        label=item.label,
        events=[_event(event, session.store) for event in met],
        stays=stays,
        sent=sum(stay.sent for stay in stays),
    )


def _event(event: blaming.Event, store: Store) -> schemas.BlameEvent:
    commit = log_item(store, event.entry) if event.entry else None
    reason = commit.trailers.get("Ctxvc-Reason", "") if commit else ""
    return schemas.BlameEvent(what=event.what, reason=reason, commit=commit)


def _stay(stay: blaming.Stay, prices: Prices) -> schemas.BlameStay:
    tokens = 0 if stay.cut else _shown(stay.item, prices)
    state = "cut" if stay.cut else stay.item.state if isinstance(stay.item, Row) else "archived"
    return schemas.BlameStay(
        state=state, first=stay.first, last=stay.last, calls=stay.calls, tokens=tokens, sent=stay.calls * tokens
    )


def _shown(item: Row | Group, prices: Prices) -> int:
    """Tokens of what stands in the prompt for it alone: nothing where a group's stub stands for it."""
    if isinstance(item, Row) and item.present:
        return prices.mask(item) if item.state == "masked" else prices.body(item)
    pruned = isinstance(item, Row) and item.state == "pruned"
    return 0 if item.group or pruned or not item.stub else prices.text(item.stub)


def _blame_lines(output: Output, answer: schemas.Blamed) -> Iterator[str]:
    facts: list[tuple[str, Cell]] = [
        ("block" if answer.type != "group" else "group", answer.handle),
        ("in", f"{answer.session}/{answer.scope}"),
        ("type", f"{answer.type}, origin {answer.origin}" if answer.origin else answer.type),
        ("model", answer.model),
        ("label", answer.label),
        ("tokens", answer.tokens),
        ("read", counted(answer.reads, "time") if answer.reads else ""),
        ("sent", f"{output.cell(answer.sent)} tokens with {counted(sum(stay.calls for stay in answer.stays), 'call')}"),
    ]
    yield from output.facts([(name, value) for name, value in facts if value != ""])
    yield ""
    yield from output.table_lines(
        Table(
            columns=[Column("what"), *COMMIT_COLUMNS, Column("reason", least=12)],
            rows=[[event.what, *commit_cells(event.commit), event.reason] for event in answer.events],
        )
    )
    if not answer.stays:
        return
    yield ""
    names = ("calls", "tokens", "sent")
    yield from output.table_lines(
        Table(
            columns=[Column("state"), Column("steps"), *(Column(name, right=True) for name in names)],
            rows=[
                [stay.state, f"{stay.first}-{stay.last}", stay.calls, stay.tokens, stay.sent] for stay in answer.stays
            ],
        )
    )
