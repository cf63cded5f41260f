"""`note --project` and `notes --project`: notes that outlive a session."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Annotated

from ctxvc.cli.answers.shared import Answer, Item, described, struct_of
from ctxvc.cli.app import App
from ctxvc.cli.output import Output, safe
from ctxvc.core import project_notes as noting
from ctxvc.core.ledger import name_rules
from ctxvc.core.project_notes import ProjectNote
from ctxvc.errors import NotFound
from ctxvc.session import project_notes
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store


def add(app: App, text: str, actor: str, name: str, labels: Sequence[str], files: Sequence[str]) -> None:
    """Adds a note to the project and prints its address. Raises: CtxvcError."""
    with app.store() as store:
        root = store.path.parent
        note = project_notes.add(
            store, text, actor=actor, name=name, labels=labels, learned=_here(app, store), root=root, files=files
        )
        answer = ProjectNoted(note=_item(note, ()))
    replaced = f" replaces {', '.join(note.about.replaces)}" if note.about.replaces else ""
    app.output.answer(answer, f"{safe(note.address)}{replaced}")


def show(app: App, label: str, task: str) -> None:
    """Prints the notes that no newer one replaces; with a task, those that fit it, best first. Raises: CtxvcError."""
    with app.store() as store:
        all_notes = [note for note in project_notes.notes(store) if not label or label in note.labels]
        chosen = noting.fitting(all_notes, task) if task else all_notes
        digests = project_notes.digests(store.path.parent, chosen)
    answer = ProjectNotes(items=[_item(note, note.stale(digests)) for note in chosen])
    app.output.answer(
        answer, _lines(app.output, answer.items), none(answer.items, "--project ", chosen=bool(label or task))
    )


def none(items: Sequence[Item], option: str, *, chosen: bool) -> str:
    """The remark that there are no notes, or none among those chosen; empty if there are some."""
    if items:
        return ""
    return "no such notes" if chosen else f"no notes; `ctxvc note {option}-m …` adds one"


def _here(app: App, store: Store) -> tuple[str, str, int]:
    """The session, scope and step where one is; empty where nothing is recorded."""
    with suppress(NotFound):
        stored = StoredSession.for_reading(store, app.session_name(store))
        if not name_rules.has_project_notes(stored.name):
            return stored.name, stored.scope, stored.ledger().meta.counters.step
    return "", "", 0


def _item(note: ProjectNote, stale: Sequence[str]) -> ProjectNoteItem:
    return struct_of(
        ProjectNoteItem, note.about, address=note.address, text=note.text, labels=list(note.labels),
        files=list(note.about.files), stale=list(stale),
    )  # fmt: skip


def _lines(output: Output, items: Sequence[ProjectNoteItem]) -> Iterator[str]:
    for item in items:
        learned = f"  {item.session}/{item.scope} step {item.step}" if item.session else ""
        labels = f"  {', '.join(item.labels)}" if item.labels else ""
        name = f"{item.name}  " if item.name else ""
        yield output.style(safe(f"{name}{item.address}{learned}{labels}"), bold=True)
        if item.stale:
            yield output.style(safe(f"  changed since: {', '.join(item.stale)}"), fg="yellow")
        yield from (f"  {line}" for line in safe(item.text).split("\n"))


class ProjectNoteItem(Item, frozen=True, kw_only=True):
    """A note of the project, and where it was learned."""

    address: Annotated[str, described("`SESSION/SCOPE:B3@1f2e3d`, in the session that has the notes")]
    name: Annotated[str, described("a newer note of that name replaces it; empty for none")]
    text: str
    labels: list[str]
    session: Annotated[str, described("where it was learned; empty if in no session")]
    scope: str
    step: int
    files: Annotated[list[str], described("the files that it is about")]
    stale: Annotated[list[str], described("those of them that changed since")]


class ProjectNoted(Answer, frozen=True, kw_only=True, tag="ctxvc.project_note/1"):
    """`note --project`"""

    note: ProjectNoteItem


class ProjectNotes(Answer, frozen=True, kw_only=True, tag="ctxvc.project_notes/1"):
    """`notes --project`"""

    items: Annotated[list[ProjectNoteItem], described("those that stand; with --about, those that fit, the best first")]
