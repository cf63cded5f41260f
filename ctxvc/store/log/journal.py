"""The journal of a session: acknowledged records that are not in a pack yet. One file, appended to under a lock.

A frame is `magic, length, sequence number, checksum of the payload, checksum of these four`, then the payload
(MessagePack). The first frame (number 0) is the head. docs/format.md specifies the bytes.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ctxvc.core.ledger.ledger import Counters, Group, Row, Source
from ctxvc.core.ledger.numbering import Body
from ctxvc.errors import BadInput, Damaged, Phrase, Refused
from ctxvc.store import files
from ctxvc.store import format as fmt
from ctxvc.store.trust import contained
from ctxvc.store.trust.identity import unreadable

MAGIC = b"CXJ1"
_FRAME = struct.Struct("<4sIQI")
_CRC = struct.Struct("<I")
FRAME_SIZE = _FRAME.size + _CRC.size
#: The number of bytes that a disk writes as a whole or not at all.
SECTOR = 512
_LONGEST_HEAD = 128
#: Beyond this many pieces, damage is merged: finding the end of each piece takes time.
_MOST_DAMAGE = 100
FORMAT = 3
#: The trailer, of an open step's change and then of its commit, for a switch that was requested in the step: `scope
#: NAME` or `goto NAME`; a new scope also with `with-messages` or `from=COMMIT`. `-` takes the request back. The
#: switch's text is the change's text.
SWITCH = "Ctxvc-Switch"


class Head(msgspec.Struct, frozen=True, array_like=True):
    """`base` is the newest record at the last flush; `block` and `group` are the session's last numbers at that time.

    With `moving`, refs may be moving without records, so every reader checks them again each time.
    """

    format: int
    journal: str
    base: int
    block: int
    group: int
    moving: bool = False


class Change(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """The change of one scope by one operation: rows and groups in their state after it, never how to compute them.

    `step` is the step that the rows were appended to (0 for a verb); `done` if they complete it. `meta` sets fields of
    `ctxvc.json`; counters only ever grow. A new scope names its `origin` and the blocks that it `inherit`s from there
    (None: all). `merge` is a second parent. Both are full commit ids, or `SCOPE/n` for the commit of this journal's
    change n in that scope, which need not exist yet (`reference`).

    `text` is the commit's body, between subject and trailers. `written` is the time of acknowledgement, in seconds
    since 1970: it makes the commit identical whenever, and however often, it is made.

    `files` are the new or changed files below `request/`, as (path, bytes), and `without` those that the change drops.
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
    files: tuple[tuple[str, bytes], ...] = ()
    without: tuple[str, ...] = ()


class Record(msgspec.Struct, frozen=True, array_like=True):
    """One operation: its changes, and the scope that HEAD then moves to (empty if it stays).

    The record's number is that of its last change; the other changes have the numbers before it.
    """

    changes: tuple[Change, ...]
    head: str = ""


class Frame(msgspec.Struct, frozen=True):
    seq: int
    start: int
    end: int
    payload: bytes


class Damage(msgspec.Struct, frozen=True):
    """Damaged bytes in place of records. `seq` is 0 if the header is damaged too."""

    start: int
    data: bytes
    seq: int = 0


class Tail(msgspec.Struct, frozen=True):
    """The bytes that are not whole frames: `size` bytes left at the end by a crash, and `damage` anywhere.

    Reading continues at `start`, after the last whole frame.
    """

    start: int
    size: int
    damage: tuple[Damage, ...] = ()


#: The index of `files` among a change's fields.
_FILES = Change.__struct_fields__.index("files")
_encoder = msgspec.msgpack.Encoder()
_record_decoder = msgspec.msgpack.Decoder(Record)
_head_decoder = msgspec.msgpack.Decoder(Head)


