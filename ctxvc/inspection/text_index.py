"""An index of the words of a store's bodies, in a file of its cache: which bodies have a word, without reading any.

It has each body once per session, with its words and roughly how often they occur. How often exactly, and where, is
read from the body itself, so what is shown is always the store's. A purge removes the index with the cache; it is then
rebuilt from the store. Only a file that this machine made is used: a seal on its inode proves that.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from ctxvc.core import relevance
from ctxvc.errors import Conflict, CtxvcError, reason_of
from ctxvc.store.cache.database import CacheDatabase
from ctxvc.store.store import Store
from ctxvc.store.trust import seals

if TYPE_CHECKING:
    import sqlite3

FILE = "texts.sqlite"
_SCHEMA = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE sessions (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, key TEXT NOT NULL);
CREATE TABLE bodies (id INTEGER PRIMARY KEY, session INTEGER NOT NULL, scope TEXT NOT NULL, block INTEGER NOT NULL,
    time INTEGER NOT NULL, size INTEGER NOT NULL, form INTEGER NOT NULL, blob BLOB NOT NULL);
CREATE INDEX bodies_of_session ON bodies (session);
CREATE VIRTUAL TABLE texts USING fts5(text, content='', detail=none, columnsize=0,
    tokenize="unicode61 remove_diacritics 2")
"""
_LARGEST = 1 << 36
#: Seconds that a query, and that one batch of new bodies, may take.
_QUERY, _BATCH = 5.0, 600.0
#: The most texts in which a word is counted: a word in more of them weighs next to nothing.
MOST_COUNTED = 20_000
#: The share of bodies whose session is gone above which the index is rebuilt.
_GONE = 0.25
_CACHE_BYTES = 64 << 20

#: The steps in which a word's count in a text is indexed, and the characters in which it is counted.
OFTEN = (2, 4, 8)
COUNTED = 30_000

# Private-use characters begin facts and counts; `_document` removes these characters from texts.
_FACT, _OFTEN = "\ue000", "\ue001\ue002\ue003"
_PRIVATE = re.compile("[\ue000-\uf8ff\0]")


#: What a body is chosen by: its number in the index, its time, size and blob.
Candidate: TypeAlias = tuple[int, int, int, bytes]


class DamagedIndex(Conflict):
    """Raised for an index that could not be read. It has been removed, and will be rebuilt."""


class IndexedBody(msgspec.Struct, frozen=True, kw_only=True):
    """An indexed body. `time` is that of its step, in seconds since 1970; `size` the characters of its text.

    `blob` is its id in git, 20 bytes; `form` says how its text is read from its bytes.
    """

    session: str
    scope: str
    block: int
    time: int
    size: int
    form: int
    blob: bytes


class Within(msgspec.Struct, frozen=True, kw_only=True):
    """Which bodies count: those with one fact of each list in `facts`, and of one of the `sessions` unless empty."""

    facts: Sequence[Sequence[str]] = ()
    since: int
    until: int
    sessions: Sequence[str] = ()


class NewBody(msgspec.Struct, frozen=True, kw_only=True):
    """A body to add, with its text and the facts that it can be filtered by."""

    body: IndexedBody
    text: str
    facts: Sequence[str]


