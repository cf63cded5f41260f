"""Writes a session where its agent looks for it, atomically and never over existing files."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from ctxvc.errors import CtxvcError
from ctxvc.exporters.native.session import NativeSession


def installed(session: NativeSession, folder: Path) -> bool:
    """Writes the session's files into a folder, private to the person.

    Returns whether all are there now: False if another file or folder has the session's name. Raises: CtxvcError if it
    cannot be written.
    """
    first = next(iter(session.files))
    if len(session.files) == 1:
        return whole_file(folder / first, session.files[first])
    top = PurePosixPath(first.parts[0])
    with _reported(folder):
        return _whole_folder(folder / top, {name.relative_to(top): data for name, data in session.files.items()})


def whole_file(place: Path, data: bytes) -> bool:
    """Writes a file unless it exists; returns whether it has this content now. Raises: CtxvcError."""
    with _reported(place.parent):
        return _whole_file(place, data)


@contextmanager
def _reported(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CtxvcError(
            f"cannot write {folder}: {error.strerror}", hint="check the folder's owner and permissions"
        ) from error


def _whole_file(place: Path, data: bytes) -> bool:
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = place.with_name(f".{place.name}.{secrets.token_hex(4)}.new")
    try:
        _write(temporary, data)
        os.link(temporary, place)
    except FileExistsError:
        return place.is_file() and place.read_bytes() == data
    finally:
        temporary.unlink(missing_ok=True)
    return True


def _whole_folder(place: Path, files: Mapping[PurePosixPath, bytes]) -> bool:
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = place.with_name(f".{place.name}.{secrets.token_hex(4)}.new")
    try:
        for name, data in files.items():
            (temporary / name).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _write(temporary / name, data)
        # An existing folder may have grown since; an empty one would be replaced.
        if not place.exists():
            temporary.rename(place)
            return True
    except OSError:
        if not place.exists():
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return all((place / name).is_file() and (place / name).read_bytes() == data for name, data in files.items())


def _write(path: Path, data: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
