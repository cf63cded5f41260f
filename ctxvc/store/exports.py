"""Exported requests: one that is imported again as it was written is recognised by its checksum.

Providers refuse fields that they do not know, so a request has no mark of ours, unlike an exported Claude Code session.
The list is a part of the cache: without it, such a request becomes a session of its own.
"""

from __future__ import annotations

import hashlib

from ctxvc.store.cache import local_cache
from ctxvc.store.store import Store

_FILE = "exports.json"
#: Requests that are remembered, the newest.
_MOST = 1_000


def remember(store: Store, data: bytes, session: str) -> None:
    """Keeps that `data` is a request of this session."""
    sessions = local_cache.load(store, _FILE, dict[str, str]) or {}
    checksum = _checksum(data)
    if sessions.get(checksum) != session:
        sessions.pop(checksum, None)
        newest = list(sessions.items())[1 - _MOST :]
        local_cache.save(store, _FILE, {**dict(newest), checksum: session})


def session_of(store: Store, data: bytes) -> str:
    """The session that `data` was exported from; empty if it is no such request, or the session is gone."""
    session = (local_cache.load(store, _FILE, dict[str, str]) or {}).get(_checksum(data), "")
    return session if session in store.sessions() else ""


def _checksum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
