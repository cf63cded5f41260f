"""Locks between processes: `flock` on a file, freed by the system with the last process that holds it.

Order, so that nobody waits in a circle: a session's lock first, then the store's.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ctxvc.errors import Conflict, CtxvcError, Refused


@contextmanager
def locked(path: Path, *, shared: bool = False, timeout: float = 60.0) -> Iterator[int]:
    """The lock on `path` is held inside; gives its file descriptor, for a child that must hold it too.

    It is a file, made where it is not there, or a folder; a link is not followed, and a pipe not waited for.
    Raises: Conflict after `timeout` seconds; Refused on a file system without locks, and where something else is there.
    """
    try:
        opened = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT
        handle = os.open(path, opened | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, 0o600)
    except OSError as error:
        raise CtxvcError(
            f"cannot open the lock {path}: {error.strerror}", hint="check who owns the store and its permissions"
        ) from error
    try:
        mode = os.fstat(handle).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise Refused(f"the lock {path} is no plain file", hint="look at it, and remove it if it is not yours")
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
                    f"{path}: this file system has no locks", hint="keep the store on a local disk (CTXVC_STORE)"
                ) from error
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES, errno.EINTR):
                raise
        if time.monotonic() > deadline:
            raise Conflict(
                f"another process holds {path.name} for more than {timeout:.0f} s",
                hint="wait for it, or see `ctxvc doctor`",
            )
        time.sleep(wait)
        wait = min(wait * 2, 0.05)
