"""`notes`: the notes of a scope."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import click

from ctxvc.cli.answers import Answer, BlockId, Item, ScopeName, SessionName, described
from ctxvc.cli.app import App, command, complete_scopes, json_option
from ctxvc.cli.output import Output, safe
from ctxvc.session.session import Note, Session


@command("notes", "ctxvc notes main")
@click.argument("name", metavar="[SCOPE]", default="", shell_complete=complete_scopes)
@click.option("-l", "--label", metavar="LABEL", default="", help="Only those that have this label.")
@json_option
@click.pass_obj
def notes(app: App, name: str, label: str) -> None:
    with app.reading() as stored:
        session = Session(stored)
        scope_notes = session.notes(name, label=label)
        answer = Notes(
            session=session.name,
            scope=name or session.scope,
            items=[
                NoteItem(
                    block=note.block,
                    step=note.step,
                    text=note.text,
                    labels=list(note.labels),
                    superseded=note.superseded,
                )
                for note in scope_notes
            ],
        )
    if app.output.json:
        app.output.value(answer)
    else:
        app.output.prose(_note_lines(app.output, scope_notes))


def _note_lines(output: Output, notes: list[Note]) -> Iterator[str]:
    for note in notes:
        labels = f"  {', '.join(note.labels)}" if note.labels else ""
        superseded = f"  superseded by {note.superseded}" if note.superseded else ""
        yield output.style(safe(f"{note.block}  step {note.step}{labels}{superseded}"), bold=True)
        yield from (f"  {line}" for line in safe(note.text).split("\n"))


class NoteItem(Item, frozen=True, kw_only=True):
    """A note."""

    block: BlockId
    step: int
    text: str
    labels: list[str]
    superseded: Annotated[str, described("the note that stands in its place; empty for none")]


class Notes(Answer, frozen=True, kw_only=True, tag="ctxvc.notes/1"):
    """`notes`"""

    session: SessionName
    scope: ScopeName
    items: list[NoteItem]
