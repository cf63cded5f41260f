"""`notes`: the notes of a scope."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import click
import msgspec

from ctxvc.cli.answers import project_notes
from ctxvc.cli.answers.shared import Answer, BlockId, Item, ScopeName, SessionName, described, struct_of
from ctxvc.cli.app import App, all_projects_option, command, complete_scopes, json_option, not_empty, raise_unreadable
from ctxvc.cli.output import Output, safe
from ctxvc.errors import CtxvcError, Damaged
from ctxvc.session.session import Session
from ctxvc.store.log.stored_session import StoredSession


@command("notes", "ctxvc notes main")
@click.argument("name", metavar="[SCOPE]", default="", shell_complete=complete_scopes, callback=not_empty)
@click.option("-l", "--label", metavar="LABEL", default="", help="Only those that have this label.")
@all_projects_option
@click.option("--project", is_flag=True, help="The project's notes, of all its sessions and people.")
@click.option("--about", "task", metavar="WORDS", default="",
              help="With --project: those that fit these words or files, the best first.")  # fmt: skip
@json_option
@click.pass_obj
def notes(app: App, name: str, label: str, all_projects: bool, project: bool, task: str) -> None:
    if task and not project:
        raise click.UsageError("--about requires --project")
    if project:
        if all_projects or name or app.session:
            raise click.UsageError(
                "--project lists the notes of all sessions: leave out SCOPE, --session and --all-projects"
            )
        project_notes.show(app, label, task)
        return
    if all_projects and (name or app.session):
        raise click.UsageError("--all-projects lists the notes of all sessions: leave out the scope and --session")
    unreadable: list[CtxvcError] = []
    if all_projects:
        answer = Notes(session="", scope="", items=list(_of_all_projects(app, label, unreadable)))
    else:
        with app.reading() as stored:
            scope = name or stored.scope
            answer = Notes(session=stored.name, scope=scope, items=[*_of_scope(stored, scope, label)])
    none = project_notes.none(answer.items, "", chosen=bool(label))
    app.output.answer(answer, _note_lines(app.output, answer.items), none)
    raise_unreadable(unreadable)


def _of_scope(stored: StoredSession, scope: str, label: str) -> Iterator[NoteItem]:
    for note in Session(stored).notes(scope, label=label):
        yield struct_of(NoteItem, note, session=stored.name, scope=scope)


def _of_all_projects(app: App, label: str, unreadable: list[CtxvcError]) -> Iterator[NoteItem]:
    """The notes of all scopes of all sessions; inherited ones only in the first scope that has them."""
    for store in app.all_stores(unreadable):
        for session in store.sessions():
            try:
                stored = StoredSession.open(store, session)
                items = [item for scope in stored.scopes() for item in _of_scope(stored, scope, label)]
            except Damaged as error:
                unreadable.append(error)
                continue
            stored.leave()  # reading must not write anything
            project = str(store.path.parent)
            first = {(item.block, item.text): item for item in reversed(items)}
            yield from (msgspec.structs.replace(item, project=project) for item in items if item in first.values())


def _note_lines(output: Output, items: Sequence[NoteItem]) -> Iterator[str]:
    session = ("", "")
    for item in items:
        if item.project and session != (session := (item.project, item.session)):
            yield output.style(safe(f"{item.project}: {item.session}"), bold=True)
        labels = f"  {', '.join(item.labels)}" if item.labels else ""
        superseded = f"  superseded by {item.superseded}" if item.superseded else ""
        scope = f"{item.scope}:" if item.project else ""
        yield output.style(safe(f"{scope}{item.block}  step {item.step}{labels}{superseded}"), bold=True)
        yield from (f"  {line}" for line in safe(item.text).split("\n"))


class NoteItem(Item, frozen=True, kw_only=True):
    """A note."""

    block: BlockId
    step: int
    text: str
    labels: list[str]
    superseded: Annotated[str, described("the note that stands in its place; empty for none")]
    session: SessionName
    scope: ScopeName
    project: Annotated[str, described("with --all-projects, the project's folder")] = ""


class Notes(Answer, frozen=True, kw_only=True, tag="ctxvc.notes/1"):
    """`notes`"""

    session: Annotated[str, described("empty with --all-projects")]
    scope: Annotated[str, described("empty with --all-projects")]
    items: list[NoteItem]
