"""Bytes of journals that could not be read: kept beside the journal until a person accepts that they are lost."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ctxvc.errors import CtxvcError, Damaged
from ctxvc.store import files
from ctxvc.store.files import locked
from ctxvc.store.log.commits import covered, sequence
from ctxvc.store.log.damage import Numbers, described, numbers_after, record_of
from ctxvc.store.log.journal import FORMAT, FRAME_SIZE, Damage, Frame, Head, Journal, encode_head, parse

if TYPE_CHECKING:
    from ctxvc.store.store import Store

#: Stands in the name of every file with such bytes, and can stand in none of a session's.
MARK = "~unreadable-"
# The session, then digits of what is in it, so that twice the same is one file.
_NAME = re.compile(rf"(?P<session>.+){MARK}[0-9a-f]+(?P<accepted>\.accepted)?")
# What earlier versions called it: a session may be called so, too.
_EARLIER = re.compile(r"(?P<session>.+)\.unreadable-[0-9a-f]+(?P<accepted>\.accepted)?")
_ACCEPTED = ".accepted"


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """A damaged piece of a session's journal. `file` is what it is, or will be, called beside the journal."""

    session: str
    file: str
    size: int
    blocks: str = ""

    def __str__(self) -> str:
        what = f", which held {self.blocks}," if self.blocks else ""
        return f"{self.size} bytes of the journal of session {self.session}{what} cannot be read"


def piece(name: str, sessions: Container[str]) -> re.Match[str] | None:
    """The parts `session` and `accepted` of the name of a file with such bytes; None for the journal of a session."""
    return _NAME.fullmatch(name) or (None if name in sessions else _EARLIER.fullmatch(name))


def keep(store: Store, session: str, damage: Iterable[Damage]) -> None:
    """Each piece is in a file of its own beside the journal, on the disk. Raises: OSError."""
    folder = store.journal_path(session).parent
    for each in damage:
        name = _name(session, each)
        if not (folder / name).exists() and not (folder / f"{name}{_ACCEPTED}").exists():
            files.replace(folder / name, each.data)


def notices(store: Store, session: str, damage: Iterable[Damage] = ()) -> list[Notice]:
    """What nobody has accepted yet: files, and `damage` that is in no file so far."""
    listed = {notice.file: notice for notice in _files(store, session)}
    for each in damage:
        name = _name(session, each)
        listed.setdefault(name, Notice(session=session, file=name, size=len(each.data), blocks=described(each)))
    return list(listed.values())


def untold(store: Store, session: str, damage: Iterable[Damage] = ()) -> list[Notice]:
    """The notices that were not asked for in this way before: each is given once on this machine."""
    fresh = []
    for notice in notices(store, session, damage):
        marker = store.cache_path / "notices" / notice.file
        if marker.exists():
            continue
        fresh.append(notice)
        try:
            _mark(marker)
        except OSError:
            pass  # a store on a medium that cannot be written to tells it each time
    return fresh


def _mark(marker: Path) -> None:
    """The file is there. No link is followed: the store may be somebody else's. Raises: OSError."""
    for folder in (marker.parents[1], marker.parent):
        if folder.is_symlink():
            return
        folder.mkdir(mode=0o700, exist_ok=True)
    os.close(os.open(marker, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))


def accept(store: Store) -> list[Notice]:
    """Everything that cannot be read is set aside and counts as lost: `verify` no longer fails for it.

    A journal whose head is gone gets a new one, and its records are kept if they fit the commits. Raises: CtxvcError.
    """
    accepted = []
    for session in store.sessions():
        _mend(store, session)
        for notice in _files(store, session):
            path = store.journal_path(notice.file)
            path.rename(path.with_name(f"{path.name}{_ACCEPTED}"))
            files.sync_folder(path.parent)
            accepted.append(notice)
    return accepted


