"""Exports that are recognised when they come back: a request by its checksum, another agent's session by its id.

Providers refuse fields that they do not know, and agents may drop them, so neither has a mark of ours, unlike an
exported Claude Code session. What is kept is a part of the cache: without it, they become sessions of their own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from ctxvc.core.recording.continued import Continued
from ctxvc.store.cache import local_cache
from ctxvc.store.store import Store

_FILE = "exports.json"
#: Requests that are remembered, the newest; and sessions that are looked at for one without an id.
_MOST, _MOST_SESSIONS = 1_000, 20


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


def remember_session(store: Store, format: str, id: str, written: Continued) -> None:
    """Keeps what the session with this id was written from."""
    local_cache.save(store, _session_file(format, id), written)


def written_session(store: Store, format: str, id: str) -> Continued | None:
    """What the session with this id was written from; None if it is none of ours."""
    return local_cache.load(store, _session_file(format, id), Continued)


def written_sessions(store: Store) -> Iterator[Continued]:
    """What the newest sessions for other agents were written from, the last one first."""
    files = sorted(store.cache_path.glob("exported-*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in files[:_MOST_SESSIONS]:
        if written := local_cache.load(store, path.name, Continued):
            yield written


def _session_file(format: str, id: str) -> str:
    return f"exported-{_checksum(f'{format}/{id}'.encode('utf-8', 'replace'))[:32]}.json"


def _checksum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
