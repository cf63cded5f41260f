"""Sessions of opencode → events: its SQLite database with those of all projects, or a file of `opencode export`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ctxvc.core.recording.events import Event
from ctxvc.errors import BadInput
from ctxvc.importers import DATABASE
from ctxvc.importers.file import Recording
from ctxvc.importers.protocol import Conversations, Importer, Stamp, State

if TYPE_CHECKING:
    from ctxvc.importers.opencode.database import Session

FORMAT = "opencode"

_STATEMENT = b"CREATE TABLE"
#: A table of old and one of new versions: the statement of one that an update added may be anywhere in a large file.
_TABLES = (b"CREATE TABLE `session`", b"CREATE TABLE `session_context_epoch`")
_LOG = "-wal"
_EXPORTED = re.compile(rb'\s*\{\s*"info"\s*:\s*\{\s*"id"\s*:\s*"ses_')


def sniff(head: bytes) -> bool:
    """Whether a file is an exported session, or a database with opencode's tables, which may still be in its log."""
    if _EXPORTED.match(head):
        return True
    return head.startswith(DATABASE) and (any(table in head for table in _TABLES) or _STATEMENT not in head)


def conversations(recording: Recording) -> Conversations:
    """The conversations, oldest first; a fork is one of its own, a sub-agent a scope of its parent."""
    from ctxvc.importers import documents
    from ctxvc.importers.opencode import database, read
    from ctxvc.importers.opencode.read import TAIL

    if _EXPORTED.match(recording.head()):
        tree = database.exported(documents.document(recording).value)
        yield tree.sessions[0].id[-TAIL:], read.events(tree)
        return
    everything = database.ask(recording.path, database.sessions)
    chosen = [session for session in database.roots(everything) if _is_of(session, recording.projects)]
    share = stamp(recording.path).size // max(len(chosen), 1)
    for session in chosen:
        yield session.id[-TAIL:], _events(recording, session.id, share)


def _events(recording: Recording, session: str, share: int) -> Iterator[Event]:
    from ctxvc.importers.opencode import database, read

    tree = database.ask(recording.path, partial(database.tree, root=session))
    recording.progress(share)
    if tree.sessions:
        yield from read.events(tree)


def folders(project: Path, home: Path, env: Mapping[str, str]) -> list[Path]:  # noqa: ARG001 - as every importer has it
    """The folder of the database with the sessions of all projects."""
    return [Path(env.get("XDG_DATA_HOME") or home / ".local" / "share") / "opencode"]


def recordings(folder: Path, project: Path) -> Iterable[Path]:
    """The databases, one a release channel, that have a session of `project`."""
    from ctxvc.importers.opencode import database

    for path in sorted(folder.glob("opencode*.db")):
        try:
            if any(_is_of(session, [project]) for session in database.ask(path, database.sessions)):
                yield path
        except BadInput:
            continue  # an unreadable file is of no project


def more_files(path: Path) -> Iterator[Path]:
    """The database's log of the newest writes."""
    log = path.with_name(f"{path.name}{_LOG}")
    if log.exists():
        yield log


def stamp(path: Path) -> Stamp:
    """The stamp of the database and its log. Raises: OSError."""
    states = [file.stat() for file in (path, *more_files(path))]
    return Stamp(sum(state.st_size for state in states), max(state.st_mtime_ns for state in states))


def state(path: Path, positions: Mapping[str, int]) -> State:
    """`Importer.state` of the database at `path`, by the sessions of which the store has some."""
    from ctxvc.importers.opencode import database

    try:
        everything = database.ask(path, database.sessions)
        stored = [session.id for session in database.roots(everything) if session.id in positions]
        if not stored:
            return "missing"
        moments = database.ask(path, lambda connection: [database.newest(connection, name) for name in stored])
    except BadInput:
        return "missing"
    grown = any(moment > positions[name] for name, moment in zip(stored, moments, strict=True))
    return "grown" if grown else "whole"


IMPORTER = Importer(
    format=FORMAT,
    sniff=sniff,
    conversations=conversations,
    endings=("opencode.db",),
    grows=True,
    folders=folders,
    recordings=recordings,
    more_files=more_files,
    stamp=stamp,
    state=state,
)


def _is_of(session: Session, projects: Iterable[Path]) -> bool:
    """Whether a session's folder is in one of `projects`, or there are none."""
    folders = list(projects)
    return not folders or any(Path(session.directory).is_relative_to(folder) for folder in folders)
