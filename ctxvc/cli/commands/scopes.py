"""`scopes`: the scopes of a session."""

from __future__ import annotations

from typing import Annotated

import click

from ctxvc.cli.answers.shared import Answer, CommitId, Item, ScopeName, SessionName, described, short, star, table_of
from ctxvc.cli.app import App, command, json_option
from ctxvc.cli.output import Column
from ctxvc.store.log.stored_session import StoredSession


@command("scopes", "ctxvc scopes")
@json_option
@click.pass_obj
def scopes(app: App) -> None:
    with app.reading() as stored:
        current = stored.store.current_scope(stored.name)
        answer = Scopes(session=stored.name, items=[_item(stored, name, current) for name in stored.scopes()])
    app.output.answer(answer, table_of(ScopeItem, answer.items))


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


class ScopeItem(Item, frozen=True, kw_only=True):
    """A scope of the session."""

    TABLE = "current name parent steps blocks notes commit"

    name: Annotated[ScopeName, Column("scope", least=16)]
    current: Annotated[bool, Column("", cell=star)]
    parent: Annotated[str, described("the scope it was created from; empty if none"), Column("from", least=12)]
    blocks: Annotated[int, Column("blocks", right=True)]
    steps: Annotated[int, Column("steps", right=True)]
    notes: Annotated[int, Column("notes", right=True)]
    commit: Annotated[CommitId, Column("commit", cell=short)]


class Scopes(Answer, frozen=True, kw_only=True, tag="ctxvc.scopes/1"):
    """`scopes`"""

    session: SessionName
    items: list[ScopeItem]
