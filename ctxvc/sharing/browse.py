"""A session on a remote, looked at without a pull: whose it is there, and a scope of it."""

from __future__ import annotations

import msgspec

from ctxvc.core.suggestion import meant
from ctxvc.errors import NotFound, Phrase
from ctxvc.sharing.index import SessionEntry
from ctxvc.sharing.indexes import Indexes
from ctxvc.sharing.remotes import Remote
from ctxvc.store.cache.cached_scope import CachedScope
from ctxvc.store.purge import carried
from ctxvc.store.read.revision import Snapshot
from ctxvc.store.store import Store


class Newest(msgspec.Struct, frozen=True):
    """A session in the index of the clone that has the newest of it. `clones` are all that list it."""

    clone: str
    entry: SessionEntry
    clones: tuple[str, ...]


def newest(theirs: Indexes) -> dict[str, Newest]:
    """Each session of a remote once, by its name."""
    sessions: dict[str, Newest] = {}
    for clone, index in sorted(theirs.clones.items()):
        for name, entry in index.sessions.items():
            former = sessions.get(name)
            clones = (*(former.clones if former else ()), clone)
            if former is None or entry.updated > former.entry.updated:
                sessions[name] = Newest(clone, entry, clones)
            else:
                sessions[name] = Newest(former.clone, former.entry, clones)
    return sessions


def snapshot(
    store: Store, remote: Remote, theirs: Indexes, session: str, scope: str = "", *, ask: bool = False
) -> Snapshot:
    """A scope of a session there, by default its current one. Bodies are fetched when they are read.

    Raises: NotFound; as `CachedScope.snapshot`.
    """
    sessions = newest(theirs)
    if session not in sessions:
        raise NotFound(
            f"no session {session[:60]!r} on {remote.name}{meant(session, sessions)}", hint=Phrase("list-shared")
        )
    scopes = sessions[session].entry.scopes
    scope = scope or sessions[session].entry.scope
    if scope not in scopes:
        raise NotFound(
            f"session {session} on {remote.name} has no scope {scope[:60]!r}{meant(scope, scopes)}",
            hint=f"it has {', '.join(sorted(scopes)[:8])}",
        )
    erased = carried.own(store).erased
    return CachedScope(remote.address, session, scope, scopes[scope], erased=erased, ask=ask).snapshot()