class TextIndex:
    """The index of one store. All methods raise Conflict if another process is writing it, and CtxvcError."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._database = CacheDatabase(store.cache_path / FILE, _SCHEMA, largest=_LARGEST)

    def fact(self, name: str) -> object:
        """The value kept under a name; None if there is none, or no index."""
        with self._reading() as database:
            return _fact(database, name) if database else None

    def keys(self) -> dict[str, str]:
        """Session → the key under which it was added."""
        with self._reading() as database:
            return dict(database.execute("SELECT name, key FROM sessions")) if database else {}

    def blobs(self, session: str) -> set[bytes]:
        """The blob ids of a session's indexed bodies."""
        with self._reading() as database:
            rows = database.execute(_BLOBS, (session,)) if database else ()
            return {bytes(blob) for (blob,) in rows}

    @contextmanager
    def writing(self) -> Iterator[Writer]:
        """A writer whose changes are made together or not at all. An index that this machine did not make is
        replaced."""
        import sqlite3

        self._drop_foreign()
        try:
            with self._database.writing(_BATCH) as database:
                database.execute(f"PRAGMA cache_size = -{_CACHE_BYTES >> 10}")
                if _fact(database, "seal") is None:
                    _keep(database, "id", name := secrets.token_hex(16))
                    _keep(database, "seal", seals.seal(self._store.path, self._payload(name)))
                yield Writer(database)
        except sqlite3.OperationalError as error:
            raise _busy(error) from error
        except (OSError, sqlite3.DatabaseError) as error:
            raise CtxvcError(
                f"the index of words cannot be written: {reason_of(error)}", hint="check the disk, then try again"
            ) from error

    def forget(self) -> None:
        """Removes the index."""
        self._database.drop()

    def counts(self, terms: Iterable[str]) -> dict[str, int]:
        """Word → the number of bodies that have it, up to 20,000."""
        query = "SELECT count(*) FROM (SELECT 1 FROM texts WHERE texts MATCH ? LIMIT ?)"
        with self._reading() as database:
            if database is None:
                return {}
            return {word: database.execute(query, (_quoted(word), MOST_COUNTED)).fetchone()[0] for word in terms}

    def totals(self) -> tuple[int, int]:
        """The numbers of bodies, and of characters of their texts."""
        with self._reading() as database:
            facts = [_fact(database, name) if database else 0 for name in ("bodies", "characters")]
        bodies, characters = (fact if isinstance(fact, int) else 0 for fact in facts)
        return bodies, characters

    def newest(self, queries: Iterable[Sequence[str]], within: Within, limit: int) -> list[list[Candidate]]:
        """For each query, the `limit` bodies added last that have all its words, among those `within`."""
        facts = [f"({' OR '.join(map(_quoted, alternatives))})" for alternatives in within.facts]
        sessions = msgspec.json.encode(list(within.sessions)).decode()
        results: list[list[Candidate]] = []
        with self._reading() as database:
            for query in queries if database else ():
                assert database is not None
                match = " AND ".join([*map(_quoted, query), *facts])
                parameters = (match, within.since, within.until, not within.sessions, sessions, limit)
                results.append(database.execute(_NEWEST, parameters).fetchall())
        return results

    def bodies(self, numbers: Iterable[int]) -> dict[int, IndexedBody]:
        """Number → body, for the numbers of candidates."""
        with self._reading() as database:
            parameters = (msgspec.json.encode(list(numbers)).decode(),)
            return {
                number: IndexedBody(
                    session=session, scope=scope, block=block, time=time, size=size, form=form, blob=bytes(blob)
                )
                for number, session, scope, block, time, size, form, blob in (
                    database.execute(_BODIES, parameters) if database else ()
                )
            }

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        """A connection; None if there is no index, or this machine did not make it."""
        import sqlite3

        try:
            with self._database.reading(_QUERY) as database:
                yield database if self._is_ours(database) else None
        except sqlite3.OperationalError as error:
            if self._database.path.exists():
                raise _busy(error) from error
            yield None
        except sqlite3.DatabaseError as error:
            raise DamagedIndex("the index was damaged and is removed", hint="try again: it is made anew") from error

    def _is_ours(self, database: sqlite3.Connection) -> bool:
        import sqlite3

        try:
            name, seal = _fact(database, "id"), _fact(database, "seal")
        except sqlite3.OperationalError:  # no tables yet
            return False
        return (
            isinstance(name, str)
            and isinstance(seal, str)
            and seals.is_sealed_here(self._store.path, self._payload(name), seal)
        )

    def _drop_foreign(self) -> None:
        with suppress(CtxvcError), self._reading() as database:
            if database is None:
                self._database.drop()

    def _payload(self, name: str) -> bytes:
        return f"text index 2\0{name}\0{self._database.path.stat().st_ino}".encode()