def _mend(store: Store, session: str) -> None:
    """The journal holds no damage afterwards."""
    try:
        _set_aside(store, session)
    except Damaged:
        with locked(store.lock_path(session)):
            if _has_head(store.journal_path(session)):
                raise
            _replace_head(store, session)
        _set_aside(store, session)


def _set_aside(store: Store, session: str) -> None:
    """Moves the damaged records out of a journal whose head can be read. Raises: Damaged."""
    writer = store.writer(session)
    try:
        if writer.damage:
            writer.flush()
    finally:
        writer.leave()


def _has_head(path: Path) -> bool:
    journal = Journal(path)
    try:
        journal.read()
    except Damaged:
        return False
    finally:
        journal.close()
    return True


def _replace_head(store: Store, session: str) -> None:
    """Puts a new head in front of the journal's bytes, so that its records can be read again and the rest is damage.

    The journal's id decides which records are committed, and is taken from the newest commit that names one. If the
    records do not fit that commit, the whole file is set aside: no record may be applied twice.
    """
    path = store.journal_path(session)
    data = path.read_bytes()
    tips = store.tips(session)
    counters = [store.reader.meta(tip).counters for tip in tips.values()]
    block, group = max(each.block for each in counters), max(each.group for each in counters)
    frames, _ = parse(data)
    records = [frame for frame in frames if frame.seq]
    journal, newest = _newest_sequence(store, tips.values())
    if records and _can_follow(store, tips, journal, records):
        keep(store, session, [Damage(0, data[: records[0].start])])
        head = Head(FORMAT, journal or store.new_id(), newest, block, group)
        files.replace(path, encode_head(head) + data)
        return
    keep(store, session, [Damage(0, data)])
    numbers = Numbers(0, block, group)
    for piece in _pieces(data):
        numbers = numbers_after(piece, numbers)
    files.replace(path, encode_head(Head(FORMAT, store.new_id(), numbers.seq, numbers.block, numbers.group)))


def _newest_sequence(store: Store, tips: Iterable[str]) -> tuple[str, int]:
    """The journal that the newest commits name, and the last change of it that they cover; ("", 0) if there is none."""
    named: list[tuple[int, str, int]] = []
    for tip in tips:
        for commit in store.first_parents(tip):
            found = store.commit(commit)
            journal, newest = sequence(found.message)
            if journal:
                named.append((found.commit_time, journal, newest))
                break
    if not named:
        return "", 0
    _, journal, _ = max(named)
    return journal, max(newest for _, name, newest in named if name == journal)


def _can_follow(store: Store, tips: Mapping[str, str], journal: str, frames: Iterable[Frame]) -> bool:
    """Whether the records can be read, and none that counts as not committed adds a block that is in a commit."""
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
    """The records in these bytes, whole or damaged, in order; all of them as one where there is none."""
    frames, tail = parse(data)
    pieces = [Damage(each.start, each.data, each.seq) for each in tail.damage]
    pieces += [Damage(each.start, data[each.start : each.end], each.seq) for each in frames]
    return sorted(pieces, key=lambda piece: piece.start) or [Damage(0, data)]


def _files(store: Store, session: str) -> Iterator[Notice]:
    folder = store.journal_path(session).parent
    try:
        listed = sorted(os.listdir(folder))
    except FileNotFoundError:
        return
    except OSError as error:
        raise CtxvcError(f"cannot read {folder}: {error.strerror}", hint="check the store's permissions") from error
    sessions = store.sessions() if any(map(_EARLIER.fullmatch, listed)) else ()
    for name in listed:
        found = piece(name, sessions)
        ours = found and found["session"] == session and not found["accepted"]
        if ours and (folder / name).is_file() and not (folder / name).is_symlink():
            data = (folder / name).read_bytes()
            yield Notice(session=session, file=name, size=len(data), blocks=described(Damage(0, data)))


def _name(session: str, damage: Damage) -> str:
    return f"{session}{MARK}{hashlib.sha256(damage.data).hexdigest()[:16]}"
