"""Results as a Parquet table, one row a result: what stands in groups gets a column each, as in `tokens.peak`."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from ctxvc.errors import CtxvcError, Refused
from ctxvc.replay.results.result import Result

#: Fields whose keys are of no fixed number: they are columns of JSON texts.
_MAPPINGS = frozenset({"events", "dropped", "kinds", "failures"})


def check() -> None:
    """Raises: Refused if pyarrow is not installed."""
    try:
        importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise Refused("a Parquet table needs the extra `parquet`", hint="pip install 'ctxvc[parquet]'") from error


def write(results: Iterable[Result], path: Path) -> None:
    """Writes the table in one step. Raises: Refused without pyarrow, CtxvcError if the file cannot be written."""
    check()
    arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    table = arrow.Table.from_pylist([dict(_columns(msgspec.to_builtins(result))) for result in results])
    try:
        parquet.write_table(table, str(path))
    except OSError as error:
        raise CtxvcError(
            f"cannot write {path}: {error.strerror or error}", hint="check the folder's permissions"
        ) from error


def _columns(fields: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        if name in _MAPPINGS:
            yield name, msgspec.json.encode(value, order="sorted").decode()
        elif isinstance(value, dict):
            yield from _columns(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