class Writer:
    """Adds to an index, and removes from it, within one transaction."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def keep(self, name: str, value: str) -> None:
        """Sets a fact of the whole index."""
        _keep(self._database, name, value)

    def add(self, bodies: Iterable[NewBody]) -> None:
        """Adds bodies, and sessions that are new."""
        numbers: dict[str, int] = {}
        count = characters = 0
        for new in bodies:
            body = new.body
            if body.session not in numbers:
                numbers[body.session] = self._number(body.session)
            row = (numbers[body.session], body.scope, body.block, body.time, body.size, body.form, body.blob)
            cursor = self._database.execute(
                "INSERT INTO bodies (session, scope, block, time, size, form, blob) VALUES (?, ?, ?, ?, ?, ?, ?)", row
            )
            self._database.execute(
                "INSERT INTO texts (rowid, text) VALUES (?, ?)", (cursor.lastrowid, _document(new.text, new.facts))
            )
            count, characters = count + 1, characters + body.size
        self._add_to("bodies", count)
        self._add_to("characters", characters)

    def finish(self, keys: Mapping[str, str]) -> None:
        """Sets the keys of sessions that were added completely."""
        for session, key in keys.items():
            number = self._number(session)
            self._database.execute("UPDATE sessions SET key = ? WHERE id = ?", (key, number))

    def remove(self, session: str) -> None:
        """Removes the bodies of a session. Their words stay, leading nowhere, until the index is rebuilt."""
        count, characters = self._database.execute(_SIZE, (session,)).fetchone()
        self._database.execute(_DELETE, (session,))
        self._database.execute("DELETE FROM sessions WHERE name = ?", (session,))
        self._add_to("bodies", -count)
        self._add_to("characters", -int(characters))
        self._add_to("gone", count)

    @property
    def is_worn(self) -> bool:
        """Whether so many bodies are gone that the index should be rebuilt."""
        bodies, removed = (_fact(self._database, name) or 0 for name in ("bodies", "gone"))
        return isinstance(bodies, int) and isinstance(removed, int) and removed > _GONE * (bodies + removed)

    def _number(self, session: str) -> int:
        row = self._database.execute("SELECT id FROM sessions WHERE name = ?", (session,)).fetchone()
        if row is None:
            row = (self._database.execute("INSERT INTO sessions (name, key) VALUES (?, '')", (session,)).lastrowid,)
        return int(row[0])

    def _add_to(self, name: str, amount: int) -> None:
        before = _fact(self._database, name)
        _keep(self._database, name, (before if isinstance(before, int) else 0) + amount)


_NEWEST = (
    "SELECT t.rowid, b.time, b.size, b.blob FROM texts t JOIN bodies b ON b.id = t.rowid"
    " WHERE texts MATCH ? AND b.time BETWEEN ? AND ?"
    " AND (? OR b.session IN (SELECT id FROM sessions WHERE name IN (SELECT value FROM json_each(?))))"
    " ORDER BY t.rowid DESC LIMIT ?"
)
_BODIES = (
    "SELECT b.id, s.name, b.scope, b.block, b.time, b.size, b.form, b.blob FROM bodies b"
    " JOIN sessions s ON s.id = b.session WHERE b.id IN (SELECT value FROM json_each(?))"
)
_BLOBS = "SELECT blob FROM bodies WHERE session = (SELECT id FROM sessions WHERE name = ?)"
_SIZE = "SELECT count(*), total(size) FROM bodies WHERE session = (SELECT id FROM sessions WHERE name = ?)"
_DELETE = "DELETE FROM bodies WHERE session = (SELECT id FROM sessions WHERE name = ?)"


def fact(name: str, value: str) -> str:
    """A fact as one indexed word: a letter for its kind, and a hash of its value."""
    digest = hashlib.blake2b(value.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
    return f"{_FACT}{name}{digest}"


def often(word: str, times: int) -> str:
    """The indexed word of a body that has `word` once, or in its beginning `times` times, which is one of `OFTEN`."""
    return word if times == 1 else f"{_OFTEN[OFTEN.index(times)]}{word}"


def _document(text: str, facts: Iterable[str]) -> str:
    """The text to index for a body: its own, its frequent words, and its facts."""
    plain = _PRIVATE.sub(" ", text.encode("utf-8", "replace").decode())
    counts = Counter(relevance.parts(plain[:COUNTED]))
    repeated = (often(word, times) for word, count in counts.items() for times in OFTEN if count >= times)
    return " ".join((relevance.spaced(plain), *repeated, *facts))


def _quoted(word: str) -> str:
    """A word or a fact, quoted for a query of SQLite."""
    return f'"{word}"'


def _fact(database: sqlite3.Connection, name: str) -> object:
    row = database.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
    return row[0] if row else None


def _keep(database: sqlite3.Connection, name: str, value: str | int) -> None:
    database.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))


def _busy(error: Exception) -> CtxvcError:
    return Conflict(f"the index of words cannot be used now: {error}", hint="try again in a moment")
