"""Pushing: this clone's index and sessions, to its own ref on a remote."""

from __future__ import annotations

import hashlib
import time as clock
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from ctxvc.errors import Conflict, CtxvcError, Phrase, Refused
from ctxvc.sharing import indexes, inventory, purges, remotes
from ctxvc.sharing.index import REFS, Index, SessionEntry, tips_of
from ctxvc.sharing.indexes import Indexes
from ctxvc.sharing.remotes import Remote
from ctxvc.store import push_attempt
from ctxvc.store.files import locked
from ctxvc.store.git import program, transport
from ctxvc.store.git.objects import TREE, Objects
from ctxvc.store.project import links
from ctxvc.store.purge.apply import REF as PURGED
from ctxvc.store.push_attempt import PushAttempt
from ctxvc.store.secrets import push_check
from ctxvc.store.secrets.push_check import LargeBody
from ctxvc.store.store import Store
from ctxvc.store.trust import contained
from ctxvc.store.upkeep import carriers, gc


class Pushed(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a push. `sessions` are those on the remote now, `changed` the new or longer ones among them.

    `withdrawn` are those no longer in its index. `purged` says whether the record of a purge was pushed; `large` are
    bodies that hosts would have refused, whose sessions are there in pieces.
    """

    remote: str
    address: str
    clone: str
    sessions: tuple[str, ...]
    changed: tuple[str, ...]
    withdrawn: tuple[str, ...]
    purged: bool = False
    unreadable: tuple[CtxvcError, ...] = ()
    large: tuple[LargeBody, ...] = ()

    @property
    def is_new(self) -> bool:
        """Whether anything was pushed."""
        return bool(self.changed or self.withdrawn or self.purged)


def push(store: Store, name: str = "", *, after_purge: bool = False, ask: bool = False) -> Pushed:
    """Pushes the sessions that the remote is to have. After an interruption, the next push completes it.

    Raises: Refused if nobody agreed to send anything there, a secret would leave, a purge is to be accepted first, or
    another store has this clone's name; Unreachable, CtxvcError. The remote then keeps its former index.
    """
    remote = remotes.find(store, name)
    if not remote.sends:
        raise Refused(
            f"nothing is sent to {remote.name}, {transport.printable(remote.address)}, yet",
            hint=Phrase("share-add-again", address=transport.printable(remote.address)),
        )
    with locked(store.path / "ctxvc" / "lock" / f"_push-{remote.name}"):
        unreadable = gc.flush(store)
        theirs = indexes.fetch(remote.address, ask=ask)
        report = _push(store, remotes.find(store, remote.name), theirs, unreadable, after_purge=after_purge, ask=ask)
    push_attempt.clear(store.path)
    return report


def _push(
    store: Store,
    remote: Remote,
    theirs: indexes.Indexes,
    unreadable: Sequence[CtxvcError],
    *,
    after_purge: bool,
    ask: bool,
) -> Pushed:
    clone = remotes.clone_name(store)
    before = theirs.commits.get(clone, "")
    remotes.check_own(remote, clone, before)
    purged = purges.check_push(store, theirs, clone, after_purge=after_purge)
    index = inventory.index(store, remote, clone, purged)
    large = large_bodies(store, index, theirs)
    former = theirs.of_clone(clone)
    index = in_pieces(store, index, former, large)
    after = inventory.commit(store, index, former=before)
    moves = {f"{REFS}{clone}": (before, after)} if after != before else {}
    if purged != theirs.purged:
        moves[PURGED] = (theirs.purged, purged)
    if moves:
        tips, carriers = tips_in_pieces(index)
        push_check.refuse(store, [after, *tips], [*_had(store, theirs), *carriers])
        remote = remotes.update(store, msgspec.structs.replace(remote, pushed=before, pushing=after))
        transport.push(store.path, remote.address, moves, ask=ask)
        if PURGED in moves:
            indexes.forget(remote.address)
    remotes.update(store, msgspec.structs.replace(remote, pushed=after, pushing=""))
    inventory.keep(store, remotes.tracking(remote.name, clone), after)
    return Pushed(
        remote=remote.name,
        address=transport.printable(remote.address),
        clone=clone,
        sessions=tuple(index.sessions),
        changed=tuple(
            name
            for name, session in index.sessions.items()
            if name not in former or former[name].scopes != session.scopes
        ),
        withdrawn=tuple(name for name in former if name not in index.sessions),
        purged=PURGED in moves,
        unreadable=tuple(unreadable),
        large=tuple(large) if moves else (),
    )


def _had(store: Store, theirs: indexes.Indexes) -> list[str]:
    """The commits here that some index on the remote has: they were searched for secrets, or came from there."""
    return sorted(tip for tip in {*tips_of(theirs.entries), *theirs.commits.values()} if tip in store.repository)


#: The bytes of a piece. GitHub warns of files from 50 MiB on.
SIZE = 40 << 20


def large_bodies(store: Store, index: Index, theirs: Indexes) -> list[LargeBody]:
    """The bodies of these sessions that are too large for hosts, unless the remote has them outside pieces."""
    plain = tips_of(entry for entry in theirs.entries if not entry.pieces)
    tips = tips_of(index.sessions.values()) - plain
    had = sorted(tip for tip in plain if tip in store.repository)
    return push_check.large(store, sorted(tips), had) if tips else []


def in_pieces(store: Store, index: Index, former: Mapping[str, SessionEntry], bodies: Sequence[LargeBody]) -> Index:
    """The index with a carrier for each session with one of these bodies. `former` is the index on the remote."""
    names = {body.session for body in bodies}
    trees = _Trees(store, bodies)
    sessions = {
        name: _carried(store, entry, former.get(name)) if name in names or (names and trees.has(entry)) else entry
        for name, entry in index.sessions.items()
    }
    return msgspec.structs.replace(index, sessions=sessions)


class _Trees:
    """Whether trees of a store contain one of these blobs. A scope's tree has all its bodies, in the prompt or not."""

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


def tips_in_pieces(index: Index) -> tuple[list[str], list[str]]:
    """The tips of the sessions that travel in pieces, and their carriers."""
    sessions = [entry for entry in index.sessions.values() if entry.pieces]
    return sorted(tips_of(sessions)), sorted(entry.pieces for entry in sessions)


def _carried(store: Store, entry: SessionEntry, former: SessionEntry | None) -> SessionEntry:
    """The session with a carrier for the part that the remote does not have."""
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
    """Whether the store still has what the remote has, to build on; not after a purge."""
    return all(commit in store.repository for commit in (former.pieces, *former.scopes.values()))


#: Seconds between two pushes; hosts limit them (GitHub: 6 a minute for a repository).
PAUSE = 60.0
_LOCK = "ctxvc/lock/_auto-push"


def push_news(path: Path, sleep: Callable[[float], None] = clock.sleep) -> None:
    """Pushes what is new to every remote that a person allowed, and what comes meanwhile a minute later.

    Returns at once if another process is at it. A failure is recorded (`push_attempt`) and retried with the next news.
    Raises: CtxvcError, OSError if the store cannot be read.
    """
    contained.make_folder(path, "ctxvc/lock")
    while _news(path):
        try:
            with locked(path / _LOCK, timeout=0):
                wait = push_attempt.last(path).at + PAUSE - clock.time()
                if 0 < wait <= PAUSE:
                    sleep(wait)
                _push_to_all(path)
        except Conflict:
            return  # it looks for news after its own push


def _news(path: Path) -> bool:
    """Whether there is something to push that the last attempt did not have."""
    with Store(path) as store:
        return bool(_targets(store)) and _tips(store) != push_attempt.last(path).tips


def _push_to_all(path: Path) -> None:
    with Store(path) as store:
        tips, problem = _tips(store), ""
        for name in _targets(store):
            try:
                push(store, name)
            except CtxvcError as error:
                problem = problem or f"{name}: {error}"
        push_attempt.write(path, PushAttempt(at=clock.time(), tips=tips, problem=problem))


def _targets(store: Store) -> list[str]:
    return [remote.name for remote in remotes.every(store) if remote.sends and remotes.is_ours(store, remote)]


def _tips(store: Store) -> str:
    """A digest of everything that could be pushed."""
    gc.flush(store)
    return hashlib.sha256(msgspec.json.encode([store.all_tips(), links.tip(store)], order="sorted")).hexdigest()
