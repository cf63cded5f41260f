"""Pulling: takes in what other clones pushed; a session's scopes are continued, or become lines of their own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import msgspec

from ctxvc.core.ledger import name_rules
from ctxvc.errors import BadInput, CtxvcError, Damaged, Phrase, Refused
from ctxvc.sharing import indexes, purges, remotes
from ctxvc.sharing.index import REFS, SessionEntry, tips_of
from ctxvc.store.files import locked
from ctxvc.store.format import ref_of, scope_of
from ctxvc.store.git import transport
from ctxvc.store.git.transport import Barred
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.project import links
from ctxvc.store.purge import carried
from ctxvc.store.read.session_name import by_recency
from ctxvc.store.store import Store
from ctxvc.store.trust.quarantine import Quarantine, quarantine
from ctxvc.store.upkeep import gc


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """A session that came in or was continued: its scopes that moved. `apart` are new lines, of scopes that also grew
    here."""

    session: str
    clone: str
    is_new: bool
    scopes: tuple[str, ...]
    apart: tuple[str, ...] = ()


class Pulled(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a pull. `clones` are those on the remote, `ignored` has what was not taken, and why."""

    remote: str
    address: str
    clones: tuple[str, ...]
    arrivals: tuple[Arrival, ...]
    ignored: tuple[str, ...] = ()
    damaged: tuple[CtxvcError, ...] = ()


#: Which sessions of an index to take.
Choice = Callable[[SessionEntry], bool]


def choice(sessions: Collection[str] = (), since: str = "") -> Choice:
    """A filter for sessions of these names with a commit since an ISO 8601 time in UTC; if empty, any name or time."""
    return lambda session: (not sessions or session.name in sessions) and session.updated >= since


_ALL = choice()


def pull(store: Store, name: str = "", *, chosen: Choice = _ALL, ask: bool = False) -> Pulled:
    """Takes in what other clones pushed, except what is damaged. After an interruption, the next pull completes it.

    Raises: Refused if a purge is to be accepted first, or another store has this clone's name; Unreachable, CtxvcError.
    """
    remote = remotes.find(store, name)
    with locked(store.path / "ctxvc" / "lock" / f"_pull-{remote.name}"):
        gc.flush(store)
        is_first = not store.sessions()
        theirs = indexes.fetch(remote.address, ask=ask)
        own = remotes.clone_name(store)
        there = theirs.commits.get(own, "")
        if there not in (remote.pushed, remote.pushing):  # a push may have moved it meanwhile
            remotes.check_own(remotes.find(store, remote.name), own, there)
        purges.check_pull(store, remote.address, theirs, ask=ask)
        course = _Course(store, remote.address, own, carried.own(store).erased, ask)
        course.ignored += theirs.ignored
        offers = []
        for clone, index in sorted(theirs.clones.items()):
            course.ignored += index.ignored
            if clone != course.own:
                offers.append(Offer(clone, index.head.links, [*filter(chosen, index.sessions.values())]))
        course.bring(offers)
        if is_first and course.arrivals:
            settle_current(store)
        remotes.remember_writers(store, {one.session: one.clone for one in course.arrivals if one.is_new})
        return Pulled(
            remote=remote.name,
            address=remote.address,
            clones=tuple(sorted(theirs.clones)),
            arrivals=tuple(course.arrivals),
            ignored=tuple(dict.fromkeys(course.ignored)),
            damaged=tuple(course.damaged),
        )


#: The most new sessions that begin at once: each one's lock is an open file.
_BATCH = 200


class Offer(NamedTuple):
    """What to take from a clone: sessions, and its links to code commits."""

    clone: str
    links: str
    sessions: list[SessionEntry]

    def tips(self) -> set[str]:
        return tips_of(self.sessions) | {self.links} - {""}

    def plain(self) -> set[str]:
        """The tips that the remote has as commits, not in pieces."""
        return tips_of(entry for entry in self.sessions if not entry.pieces) | {self.links} - {""}


