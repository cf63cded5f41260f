"""The notes of a project, kept in its store."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

import msgspec

from ctxvc.core import display, project_notes, scope
from ctxvc.core.ledger import name_rules
from ctxvc.core.ledger import notes as noting
from ctxvc.core.project_notes import About, ProjectNote
from ctxvc.errors import BadInput, Phrase, Refused
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from ctxvc.store.trust import identity

#: The most characters of a note, and the most files taken from its text.
LONGEST = 4_000
_MOST_FILES = 16


def notes(store: Store) -> list[ProjectNote]:
    """The current notes of everybody whose sessions are here, ordered by session and scope, oldest first in each.

    Raises: Damaged.
    """
    every: list[ProjectNote] = []
    for name in filter(name_rules.has_project_notes, store.sessions()):
        stored = StoredSession.for_reading(store, name)
        for one in stored.scopes():
            rows = [row for row in stored.ledger(one).rows() if row.kind == "note"]
            parsed = (
                project_notes.note_of(f"{name}/{one}", row, display.decode(stored.body(row, one))) for row in rows
            )
            every += filter(None, parsed)
    return project_notes.current(every)


def add(
    store: Store,
    text: str,
    *,
    actor: str,
    name: str = "",
    labels: Sequence[str] = (),
    learned: tuple[str, str, int] = ("", "", 0),
    root: Path,
    files: Sequence[str] = (),
) -> ProjectNote:
    """Adds a note to this store's own session of project notes; it replaces one of the same name.

    `learned` is the session, scope and step it came from. It is about `files` and the files below `root` that its text
    names. Raises: BadInput; Refused if one of `files` is missing; CtxvcError.
    """
    if not text.strip():
        raise BadInput("a note needs text", hint=Phrase("give-text"))
    if len(text) > LONGEST:
        raise BadInput(f"the note has {len(text):,} characters; at most {LONGEST:,} are allowed", hint="shorten it")
    if name and (why := name_rules.problem(name)):
        raise BadInput(f"{name[:60]!r} cannot be a note's name: {why}", hint="use letters, digits, '.', '_' and '-'")
    about = About(
        name=name,
        session=learned[0],
        scope=learned[1],
        step=learned[2],
        replaces=tuple(note.address for note in notes(store) if name and note.about.name == name),
        files=_digests(root, text, files),
    )
    own = _own(store)
    part = scope.note(text, actor, labels=noting.checked_labels(labels))
    own_fields = {**part.extra.get("ctxvc", {}), project_notes.FIELD: msgspec.to_builtins(about)}
    part = msgspec.structs.replace(part, extra={**part.extra, "ctxvc": own_fields})
    first, full_text = scope.subject_and_text(text)
    with own:
        (block,) = own.change(subject=f"note: {first}", op="note", actor=actor, parts=[part], text=full_text)
        row = own.ledger()[block]
        note = project_notes.note_of(f"{own.name}/{own.scope}", row, display.decode(own.body(row)))
    assert note is not None
    return note


def for_task(store: Store, task: str, root: Path, cap: int, count: Callable[[str], int]) -> str:
    """The notes that fit a task, as text of at most `cap` tokens for a model; empty if none fits. Raises: Damaged."""
    chosen = project_notes.fitting(notes(store), task)
    return project_notes.notes_text(chosen, digests(root, chosen), cap, count)


def digests(root: Path, chosen: Sequence[ProjectNote]) -> Mapping[str, str]:
    """The current checksums of these notes' files below `root`, as `digests_of`."""
    return digests_of(root, {path for note in chosen for path in note.about.files})


def _digests(root: Path, text: str, files: Sequence[str]) -> dict[str, str]:
    of_files = digests_of(root, files)
    if absent := next((file for file in files if not of_files.get(file)), ""):
        raise Refused(f"{absent[:100]!r} is no file below {root}", hint="name it as seen from the project's folder")
    in_text = digests_of(root, project_notes.paths_in(text)[:_MOST_FILES])
    return {path: digest for path, digest in {**of_files, **in_text}.items() if digest}


def _own(store: Store) -> StoredSession:
    name = f"{name_rules.PROJECT_NOTES}-{identity.make_id(store.path)[:8]}"
    if not store.has(name):
        with suppress(Refused):  # another process was first
            store.create_session(name, make_current=False)
    return StoredSession.open(store, name, "main")


#: The most bytes of a file that is read, and the digits of its checksum.
_LARGEST = 16 << 20
_DIGITS = 16


def digests_of(root: Path, paths: Iterable[str]) -> dict[str, str]:
    """Path → the first 16 digits of its SHA-256; empty unless it is a plain file below `root` of at most 16 MiB."""
    return {path: _digest_of(root, path) for path in paths}


def _digest_of(root: Path, path: str) -> str:
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or "\0" in path:
        return ""
    try:
        real = os.path.realpath(root / path)
        if not Path(real).is_relative_to(os.path.realpath(root)):
            return ""
        handle = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return ""
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST:
            return ""
        return hashlib.sha256(file.read(_LARGEST)).hexdigest()[:_DIGITS]
