"""A SQLite file in a store's cache: it only helps, may be missing or deleted at any time, and is never authoritative.

A file that came with a foreign store cannot lead SQLite elsewhere, and is used only if it has the expected tables. If
it is locked, read-only or full, nothing is read or written; if it is damaged, it is deleted.
"""

from __future__ import annotations

import functools
import os
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

_WAIT = 2.0  # seconds for another writer
_OLD = 60.0  # seconds after which no process is still creating it
_STEPS = 10_000  # steps of SQLite's virtual machine between two looks at the clock
_making = threading.Lock()
_SCHEMA = "SELECT type, name, sql FROM sqlite_master"


class CacheDatabase:
    """The file at `path`, with the tables that `schema` creates.

    A connection lives only as long as a `with` block, so that threads, forks and other processes need no special care.
    """

    def __init__(self, path: Path, schema: str, *, largest: int = 1 << 32) -> None:
        """A file of more than `largest` bytes is deleted."""
        self.path = path
        self._schema = schema
        self._largest = largest

    @contextmanager
    def reading(self, seconds: float = 5.0) -> Iterator[sqlite3.Connection]:
        """Yields a connection whose queries end after this many seconds.

        Raises: sqlite3.DatabaseError; unless it is an OperationalError, the file has been deleted.
        """
        import sqlite3

        try:
            with closing(self._connected(seconds)) as database:
                yield database
        except sqlite3.DatabaseError as error:
            if not isinstance(error, sqlite3.OperationalError):  # locked, full, read-only, missing
                self.drop()
            raise

    @contextmanager
    def writing(self, seconds: float = 5.0) -> Iterator[sqlite3.Connection]:
        """As `reading`, with file and tables created if missing; one transaction, committed at the block's end.

        Raises: OSError; as `reading`.
        """
        self._make()
        with self.reading(seconds) as database:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("BEGIN IMMEDIATE")
            if not database.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
                for statement in self._statements():
                    database.execute(statement)
            yield database
            database.execute("COMMIT")

    def drop(self) -> None:
        """Deletes the file, if possible."""
        for suffix in ("", "-wal", "-shm"):
            with suppress(OSError):
                Path(f"{self.path}{suffix}").unlink()

    def _connected(self, seconds: float) -> sqlite3.Connection:
        import sqlite3

        self._check()
        uri = f"{self.path.absolute().as_uri()}?mode=rw"
        database = sqlite3.connect(uri, uri=True, timeout=_WAIT, isolation_level=None)
        try:
            deadline = time.monotonic() + seconds
            database.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
            # A file damaged by a power cut is deleted and created again, so there is no reason to wait for the disk.
            database.execute("PRAGMA synchronous = OFF")
            # A file from a foreign store may have triggers, or a view that never ends.
            database.execute("PRAGMA trusted_schema = OFF")
            tables = {tuple(row) for row in database.execute(f"{_SCHEMA} LIMIT 100")}
            if tables and tables != _tables(self._statements()):
                raise sqlite3.DatabaseError(f"{self.path.name} has other tables")
        except BaseException:
            database.close()
            raise
        return database

    def _statements(self) -> tuple[str, ...]:
        return tuple(filter(None, map(str.strip, self._schema.split(";"))))

    def _check(self) -> None:
        """Raises: sqlite3.OperationalError if what is in the file's place would lead SQLite elsewhere.

        A rollback journal names a file that SQLite deletes after rolling back. Ours has one only during its creation.
        """
        import sqlite3

        for suffix in ("", "-wal", "-shm", "-journal"):
            path = f"{self.path}{suffix}"
            try:
                status = os.lstat(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise sqlite3.OperationalError(str(error)) from error
            is_plain = stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_size <= self._largest
            if not is_plain or (suffix == "-journal" and abs(time.time() - status.st_mtime) > _OLD):
                with suppress(OSError):
                    Path(path).unlink()
            elif suffix == "-journal":
                raise sqlite3.OperationalError("another process is creating it")

    def _make(self) -> None:
        # Under a lock, since closing any handle on a file drops the locks that SQLite holds on it in this process.
        with _making:
            if not self.path.exists():
                os.close(os.open(self.path, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600))


@functools.cache
def _tables(statements: tuple[str, ...]) -> frozenset[tuple[object, ...]]:
    """The tables that these statements create, as this version of SQLite describes them."""
    import sqlite3

    with closing(sqlite3.connect(":memory:")) as database:
        for statement in statements:
            database.execute(statement)
        return frozenset(tuple(row) for row in database.execute(_SCHEMA))