def reference(origin: str) -> tuple[str, int]:
    """The scope and number of a reference to a change; ("", 0) for a commit id.

    Raises: Damaged if `origin` is neither.
    """
    scope, slash, number = origin.rpartition("/")
    if not slash:
        return "", 0
    if not (number.isascii() and number.isdigit()):
        raise Damaged(f"a journal refers to {origin[:100]!r}, which is not one of its changes", hint=Phrase("verify"))
    return scope, int(number)


def encode_head(head: Head) -> bytes:
    return frame(0, _encoder.encode(head))


def encode_record(seq: int, record: Record) -> bytes:
    """The frame of a record. Raises: BadInput if a value cannot be encoded, such as a lone surrogate."""
    try:
        return frame(seq, _encoder.encode(_plain(record)))
    except (UnicodeEncodeError, OverflowError, RecursionError, TypeError) as error:
        raise BadInput(f"this cannot be recorded: {error}", hint="remove that value, or pass it as text") from error


def _plain(record: Record) -> tuple[list[tuple[Any, ...]], str]:
    """The record without the default values of rows and groups, so that it has the same bytes on every Python.

    A change without files leaves their fields out, as before format 3.
    """
    changes = []
    for change in record.changes:
        plain = msgspec.structs.replace(
            change,
            rows=tuple(fmt.plain_rows(change.rows)),
            groups=tuple(map(fmt.plain, change.groups)),
            meta={
                name: fmt.plain(value) if isinstance(value, Source) else value for name, value in change.meta.items()
            },
        )
        values = msgspec.structs.astuple(plain)
        changes.append(values if change.files or change.without else values[:_FILES])
    return changes, record.head


def frame(seq: int, payload: bytes) -> bytes:
    fields = _FRAME.pack(MAGIC, len(payload), seq, zlib.crc32(payload))
    return b"".join((fields, _CRC.pack(zlib.crc32(fields)), payload))


def parse(data: bytes, base: int = 0) -> tuple[list[Frame], Tail]:
    """The frames of a journal, and everything else in it, with their positions in the file.

    `data` are the bytes from `base` on, where a frame begins. docs/format.md says how a torn tail differs from damage.
    """
    frames: list[Frame] = []
    damage: list[Damage] = []
    at = last = 0
    while at < len(data):
        whole = _frame_at(data, at)
        if whole is not None:
            at = last = whole.end
            frames.append(Frame(whole.seq, whole.start + base, whole.end + base, whole.payload) if base else whole)
        elif _is_torn(data, at, base):
            break
        else:
            most = len(damage) + 1 == _MOST_DAMAGE
            end = len(data) if most else _resumption(data, at, frames[-1].seq if frames else 0)
            fields = _fields(data, at)
            damage.append(Damage(at + base, data[at:end], fields[1] if fields else 0))
            at = end
    return frames, Tail(last + base, len(data) - at, tuple(damage))


