"""Accepts damage: the unreadable parts of journals are set aside for good, and count as lost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ctxvc.errors import Damaged
from ctxvc.store import files
from ctxvc.store.files import locked
from ctxvc.store.log import aside
from ctxvc.store.log.commits import covered, sequence
from ctxvc.store.log.damage import Numbers, numbers_after, record_of
from ctxvc.store.log.journal import FRAME_SIZE, Damage, Frame, Head, contents, encode_head, parse
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store


def accept(store: Store) -> list[aside.Notice]:
    """Sets everything unreadable aside as lost: `verify` no longer fails for it. Returns what was accepted.

    A journal without a readable head gets a new one; its records are kept if they fit the commits. Raises: CtxvcError.
    """
    accepted = []
    for session in store.sessions():
        _clear(store, session)
        for notice in aside.unaccepted(store, session):
            path = store.journal_path(notice.file)
            path.rename(path.with_name(f"{path.name}{aside.ACCEPTED}"))
            files.sync_folder(path.parent)
            accepted.append(notice)
    return accepted


def _clear(store: Store, session: str) -> None:
    """Sets all damage in the journal aside."""
    try:
        _set_aside(store, session)
    except Damaged:
        with locked(store.lock_path(session)):
            try:
                contents(store.journal_path(session))
            except Damaged:
                _replace_head(store, session)
            else:
                raise  # the head is intact
        _set_aside(store, session)


def _set_aside(store: Store, session: str) -> None:
    """Moves the damaged records out of a journal whose head can be read. Raises: Damaged."""
    stored = StoredSession.open(store, session)
    try:
        if stored.damage:
            stored.flush()
    finally:
        stored.leave()


def _replace_head(store: Store, session: str) -> None:
    """Puts a new head before the journal's bytes, so that its records are readable again and the rest is damage.

    The journal's id determines which records are committed, and is taken from the newest commit that names one. If the
    records do not fit that commit, the whole file is set aside: no record may be applied twice.
    """
    path = store.journal_path(session)
    data = path.read_bytes()
    tips = store.tips(session)
    metas = [store.reader.meta(tip) for tip in tips.values()]
    newest_format = max(meta.format for meta in metas)
    counters = [meta.counters for meta in metas]
    block, group = max(counter.block for counter in counters), max(counter.group for counter in counters)
    frames, _ = parse(data)
    records = [frame for frame in frames if frame.seq]
    journal, newest = _newest_sequence(store, tips.values())
    if records and _can_follow(store, tips, journal, records):
        aside.keep(store, session, [Damage(0, data[: records[0].start])])
        head = Head(newest_format, journal or store.new_id(), newest, block, group)
        files.replace(path, encode_head(head) + data)
        return
    aside.keep(store, session, [Damage(0, data)])
    numbers = Numbers(0, block, group)
    for piece in _pieces(data):
        numbers = numbers_after(piece, numbers)
    files.replace(path, encode_head(Head(newest_format, store.new_id(), numbers.seq, numbers.block, numbers.group)))


def _newest_sequence(store: Store, tips: Iterable[str]) -> tuple[str, int]:
    """The journal that the newest commits name, and the last of its changes that they cover; ("", 0) if none."""
    sequences: list[tuple[int, str, int]] = []
    for tip in tips:
        for commit in store.first_parents(tip):
            git_commit = store.commit(commit)
            journal, newest = sequence(git_commit.message)
            if journal:
                sequences.append((git_commit.commit_time, journal, newest))
                break
    if not sequences:
        return "", 0
    _, journal, _ = max(sequences)
    return journal, max(newest for _, name, newest in sequences if name == journal)


def _can_follow(store: Store, tips: Mapping[str, str], journal: str, frames: Iterable[Frame]) -> bool:
    """Whether all records are readable, and none that counts as uncommitted adds a block that is already committed."""
    for frame in frames:
        record = record_of(Damage(frame.start, bytes(FRAME_SIZE) + frame.payload))
        if record is None:
            return False
        for number, change in enumerate(record.changes, frame.seq - len(record.changes) + 1):
            tip = tips.get(change.scope)
            if tip is None or number <= covered(store.message(tip), journal):
                continue
            ledger = store.reader.ledger(tip)
            if any(not suffix and ledger.get(block) is not None for block, suffix, _ in change.bodies):
                return False
    return True


def _pieces(data: bytes) -> list[Damage]:
    """The whole and damaged records in these bytes, in order; if there are none, all bytes as one piece."""
    frames, tail = parse(data)
    pieces = [Damage(damage.start, damage.data, damage.seq) for damage in tail.damage]
    pieces += [Damage(frame.start, data[frame.start : frame.end], frame.seq) for frame in frames]
    return sorted(pieces, key=lambda piece: piece.start) or [Damage(0, data)]
