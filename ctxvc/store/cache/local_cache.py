"""Files of a store's cache, with results that can be computed again. They may be missing at any time.

A file is replaced atomically. Of two concurrent writers, the last one wins: the other's result is computed again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import TypeVar

import msgspec

from ctxvc.errors import CtxvcError
from ctxvc.store.store import Store
from ctxvc.store.trust import contained

_FOLDER = "ctxvc/cache"
_LARGEST = 64 << 20
_Content = TypeVar("_Content")


def load(store: Store, name: str, content: type[_Content]) -> _Content | None:
    """The content of a cache file; None if it is missing or has another form."""
    try:
        return msgspec.json.decode(contained.read(store.path, _path(name), _LARGEST), type=content)
    except (OSError, CtxvcError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def save(store: Store, name: str, content: object) -> None:
    """Replaces a cache file, if possible."""
    try:
        contained.make_folder(store.path, _FOLDER)  # a person may have removed it
        contained.replace(store.path, _path(name), msgspec.json.encode(content), durably=False)
    except (OSError, CtxvcError):
        pass  # a store can be read-only, and its disk full


def session_key(store: Store, session: str, tips: Mapping[str, str], form: str) -> str:
    """A key that changes whenever anything in the session does: its scopes, its current scope, its journal.

    `form` names the kind of content stored under the key, and changes with the code that computes it.
    """
    try:
        # Path objects are avoided: this is called for 10,000 sessions at a time.
        journal = os.stat(f"{store.path}/ctxvc/journal/{session}")  # noqa: PTH116
        written = f"{journal.st_ino}/{journal.st_size}/{journal.st_mtime_ns}"
    except OSError:
        written = ""
    parts = (
        form,
        session,
        store.current_scope(session, tips) if len(tips) > 1 else "",
        written,
        *(f"{scope} {tips[scope]}" for scope in sorted(tips)),
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def sessions_stamp(store: Store) -> str:
    """A key that changes whenever any session does: a packed or loose ref, or a journal.

    It is faster to compute than the keys of all sessions.
    """
    digest = hashlib.sha256()
    for folder in ("refs/heads", "ctxvc/journal"):
        for parent, folders, names in os.walk(store.path / folder):
            folders.sort()
            for name in sorted(names):
                _add_status(digest, f"{parent}/{name}")
    for name in ("packed-refs", "refs/ctxvc/purged"):
        _add_status(digest, f"{store.path}/{name}")
    return digest.hexdigest()[:32]


def _add_status(digest: hashlib._Hash, path: str) -> None:
    with suppress(OSError):
        status = os.stat(path)  # noqa: PTH116 - as in `session_key`
        digest.update(f"{path}\0{status.st_ino}/{status.st_size}/{status.st_mtime_ns}\0".encode())


def file_stamp(store: Store, name: str) -> str:
    """A key that changes whenever a cache file does, or the log that SQLite keeps beside it."""
    stamps = []
    for suffix in ("", "-wal"):
        try:
            status = (store.cache_path / f"{name}{suffix}").stat()
            stamps.append(f"{status.st_size}/{status.st_mtime_ns}")
        except OSError:
            stamps.append("")
    return " ".join(stamps)


def _path(name: str) -> str:
    return f"{_FOLDER}/{name}"
