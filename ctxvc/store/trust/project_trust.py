"""The projects whose own settings the person accepted on this machine, by the file's path and its bytes."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import msgspec

from ctxvc.errors import CtxvcError
from ctxvc.store import files, timestamp
from ctxvc.store.trust.identity import data_folder, no_folder, read_plain

#: The folder in the data folder.
_FOLDER = "projects"
_LARGEST = 64 * 1024


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """The settings file as it was when the person accepted it."""

    format: int = 1
    path: str
    sum: str
    time: str = ""


def is_accepted(file: Path, data: bytes) -> bool:
    """Whether the person accepted exactly these bytes at this path."""
    try:
        record = _record(_place(file))
    except CtxvcError:
        return False
    return record is not None and (record.path, record.sum) == (_real(file), _sum(data))


def accept(file: Path, data: bytes) -> None:
    """Accepts the file, until it changes. Raises: Refused without a data folder, CtxvcError."""
    place = _place(file, make=True)
    record = Accepted(path=_real(file), sum=_sum(data), time=timestamp.now("seconds"))
    try:
        place.parent.mkdir(mode=0o700, exist_ok=True)
        files.replace(place, msgspec.json.encode(record))
    except OSError as error:
        raise no_folder(f"{place.parent} cannot be written: {error.strerror}") from error


def revoke(file: Path) -> bool:
    """Revokes the acceptance of the file; returns whether there was one. Raises: Refused, CtxvcError."""
    place = _place(file)
    if _record(place) is None:
        return False
    try:
        place.unlink(missing_ok=True)
    except OSError as error:
        raise no_folder(f"{place} cannot be removed: {error.strerror}") from error
    return True


def accepted() -> list[Accepted]:
    """All accepted files, sorted by path. Raises: Refused without a data folder."""
    folder = data_folder() / _FOLDER
    records = [_record(place) for place in sorted(folder.glob("*.json"))] if folder.is_dir() else []
    return sorted(filter(None, records), key=lambda record: record.path)


def _place(file: Path, *, make: bool = False) -> Path:
    name = hashlib.sha256(os.fsencode(_real(file))).hexdigest()[:32]
    return data_folder(make=make) / _FOLDER / f"{name}.json"


def _record(place: Path) -> Accepted | None:
    try:
        record = msgspec.json.decode(read_plain(place, _LARGEST) or b"", type=Accepted)
    except (CtxvcError, msgspec.MsgspecError, ValueError):
        return None
    return record if record.format == 1 else None


def _real(file: Path) -> str:
    """The path with all links resolved, with invalid UTF-8 escaped."""
    return os.fsencode(os.path.realpath(file)).decode("utf-8", "backslashreplace")


def _sum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
