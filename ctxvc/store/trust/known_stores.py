"""What this machine remembers of its person's stores: one file per store in the data folder.

Being known gives a store no rights: it is opened and checked like any other.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from ctxvc.errors import CtxvcError, Refused
from ctxvc.store import files, objects, timestamp
from ctxvc.store.files import locked
from ctxvc.store.trust.identity import data_folder, is_id, make_id, no_folder, read_plain, store_id

#: The folder in the data folder.
STORES = "stores"
#: The folder in a store with the table of its sessions for questions in SQL.
TABLE = Path("ctxvc", "cache", "table")
_LOCK = "lock"
#: The most bytes of such a file that are read.
_LARGEST = 256 * 1024


class Setting(msgspec.Struct, frozen=True):
    """A setting that is not on the list: its file, as a path in the store, and its text.

    `acceptable` says whether a person may accept it.
    """

    file: str
    key: str
    value: str
    acceptable: bool = True


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """This machine's memory of a store: its last path, whether it was made here, and the accepted settings.

    `accepted` is the checksum of the settings files as the person saw them; empty if nothing is accepted. `tables` are
    the folders outside the store, and the addresses in object stores, that have its table. A `throwaway` belongs to no
    project: its sessions count only for someone working in it.
    """

    format: int = 1
    path: str
    made: bool = False
    accepted: str = ""
    settings: tuple[Setting, ...] = ()
    time: str = ""
    tables: tuple[str, ...] = ()
    throwaway: bool = False


def remember_table(path: Path, table: Path | str) -> None:
    """Remembers that a folder, or an address in an object store, has the store's table.

    Raises: Refused without a data folder, because a purge could then not find it.
    """
    place = real(table) if isinstance(table, Path) else table
    with recorded(make_id(path)) as (file, former):
        remembered = former or Remembered(path=real(path))
        if place not in remembered.tables:
            write(file, msgspec.structs.replace(remembered, tables=(*remembered.tables, place)))


def tables(path: Path) -> list[Path | str]:
    """The places of the store's table: its own folder, and the folders and addresses known to this machine."""
    try:
        name = store_id(path)
        remembered = memory(data_folder() / STORES / f"{name}.json") if name else None
    except CtxvcError:
        remembered = None
    places = remembered.tables if remembered else ()
    return [path / TABLE, *(place if objects.is_address(place) else Path(place) for place in places)]


def remember_made(path: Path, *, throwaway: bool = False) -> None:
    """Remembers that this machine made the store. Does nothing without a data folder, which the store does not need."""
    with suppress(CtxvcError), recorded(make_id(path)) as (file, _):
        write(file, Remembered(path=real(path), made=True, time=timestamp.now("seconds"), throwaway=throwaway))


def remember_used(path: Path) -> None:
    """Remembers the store's path, unless it is already known. Does nothing without a data folder.

    If there are two copies of a store, the known one stays known until it is gone.
    """
    with suppress(CtxvcError):
        name, here = store_id(path), real(path)
        if not name:
            return
        remembered = memory(data_folder() / STORES / f"{name}.json")
        if remembered and (remembered.path == here or os.path.lexists(remembered.path)):
            return
        with recorded(name) as (file, remembered):
            write(file, msgspec.structs.replace(remembered, path=here) if remembered else Remembered(path=here))


def paths() -> list[Path]:
    """The stores that were made or used on this machine and still exist, sorted by path; without throwaways.

    A missing store is forgotten, unless the person accepted settings of it: it may have been moved.
    """
    stores = []
    with suppress(CtxvcError, OSError):
        for file in sorted((data_folder() / STORES).glob("*.json")):
            remembered = memory(file)
            if remembered is None or not is_id(file.stem):
                continue
            path = Path(remembered.path)
            if not path.is_symlink() and store_id(path) == file.stem:
                stores += [] if remembered.throwaway else [path]
            elif not remembered.accepted and not os.path.lexists(path):
                file.unlink(missing_ok=True)
    return sorted(stores)


def paths_with(here: Path) -> list[Path]:
    """`paths` with the store at `here` first, whether known or not."""
    return [here, *(path for path in paths() if path.resolve() != here.resolve())]


@contextmanager
def recorded(name: str) -> Iterator[tuple[Path, Remembered | None]]:
    """Locks the memory of the store with that id; yields its file and its contents.

    Raises: Refused without a data folder.
    """
    folder = data_folder(make=True)
    try:
        (folder / STORES).mkdir(mode=0o700, exist_ok=True)
        with locked(folder / _LOCK):
            file = folder / STORES / f"{name}.json"
            yield file, memory(file)
    except OSError as error:
        raise no_folder(f"{folder} is not writable: {error.strerror}") from error


def memory(file: Path) -> Remembered | None:
    """The memory of a store in the file; None if it is missing or of another format."""
    try:
        remembered = msgspec.json.decode(read_plain(file, _LARGEST) or b"", type=Remembered)
    except (CtxvcError, msgspec.MsgspecError, ValueError):
        return None
    return remembered if remembered.format == 1 else None


def write(file: Path, remembered: Remembered) -> None:
    """Writes the memory of a store. Raises: OSError."""
    files.replace(file, msgspec.json.encode(remembered))


def real(path: Path) -> str:
    """The path with all links resolved. Raises: Refused if it is not UTF-8, as JSON requires."""
    resolved = os.path.realpath(path)
    try:
        resolved.encode()
    except UnicodeEncodeError as error:
        raise Refused("the store's path is not UTF-8: it cannot be remembered", hint="rename that folder") from error
    return resolved
