"""Recognises exports that come back: a request by its checksum, another agent's session by its id.

Providers refuse unknown fields, and agents may drop them, so unlike an exported Claude Code session neither carries a
mark of ours. The records are in the cache: without them, such exports become sessions of their own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from ctxvc.core.recording.continued import Continued
from ctxvc.store.cache import local_cache
from ctxvc.store.store import Store

_FILE = "exports.json"
#: The number of newest requests that are remembered, and of sessions that are searched for one without an id.
_MOST, _MOST_SESSIONS = 1_000, 20


def remember(store: Store, data: bytes, session: str) -> None:
    """Remembers that `data` is a request of this session."""
    sessions = local_cache.load(store, _FILE, dict[str, str]) or {}
    checksum = _checksum(data)
    if sessions.get(checksum) != session:
        sessions.pop(checksum, None)
        newest = list(sessions.items())[1 - _MOST :]
        local_cache.save(store, _FILE, {**dict(newest), checksum: session})


def session_of(store: Store, data: bytes) -> str:
    """The session that `data` was exported from; empty if it is not such a request, or the session is gone."""
    session = (local_cache.load(store, _FILE, dict[str, str]) or {}).get(_checksum(data), "")
    return session if session in store.sessions() else ""


def remember_session(store: Store, format: str, id: str, written: Continued) -> None:
    """Remembers what the session with this id was written from."""
    local_cache.save(store, _session_file(format, id), written)


def written_session(store: Store, format: str, id: str) -> Continued | None:
    """What the session with this id was written from; None if ctxvc did not write it."""
    return local_cache.load(store, _session_file(format, id), Continued)


def written_sessions(store: Store) -> Iterator[Continued]:
    """What the newest sessions for other agents were written from, the newest first."""
    files = sorted(store.cache_path.glob("exported-*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in files[:_MOST_SESSIONS]:
        if written := local_cache.load(store, path.name, Continued):
            yield written


def _session_file(format: str, id: str) -> str:
    return f"exported-{_checksum(f'{format}/{id}'.encode('utf-8', 'replace'))[:32]}.json"


def _checksum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
