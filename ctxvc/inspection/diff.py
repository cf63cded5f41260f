"""What changed between two moments of a session: what entered the prompt, what left it, what stands otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from ctxvc.core.ledger.ledger import Ledger, Row

Move = Literal["entered", "left", "changed"]


class BlockChange(msgspec.Struct, frozen=True, kw_only=True):
    """One block that stands otherwise. `row` is the newer one; `was` and `now` are states, empty where it was not."""

    move: Move
    row: Row
    was: str = ""
    now: str = ""


def difference(before: Ledger, after: Ledger) -> list[BlockChange]:
    """The blocks that stand otherwise in `after` than in `before`, in the order of their numbers."""
    return sorted(_changes(before, after), key=lambda change: change.row.number)


def _changes(before: Ledger, after: Ledger) -> Iterator[BlockChange]:
    for segment in {*before.segments.changed_since(after.segments), *after.segments.changed_since(before.segments)}:
        old_rows, new_rows = before.segments.get(segment), after.segments.get(segment)
        # By checksum too: where clones grew apart, one number can mean two blocks.
        old = {(row.id, row.sha256): row for row in old_rows}
        new = {(row.id, row.sha256): row for row in new_rows}
        for key in old.keys() | new.keys():
            if change := _change(old.get(key), new.get(key)):
                yield change


def _change(old: Row | None, new: Row | None) -> BlockChange | None:
    row = new or old
    assert row is not None
    was, now = old.state if old else "", new.state if new else ""
    before, after = old is not None and old.present, new is not None and new.present
    if before != after:
        return BlockChange(move="entered" if after else "left", row=row, was=was, now=now)
    if was != now or (old and new and old.group != new.group):
        return BlockChange(move="changed", row=row, was=was, now=now)
    return None