def _is_torn(data: bytes, at: int, base: int) -> bool:
    """Whether a crash can have left the bytes from `at` to the end, of a record that was never acknowledged.

    Such bytes are the beginning of a frame, cut short, or a frame whose last sectors were never written: zeros from a
    sector boundary to the end. No payload ends with a zero, so no whole record looks like that. A wrong header that was
    written is damage, whatever follows it: there may be whole records before the zeros.
    """
    size = len(data) - at
    fields = _fields(data, at)
    if fields is not None and size != FRAME_SIZE + fields[0]:
        return size < FRAME_SIZE + fields[0]  # bytes after a frame mean that it was whole once
    if size < FRAME_SIZE and data[at : at + len(MAGIC)] == MAGIC[:size]:
        return True
    zeros = len(data.rstrip(b"\0"))
    boundary = -(-(zeros + base) // SECTOR) * SECTOR - base
    return zeros <= at or boundary < (len(data) if fields else min(at + FRAME_SIZE, len(data)))


def _resumption(data: bytes, at: int, seq: int) -> int:
    """The end of the damage that begins at `at`: the start of the next frame, or the end of the data.

    A payload may quote a journal, and a frame in it must never be taken for one of this journal. So the length in the
    header is trusted if the header's own checksum is right; otherwise the rest of the header must agree with what
    follows; otherwise everything from there to the end must be frames.
    """
    if fields := _fields(data, at):
        return at + FRAME_SIZE + fields[0]
    places = [place for place in _places(data, at + 1) if _fields(data, place)[1] > seq]  # type: ignore[index]
    if len(data) - at > FRAME_SIZE:
        _, length, _, checksum = _FRAME.unpack_from(data, at)
        end, sum_so_far = at + FRAME_SIZE, 0
        for place in (*places, len(data)):
            if place > end:
                end, sum_so_far = place, zlib.crc32(data[end:place], sum_so_far)
                if checksum == sum_so_far or length == place - at - FRAME_SIZE:
                    return place
    return _unbroken(data, places)


def _places(data: bytes, at: int) -> Iterator[int]:
    """The places of intact frame headers, from `at` on."""
    while (at := data.find(MAGIC, at)) != -1:
        if _fields(data, at):
            yield at
        at += 1


def _unbroken(data: bytes, places: Sequence[int]) -> int:
    """The first of these places from which whole frames follow one another to the end of the data; else the end."""
    reaching, work = [len(data)], 0
    ends = set(reaching)
    for place in reversed(places):
        length = _fields(data, place)[0]  # type: ignore[index]
        if place + FRAME_SIZE + length in ends:
            work += length
            if work > 16 * len(data):
                break  # frames within frames: not one of our journals
            if _frame_at(data, place):
                reaching.append(place)
                ends.add(place)
    return reaching[-1]


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
    """Length, number and payload checksum of an intact frame header at `at`, else None."""
    if len(data) - at < FRAME_SIZE:
        return None
    magic, length, seq, checksum = _FRAME.unpack_from(data, at)
    (own,) = _CRC.unpack_from(data, at + _FRAME.size)
    if magic != MAGIC or own != zlib.crc32(data[at : at + _FRAME.size]):
        return None
    return length, seq, checksum


def corrected_head(data: bytes) -> bytes | None:
    """The head's frame with a single bit flipped, if that repairs it; else None.

    Both checksums must then be right: in so short a frame no other bit can be the wrong one.
    """
    size = min(len(data), _LONGEST_HEAD)
    for bit in range(size * 8):
        trial = bytearray(data[:size])
        trial[bit // 8] ^= 1 << bit % 8
        whole = _frame_at(bytes(trial), 0)
        if whole is not None and whole.seq == 0:
            return bytes(trial[: whole.end])
    return None


class Journal:
    """One open journal file. The caller holds the session's lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reading: int | None = None
        self._writing: int | None = None
        self._inode = 0
        self.size = 0

    def close(self) -> None:
        """Closes the file; the next read starts from the beginning."""
        for handle in (self._reading, self._writing):
            if handle is not None:
                os.close(handle)
        self._reading = self._writing = None
        self._inode = -1

    def moved(self) -> bool:
        """Whether the path now has another file than the one that was read, or a shorter one."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return self._inode != 0
        return status.st_ino != self._inode or status.st_size < self.size

    def read(self, start: int = 0) -> tuple[Head | None, list[tuple[int, Record]], list[Frame], Tail]:
        """Reads head and records from byte `start` on, with their frames. The head is None unless `start` is 0.

        Damage is skipped and returned in the tail. Raises: Damaged if the head is unreadable, Refused for a new format.
        """
        try:
            if start == 0:
                self._keep_open()
            assert self._reading is not None
            with open(self._reading, "rb", buffering=0, closefd=False) as stream:
                stream.seek(start)
                data = stream.readall()
        except FileNotFoundError:
            self._inode = self.size = 0
            return None, [], [], Tail(0, 0)
        except OSError as error:
            raise unreadable(self.path, error) from error
        where = f"journal {self.path.name}"
        head = None
        if start == 0 and data:
            head, frames, tail = _from_the_beginning(data, where)
        else:
            frames, tail = parse(data, start)
        self.size = tail.start
        return head, [(item.seq, _decode(item, where)) for item in frames], frames, tail

    def append(self, frames: Sequence[bytes]) -> None:
        """Appends the frames, on the disk on return; after an error the file is unchanged. Raises: OSError."""
        handle = self._open()
        try:
            files.write_all(handle, b"".join(frames))
            files.sync(handle)
        except OSError:
            # Unacknowledged bytes must not reappear. If even this fails, the next reader cuts off the torn tail.
            try:
                os.ftruncate(handle, self.size)
            except OSError:
                self.close()
            raise
        self.size += sum(map(len, frames))

    def cut_tail(self, tail: Tail) -> None:
        """Cuts off the bytes that a crash left after the last whole record."""
        if not tail.size:
            return
        handle = self._open()
        os.ftruncate(handle, self.size)
        files.sync(handle)

    def rewrite(self, head: Head, frames: Iterable[bytes]) -> None:
        """Replaces the file with `head` and `frames`, atomically and on the disk on return."""
        data = b"".join((encode_head(head), *frames))
        self.close()
        files.replace(self.path, data)
        self._keep_open()
        self.size = len(data)

    def _keep_open(self) -> None:
        """Opens the file and keeps it open, so that its inode number is not reused: `moved` relies on that."""
        self.close()
        self._reading = self._opened(os.O_RDONLY)
        self._inode = os.fstat(self._reading).st_ino

    def _open(self) -> int:
        if self._writing is not None and os.fstat(self._writing).st_nlink > 1:
            os.close(self._writing)
            self._writing = None
        if self._writing is None:
            if contained.detach(self.path.parent, self.path.name):  # a backup by hard links must stay unchanged
                self._keep_open()
            self._writing = self._opened(os.O_WRONLY | os.O_APPEND)
        return self._writing

    def _opened(self, flags: int) -> int:
        return contained.opened(self.path.parent, self.path.name, flags)


def contents(path: Path) -> tuple[Head | None, list[tuple[int, Record]], list[Frame], Tail]:
    """What `Journal.read` returns, without leaving the file open. Raises: as `Journal.read`."""
    journal = Journal(path)
    try:
        return journal.read()
    finally:
        journal.close()


def raw(item: Frame) -> bytes:
    """The bytes of the frame as they are in the file."""
    return frame(item.seq, item.payload)


def _from_the_beginning(data: bytes, where: str) -> tuple[Head | None, list[Frame], Tail]:
    """The head and the frames after it. A head that had to be corrected also counts as damage."""
    frames, tail = parse(data)
    spoilt: tuple[Damage, ...] = ()
    if not frames or frames[0].start or frames[0].seq:
        right = corrected_head(data)
        if right is None:
            raise Damaged(f"{where}: the header is unreadable", hint=Phrase("repair-head"))
        spoilt = (Damage(0, data[: len(right)]),)
        frames, tail = parse(right + data[len(right) :])
    head = _decode_head(frames[0], where)
    return head, frames[1:], msgspec.structs.replace(tail, damage=spoilt + tail.damage)


def _decode_head(item: Frame, where: str) -> Head:
    try:
        head = _head_decoder.decode(item.payload)
    except msgspec.MsgspecError as error:
        raise Damaged(f"{where}: the header is invalid: {error}") from error
    if head.format > FORMAT:
        raise Refused(f"{where} has format {head.format}; this ctxvc reads up to {FORMAT}", hint="update ctxvc")
    return head


def _decode(item: Frame, where: str) -> Record:
    try:
        return _record_decoder.decode(item.payload)
    except msgspec.MsgspecError as error:
        raise Damaged(f"{where}: record {item.seq} is invalid: {error}") from error