class _Course:
    """The course of a pull: what came in so far, and what did not."""

    def __init__(self, store: Store, address: str, own: str, erased: frozenset[str], ask: bool) -> None:
        self.arrivals: list[Arrival] = []
        self.ignored: list[str] = []
        self.damaged: list[CtxvcError] = []
        self.own = own
        self._store = store
        self._address = address
        self._erased = erased
        self._ask = ask

    def bring(self, offers: Sequence[Offer]) -> None:
        """Takes in what the clones offer, with one fetch; nothing that is damaged or that a purge erased."""
        current = self._store.all_tips()
        offers = [offer for offer in (self._news(offer, current) for offer in offers) if offer.tips()]
        while offers:
            with quarantine(self._store) as objects:
                self._fetch(objects, offers)
                is_clean = self._erased.isdisjoint(objects.names())
                sound = [self._sound(objects, offer) for offer in offers] if is_clean else []
                if sound == offers:
                    objects.accept()
                    for offer in offers:
                        self._take(objects, offer)
                    return
            # What is damaged or erased must not come in, not even unreachable: all else is fetched again.
            offers = [offer for offer in sound if offer.tips()] if is_clean else self._without_erased(offers)

    def _news(self, offer: Offer, current: Mapping[str, Mapping[str, str]]) -> Offer:
        """The new part of an offer; nothing from a clone that has not accepted a purge yet."""
        if not self._erased.isdisjoint(offer.tips()):
            self.ignored.append(f"{offer.clone} has not accepted a purge yet")
            return offer._replace(sessions=[], links="")
        sessions = [
            session
            for session in offer.sessions
            if not set(session.scopes.values()) <= set(current.get(session.name, {}).values())
        ]
        return offer._replace(sessions=sessions, links="" if offer.links == links.tip(self._store) else offer.links)

    def _fetch(self, objects: Quarantine, offers: Sequence[Offer]) -> None:
        new_tips = {offer.clone: [tip for tip in offer.plain() if not objects.has(tip)] for offer in offers}
        wants = sorted({tip for tips in new_tips.values() for tip in tips})
        if wants:
            try:
                objects.fetch(self._address, wants, ask=self._ask)
            except Barred:  # an old server serves whole refs only, or a clone has pushed meanwhile
                refs = [f"{REFS}{clone}" for clone, tips in new_tips.items() if tips]
                objects.fetch(self._address, refs, ask=self._ask)
        for offer in offers:
            for session in offer.sessions:
                if session.pieces and not all(map(objects.has, session.scopes.values())):
                    try:
                        objects.assemble(self._address, session.pieces, f"{REFS}{offer.clone}", ask=self._ask)
                    except Damaged as error:
                        self.damaged.append(error)  # so `_sound` leaves the session out

    def _without_erased(self, offers: Sequence[Offer]) -> list[Offer]:
        """The offers of clones without anything that a purge erased; each is fetched and checked by itself."""
        clean = []
        for offer in offers:
            with quarantine(self._store) as objects:
                self._fetch(objects, [offer])
                if self._erased.isdisjoint(objects.names()):
                    clean.append(offer)
                else:
                    self.ignored.append(f"{offer.clone} has not accepted a purge yet")
        return clean

    def _sound(self, objects: Quarantine, offer: Offer) -> Offer:
        """The offer without its damaged sessions."""
        sessions = []
        for session in offer.sessions:
            try:
                for scope, tip in session.scopes.items():
                    objects.check(session.name, scope, tip)
            except Damaged as error:
                self.damaged.append(error)
            else:
                sessions.append(session)
        return offer if len(sessions) == len(offer.sessions) else offer._replace(sessions=sessions)

    def _take(self, objects: Quarantine, offer: Offer) -> None:
        there = frozenset(self._store.sessions())
        lower = {name.lower() for name in there}
        fresh = [session for session in offer.sessions if session.name.lower() not in lower]
        for number in range(0, len(fresh), _BATCH):
            self.arrivals += begin(self._store, fresh[number : number + _BATCH], offer.clone, self.own)
        for session in offer.sessions:
            if session.name in there:
                try:
                    if arrival := go_on(self._store, objects, session, offer.clone, self.own):
                        self.arrivals.append(arrival)
                except CtxvcError as error:
                    self.ignored.append(f"{session.name} of {offer.clone}: {error}")
            elif session.name.lower() in lower:
                self.ignored.append(f"{session.name} of {offer.clone}: a session here differs from it in case only")
        if offer.links and offer.links in self._store.repository:
            links.merge(self._store, offer.links)


def settle_current(store: Store) -> None:
    """Makes the newest session the current one of a store that had none yet."""
    newest = [*by_recency(store), *store.sessions()][0]  # there may only be a project's notes
    store.set_current_scope(newest, store.current_scope(newest))


def begin(store: Store, sessions: Sequence[SessionEntry], clone: str, own: str) -> list[Arrival]:
    """Begins sessions that came in and are new here, all or none. Raises: Conflict if one is no longer new."""
    refs: dict[str, str] = {}
    arrivals = []
    with ExitStack() as stack:
        for session in sessions:
            stack.enter_context(locked(store.lock_path(session.name)))
            moves = line_moves({}, session.scopes, clone=clone, own=own, follows=lambda tip, older: tip == older)
            refs.update({ref_of(session.name, move.scope): move.after for move in moves})
            scopes = tuple(move.scope for move in moves)
            arrivals.append(Arrival(session=session.name, clone=clone, is_new=True, scopes=scopes))
        store.add_refs(refs)
    for session, arrival in zip(sessions, arrivals, strict=True):
        if session.scope != "main" and session.scope in arrival.scopes:
            store.begin_in(session.name, session.scope)
    return arrivals


