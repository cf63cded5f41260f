"""Purges that travel: the remote has the record of what was erased beside the indexes (decision 63)."""

from __future__ import annotations

from ctxvc.errors import Conflict, CtxvcError, Phrase, Refused
from ctxvc.sharing import indexes, remotes
from ctxvc.sharing.index import REFS, tips_of
from ctxvc.sharing.indexes import Indexes
from ctxvc.store.purge import carried
from ctxvc.store.purge.carried import PurgeRecord
from ctxvc.store.purge.purge import PurgeRequest, adopt, purge
from ctxvc.store.purge.search import Report
from ctxvc.store.store import Store
from ctxvc.store.trust.quarantine import quarantine
from ctxvc.store.upkeep import gc


def check_push(store: Store, theirs: Indexes, clone: str, *, after_purge: bool) -> str:
    """The commit of the purge record that the remote is to have. Raises: Refused if a person must decide first."""
    ours = carried.own(store)
    if not carried.includes(store, ours.commit, theirs.purged):
        raise Refused("another clone purged content that is shared here", hint=Phrase("share-accept"))
    if not after_purge and not ours.erased.isdisjoint(tips_of(theirs.of_clone(clone).values())):
        raise Refused(
            "this store was purged, and the remote has its history from before that", hint=Phrase("share-after-purge")
        )
    return ours.commit


def check_pull(store: Store, address: str, theirs: Indexes, *, ask: bool) -> None:
    """Adopts the remote's purge record if this store has nothing of what it erased.

    Raises: Refused if a person must accept it first."""
    record = _news(store, address, theirs, ask=ask)
    if count := len(carried.present(store, record)):
        raise Refused(
            f"another clone has purged content that is here too: {count} objects", hint=Phrase("share-accept")
        )
    if record.commit:
        adopt(store, record)


def accept(store: Store, name: str = "", *, ask: bool = False) -> Report | None:
    """Erases here what another clone purged, also from history that only this store has; None if it has none of it.

    The store must be reopened afterwards. Raises: as `purge.purge`; Unreachable, CtxvcError.
    """
    remote = remotes.find(store, name)
    gc.flush(store)
    theirs = indexes.fetch(remote.address, ask=ask)
    record = _news(store, remote.address, theirs, ask=ask)
    if not carried.present(store, record):
        return None
    _fetch_rewritten(store, remote.address, theirs, record, ask=ask)
    report = purge(store, PurgeRequest(carried=record))
    indexes.forget(remote.address)
    with Store(store.path) as afresh:
        if leftover := carried.present(afresh, record):
            raise CtxvcError(
                f"{len(leftover)} objects of the purge are still here, so what it erased cannot be told apart",
                hint=Phrase("share-anew"),
            )
    return report


def _news(store: Store, address: str, theirs: Indexes, *, ask: bool) -> PurgeRecord:
    """The remote's record if ours lacks some of it, else an empty one. Raises: Damaged."""
    ours = carried.own(store)
    if not theirs.purged or carried.includes(store, ours.commit, theirs.purged):
        return PurgeRecord()
    if theirs.purged not in store.repository:
        with quarantine(store) as objects:
            objects.fetch(address, [theirs.purged], ask=ask)
            if not objects.has(theirs.purged):
                raise Conflict("another clone purged at the same moment", hint=Phrase("share-again"))
            objects.accept()
    return carried.record_at(store, theirs.purged)


def _fetch_rewritten(store: Store, address: str, theirs: Indexes, record: PurgeRecord, *, ask: bool) -> None:
    """Fetches the new history of our sessions from clones that have rewritten it: it shows what was erased."""
    ours = frozenset(store.sessions())
    rewritten = [
        (clone, session)
        for clone, index in theirs.clones.items()
        if index.head.purged == record.commit
        for session in index.sessions.values()
        if session.name in ours
    ]
    tips = tips_of(session for _, session in rewritten if not session.pieces)
    wants = sorted(tip for tip in tips if tip not in store.repository and tip not in record.erased)
    carried_here = [
        (clone, session)
        for clone, session in rewritten
        if session.pieces and not all(tip in store.repository for tip in session.scopes.values())
    ]
    if wants or carried_here:
        with quarantine(store) as objects:
            if wants:
                objects.fetch(address, wants, ask=ask)
            for clone, session in carried_here:
                objects.assemble(address, session.pieces, f"{REFS}{clone}", ask=ask)
            if record.erased.isdisjoint(objects.names()):
                objects.accept()
