"""Pulling: what other clones pushed comes in; a session's scopes go on, or become lines of their own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import msgspec

from ctxvc.core.ledger import names
from ctxvc.errors import CtxvcError, Damaged
from ctxvc.sharing import indexes, lines, purges, remotes
from ctxvc.sharing.index import REFS, Index, SessionEntry
from ctxvc.sharing.indexes import Indexes
from ctxvc.store import gc, links
from ctxvc.store.files import locked
from ctxvc.store.format import ref_of
from ctxvc.store.git.transport import Barred
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.purge import carried
from ctxvc.store.quarantine import Quarantine, quarantine
from ctxvc.store.store import Store


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """A session that came in or went on: its scopes that moved. `apart` are new lines of a scope that grew here too."""

    session: str
    clone: str
    is_new: bool
    scopes: tuple[str, ...]
    apart: tuple[str, ...] = ()


class Pulled(msgspec.Struct, frozen=True, kw_only=True):
    """What a pull did. `clones` are those on the remote, `ignored` says what was not taken, and why."""

    remote: str
    address: str
    clones: tuple[str, ...]
    arrivals: tuple[Arrival, ...]
    ignored: tuple[str, ...] = ()
    damaged: tuple[CtxvcError, ...] = ()


#: Which sessions of an index to take.
Choice = Callable[[SessionEntry], bool]


def choice(sessions: Collection[str] = (), since: str = "") -> Choice:
    """Sessions of these names, by default all, with a commit since a day or time, by default ever."""
    return lambda session: (not sessions or session.name in sessions) and session.updated >= since


_ALL = choice()


def pull(store: Store, name: str = "", *, chosen: Choice = _ALL, ask: bool = False) -> Pulled:
    """Takes in what other clones pushed. Interrupted anywhere, the next one goes on.

    Raises: Refused if a purge is to be accepted first; Unreachable, CtxvcError. What is damaged is not taken.
    """
    remote = remotes.find(store, name)
    with locked(store.path / "ctxvc" / "lock" / f"_pull-{remote.name}"):
        gc.flush(store)
        theirs = indexes.fetch(remote.address, ask=ask)
        purges.check_pull(store, remote.address, theirs, ask=ask)
        arrivals: list[Arrival] = []
        ignored = list(theirs.ignored)
        damaged: list[CtxvcError] = []
        own = remotes.clone_name(store)
        erased = carried.own(store).erased
        for clone, index in sorted(theirs.clones.items()):
            ignored += index.ignored
            if clone == own:
                continue
            with quarantine(store) as objects:
                sessions = [session for session in index.sessions.values() if chosen(session)]
                if not _fetch(objects, remote.address, clone, index, sessions, erased, ask=ask):
                    ignored.append(f"{clone} has not accepted a purge yet")
                    continue
                sound = list(_sound(objects, sessions, damaged))
                objects.accept()
                for session in sound:
                    try:
                        if arrival := take(store, objects, session, clone, own):
                            arrivals.append(arrival)
                    except CtxvcError as error:
                        ignored.append(f"{session.name} of {clone}: {error}")
            if index.head.links and index.head.links in store.repository:
                links.merge(store, index.head.links)
        _settle_current(store, arrivals, theirs)
        return Pulled(
            remote=remote.name,
            address=remote.address,
            clones=tuple(sorted(theirs.clones)),
            arrivals=tuple(arrivals),
            ignored=tuple(dict.fromkeys(ignored)),
            damaged=tuple(damaged),
        )


def _settle_current(store: Store, arrivals: Iterable[Arrival], theirs: Indexes) -> None:
    """Makes the newest session that came in the current one, if there was none yet."""
    new = [
        theirs.clones[arrival.clone].sessions[arrival.session]
        for arrival in arrivals if arrival.is_new
    ]  # fmt: skip
    if new and len(new) == len(store.sessions()):
        newest = max(new, key=lambda session: session.updated)
        store.set_current_scope(newest.name, newest.scope)


def _fetch(
    objects: Quarantine,
    address: str,
    clone: str,
    index: Index,
    sessions: Iterable[SessionEntry],
    erased: frozenset[str],
    *,
    ask: bool,
) -> bool:
    """Fetches the sessions of a clone; False if it has what a purge erased, and nothing of it may be taken."""
    tips = {tip for session in sessions for tip in session.scopes.values()} | {index.head.links} - {""}
    if not erased.isdisjoint(tips):
        return False
    wants = sorted(tip for tip in tips if not objects.has(tip))
    if not wants:
        return True
    try:
        objects.fetch(address, wants, ask=ask)
    except Barred:  # an old server gives whole refs only, or the clone has pushed meanwhile
        objects.fetch(address, [f"{REFS}{clone}"], ask=ask)
    return purges.clean(objects, erased)


def _sound(objects: Quarantine, sessions: Iterable[SessionEntry], damaged: list[CtxvcError]) -> Iterable[SessionEntry]:
    """The sessions whose scopes are all right; an error for each of the others."""
    for session in sessions:
        try:
            for scope, tip in session.scopes.items():
                objects.check(session.name, scope, tip)
        except Damaged as error:
            damaged.append(error)
            continue
        yield session


def take(store: Store, objects: Quarantine, session: SessionEntry, clone: str, own: str) -> Arrival | None:
    """Moves the scopes of a session that came in; None if there is nothing to move. Raises: CtxvcError."""
    name = session.name
    ours = store.tips(name)
    if not ours:
        names.check(name, "session", set(store.sessions()))
        moves = lines.arrivals({}, session.scopes, clone=clone, own=own, follows=objects.follows)
        with locked(store.lock_path(name)) as lock:
            store.move_refs({ref_of(name, move.scope): ("", move.after) for move in moves}, lock)
        return Arrival(session=name, clone=clone, is_new=True, scopes=tuple(move.scope for move in moves))
    with StoredSession.open(store, name) as stored:
        stored.flush()
        ours = store.tips(name)
        moves = lines.arrivals(
            ours,
            session.scopes,
            clone=clone,
            own=own,
            follows=objects.follows,
            is_free=lambda scope: not stored.waiting_changes(scope),
        )
        moved = stored.receive({move.scope: (move.before, move.after) for move in moves}) if moves else {}
    if not moved:
        return None
    apart = tuple(scope for scope in moved if "@" in scope and scope not in ours)
    return Arrival(session=name, clone=clone, is_new=False, scopes=tuple(moved), apart=apart)
