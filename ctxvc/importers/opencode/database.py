"""The rows of opencode's database, read in one transaction, which does not block writers.

`session` has a row a conversation, and one a sub-agent's, which names its parent. `message` and `part` have the prompt
as JSON; their rows change while a reply is made, and are deleted when a person reverts. `event` keeps everything in the
order of `seq`: reverted messages are read from there.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ctxvc.core.ledger import wire
from ctxvc.errors import BadInput
from ctxvc.forms.values import objects, text_of
from ctxvc.importers.documents import mapping
from ctxvc.importers.file import LONGEST

T = TypeVar("T")

_TABLES = {
    "session": {"id", "parent_id", "directory", "title", "version", "time_created"},
    "message": {"id", "session_id", "time_created", "data"},
    "part": {"id", "message_id", "session_id", "data"},
}
#: As bytes, since text that is not UTF-8 would fail the whole query; NULL for values larger than any program writes.
_DATA = f"CASE WHEN length(data) <= {LONGEST} THEN CAST(data AS BLOB) END"
_MESSAGES = f"SELECT id, time_created, {_DATA} FROM message WHERE session_id = ? ORDER BY time_created, id"  # noqa: S608 - all ours
_PARTS = f"SELECT id, message_id, {_DATA} FROM part WHERE session_id = ? ORDER BY message_id, id"  # noqa: S608
_OF_A_KIND = f"SELECT seq, {_DATA} FROM event WHERE aggregate_id = ? AND type LIKE ? ORDER BY seq"  # noqa: S608
_COLUMNS = "id, parent_id, directory, title, version, time_created"
_SESSIONS = f"SELECT {_COLUMNS} FROM session ORDER BY time_created, id"  # noqa: S608
_BELOW = f"""
    WITH RECURSIVE below(name) AS (SELECT ? UNION SELECT id FROM session JOIN below ON parent_id = name)
    SELECT {_COLUMNS} FROM session WHERE id IN (SELECT name FROM below) ORDER BY id != ?, time_created, id
"""  # noqa: S608
_EVENTS = {"aggregate_id", "seq", "type", "data"}
#: Seconds to wait for a writer, in the mode of databases that requires it.
_PATIENCE = 10


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `session`."""

    id: str
    parent: str
    directory: str
    title: str
    version: str
    created: int


class Stored(msgspec.Struct, kw_only=True):
    """A message with its parts. `born` and `removed` are numbers of the session's events, 0 if unknown."""

    id: str
    session: str
    created: int
    info: dict[str, Any]
    parts: list[dict[str, Any]] = []
    born: int = 0
    removed: int = 0


class Tree(msgspec.Struct, frozen=True):
    """A conversation with its sub-agents: sessions, the root first; the messages of each; warnings of damage."""

    sessions: list[Session]
    messages: dict[str, list[Stored]]
    damaged: list[str]


def ask(path: Path, query: Callable[[sqlite3.Connection], T]) -> T:
    """The result of `query` on the database at one moment. Raises: BadInput."""
    try:
        for _ in range(3):
            # Without a log no program has it open; read as immutable, no file is created beside it.
            unused = not path.with_name(f"{path.name}-wal").exists()
            before = path.stat().st_mtime_ns
            uri = f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if unused else ''}"
            with closing(sqlite3.connect(uri, uri=True, timeout=_PATIENCE, isolation_level=None)) as connection:
                connection.execute("PRAGMA trusted_schema = OFF")
                connection.execute("BEGIN")
                _check(path, connection)
                value = query(connection)
            if not unused or path.stat().st_mtime_ns == before:
                return value
    except sqlite3.Error as error:
        raise BadInput(f"cannot read {path} as opencode's database: {error}") from error
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror or error}") from error
    raise BadInput(f"{path} changed while it was read", hint="import it again")


def sessions(connection: sqlite3.Connection, root: str = "") -> list[Session]:
    """All sessions, oldest first; with `root` that session, then its sub-agents and theirs."""
    rows = connection.execute(_BELOW, (root, root)) if root else connection.execute(_SESSIONS)
    return [
        Session(
            id=name,
            parent=text_of(parent),
            directory=text_of(directory),
            title=text_of(title),
            version=text_of(version),
            created=created if isinstance(created, int) else 0,
        )
        for name, parent, directory, title, version, created in rows
        if isinstance(name, str) and name
    ]


def roots(all_sessions: list[Session]) -> list[Session]:
    """The sessions whose parent is not among them."""
    ids = {session.id for session in all_sessions}
    return [session for session in all_sessions if session.parent not in ids]


