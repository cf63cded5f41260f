"""The indexes of all clones on a remote, read from their cache, and its sessions, read without a pull."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ctxvc.core.suggestion import meant
from ctxvc.errors import CtxvcError, NotFound, Phrase
from ctxvc.sharing import index
from ctxvc.sharing.index import REFS, Index, SessionEntry
from ctxvc.sharing.remotes import Remote
from ctxvc.store.cache import cached_repository
from ctxvc.store.cache.cached_repository import CachedIndexes, CachedRepository, CachedScope
from ctxvc.store.purge import carried
from ctxvc.store.purge.apply import REF as PURGED
from ctxvc.store.read.revision import Snapshot
from ctxvc.store.store import Store

_REFSPECS = [f"+{REFS}*:{REFS}*", f"+{PURGED}*:{PURGED}*"]


class Indexes(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a remote: each clone's index, the commits of these, and the newest map of purges.

    `ignored` has what was left out, and why.
    """

    clones: dict[str, Index]
    commits: dict[str, str]
    purged: str = ""
    ignored: tuple[str, ...] = ()

    @property
    def entries(self) -> Iterator[SessionEntry]:
        """The sessions of all clones; one that several have comes several times."""
        return (entry for index in self.clones.values() for entry in index.sessions.values())

    def of_clone(self, clone: str) -> dict[str, SessionEntry]:
        """The sessions of a clone, by name; none of one that has no index there."""
        return self.clones[clone].sessions if clone in self.clones else {}


def fetch(address: str, *, ask: bool = False) -> Indexes:
    """The indexes now on the remote. Raises: as `transport.fetch`."""
    CachedIndexes(address).update(_REFSPECS, ask=ask)
    return cached(address)


def cached(address: str) -> Indexes:
    """The indexes as last fetched."""
    cache = CachedIndexes(address)
    clones, commits, ignored = {}, {}, []
    refs = cache.refs()
    for ref, commit in refs.items():
        if not ref.startswith(REFS):
            continue
        clone = ref.removeprefix(REFS)
        if reason := index.clone_problem(clone):
            ignored.append(f"the clone {clone[:60]!r}: {reason}")
            continue
        commits[clone] = commit
    small = cache.files_of(commits.values(), (index.HEAD_FILE, index.LIST_FILE), index.LARGEST) if commits else {}
    for clone, commit in commits.items():
        content = small.get(commit, {})
        try:
            if index.LIST_FILE not in content:  # split into parts, or not an index
                content = cache.files(commit, index.LARGEST)
            clones[clone] = index.parse(clone, content)
        except CtxvcError as error:
            ignored.append(str(error))
    return Indexes(clones=clones, commits=commits, purged=refs.get(PURGED, ""), ignored=tuple(ignored))


def forget(address: str) -> None:
    """Removes a remote's cache, which may contain what a purge erased."""
    CachedIndexes(address).forget()
    CachedRepository(address, cached_repository.KIND).forget()


class Newest(msgspec.Struct, frozen=True):
    """A session, from the index of the clone with its newest state. `clones` are all clones that list it."""

    clone: str
    entry: SessionEntry
    clones: tuple[str, ...]


def newest(theirs: Indexes) -> dict[str, Newest]:
    """Each session of a remote once, by name."""
    sessions: dict[str, Newest] = {}
    for clone, entries in sorted(theirs.clones.items()):
        for name, entry in entries.sessions.items():
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
    """A scope of a session on the remote, by default its current one. Bodies are fetched when they are read.

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
