"""Writes that survive a power cut."""

from __future__ import annotations

import fcntl
import os
import secrets
import sys
from pathlib import Path


def sync(handle: int) -> None:
    """The file's data is on the disk when this returns."""
    if sys.platform == "darwin":  # fsync on macOS leaves it in the drive's cache
        fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(handle)


def sync_folder(path: Path) -> None:
    """The folder's entries are on the disk when this returns."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_all(handle: int, data: bytes) -> None:
    """All of `data` is written, however often the system takes only a part. Raises: OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def replace(path: Path, data: bytes) -> None:
    """The file at `path` holds `data`, whole and on the disk; before that it holds what it held. Raises: OSError."""
    # A name of its own: two processes may replace one file at the same moment, under different locks.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        try:
            write_all(handle, data)
            sync(handle)
        finally:
            os.close(handle)
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)
