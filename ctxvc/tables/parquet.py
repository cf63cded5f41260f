"""The table as Parquet, in a folder that is kept up to date: `PART/month=2026-11/writer=NAME/STORE.parquet`.

Each store has its own files there, and a manifest with their checksums: a file that was changed is written anew. Needs
the extra `sql`.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, get_type_hints

import msgspec

from ctxvc.errors import CtxvcError, Damaged, Refused
from ctxvc.store import files as durable
from ctxvc.store import objects
from ctxvc.store.files import locked
from ctxvc.store.store import Store
from ctxvc.store.trust import identity, known_stores
from ctxvc.tables.rows import FORMAT, PARTS, Row
from ctxvc.tables.session import Clean, Place, conversations, rows_of
from ctxvc.tokens import models

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: The writer of a store that was never shared.
LOCAL = "local"
_TYPES = {str: "VARCHAR", int: "BIGINT", float: "DOUBLE", bool: "BOOLEAN", list[str]: "VARCHAR[]"}
_TIMES = frozenset({"time", "started", "updated"})
_WRITER = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")
_PARTITION = re.compile(rf"month=[0-9]{{4}}-[0-9]{{2}}/writer={_WRITER.pattern}")
_MEMORY = "400MB"


class _Entry(msgspec.Struct, frozen=True):
    """A session in the folder: `key` depends on its tips, `partition` is the subfolder."""

    key: str
    partition: str


class _Manifest(msgspec.Struct, frozen=True):
    """The content of the folder: `form` depends on the columns, `sums` are the checksums of the files."""

    form: str = ""
    text: bool = False
    sessions: dict[str, _Entry] = {}
    sums: dict[str, str] = {}


class Exported(NamedTuple):
    """The outcome of an export: the numbers of sessions read, files written, and sessions in the folder."""

    updated: int
    files: int
    sessions: int


class Request(NamedTuple):
    """How to export a store: `writer` names a session's recorder, `clean` cleans its texts, `text` adds blocks' texts.

    A session not yet in the folder is left out if its newest commit is before `since`, in seconds since 1970.
    """

    writer: Callable[[str], str]
    clean: Callable[[str], Clean]
    text: bool = False
    since: float = 0


def connect(*, network: bool = False) -> DuckDBPyConnection:
    """A database in memory; with `network` it may fetch extensions. Raises: Refused without the extra."""
    try:
        import duckdb
    except ImportError as error:
        raise Refused("this needs DuckDB, the extra `sql`", hint="pip install 'ctxvc[sql]'") from error
    connection = duckdb.connect()
    connection.execute("SET preserve_insertion_order = false; SET TimeZone = 'UTC'")
    connection.execute(f"SET autoinstall_known_extensions = {network}")
    return connection


def export(
    store: Store,
    folder: Path,
    request: Request,
    unreadable: list[CtxvcError],
    progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> Exported:
    """Brings a store's files in the folder up to date; adds errors of sessions that cannot be read to `unreadable`.

    The folder is remembered, so that a purge of the store reaches it. Raises: Refused without the extra; CtxvcError.
    """
    with _writing(store, folder) as (name, connection):
        return _Export(store, folder, name, request, connection).run(unreadable, progress)


def export_objects(
    store: Store,
    address: str,
    request: Request,
    unreadable: list[CtxvcError],
    progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> Exported:
    """`export` to an address in an object store; `files` counts the objects written."""
    known_stores.remember_table(store.path, address)
    folder = objects.copy_of(store.path, address)
    with _writing(store, folder) as (name, connection):
        exported = _Export(store, folder, name, request, connection).run(unreadable, progress)
        return exported._replace(files=objects.send(folder, address, name))


@contextmanager
def _writing(store: Store, folder: Path) -> Iterator[tuple[str, DuckDBPyConnection]]:
    """Locks the store's files in a folder; yields their name, and a database."""
    connection = connect()
    connection.execute(f"SET memory_limit = '{_MEMORY}'")
    name = identity.make_id(store.path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not folder.resolve().is_relative_to(store.path.resolve()):
            known_stores.remember_table(store.path, folder)
        with locked(folder / f".{name}.lock"):
            yield name, connection
    except OSError as error:
        raise CtxvcError(
            f"cannot write {folder}: {error.strerror or error}", hint="check the folder's permissions"
        ) from error
    finally:
        connection.close()


class _Export:
    def __init__(self, store: Store, folder: Path, name: str, request: Request, connection: DuckDBPyConnection) -> None:
        self._store, self._folder, self._name = store, folder, name
        self._request, self._connection = request, connection
        self._news = folder / f".{name}.new"

    def run(self, unreadable: list[CtxvcError], progress: Callable[[int, int], None]) -> Exported:
        manifest = self._manifest()
        tips = conversations(self._store)
        keys = {session: self._key(session, tips[session]) for session in tips}
        lost = self._lost(manifest)
        unchanged = {
            session: one
            for session, one in manifest.sessions.items()
            if keys.get(session) == one.key and one.partition not in lost
        }
        stale = [session for session in tips if session not in unchanged and self._is_wanted(session, tips, manifest)]
        shutil.rmtree(self._news, ignore_errors=True)
        self._news.mkdir(mode=0o700)
        new = {}
        for number, session in enumerate(stale):
            progress(number, len(stale))
            try:
                new[session] = _Entry(keys[session], self._write_news(session, tips[session]))
            except Damaged as error:
                unreadable.append(error)
        changed = [one for session, one in manifest.sessions.items() if session not in unchanged]
        touched = {one.partition for one in (*changed, *new.values())}
        sums = {file: digest for file, digest in manifest.sums.items() if _partition(file) not in touched}
        for partition in sorted(touched):
            sums |= self._write(partition, [name for name, one in unchanged.items() if one.partition == partition])
        self._finish(_Manifest(_form(), self._request.text, {**unchanged, **new}, sums), manifest)
        return Exported(len(new), len(touched) * len(PARTS), len(unchanged) + len(new))

    def _finish(self, manifest: _Manifest, former: _Manifest) -> None:
        """Removes files that are not in the manifest, and writes the manifest."""
        shutil.rmtree(self._news)
        for file in self._folder.glob(f"*/*/*/{self._name}.parquet"):
            if str(file.relative_to(self._folder)) not in manifest.sums:
                file.unlink()
        if manifest != former or not self._place.exists():
            durable.replace(self._place, msgspec.json.encode(manifest))

    @property
    def _place(self) -> Path:
        return self._folder / f"{self._name}.json"

    def _manifest(self) -> _Manifest:
        """The manifest of the last export; an empty one if it cannot be read or has another form."""
        try:
            manifest = msgspec.json.decode(self._place.read_bytes(), type=_Manifest)
        except (OSError, msgspec.MsgspecError, ValueError):
            return _Manifest()
        is_like_now = (manifest.form, manifest.text) == (_form(), self._request.text)
        is_sound = all(_PARTITION.fullmatch(one.partition) for one in manifest.sessions.values())
        return manifest if is_like_now and is_sound else _Manifest()

    def _key(self, session: str, tips: Mapping[str, str]) -> str:
        parts = (models.MODELS_DATE, str(self._store.path.parent), self._writer(session))
        scopes = (f"{scope} {tips[scope]}" for scope in sorted(tips))
        return hashlib.sha256("\0".join((*parts, *scopes)).encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def _writer(self, session: str) -> str:
        writer = self._request.writer(session)
        return writer if _WRITER.fullmatch(writer) else LOCAL

    def _lost(self, manifest: _Manifest) -> set[str]:
        """The partitions with a file that is missing or was changed."""
        partitions = {one.partition for one in manifest.sessions.values()}
        files = {self._file(part, partition) for partition in partitions for part in PARTS}
        return {_partition(file) for file in files if _sum(self._folder / file) != manifest.sums.get(file, "-")}

    def _is_wanted(self, session: str, tips: Mapping[str, Mapping[str, str]], manifest: _Manifest) -> bool:
        if not self._request.since or session in manifest.sessions:
            return True
        return max(self._store.commit(tip).author.time for tip in tips[session].values()) >= self._request.since

    def _write_news(self, session: str, tips: Mapping[str, str]) -> str:
        """Writes the new rows of a session as JSON lines; returns its partition."""
        place = Place(_text(str(self._store.path.parent)), self._writer(session), session)
        rows = rows_of(
            self._store, tips, place, files=True, text=self._request.text, clean=self._request.clean(session)
        )
        partition = f"month={rows.sessions[0].started[:7]}/writer={place.writer}"
        folder = self._news / partition
        folder.mkdir(parents=True, exist_ok=True)
        encode = msgspec.json.Encoder().encode_lines
        for part in PARTS:
            with (folder / f"{part}.json").open("ab") as file:
                file.write(encode(getattr(rows, part)))
        return partition

    def _write(self, partition: str, unchanged: list[str]) -> dict[str, str]:
        """Writes the files of a partition, with the old rows of `unchanged` sessions and the new rows of others."""
        sums = {}
        self._connection.execute("CREATE OR REPLACE TEMP TABLE kept (session VARCHAR)")
        if unchanged:
            self._connection.execute("INSERT INTO kept SELECT unnest(?)", [unchanged])
        for part, row in PARTS.items():
            file = self._file(part, partition)
            old, news = self._folder / file, self._news / partition / f"{part}.json"
            sources = [_of_lines(news, row)] if news.exists() else []
            sources += [_of_kept(old, row)] if unchanged else []
            if sources:
                new = self._news / "new.parquet"
                rows = " UNION ALL BY NAME ".join(sources)
                self._connection.execute(f"COPY ({rows}) TO {quoted(new)} (FORMAT parquet, COMPRESSION zstd)")
                old.parent.mkdir(parents=True, exist_ok=True)
                sums[file] = _sum(new)
                new.chmod(0o600)
                os.replace(new, old)
        return sums

    def _file(self, part: str, partition: str) -> str:
        return f"{part}/{partition}/{self._name}.parquet"


def _partition(file: str) -> str:
    return file.partition("/")[2].rpartition("/")[0]


def _of_lines(file: Path, row: type[Row]) -> str:
    """The SQL for the rows of a file of JSON lines."""
    return f"SELECT * FROM read_json({quoted(file)}, format='newline_delimited', columns={_columns(row)})"  # noqa: S608


def _of_kept(file: Path, row: type[Row]) -> str:
    """The SQL for the rows of a Parquet file whose sessions are kept."""
    names = ", ".join(f'"{name}"' for name in row.__struct_fields__)
    rows = f"SELECT {names} FROM read_parquet({quoted(file)}, hive_partitioning=false)"  # noqa: S608 - names of ours
    return f"{rows} SEMI JOIN kept USING (session)"


def columns(row: type[Row]) -> Iterator[tuple[str, str, str]]:
    """The name, SQL type and description of each column of a row."""
    hints, described = get_type_hints(row), get_type_hints(row, include_extras=True)
    for name in row.__struct_fields__:
        kind = (
            "TIMESTAMP"
            if name in _TIMES
            else next(sql for hint, sql in _TYPES.items() if hints[name] in (hint, hint | None))
        )
        metadata = getattr(described[name], "__metadata__", ())
        yield name, kind, metadata[0].description if metadata else ""


def _form() -> str:
    """A text that depends on the columns."""
    return f"{FORMAT} {hashlib.sha256(''.join(map(_columns, PARTS.values())).encode()).hexdigest()[:16]}"


def _columns(row: type[Row]) -> str:
    """The types of a row's columns, in DuckDB's notation."""
    return "{" + ", ".join(f"'{name}': '{kind}'" for name, kind, _ in columns(row)) + "}"


def quoted(text: str | Path) -> str:
    """A text as an SQL literal."""
    return "'" + str(text).replace("'", "''") + "'"


def _text(text: str) -> str:
    """A path as valid UTF-8."""
    return text.encode("utf-8", "replace").decode()


def _sum(file: Path) -> str:
    """The SHA-256 of a file; empty if it cannot be read."""
    digest = hashlib.sha256()
    try:
        with file.open("rb") as stream:
            while data := stream.read(1 << 20):
                digest.update(data)
    except OSError:
        return ""
    return digest.hexdigest()
