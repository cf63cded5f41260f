"""Sessions whose bodies are larger than hosts take: they travel as packs cut into pieces, and keep all their ids.

A *carrier* is a commit whose tree has a pack in pieces, with the tips that it leads to and those that it builds on; its
parent is the carrier before it. An index has the carrier as a parent instead of the session's tips, so that the host
never sees the body as a file; here the packs are put together again, in the quarantine, and checked like all else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ctxvc.sharing import inventory
from ctxvc.sharing.index import Index, SessionEntry
from ctxvc.sharing.indexes import Indexes
from ctxvc.store.git import program
from ctxvc.store.git.objects import TREE, Objects
from ctxvc.store.secrets import push_check
from ctxvc.store.secrets.push_check import LargeBody
from ctxvc.store.store import Store
from ctxvc.store.upkeep import carriers

#: The bytes of a piece. GitHub warns of files from 50 MiB on.
SIZE = 40 << 20


def large(store: Store, index: Index, theirs: Indexes) -> list[LargeBody]:
    """The bodies of these sessions that hosts do not take, and that the remote does not have as they are."""
    plain = {
        tip
        for there in theirs.clones.values()
        for entry in there.sessions.values()
        if not entry.pieces
        for tip in entry.scopes.values()
    }
    tips = {tip for entry in index.sessions.values() for tip in entry.scopes.values()} - plain
    had = sorted(tip for tip in plain if tip in store.repository)
    return push_check.large(store, sorted(tips), had) if tips else []


def cut(store: Store, index: Index, former: Index | None, bodies: Sequence[LargeBody]) -> Index:
    """The index with a carrier for each session that has one of these bodies. `former` is the index on the remote."""
    names = {body.session for body in bodies}
    trees = _Trees(store, bodies)
    before = former.sessions if former else {}
    sessions = {
        name: _carried(store, entry, before.get(name)) if name in names or (names and trees.has(entry)) else entry
        for name, entry in index.sessions.items()
    }
    return msgspec.structs.replace(index, sessions=sessions)


class _Trees:
    """Which folders of a store have one of these blobs. A scope's tree has all its bodies, in the prompt or not."""

    def __init__(self, store: Store, blobs: Iterable[LargeBody]) -> None:
        self._objects = Objects(store.repository)
        self._blobs = frozenset(bytes.fromhex(body.id) for body in blobs)
        self._known: dict[bytes, bool] = {}

    def has(self, entry: SessionEntry) -> bool:
        commits = (self._objects.commit(bytes.fromhex(tip)) for tip in entry.scopes.values())
        return any(self._has(commit.tree) for commit in commits)

    def _has(self, tree: bytes) -> bool:
        if tree not in self._known:
            self._known[tree] = any(
                self._has(child) if mode == TREE else child in self._blobs
                for mode, child in self._objects.tree(tree).values()
            )
        return self._known[tree]


def own(index: Index) -> tuple[list[str], list[str]]:
    """The tips of its sessions that travel in pieces, and their carriers."""
    sessions = [entry for entry in index.sessions.values() if entry.pieces]
    tips = {tip for entry in sessions for tip in entry.scopes.values()}
    return sorted(tips), sorted(entry.pieces for entry in sessions)


def _carried(store: Store, entry: SessionEntry, former: SessionEntry | None) -> SessionEntry:
    """The session with the carrier of what the remote does not have of it."""
    before = former if former and former.pieces and _is_here(store, former) else None
    tips = sorted(set(entry.scopes.values()))
    base = sorted(set(before.scopes.values())) if before else []
    if before and tips == base:
        return msgspec.structs.replace(entry, pieces=before.pieces)
    revisions = "".join(f"{tip}\n" for tip in (*tips, *(f"^{tip}" for tip in base)))
    options = ("--revs", "--stdout", "--delta-base-offset", "--quiet")
    pack = program.run(store.path, "pack-objects", *options, data=revisions.encode())
    content: Mapping[str, bytes] = carriers.files(
        tips, base, (pack[at : at + SIZE] for at in range(0, len(pack), SIZE))
    )
    return msgspec.structs.replace(entry, pieces=inventory.carrier(store, content, before.pieces if before else ""))


def _is_here(store: Store, former: SessionEntry) -> bool:
    """Whether what the remote has can be built on; after a purge it cannot."""
    return all(commit in store.repository for commit in (former.pieces, *former.scopes.values()))
