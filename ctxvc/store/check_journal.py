"""Does a journal hold what was acknowledged? Pure: bytes in, findings out."""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator

import msgspec

from ctxvc.errors import CtxvcError, Damaged
from ctxvc.store.contents import named_files
from ctxvc.store.findings import Finding, Where, damage, warning
from ctxvc.store.journal import FORMAT, MAGIC, Change, Frame, Head, Record, Tail, parse, reference

#: What the commits of a change's scope hold, or of the one that it starts from. Raises: CtxvcError.
Committed = Callable[[Change], Collection[str]]

_LOST = "restore the file from a backup, or move it aside: what no commit has yet is lost with it"
_TORN = "the next write removes them; nothing that was acknowledged is in them"


def findings(data: bytes, where: Where, committed: Committed) -> Iterator[Finding]:
    """What is wrong with a journal, and after which record."""
    tail = Tail(len(data), 0, complete=False)
    problem = ""
    try:
        frames, tail = parse(data, "the journal")
    except Damaged as error:
        problem = str(error)
        frames = _before_damage(data)
    last = "its beginning"
    known: dict[str, set[str]] = {}
    for before, frame in zip([None, *frames], frames, strict=False):
        if before is None:
            yield from _head(frame, where)
            continue
        if frame.seq <= before.seq:
            yield damage(f"record {frame.seq} stands behind record {before.seq}", where, _LOST)
        try:
            record = msgspec.msgpack.decode(frame.payload, type=Record)
        except (msgspec.MsgspecError, RecursionError) as error:
            yield damage(f"record {frame.seq}, after {last}, makes no sense: {error}", where, _LOST)
            continue
        last = f"record {frame.seq} ({_described(record)})"
        for change in record.changes:
            yield from _bodies(change, known, frame.seq, where, committed)
    if problem:
        yield damage(f"{problem}; the last good one is {last}", where, _LOST)
    elif data and not frames:
        yield damage(f"the head cannot be read; the journal has {len(data)} bytes", where, _LOST)
    elif tail.size and tail.complete:
        yield damage(f"{tail.size} bytes after {last} are a whole record that cannot be read", where, _LOST)
    elif tail.size:
        yield warning(f"a crash left {tail.size} bytes after {last}", where, _TORN)


def records(data: bytes) -> int:
    """How many records can be read, the head not counted."""
    try:
        frames, _ = parse(data, "the journal")
    except Damaged:
        frames = _before_damage(data)
    return max(0, len(frames) - 1)


def _before_damage(data: bytes) -> list[Frame]:
    """The frames before the first that is damaged: those of the longest beginning that can be read."""
    marks = [found.start() for found in re.finditer(MAGIC, data)]
    frames, _ = parse(data[: marks[bisect_left(marks, True, key=lambda end: _is_damaged(data[:end])) - 1]], "")
    return frames


def _is_damaged(data: bytes) -> bool:
    try:
        parse(data, "")
    except Damaged:
        return True
    return False


def _head(frame: Frame, where: Where) -> Iterator[Finding]:
    try:
        head = msgspec.msgpack.decode(frame.payload, type=Head)
    except (msgspec.MsgspecError, RecursionError) as error:
        yield damage(f"the head makes no sense: {error}", where, _LOST)
        return
    if head.format > FORMAT:
        yield damage(f"it has format {head.format}; this ctxvc reads up to {FORMAT}", where, "update ctxvc")


def _described(record: Record) -> str:
    """`scope main, step 5, B11-B13`, for each scope that the record touches."""
    parts = []
    for change in record.changes:
        rows = change.rows
        span = f", {rows[0].id}" + (f"-{rows[-1].id}" if len(rows) > 1 else "") if rows else ""
        parts.append(f"scope {change.scope}, " + (f"step {change.step}" if change.op == "step" else change.op) + span)
    return "; ".join(parts)


def _bodies(
    change: Change, known: dict[str, set[str]], seq: int, where: Where, committed: Committed
) -> Iterator[Finding]:
    """The bodies that a change brings are those of its rows, and no new row is without one."""
    where = msgspec.structs.replace(where, scope=change.scope)
    bodies = {(block, suffix): data for block, suffix, data in change.bodies}
    if change.scope not in known:
        try:
            # What a new scope starts from may be in no commit yet; then the journal has shown it before.
            origin, _ = reference(change.origin)
            known[change.scope] = set(known[origin] if origin in known else committed(change))
        except CtxvcError:
            known[change.scope] = {row.id for row in change.rows}  # told where those commits are looked at
    for row in change.rows:
        at = msgspec.structs.replace(where, block=row.id)
        body = bodies.get((row.id, ""))
        if body is None:
            if row.id not in known[change.scope]:
                yield damage(f"record {seq} has the row of {row.id} and no body", at, _LOST)
            continue
        known[change.scope].add(row.id)
        if (len(body), hashlib.sha256(body).hexdigest()) != (row.bytes, row.sha256):
            yield damage(f"record {seq} has another body for {row.id} than its row says", at, _LOST)
        named = {name: (size, digest) for name, size, digest in named_files(body)} if row.files else {}
        for suffix in row.files:
            data = bodies.get((row.id, suffix))
            if data is None or named.get(suffix, _sum(data)) != _sum(data):
                yield damage(f"record {seq} lacks {row.id}-{suffix}, or has another", at, _LOST)


def _sum(data: bytes) -> tuple[int, str]:
    return len(data), hashlib.sha256(data).hexdigest()
