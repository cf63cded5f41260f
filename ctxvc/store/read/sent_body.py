"""The body of a recorded request, byte for byte as it was sent."""

from __future__ import annotations

from collections.abc import Mapping

from ctxvc.errors import NotFound, Phrase
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import revision
from ctxvc.store.read.revision import Snapshot
from ctxvc.store.store import Store


def sent_body(stored: StoredSession, snapshot: Snapshot) -> bytes:
    """The body that the newest reply in a snapshot of `stored` answers to; marks stand in it for secrets.

    Raises: NotFound if it is not recorded, Damaged.
    """
    store = stored.store
    is_now = snapshot.session == stored.name and snapshot.commit == stored.tip(snapshot.scope)
    if is_now and snapshot.waiting:
        pieces: Mapping[str, str | bytes] = stored.pieces(snapshot.scope)
    else:
        step = next(
            (entry for entry in revision.history(store, snapshot.commit) if entry.trailers.get("Ctxvc-Op") == "step"),
            None,
        )
        pieces = store.reader.pieces(step.commit) if step else {}
    if not pieces:
        raise NotFound(
            f"no request is recorded byte for byte at {snapshot.commit[:12]}",
            hint=Phrase("record-exactly"),
        )
    return joined(store, pieces)


def joined(store: Store, pieces: Mapping[str, str | bytes]) -> bytes:
    """The body that pieces make, in their order. Raises: Damaged."""
    return b"".join(
        piece if isinstance(piece, bytes) else store.reader.blob(piece, path) for path, piece in pieces.items()
    )
