"""The journal of a session: what was acknowledged and is not yet in a pack. One file, appended to under a lock.

A frame is `magic, length, sequence number, checksum of the payload, checksum of these four`, then the payload
(MessagePack). The first frame (number 0) is the head. docs/format.md has the bytes.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ctxvc.core.ledger import Counters, Group, Row
from ctxvc.core.numbering import Body
from ctxvc.errors import BadInput, CtxvcError, Damaged, Refused
from ctxvc.store import contained, durable

MAGIC = b"CXJ1"
_FRAME = struct.Struct("<4sIQI")
_CRC = struct.Struct("<I")
FRAME_SIZE = _FRAME.size + _CRC.size
FORMAT = 1


class Head(msgspec.Struct, frozen=True, array_like=True):
    """`base` is the newest record by the last flush; `block` and `group` are the session's last numbers by then.

    `moving` says that refs may be moving without records: whoever reads this looks at them again every time.
    """

    format: int
    journal: str
    base: int
    block: int
    group: int
    moving: bool = False


class Change(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """What one operation does to one scope: rows and groups as they are after it, never how to compute them.

    `step` is the step that appended rows belong to (0 for a verb), `done` that it is complete with them. `meta` sets
    fields of `ctxvc.json`; counters only ever grow. A new scope names what it starts from as `origin`, and the blocks
    that it `inherit`s from there (None: all). `merge` is a second parent. Both are full ids of commits, or `SCOPE/n`
    for the commit by which that scope has this journal's change n, which need not be there yet (`reference`).

    `text` is the commit's own, between subject and trailers. `written` is when this was acknowledged, in seconds since
    1970: so the commit is the same one whenever, and however often, it is made.
    """

    scope: str
    op: str
    actor: str
    counters: Counters
    time: str = ""
    step: int = 0
    done: bool = False
    rows: tuple[Row, ...] = ()
    bodies: tuple[Body, ...] = ()
    groups: tuple[Group, ...] = ()
    meta: dict[str, Any] = {}
    subject: str = ""
    trailers: dict[str, str] = {}
    origin: str = ""
    inherit: tuple[str, ...] | None = None
    merge: str = ""
    text: str = ""
    written: int = 0


class Record(msgspec.Struct, frozen=True, array_like=True):
    """One operation: its changes, and the scope that HEAD moves to afterwards (empty: stays).

    The record has the number of its last change; the others have those before it.
    """

    changes: tuple[Change, ...]
    head: str = ""


class Frame(msgspec.Struct, frozen=True):
    seq: int
    start: int
    end: int
    payload: bytes


class Tail(msgspec.Struct, frozen=True):
    """What stands after the last whole frame: nothing, or what a crash (or a worse thing) left."""

    start: int
    size: int
    complete: bool  # a whole frame whose checksum is wrong: not what a crash in the middle of a write leaves


_encoder = msgspec.msgpack.Encoder()
_record_decoder = msgspec.msgpack.Decoder(Record)
_head_decoder = msgspec.msgpack.Decoder(Head)


def reference(origin: str) -> tuple[str, int]:
    """Scope and change number of a reference to what a change made; ("", 0) for the id of a commit.

    Raises: Damaged where it is neither.
    """
    scope, slash, number = origin.rpartition("/")
    if not slash:
        return "", 0
    if not (number.isascii() and number.isdigit()):
        raise Damaged(f"a journal refers to {origin[:100]!r}, which is no change of it", hint="run `ctxvc verify`")
    return scope, int(number)


def encode_head(head: Head) -> bytes:
    return frame(0, _encoder.encode(head))


def encode_record(seq: int, record: Record) -> bytes:
    """The frame of a record. Raises: BadInput where a value in it has no bytes, as half a character has none."""
    try:
        return frame(seq, _encoder.encode(record))
    except (UnicodeEncodeError, OverflowError, RecursionError, TypeError) as error:
        raise BadInput(f"this cannot be recorded: {error}", hint="remove that value, or give it as text") from error


def frame(seq: int, payload: bytes) -> bytes:
    fields = _FRAME.pack(MAGIC, len(payload), seq, zlib.crc32(payload))
    return b"".join((fields, _CRC.pack(zlib.crc32(fields)), payload))


def parse(data: bytes, where: str, start: int = 0) -> tuple[list[Frame], Tail]:
    """The frames of a journal and what stands after them.

    Raises: Damaged where something unreadable is followed by a whole frame: a crash cannot do that.
    """
    frames: list[Frame] = []
    at = start
    while at < len(data):
        found = _frame_at(data, at)
        if found is None:
            later = _next_frame(data, _behind(data, at))
            if later is not None:
                after = f"record {frames[-1].seq}" if frames else "its beginning"
                raise Damaged(
                    f"{where}: {later - at} bytes after {after} (at byte {at}) are damaged, and records follow",
                    hint="`ctxvc verify` names what is hit; restore the file from a backup, or move it aside",
                )
            break
        frames.append(found)
        at = found.end
    return frames, Tail(at, len(data) - at, _complete(data, at))


def _frame_at(data: bytes, at: int) -> Frame | None:
    fields = _fields(data, at)
    if fields is None:
        return None
    length, seq, checksum = fields
    start = at + FRAME_SIZE
    payload = data[start : start + length]
    if len(payload) < length or zlib.crc32(payload) != checksum:
        return None
    return Frame(seq, at, start + length, payload)


def _fields(data: bytes, at: int) -> tuple[int, int, int] | None:
    """Length, number and checksum, where the head of a frame stands whole at `at`."""
    if len(data) - at < FRAME_SIZE:
        return None
    magic, length, seq, checksum = _FRAME.unpack_from(data, at)
    (own,) = _CRC.unpack_from(data, at + _FRAME.size)
    if magic != MAGIC or own != zlib.crc32(data[at : at + _FRAME.size]):
        return None
    return length, seq, checksum


def _behind(data: bytes, at: int) -> int:
    """Where the next frame may begin behind an unreadable one: not inside its payload, which may quote a journal."""
    fields = _fields(data, at)
    return at + 1 if fields is None else at + FRAME_SIZE + fields[0]


def _next_frame(data: bytes, at: int) -> int | None:
    while (at := data.find(MAGIC, at)) != -1:
        if _frame_at(data, at) is not None:
            return at
        at += 1
    return None


def _complete(data: bytes, at: int) -> bool:
    """Whether more stands at `at` than a torn write: one leaves the beginning of a frame, or zeros never filled."""
    fields = _fields(data, at)
    size = FRAME_SIZE + (fields[0] if fields else 0)
    return at + size <= len(data) and not data.endswith(b"\0" * 16)


class Journal:
    """One open journal file. Not locked here: the session's lock is the caller's."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reading: int | None = None
        self._writing: int | None = None
        self._inode = 0
        self.size = 0

    def close(self) -> None:
        """Lets go of the file; the next reading starts anew."""
        for handle in (self._reading, self._writing):
            if handle is not None:
                os.close(handle)
        self._reading = self._writing = None
        self._inode = -1

    def moved(self) -> bool:
        """Whether the file is no longer the one that was read: another in its place, or a shorter one."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return self._inode != 0
        return found.st_ino != self._inode or found.st_size < self.size

    def read(self, start: int = 0) -> tuple[Head | None, list[tuple[int, Record]], list[Frame], Tail]:
        """Head and records from byte `start` on, with their frames. Head is None behind the beginning.

        Raises: Damaged, Refused for a newer format.
        """
        try:
            if start == 0:
                self._hold()
            assert self._reading is not None
            with open(self._reading, "rb", buffering=0, closefd=False) as stream:
                stream.seek(start)
                data = stream.readall()
        except FileNotFoundError:
            self._inode = self.size = 0
            return None, [], [], Tail(0, 0, False)
        except OSError as error:
            raise CtxvcError(
                f"cannot read {self.path}: {error.strerror}", hint="check who owns the store and its permissions"
            ) from error
        where = f"journal {self.path.name}"
        frames, tail = parse(data, where)
        self.size = start + tail.start
        head = None
        if start == 0:
            if not frames:
                if data:
                    raise Damaged(f"{where}: the head cannot be read", hint="run `ctxvc verify`")
                return None, [], [], tail
            head = _decode_head(frames[0], where)
            frames = frames[1:]
        return head, [(found.seq, _decode(found, where)) for found in frames], frames, tail

    def append(self, frames: Sequence[bytes]) -> None:
        """The frames are on the disk when this returns; after an error the file is as it was. Raises: OSError."""
        handle = self._open()
        try:
            durable.write_all(handle, b"".join(frames))
            durable.sync(handle)
        except OSError:
            # What was not acknowledged must not come back. If even this fails, the next reader cuts the torn tail.
            try:
                os.ftruncate(handle, self.size)
            except OSError:
                self.close()
            raise
        self.size += sum(map(len, frames))

    def cut_tail(self, tail: Tail) -> None:
        """Removes what a crash left behind the last whole record; a whole but unreadable record is kept aside."""
        if not tail.size:
            return
        if tail.complete:
            with os.fdopen(self._opened(os.O_RDONLY), "rb") as stream:
                stream.seek(self.size)
                durable.replace(self.path.with_name(f"{self.path.name}.unreadable-{self.size}"), stream.read())
        handle = self._open()
        os.ftruncate(handle, self.size)
        durable.sync(handle)

    def rewrite(self, head: Head, frames: Iterable[bytes]) -> None:
        """The file holds `head` and `frames`, whole and on the disk; before that it holds what it held."""
        data = b"".join((encode_head(head), *frames))
        self.close()
        durable.replace(self.path, data)
        self._hold()
        self.size = len(data)

    def _hold(self) -> None:
        """The file is open: as long as it is, the system gives its inode's number to no other, and `moved` can tell."""
        self.close()
        self._reading = self._opened(os.O_RDONLY)
        self._inode = os.fstat(self._reading).st_ino

    def _open(self) -> int:
        if self._writing is None:
            self._writing = self._opened(os.O_WRONLY | os.O_APPEND)
        return self._writing

    def _opened(self, flags: int) -> int:
        return contained.opened(self.path.parent, self.path.name, flags)


def raw(found: Frame) -> bytes:
    """The frame as it stood in the file."""
    return frame(found.seq, found.payload)


def _decode_head(found: Frame, where: str) -> Head:
    try:
        head = _head_decoder.decode(found.payload)
    except msgspec.MsgspecError as error:
        raise Damaged(f"{where}: the head makes no sense: {error}") from error
    if head.format > FORMAT:
        raise Refused(f"{where} has format {head.format}; this ctxvc reads up to {FORMAT}", hint="update ctxvc")
    return head


def _decode(found: Frame, where: str) -> Record:
    try:
        return _record_decoder.decode(found.payload)
    except msgspec.MsgspecError as error:
        raise Damaged(f"{where}: record {found.seq} makes no sense: {error}") from error
