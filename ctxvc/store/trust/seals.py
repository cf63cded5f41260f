"""Seals on files that this machine leaves in a store for itself: a request, a text for a model, a checkout.

A foreign store can contain files that look the same; only those sealed with a key outside the store are obeyed. The key
is the person's or, without a data folder (no home, or a read-only one), one that lasts until the temporary folder is
cleared: recording works there too. A seal is bound to the store's id, so it stays valid when the store is moved; in a
copy it proves what this machine once wrote for the original, which does no harm there (decision 17). Hooks make several
seals a second, so seals are not recorded.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from ctxvc.errors import CtxvcError
from ctxvc.store.trust import identity

#: The file in the folder with the only secret of this person's machine, 32 bytes.
KEY = "key"
_BYTES = 32


def seal(store: Path, payload: bytes) -> str:
    """This machine's seal on `payload` in the store at `store`; creates the store's id if it has none.

    Raises: OSError if no key or id can be stored.
    """
    try:
        name = identity.make_id(store)
    except CtxvcError as error:
        raise OSError(str(error)) from error
    for folder in _folders(make=True):
        with suppress(OSError):
            return _mac(_key(folder, make=True), name, payload)
    raise OSError("no place for a key: neither the data folder nor the temporary folder is writable")


def is_sealed_here(store: Path, payload: bytes, seal: str) -> bool:
    """Whether this machine sealed `payload` for this store."""
    name = identity.store_id(store)
    if not name:
        return False
    for folder in _folders(make=False):
        with suppress(OSError):
            if hmac.compare_digest(_mac(_key(folder, make=False), name, payload).encode(), seal.encode()):
                return True
    return False


def _mac(key: bytes, name: str, payload: bytes) -> str:
    # `trust.seal` uses the same key: the prefix distinguishes the two kinds of seals.
    return hmac.new(key, b"ctxvc mark 1\0%s\0%s" % (name.encode(), payload), hashlib.sha256).hexdigest()


def _folders(*, make: bool) -> Iterator[Path]:
    """The folders that may have a key: the person's data folder, if there is one, then the temporary folder."""
    with suppress(CtxvcError):
        yield identity.data_folder(make=make)
    import tempfile

    folder = Path(tempfile.gettempdir(), f"ctxvc-{os.geteuid()}")
    with suppress(OSError):
        if make:
            with suppress(FileExistsError):
                folder.mkdir(mode=0o700)
        status = folder.lstat()  # not followed: anyone could have put a link there
        if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022:
            yield folder


def _key(folder: Path, *, make: bool) -> bytes:
    """The key in the folder; with `make`, created if missing. Raises: OSError."""
    return _read(folder / KEY, folder.stat().st_ino, make)


@lru_cache(maxsize=8)
def _read(path: Path, inode: int, make: bool) -> bytes:  # noqa: ARG001 - another folder in its place has another key
    try:
        return _stored(path)
    except FileNotFoundError:
        if not make:
            raise
    identity.make_file(path, os.urandom(_BYTES))
    return _stored(path)


def _stored(path: Path) -> bytes:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        key = os.read(handle, _BYTES + 1)
        if os.fstat(handle).st_uid != os.geteuid() or len(key) != _BYTES:
            raise PermissionError(f"{path} is not a key of this user")
        return key
    finally:
        os.close(handle)
