"""`sessions`: the sessions of the store."""

from __future__ import annotations

from typing import Annotated

import click

from ctxvc.cli.answers import Answer, Item, SessionName, TimeText, TokenCount, described
from ctxvc.cli.app import App, command, json_option, raise_unreadable
from ctxvc.cli.output import Column, Guess, Size, Table, Timestamp, iso
from ctxvc.core.ledger.ledger import Ledger, Row
from ctxvc.core.ledger.numbering import speaks
from ctxvc.core.prompt.outline import Bodies
from ctxvc.errors import Damaged, NotFound
from ctxvc.store import revision
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from ctxvc.tokens.meter import Meter


@command("sessions", "ctxvc sessions")
@json_option
@click.pass_obj
def sessions(app: App) -> None:
    """Steps are those of the current scope; blocks, tokens and size are those of all scopes. Tokens with a `~` are a
    guess from the size, until `ctxvc status` has counted the blocks.
    """
    with app.store() as store:
        items, unreadable = _items(store)
        current = _current(store)
    if app.output.json:
        app.output.value(Sessions(current=current, items=items))
    else:
        app.output.table(_table(items, current))
    if not items and not unreadable and not app.output.json:
        app.output.note("no session yet: `ctxvc import` brings in recorded ones")
    raise_unreadable(unreadable)


def _items(store: Store) -> tuple[list[SessionItem], list[Damaged]]:
    """The sessions that can be read, newest first, and an error for each of the others."""
    items, unreadable = [], []
    for name in store.sessions():
        try:
            items.append(_item(store, name))
        except Damaged as error:
            unreadable.append(error)
    return sorted(items, key=lambda item: item.updated, reverse=True), unreadable


def _table(items: list[SessionItem], current: str) -> Table:
    return Table(
        columns=[
            Column("*"),
            Column("session"),
            Column("first prompt", least=20),
            Column("updated"),
            Column("branch", least=8),
            Column("model", least=8),
            *(Column(name, right=True) for name in ("steps", "blocks", "tokens", "size")),
        ],
        rows=[
            [
                "*" if item.name == current else "",
                item.name,
                item.title or item.prompt,
                Timestamp(item.updated),
                item.branch,
                item.model,
                item.steps,
                item.blocks,
                Guess(item.tokens) if item.estimated else item.tokens,
                Size(item.bytes),
            ]
            for item in items
        ],
    )


def _item(store: Store, name: str) -> SessionItem:
    stored = StoredSession.open(store, name)
    ledger = stored.ledger()
    source = ledger.meta.source
    bodies = _bodies(stored)
    tokens, estimated = Meter(store, ledger.meta.tokenizer).total(bodies, ledger.meta.model)
    return SessionItem(
        name=name,
        prompt=_first_prompt(ledger),
        title=source.title if source else "",
        started=source.started if source else "",
        updated=iso(revision.entry(store, stored.tip()).time),
        branch=source.branch if source else "",
        model=ledger.meta.model,
        scope=stored.scope,
        scopes=len(stored.scopes()),
        steps=ledger.meta.counters.step,
        blocks=len(bodies),
        tokens=tokens,
        estimated=estimated,
        bytes=sum(row.bytes for row, _ in bodies),
        format=source.format if source else "",
    )


def _bodies(stored: StoredSession) -> list[tuple[Row, Bodies]]:
    """Every block of the session once, with its reader."""
    blocks: dict[tuple[str, str], tuple[Row, Bodies]] = {}
    for scope in stored.scopes():
        bodies = revision.now(stored, scope).bodies
        for row in stored.ledger(scope).rows():
            blocks.setdefault((row.id, row.sha256), (row, bodies))
    return list(blocks.values())


def _first_prompt(ledger: Ledger) -> str:
    return next((row.label for row in ledger.rows() if speaks(row.kind, row.role, row.origin)), "")


def _current(store: Store) -> str:
    try:
        return store.current_session()
    except NotFound:
        return ""


class SessionItem(Item, frozen=True, kw_only=True):
    """A session. Steps are those of its current scope; blocks, tokens and bytes are of all its scopes together."""

    name: SessionName
    prompt: Annotated[str, described("the beginning of the first human message")]
    title: Annotated[str, described("title that the recording has; often empty")]
    started: TimeText
    updated: Annotated[str, described("time of the newest commit")]
    branch: Annotated[str, described("git branch of the project when it was recorded")]
    model: str
    scope: Annotated[str, described("current scope")]
    scopes: Annotated[int, described("number of scopes")]
    steps: int
    blocks: int
    tokens: TokenCount
    estimated: Annotated[bool, described("whether `tokens` is bytes / 4, since not all blocks were counted yet")]
    bytes: Annotated[int, described("bytes of all bodies")]
    format: Annotated[str, described("format of the recording; empty where we recorded it ourselves")]


class Sessions(Answer, frozen=True, kw_only=True, tag="ctxvc.sessions/1"):
    """`sessions`"""

    current: Annotated[str, described("the session that is used where none is named; empty where there is none")]
    items: list[SessionItem]
