"""Checks that a journal is intact. Pure: bytes in, findings out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator

import msgspec

from ctxvc.errors import CtxvcError, Phrase
from ctxvc.store.log.damage import described
from ctxvc.store.log.journal import FORMAT, Change, Damage, Frame, Head, Record, corrected_head, parse, reference
from ctxvc.store.verify.decoded import named_files
from ctxvc.store.verify.finding import Finding, Where, damage, warning

#: The blocks in the commits of a change's scope, or of the scope that it starts from. Raises: CtxvcError.
Committed = Callable[[Change], Collection[str]]

_LOST = "restore the file from a backup, or move it aside: uncommitted records are lost with it"
_LOST_HEAD = Phrase("repair-head")
_REPAIR = Phrase("repair-records")
_TORN = "the next write removes them; they contain nothing that was acknowledged"


def findings(data: bytes, where: Where, committed: Committed) -> Iterator[Finding]:
    """The faults of a journal, each located after the last sound record before it."""
    frames, tail = parse(data)
    waiting = list(tail.damage)
    last = "its beginning"
    before: Frame | None = None
    ids: dict[str, set[str]] = {}
    headless = not frames or bool(frames[0].start or frames[0].seq)
    if headless and data:
        right = corrected_head(data)
        hint = _REPAIR if right else _LOST_HEAD
        yield damage(f"the header is unreadable; the journal has {len(data)} bytes", where, hint)
        if right is None:
            return
        frames, tail = parse(right + data[len(right) :])
        waiting = list(tail.damage)
    for frame in frames:
        while waiting and waiting[0].start < frame.start:
            yield _unreadable(waiting.pop(0), last, where)
        if before is None:
            yield from _head(frame, where)
            before = frame
            continue
        if frame.seq <= before.seq:
            yield damage(f"record {frame.seq} comes after record {before.seq}", where, _LOST)
        before = frame
        try:
            record = msgspec.msgpack.decode(frame.payload, type=Record)
        except (msgspec.MsgspecError, RecursionError) as error:
            yield damage(f"record {frame.seq}, after {last}, is invalid: {error}", where, _LOST)
            continue
        last = f"record {frame.seq} ({_described(record)})"
        for change in record.changes:
            yield from _bodies(change, ids, frame.seq, where, committed)
    for piece in waiting:
        yield _unreadable(piece, last, where)
    if tail.size:
        yield warning(f"a crash left {tail.size} bytes after {last}", where, _TORN)


def records(data: bytes) -> int:
    """The number of readable records, without the head."""
    frames, _ = parse(data)
    return sum(frame.seq > 0 for frame in frames)


def _unreadable(piece: Damage, last: str, where: Where) -> Finding:
    blocks = f", which contained {what}," if (what := described(piece)) else ""
    return damage(f"{len(piece.data)} bytes after {last}{blocks} cannot be read", where, _REPAIR)


def _head(frame: Frame, where: Where) -> Iterator[Finding]:
    try:
        head = msgspec.msgpack.decode(frame.payload, type=Head)
    except (msgspec.MsgspecError, RecursionError) as error:
        yield damage(f"the header is invalid: {error}", where, _LOST)
        return
    if head.format > FORMAT:
        yield damage(f"it has format {head.format}; this ctxvc reads up to {FORMAT}", where, "update ctxvc")


def _described(record: Record) -> str:
    """A description such as `scope main, step 5, B11-B13`, for each scope that the record changes."""
    parts = []
    for change in record.changes:
        rows = change.rows
        span = f", {rows[0].id}" + (f"-{rows[-1].id}" if len(rows) > 1 else "") if rows else ""
        parts.append(f"scope {change.scope}, " + (f"step {change.step}" if change.op == "step" else change.op) + span)
    return "; ".join(parts)


def _bodies(
    change: Change, ids: dict[str, set[str]], seq: int, where: Where, committed: Committed
) -> Iterator[Finding]:
    """Checks that a change's bodies match its rows, and that every new row has one."""
    where = msgspec.structs.replace(where, scope=change.scope)
    bodies = {(block, suffix): data for block, suffix, data in change.bodies}
    if change.scope not in ids:
        try:
            # The origin of a new scope may not be committed yet; then an earlier record has it.
            origin, _ = reference(change.origin)
            ids[change.scope] = set(ids[origin] if origin in ids else committed(change))
        except CtxvcError:
            ids[change.scope] = {row.id for row in change.rows}  # reported at those commits
    for row in change.rows:
        at = msgspec.structs.replace(where, block=row.id)
        body = bodies.get((row.id, ""))
        if body is None:
            if row.id not in ids[change.scope]:
                yield damage(f"record {seq} has the row of {row.id} but no body", at, _LOST)
            continue
        ids[change.scope].add(row.id)
        if (len(body), hashlib.sha256(body).hexdigest()) != (row.bytes, row.sha256):
            yield damage(f"record {seq} has a body for {row.id} that does not match its row", at, _LOST)
        files = {name: (size, digest) for name, size, digest in named_files(body)} if row.files else {}
        for suffix in row.files:
            data = bodies.get((row.id, suffix))
            if data is None or files.get(suffix, _sum(data)) != _sum(data):
                yield damage(f"record {seq} lacks {row.id}-{suffix}, or has a different one", at, _LOST)


def _sum(data: bytes) -> tuple[int, str]:
    return len(data), hashlib.sha256(data).hexdigest()
