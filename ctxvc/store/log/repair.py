"""Accepts damage: what cannot be read of the journals is set aside for good, and counts as lost."""

from __future__ import annotations

from pathlib import Path

from ctxvc.errors import Damaged
from ctxvc.store import files
from ctxvc.store.files import locked
from ctxvc.store.log import aside
from ctxvc.store.log.damage import Numbers, numbers_after
from ctxvc.store.log.journal import FORMAT, Damage, Head, Journal, encode_head, parse
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store


def accept(store: Store) -> list[aside.Notice]:
    """Everything that cannot be read is set aside and counts as lost: `verify` no longer fails for it.

    A journal whose head is gone is set aside as a whole; the session goes on from its commits. Raises: CtxvcError.
    """
    accepted = []
    for session in store.sessions():
        _set_aside(store, session)
        for notice in aside.unaccepted(store, session):
            path = store.journal_path(notice.file)
            path.rename(path.with_name(f"{path.name}{aside.ACCEPTED}"))
            files.sync_folder(path.parent)
            accepted.append(notice)
    return accepted


def _set_aside(store: Store, session: str) -> None:
    """The journal holds no damage afterwards."""
    try:
        stored = StoredSession.open(store, session)
        try:
            if stored.damage:
                stored.flush()
        finally:
            stored.leave()
    except Damaged:
        with locked(store.lock_path(session)):
            if not _has_head(store.journal_path(session)):
                _begin_anew(store, session)
                return
        raise


def _has_head(path: Path) -> bool:
    journal = Journal(path)
    try:
        journal.read()
    except Damaged:
        return False
    finally:
        journal.close()
    return True


def _begin_anew(store: Store, session: str) -> None:
    """The whole journal is set aside. What it may have given out of numbers stays used."""
    path = store.journal_path(session)
    whole = Damage(0, path.read_bytes())
    metas = [store.reader.meta(tip).counters for tip in store.tips(session).values()]
    numbers = Numbers(0, max(meta.block for meta in metas), max(meta.group for meta in metas))
    frames, tail = parse(whole.data)
    pieces = [(frame.start, Damage(frame.start, frame.data, frame.seq)) for frame in tail.damage]
    pieces += [(frame.start, Damage(frame.start, whole.data[frame.start : frame.end], frame.seq)) for frame in frames]
    for _, piece in sorted(pieces, key=lambda item: item[0]) or [(0, whole)]:
        numbers = numbers_after(piece, numbers)
    aside.keep(store, session, [whole])
    head = Head(FORMAT, store.new_id(), numbers.seq, numbers.block, numbers.group)
    files.replace(path, encode_head(head))
