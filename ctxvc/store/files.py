"""Files of the store: writes that survive a power cut, and locks between processes."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ctxvc.errors import Conflict, CtxvcError, Phrase, Refused


def sync(handle: int) -> None:
    """Returns once the file's data is on the disk."""
    if sys.platform == "darwin":  # on macOS, fsync leaves the data in the drive's cache
        fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(handle)


def sync_folder(path: Path) -> None:
    """Returns once the folder's entries are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_all(handle: int, data: bytes) -> None:
    """Writes all of `data`, even if the system takes only a part at a time. Raises: OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def replace(path: Path, data: bytes) -> None:
    """Replaces the file at `path` with `data`, atomically and on the disk on return. Raises: OSError."""
    # A random name, because two processes may replace the same file at once, under different locks.
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


def unwritable(path: Path, error: OSError) -> CtxvcError:
    return CtxvcError(f"cannot write {path}: {error.strerror}", hint="check the disk and permissions")


@contextmanager
def locked(path: Path, *, shared: bool = False, timeout: float = 60.0) -> Iterator[int]:
    """Holds the lock on `path`; yields its file descriptor, for a child that must hold it too.

    `path` is a folder, or a file, created if missing; a link is not followed, and a pipe does not block.
    Raises: Conflict after `timeout` seconds; Refused if the file system has no locks or the path is anything else.
    """
    try:
        opened = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT
        handle = os.open(path, opened | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, 0o600)
    except OSError as error:
        raise CtxvcError(
            f"cannot open the lock {path}: {error.strerror}", hint="check the store's owner and permissions"
        ) from error
    try:
        mode = os.fstat(handle).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise Refused(f"the lock {path} is not a regular file", hint="check it, and remove it if it is not yours")
        _take(handle, path, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, timeout)
        yield handle
    finally:
        os.close(handle)


def _take(handle: int, path: Path, kind: int, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    wait = 0.0005
    while True:
        try:
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno in (errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS):
                raise Refused(
                    f"{path}: this file system does not support locks",
                    hint="keep the store on a local disk (CTXVC_STORE)",
                ) from error
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES, errno.EINTR):
                raise
        if time.monotonic() > deadline:
            raise Conflict(
                f"another process holds {path.name} for more than {timeout:.0f} s",
                hint=Phrase("lock-wait"),
            )
        time.sleep(wait)
        wait = min(wait * 2, 0.05)
