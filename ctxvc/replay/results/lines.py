"""A file of JSON lines to which a run adds as it goes on: what stands there is not done again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from ctxvc.errors import BadInput
from ctxvc.store import files

#: What helps where a file is none of these.
ELSEWHERE = "write to another file, or remove this one"

_R = TypeVar("_R")


class LineFile(Generic[_R]):
    """The file at `path`, which may be new; `records` are those that it has, a line each.

    A line is read by `decode`, and is called a `kind`, with its article. A part of a last line, which a kill left, is
    cut off if it begins as all do. Raises: BadInput for a file of something else, which stays as it is.
    """

    def __init__(self, path: Path, decode: Callable[[bytes], _R], kind: str, beginning: bytes) -> None:
        self.path = path
        data = path.read_bytes() if path.exists() else b""
        end = data.rfind(b"\n") + 1
        self.records: list[_R] = []
        for number, line in enumerate(data[:end].splitlines(), 1):
            try:
                self.records.append(decode(line))
            except msgspec.MsgspecError as error:
                raise BadInput(f"{path}, line {number}: not {kind}: {error}", hint=ELSEWHERE) from error
        if not (data[end:].startswith(beginning) or beginning.startswith(data[end:])):
            raise BadInput(f"{path}: its last line is not {kind}", hint=ELSEWHERE)
        if data[end:]:
            with path.open("ab") as file:
                file.truncate(end)

    def add(self, records: Iterable[_R]) -> None:
        """Adds records, on the disk when this returns."""
        self.records += (added := list(records))
        with self.path.open("ab") as file:
            file.write(b"".join(map(line_of, added)))
            file.flush()
            files.sync(file.fileno())


def line_of(record: object) -> bytes:
    """The record as a line, with its line feed; fields stand as declared, keys of mappings sorted."""
    return msgspec.json.encode(record, order="deterministic") + b"\n"
