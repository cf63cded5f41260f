"""A first fill from a bundle: a file with a store's branches, as `git bundle create FILE --all` writes it."""

from __future__ import annotations

from pathlib import Path

from ctxvc.core.ledger import names
from ctxvc.errors import BadInput, CtxvcError, Damaged, Phrase, Refused
from ctxvc.sharing.index import SessionEntry
from ctxvc.sharing.pull import Arrival, begin, settle_current
from ctxvc.store.format import ref_of, scope_of
from ctxvc.store.git import transport
from ctxvc.store.quarantine import quarantine
from ctxvc.store.store import Store

#: The first line of a bundle.
_SIGNS = (b"# v2 git bundle\n", b"# v3 git bundle\n")
_CLONE = "bundle"


def is_bundle(path: Path) -> bool:
    """Whether the file is a git bundle."""
    try:
        with path.open("rb") as file:
            return file.read(len(_SIGNS[0])) in _SIGNS
    except OSError:
        return False


def take_bundle(store: Store, path: Path) -> tuple[list[Arrival], list[CtxvcError]]:
    """The sessions of a bundle that came in, and an error for each that did not.

    Raises: BadInput if it has none; Unreachable, CtxvcError if git cannot read it.
    """
    address = str(path.resolve())
    sessions: dict[str, dict[str, str]] = {}
    for ref, tip in transport.refs(address).items():
        place = scope_of(ref)
        if place and not names.problem(place[0]) and not names.scope_problem(place[1]):
            sessions.setdefault(place[0], {})[place[1]] = tip
    if not any("main" in scopes for scopes in sessions.values()):
        raise BadInput(f"{path} has no session in it", hint="`git bundle list-heads FILE` shows what it has")
    arrivals: list[Arrival] = []
    errors: list[CtxvcError] = []
    if store.sessions():
        raise Refused(f"{store.path} has sessions: a bundle fills a new store", hint=Phrase("share-add"))
    with quarantine(store) as objects:
        objects.fetch(address, [ref_of(name, scope) for name, scopes in sessions.items() for scope in scopes])
        entries = []
        for name, scopes in sorted(sessions.items()):
            try:
                for scope, tip in scopes.items():
                    objects.check(name, scope, tip)
                if "main" not in scopes:
                    raise Damaged(f"session {name} has no scope main")
                entries.append(SessionEntry(name=name, scope="main", tip=scopes["main"], scopes=scopes))
            except Damaged as error:
                errors.append(error)
        if entries:
            objects.accept()
        arrivals += begin(store, entries, _CLONE, "") if entries else []
    if arrivals:
        settle_current(store)
    return arrivals, errors
