"""The indexes of all clones on a remote, read from the cache of them."""

from __future__ import annotations

import msgspec

from ctxvc.errors import CtxvcError
from ctxvc.sharing import index
from ctxvc.sharing.index import REFS, Index
from ctxvc.store.cache import cached_scope
from ctxvc.store.cache.cached_repository import CachedIndexes, CachedRepository
from ctxvc.store.purge.apply import REF as PURGED

_REFSPECS = [f"+{REFS}*:{REFS}*", f"+{PURGED}*:{PURGED}*"]


class Indexes(msgspec.Struct, frozen=True, kw_only=True):
    """What a remote has: each clone's index, the commits that lead to them, and the newest map of purges.

    `ignored` says what was left out, and why.
    """

    clones: dict[str, Index]
    commits: dict[str, str]
    purged: str = ""
    ignored: tuple[str, ...] = ()


def fetch(address: str, *, ask: bool = False) -> Indexes:
    """The indexes as they are there now. Raises: as `transport.fetch`."""
    CachedIndexes(address).update(_REFSPECS, ask=ask)
    return cached(address)


def cached(address: str) -> Indexes:
    """The indexes as they were fetched last."""
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
            if index.LIST_FILE not in content:  # in parts, or none of ours
                content = cache.files(commit, index.LARGEST)
            clones[clone] = index.parse(clone, content)
        except CtxvcError as error:
            ignored.append(str(error))
    return Indexes(clones=clones, commits=commits, purged=refs.get(PURGED, ""), ignored=tuple(ignored))


def forget(address: str) -> None:
    """Removes what is cached of a remote, since it may have what a purge erased."""
    CachedIndexes(address).forget()
    CachedRepository(address, cached_scope.KIND).forget()
