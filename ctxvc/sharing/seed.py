"""Sessions from a bundle: a file with branches of a store, as `bundle.write` or `git bundle create` makes it."""

from __future__ import annotations

from pathlib import Path

from ctxvc.core.ledger import name_rules
from ctxvc.errors import BadInput, CtxvcError, Damaged, Phrase, Refused
from ctxvc.sharing.index import SessionEntry
from ctxvc.sharing.pull import Arrival, begin, settle_current
from ctxvc.store.format import ref_of, scope_of
from ctxvc.store.git import transport
from ctxvc.store.purge import carried
from ctxvc.store.store import Store
from ctxvc.store.trust.quarantine import quarantine

_CLONE = "bundle"


def take_bundle(store: Store, path: Path) -> tuple[list[Arrival], list[CtxvcError]]:
    """The sessions of a bundle that came in, and an error for each that did not. One that the store has just so is
    neither.

    Raises: BadInput if it has none; Refused if a purge erased some of it; Unreachable, CtxvcError if git cannot read
    it.
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
