"""The table in SQL, by DuckDB: a view for each of its parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxvc.errors import BadInput, NotFound
from ctxvc.store import objects
from ctxvc.tables.parquet import columns, connect, quoted
from ctxvc.tables.rows import PARTS

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


#: The name for the files of all stores.
ANY = "*"


class Result(NamedTuple):
    """The rows of a statement's result, and the names of their columns."""

    columns: list[str]
    rows: Sequence[tuple[Any, ...]]


class Table:
    """The table in folders, object stores, or other addresses that DuckDB reads. A context manager."""

    def __init__(self, places: Mapping[str, str]) -> None:
        """`places` maps each folder to the name of the store whose files are read there, or `ANY`.

        Raises: Refused without the extra; NotFound if the files cannot be read. A store may have none yet.
        """
        self._keys = {place: objects.keys(place) for place in places if objects.is_address(place)}
        is_fetched = any("://" in place for place in places if place not in self._keys)
        self._connection: DuckDBPyConnection = connect(network=is_fetched)
        try:
            for scheme in {place.partition(":")[0] for place in self._keys}:
                self._connection.register_filesystem(objects.file_system(scheme))
            for part in PARTS:
                self._add_view(part, places)
        except BaseException:
            self.close()
            raise

    def _add_view(self, part: str, places: Mapping[str, str]) -> None:
        import duckdb

        patterns = [
            f"{_literal(at)}/{part}/*/*/{name}.parquet"
            for at, name in places.items()
            if at not in self._keys and (name == ANY or next(Path(at).glob(f"{part}/*/*/{name}.parquet"), None))
        ]
        for address, keys in self._keys.items():
            patterns += [f"{address.rstrip('/')}/{key}" for key in keys if key.startswith(f"{part}/")]
        if not patterns:
            nothing = ", ".join(f'NULL::{kind} AS "{name}"' for name, kind, _ in columns(PARTS[part]))
            self._connection.execute(f"CREATE VIEW {part} AS SELECT {nothing}, '' AS month WHERE false")
            return
        files = ", ".join(map(quoted, patterns))
        options = "hive_partitioning=true, hive_types_autocast=false, union_by_name=true"
        try:
            self._connection.execute(f"CREATE VIEW {part} AS FROM read_parquet([{files}], {options})")
        except duckdb.Error as error:
            raise NotFound(f"no table in {', '.join(places)}", hint="name folders of exports") from error

    def __enter__(self) -> Table:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def ask(self, statement: str) -> Result:
        """The result of a statement; empty if it has none. Raises: BadInput with DuckDB's message."""
        import duckdb

        try:
            cursor = self._connection.execute(statement)
            if not cursor.description:
                return Result([], [])
            return Result([str(column[0]) for column in cursor.description], cursor.fetchall())
        except duckdb.Error as error:
            raise BadInput(str(error), hint="`DESCRIBE calls` lists the columns of a part") from error


def _literal(place: str) -> str:
    """A place in which the characters of patterns are escaped."""
    return "".join(f"[{sign}]" if sign in "*?[" else sign for sign in place.rstrip("/"))
