"""The effects of damage in a journal: the numbers that it may have used, and the parts of later records. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import msgspec

from ctxvc.core import display
from ctxvc.core.ledger.ledger import Group, Ledger, Row
from ctxvc.store.log.journal import FRAME_SIZE, Change, Damage, Record

#: The numbers reserved for a damaged record that shows none; more if its bytes could hold more.
SPARE = 64
# The least size in a record, in bytes, of a row, a change and a group.
_ROW = 128
_CHANGE = 48
_GROUP = 16

#: The longest name of a block or group, in characters.
_LONGEST_NAME = 13

_decoder = msgspec.msgpack.Decoder(Record)
_BLOCK = re.compile(rb"[\xa2-\xaf]B([1-9][0-9]{0,11})(?![0-9])")


class Numbers(msgspec.Struct, frozen=True):
    """The newest numbers of a journal: those of its changes, and of the session's blocks and groups."""

    seq: int
    block: int
    group: int


def record_of(damage: Damage) -> Record | None:
    """The record, if its payload can still be decoded. Its contents may be wrong."""
    try:
        return _decoder.decode(damage.data[FRAME_SIZE:])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def numbers_after(damage: Damage, before: Numbers) -> Numbers:
    """The newest numbers that a damaged record may have used. None of them is used again."""
    spare = Numbers(
        before.seq + _spare(damage, _CHANGE),
        before.block + _spare(damage, _ROW),
        before.group + _spare(damage, _GROUP),
    )
    record = record_of(damage)
    if record is None:
        return msgspec.structs.replace(spare, seq=damage.seq or spare.seq)
    # A flipped bit can turn one of these into another number, but not all of them, and not into one for which the
    # record has no room.
    blocks = [change.counters.block for change in record.changes]
    blocks += [_number(row.id) for row in _rows(record)]
    blocks += [int(match[1]) for match in _BLOCK.finditer(damage.data)]
    groups = [change.counters.group for change in record.changes]
    groups += [_number(group.id) for change in record.changes for group in change.groups]
    return Numbers(
        damage.seq or before.seq + max(1, len(record.changes)),
        _newest(blocks, before.block, spare.block),
        _newest(groups, before.group, spare.group),
    )


def described(damage: Damage) -> str:
    """The contents of a damaged record, as far as legible, such as `B5-B7 of scope main`; empty if nothing is."""
    record = record_of(damage)
    if record is None:
        return ""
    parts = []
    for change in record.changes:
        ids = [row.id for row in change.rows]
        span = f"{ids[0]}-{ids[-1]}" if len(ids) > 1 else "".join(ids)
        parts.append(f"{span or change.op} of scope {change.scope}")
    return display.one_line(", ".join(parts), 200)


def mended(change: Change, before: Ledger) -> Change:
    """What remains of a change that followed a lost one; `before` is the ledger of its scope without the lost change.

    It refers to no missing block or group, and each of its rows has its body. The hash of its prompt is removed, since
    that prompt can no longer be rendered.
    """
    bodies = {block for block, suffix, _ in change.bodies if not suffix}

    def is_there(block: str) -> bool:
        return block in bodies or (_number(block) > 0 and block.startswith("B") and before.get(block) is not None)

    groups = {group.id: group for group in _groups(change, before, is_there)}
    standing = {**before.groups, **groups}
    standing = {name: group for name, group in standing.items() if group.members}
    return msgspec.structs.replace(
        change,
        rows=tuple(_mended_rows(change, before, standing, is_there)),
        groups=tuple(groups.values()),
        trailers={name: value for name, value in change.trailers.items() if name != "Ctxvc-Prompt"},
    )


def _groups(change: Change, before: Ledger, is_there: Callable[[str], bool]) -> Iterator[Group]:
    there = {*before.groups, *(group.id for group in change.groups if group.members)}
    while True:
        whole = {
            group.id
            for group in change.groups
            if any(member in there or is_there(member) for member in group.members) or not group.members
        }
        lost = {group.id for group in change.groups} - whole - before.groups.keys()
        if not lost & there:
            break
        there -= lost
    for group in change.groups:
        if group.id in whole or group.id in before.groups:
            yield msgspec.structs.replace(
                group,
                members=tuple(member for member in group.members if member in there or is_there(member)),
                summary=tuple(block for block in group.summary if is_there(block)),
                before=group.before if group.before and is_there(group.before) else "",
                group=group.group if group.group in there else "",
            )


def _mended_rows(
    change: Change, before: Ledger, groups: dict[str, Group], is_there: Callable[[str], bool]
) -> Iterator[Row]:
    for row in change.rows:
        if not is_there(row.id):
            continue
        if row.group and row.group not in groups:
            if before.get(row.id) is not None:
                continue  # unchanged: the group that it joined is lost
            row = msgspec.structs.replace(row, group="", level=min(row.level, 1))  # noqa: PLW2901
        yield msgspec.structs.replace(row, parent="") if row.parent and not is_there(row.parent) else row


def _rows(record: Record) -> Iterator[Row]:
    return (row for change in record.changes for row in change.rows)


def _number(name: str) -> int:
    return int(name[1:]) if len(name) <= _LONGEST_NAME and name[1:].isdecimal() and name.isascii() else 0


def _spare(damage: Damage, least: int) -> int:
    return max(SPARE, len(damage.data) // least)


def _newest(numbers: list[int], before: int, limit: int) -> int:
    """The largest plausible number: not below `before`, at most `limit`; `limit` if none is plausible."""
    likely = [number for number in numbers if before <= number <= limit]
    return max(likely) if likely else limit
