"""`scopes`: the scopes of a session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import click

from ctxvc.cli.answers.shared import Answer, CommitId, Item, ScopeName, SessionName, described
from ctxvc.cli.app import App, command, json_option
from ctxvc.cli.output import Cell, Column, Output, Styled, Table
from ctxvc.store.log.stored_session import StoredSession


@command("scopes", "ctxvc scopes")
@json_option
@click.pass_obj
def scopes(app: App) -> None:
    with app.reading() as stored:
        current = stored.store.current_scope(stored.name)
        answer = Scopes(session=stored.name, items=[_item(stored, name, current) for name in stored.scopes()])
    if app.output.json:
        app.output.value(answer)
    else:
        app.output.lines(_scope_lines(app.output, answer))


def _item(stored: StoredSession, name: str, current: str) -> ScopeItem:
    meta, blocks, notes = stored.outline(name)
    return ScopeItem(
        name=name,
        current=name == current,
        parent=meta.parent,
        blocks=blocks,
        steps=meta.counters.step,
        notes=notes,
        commit=stored.tip(name),
    )


def _scope_lines(output: Output, answer: Scopes) -> Iterator[str]:
    columns = (
        Column(""),
        Column("scope", least=16),
        Column("from", least=12),
        Column("steps", right=True),
        Column("blocks", right=True),
        Column("notes", right=True),
        Column("commit"),
    )
    rows: list[list[Cell]] = [
        [
            Styled("*", "green") if item.current else "",
            item.name,
            item.parent,
            item.steps,
            item.blocks,
            item.notes,
            item.commit[:12],
        ]
        for item in answer.items
    ]
    yield from output.table_lines(Table(columns, rows))


class ScopeItem(Item, frozen=True, kw_only=True):
    """A scope of the session."""

    name: ScopeName
    current: bool
    parent: Annotated[str, described("the scope it was created from; empty if none")]
    blocks: int
    steps: int
    notes: int
    commit: CommitId


class Scopes(Answer, frozen=True, kw_only=True, tag="ctxvc.scopes/1"):
    """`scopes`"""

    session: SessionName
    items: list[ScopeItem]
