"""Records of a framework: JSON values, in order, as blocks of a session that are in no prompt.

As blocks they are as durable as a conversation, and `verify`, `push` and `purge` handle them.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time as clock
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ctxvc.core.ledger import name_rules, wire
from ctxvc.core.ledger.block import Message
from ctxvc.errors import Damaged, Refused
from ctxvc.store.log.stored_session import FLUSH_SECONDS, FLUSH_STEPS, StoredSession
from ctxvc.store.log.transaction import AdmittedEntry
from ctxvc.store.store import Store, create

_TYPE = "ctxvc_record"
_MADE = re.compile("-[0-9a-f]{14}$")


def opened(path: str | Path) -> Store:
    """The store at `path`, created if missing. Raises: CtxvcError."""
    place = Path(path)
    return Store(place) if (place / "HEAD").exists() else create(place)


def session_name(text: str) -> str:
    """The session name for a framework's name of a conversation: always the same, and different for any other.

    That includes names that differ in case alone, or that end like a name made here.
    """
    if text == text.lower() and not name_rules.problem(text) and not _MADE.search(text):
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:14]
    return f"{name_rules.slug(text).lower()[:80].rstrip('-._')}-{digest}"


class Records:
    """The records of one session. Safe for several threads and processes at once."""

    def __init__(self, store: Store, name: str) -> None:
        """Opens the session, created if missing. Raises: CtxvcError."""
        if not store.has(name):
            with suppress(Refused):  # another process was first
                store.create_session(name, make_current=False)
        self._store = store
        self._stored = StoredSession.open(store, name, "main")
        self._lock = threading.RLock()
        self._newest = 0  # the number of the newest block that `new` returned
        self._committed = clock.monotonic()
        self._pending = 0

    def append(self, make: Callable[[], Sequence[Mapping[str, Any]]]) -> None:
        """Adds the values that `make` returns; they are on disk when this returns.

        Nobody else adds anything meanwhile: what `make` gets from `new` is complete. Raises: CtxvcError.
        """
        with self._lock:
            with self._stored.writing() as transaction:
                values = make()
                messages = self._stored.redacted_messages([_message(values)])
                for scope, entry in self._stored.number(transaction, messages):
                    rows = tuple(msgspec.structs.replace(row, state="pruned", removed_by="host") for row in entry.rows)
                    transaction.append(scope, AdmittedEntry(msgspec.structs.replace(entry, rows=rows)))
                self._stored.acknowledge(transaction)
            self._pending += bool(values)
            if self._pending >= FLUSH_STEPS or clock.monotonic() - self._committed > FLUSH_SECONDS:
                self.commit()

    def redacted(self, value: Any) -> Any:
        """A value as it is once recorded: without its secrets."""
        (message,) = self._stored.redacted_messages([_message([value])])
        return _value(message.parts[0].body)

    def new(self) -> list[Any]:
        """The values added since the last call, by anybody, oldest first. Raises: Damaged."""
        with self._lock:
            self._stored.refresh()
            rows = [*takewhile(lambda row: row.number > self._newest, self._stored.ledger().backwards())]
            values = [_value(self._stored.body(row)) for row in reversed(rows)]
            self._newest = max((row.number for row in rows), default=self._newest)
        return values

    def newest_first(self) -> Iterator[Any]:
        """All values, newest first, each read when it is needed. Raises: Damaged."""
        self._stored.refresh()
        return (_value(self._stored.body(row)) for row in self._stored.ledger().backwards())

    def commit(self) -> None:
        """Commits what was added, for git and others to see. Raises: CtxvcError."""
        with self._lock:
            if self._stored.in_step:
                self._stored.finish()
            if self._store.sessions() == [self._stored.name]:  # else people look at a conversation
                self._store.set_current_scope(self._stored.name, "main")
            self._committed, self._pending = clock.monotonic(), 0

    def leave(self) -> None:
        """Closes the files without a commit, after reading only."""
        self._stored.leave()

    def close(self) -> None:
        """Commits what is not committed yet and closes the files."""
        with self._lock:
            self.commit()
            self._stored.close()


def _message(values: Sequence[Any]) -> Message:
    parts = (wire.part({"type": _TYPE, "value": value}, "user", "client") for value in values)
    return Message(role="user", parts=tuple(parts))


def _value(body: bytes) -> Any:
    """The value of a block. Raises: Damaged if the block is not a record."""
    value = wire.parsed(body, dict)
    if value is None or value.get("type") != _TYPE:
        raise Damaged(
            "a block among a framework's records is not one of them", hint="give the records a session of their own"
        )
    return value.get("value")


C = TypeVar("C", bound="Closeable")


class Closeable:
    """A base for classes with a `close`."""

    def __enter__(self: C) -> C:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        raise NotImplementedError