def newest(connection: sqlite3.Connection, session: str) -> int:
    """The start of a session's newest message, in milliseconds since 1970."""
    (moment,) = connection.execute("SELECT max(time_created) FROM message WHERE session_id = ?", (session,)).fetchone()
    return moment if isinstance(moment, int) else 0


def tree(connection: sqlite3.Connection, root: str) -> Tree:
    """The session `root` with its sub-agents, and theirs."""
    members = sessions(connection, root)
    damaged: list[str] = []
    messages = {session.id: _messages(connection, session.id, damaged) for session in members}
    if messages:
        messages[root] = _with_removed(connection, root, messages[root])
    return Tree(members, messages, damaged)


def exported(value: Any) -> Tree:
    """The session in a document of `opencode export`. Raises: BadInput."""
    info = mapping(value, "info")
    name = text_of(info.get("id"))
    if not name:
        raise BadInput("the document names no session")
    session = Session(
        id=name,
        parent="",
        directory=text_of(info.get("directory")),
        title=text_of(info.get("title")),
        version=text_of(info.get("version")),
        created=_moment(info),
    )
    messages = [
        Stored(
            id=text_of(about.get("id")),
            session=name,
            created=_moment(about),
            info=about,
            parts=objects(message.get("parts")),
        )
        for message in objects(value.get("messages"))
        if (about := mapping(message, "info"))
    ]
    return Tree([session], {name: messages}, [])


def _moment(info: dict[str, Any]) -> int:
    created = mapping(info, "time").get("created")
    return created if isinstance(created, int) else 0


def _messages(connection: sqlite3.Connection, session: str, damaged: list[str]) -> list[Stored]:
    messages: dict[object, Stored] = {}
    for key, created, data in connection.execute(_MESSAGES, (session,)):
        info = _object(data)
        if info is None or not isinstance(key, str) or not isinstance(created, int):
            damaged.append(f"message {key!r:.50} is not legible and was skipped")
            continue
        messages[key] = Stored(id=key, session=session, created=created, info=info)
    for key, message, data in connection.execute(_PARTS, (session,)):
        part = _object(data)
        if part is None:
            damaged.append(f"part {key!r:.50} is not legible and was skipped")
        elif message in messages:
            messages[message].parts.append(part)
    return list(messages.values())


def _with_removed(connection: sqlite3.Connection, session: str, messages: list[Stored]) -> list[Stored]:
    """The messages, with those that a person's revert removed."""
    if not _has(connection, "event", _EVENTS):
        return messages
    removed: dict[str, int] = {}
    for seq, event in _events(connection, session, "message.removed.%"):
        if isinstance(key := event.get("messageID"), str):
            removed[key] = seq
    if not removed:
        return messages
    by_id = {message.id: message for message in messages}
    for seq, event in _events(connection, session, "message.updated.%"):
        match event.get("info"):
            case {"id": str(key), "time": {"created": int(created)}} if key in by_id or key in removed:
                info: dict[str, Any] = event["info"]
                message = by_id.setdefault(key, Stored(id=key, session=session, created=created, info=info))
                message.born = message.born or seq
                if key in removed:
                    message.info, message.removed = info, removed[key]
    parts: dict[str, dict[str, dict[str, Any]]] = {}
    for _, event in _events(connection, session, "message.part.updated.%"):
        match event.get("part"):
            case {"id": str(key), "messageID": str(owner)} if owner in removed:
                parts.setdefault(owner, {})[key] = event["part"]
    for owner, own in parts.items():
        if owner in by_id:
            by_id[owner].parts = [own[key] for key in sorted(own)]
    return sorted(by_id.values(), key=lambda message: (message.created, message.id))


def _events(connection: sqlite3.Connection, session: str, kind: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for seq, data in connection.execute(_OF_A_KIND, (session, kind)):
        event = _object(data)
        if event is not None and isinstance(seq, int):
            yield seq, event


def _check(path: Path, connection: sqlite3.Connection) -> None:
    for table, columns in _TABLES.items():
        if not _has(connection, table, columns):
            raise BadInput(f"{path} is not opencode's database: it has no table {table!r} as opencode makes it")


def _has(connection: sqlite3.Connection, table: str, columns: set[str]) -> bool:
    """Whether there is such a table. A view does not count: it runs what the database's author put into it."""
    kinds = connection.execute("SELECT type FROM sqlite_master WHERE name = ?", (table,)).fetchall()
    return kinds == [("table",)] and columns <= {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}


def _object(data: object) -> dict[str, Any] | None:
    return wire.parsed(data, dict) if isinstance(data, bytes) else None
