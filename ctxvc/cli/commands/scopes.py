"""`scopes`: the scopes of a session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import click

from ctxvc.cli.answers import Answer, CommitId, Item, ScopeName, SessionName, described
from ctxvc.cli.app import App, command, json_option
from ctxvc.cli.output import Column, Output, Table
from ctxvc.store.log.stored_session import Writer


@command("scopes", "ctxvc scopes")
@json_option
@click.pass_obj
def scopes(app: App) -> None:
    with app.reading() as writer:
        current = writer.store.current_scope(writer.name)
        answer = Scopes(session=writer.name, items=[_item(writer, name, current) for name in writer.scopes()])
    if app.output.json:
        app.output.value(answer)
    else:
        app.output.lines(_scope_lines(app.output, answer))


def _item(writer: Writer, name: str, current: str) -> ScopeItem:
    meta, blocks, notes = writer.outline(name)
    return ScopeItem(
        name=name,
        current=name == current,
        parent=meta.parent,
        blocks=blocks,
        steps=meta.counters.step,
        notes=notes,
        commit=writer.tip(name),
    )


def _scope_lines(output: Output, answer: Scopes) -> Iterator[str]:
    columns = (
        Column(""),
        Column("scope"),
        Column("from"),
        Column("steps", right=True),
        Column("blocks", right=True),
        Column("notes", right=True),
        Column("commit"),
    )
    rows = [
        ["*" if item.current else "", item.name, item.parent, item.steps, item.blocks, item.notes, item.commit[:12]]
        for item in answer.items
    ]
    yield from output.table_lines(Table(columns, rows))


class ScopeItem(Item, frozen=True, kw_only=True):
    """A scope of the session."""

    name: ScopeName
    current: bool
    parent: Annotated[str, described("the scope that it was made from; empty for none")]
    blocks: int
    steps: int
    notes: int
    commit: CommitId


class Scopes(Answer, frozen=True, kw_only=True, tag="ctxvc.scopes/1"):
    """`scopes`"""

    session: SessionName
    items: list[ScopeItem]