def go_on(store: Store, objects: Quarantine, session: SessionEntry, clone: str, own: str) -> Arrival | None:
    """Moves the scopes of a known session that came in; None if there is nothing to move. Raises: CtxvcError."""
    name = session.name
    with StoredSession.open(store, name) as stored:
        stored.flush()
        ours = store.tips(name)
        moves = line_moves(
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
    tips = ours | moved
    apart = tuple(
        scope
        for scope in moved
        if "@" in scope and scope not in ours and not _joined(objects, tips, scope.partition("@")[0], scope)
    )
    return Arrival(session=name, clone=clone, is_new=False, scopes=tuple(moved), apart=apart)


def _joined(objects: Quarantine, tips: Mapping[str, str], base: str, scope: str) -> bool:
    """Whether somebody's `goto` has already joined the line `scope` to `base`."""
    return base in tips and objects.repository.descendant_of(tips[base], tips[scope])


class Move(msgspec.Struct, frozen=True):
    """A scope's move to another commit. `before` is empty for a new scope."""

    scope: str
    before: str
    after: str


def line_moves(
    ours: Mapping[str, str],
    theirs: Mapping[str, str],
    *,
    clone: str,
    own: str,
    follows: Callable[[str, str], bool],
    is_free: Callable[[str], bool] = lambda _: True,
) -> list[Move]:
    """The moves that bring in every line of `theirs` (scope → tip) that `ours` does not have.

    `clone` is their clone's name, `own` ours. `follows(tip, older)` says whether a line at `tip` continues `older`. A
    scope that is not `is_free`, since somebody is in the middle of a step there, does not move.
    """
    state = dict(ours)
    moves: dict[str, Move] = {}
    for name in sorted(theirs, key=lambda scope: ("@" in scope, scope)):
        tip = theirs[name]
        base, _, owner = name.partition("@")
        target = base if owner == own else name
        family = [scope for scope in state if scope.partition("@")[0] == base]
        if any(state[scope] == tip or follows(state[scope], tip) for scope in family):
            continue
        aside = f"{base}@{owner or clone}" if owner != own else f"{base}@{clone}"
        candidates = (target, aside, *sorted(family))
        scope = next(
            (scope for scope in candidates if scope in state and is_free(scope) and follows(tip, state[scope])), ""
        ) or _unused(target, aside, state)
        moves[scope] = Move(scope, ours.get(scope, ""), tip)
        state[scope] = tip
    return list(moves.values())


def _unused(target: str, aside: str, state: Mapping[str, str]) -> str:
    """A free name for a new line: its own, else that of its clone's line, else one with a number."""
    for name in (target, aside, *(f"{aside}.{number}" for number in range(2, len(state) + 3))):
        if _fits(name, frozenset(state)):
            return name
    base, _, clone = aside.partition("@")
    return f"{name_rules.slug(base.replace('/', '-'))}@{clone}"


def _fits(name: str, scopes: frozenset[str]) -> bool:
    """Whether git and a file system can have a scope of this name beside `scopes`."""
    if name_rules.scope_problem(name):
        return False
    lower = name.lower()
    return not any(
        lower == scope or lower.startswith(f"{scope}/") or scope.startswith(f"{lower}/")
        for scope in map(str.lower, scopes)
    )


_CLONE = "bundle"


def take_bundle(store: Store, path: Path) -> tuple[list[Arrival], list[CtxvcError]]:
    """The sessions of a bundle that came in, and an error for each that did not. One that is already in the store,
    unchanged, is neither.

    Raises: BadInput if the bundle has no session; Refused if a purge erased some of it; Unreachable, CtxvcError if git
    cannot read it.
    """
    address = str(path.resolve())
    sessions: dict[str, dict[str, str]] = {}
    for ref, tip in transport.refs(address).items():
        place = scope_of(ref)
        if place and not name_rules.problem(place[0]) and not name_rules.scope_problem(place[1]):
            sessions.setdefault(place[0], {})[place[1]] = tip
    if not any("main" in scopes for scopes in sessions.values()):
        raise BadInput(f"{path} has no session in it", hint="`git bundle list-heads FILE` shows what it has")
    arrivals: list[Arrival] = []
    errors: list[CtxvcError] = []
    is_first, present = not store.sessions(), store.all_tips()
    news = {name: scopes for name, scopes in sorted(sessions.items()) if present.get(name) != scopes}
    if not news:
        return [], []
    with quarantine(store) as objects:
        objects.fetch(address, [ref_of(name, scope) for name, scopes in news.items() for scope in scopes])
        if not carried.own(store).erased.isdisjoint(objects.names()):
            raise Refused(f"{path} has content that a purge erased", hint="a bundle from after the purge can be taken")
        entries = []
        for name, scopes in news.items():
            try:
                if name in present:
                    message = f"session {name} of {path} is in the store, and not as it is there"
                    raise Refused(message, hint=Phrase("clone-bundle"))
                for scope, tip in scopes.items():
                    objects.check(name, scope, tip)
                if "main" not in scopes:
                    raise Damaged(f"session {name} has no scope main")
                entries.append(SessionEntry(name=name, scope="main", tip=scopes["main"], scopes=scopes))
            except (Damaged, Refused) as error:
                errors.append(error)
        if entries:
            objects.accept()
        arrivals += begin(store, entries, _CLONE, "") if entries else []
    if arrivals and is_first:
        settle_current(store)
    return arrivals, errors
