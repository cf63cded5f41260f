"""What a host's edit of a message, or its silence on one, makes of blocks: what is in the prompt, not their bytes."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

import msgspec

from ctxvc.core import display
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Part
from ctxvc.core.ledger.ledger import Ledger, Row
from ctxvc.core.prompt.stub import guarded
from ctxvc.core.recording.events import Edited

_BY_HOST = "host"


def edited(ledger: Ledger, event: Edited) -> list[Row]:
    """The rows that change with the edit: those of the message, as far as they do not stand as the edit has them.

    A block that the edit has too stands in the prompt. Of the others, each shows the next text of the edit in its place
    as its stub, or nothing. What the edit says besides stands behind the message.
    """
    rows = _message(ledger, event)
    parts = list(event.parts)
    present: set[str] = set()
    for row in rows:
        equal = next((part for part in parts if _is_same(row, part)), None)
        if equal:
            parts.remove(equal)
            present.add(row.id)
    texts = {row.id: _text_for(row, parts) for row in rows if row.id not in present}
    more = "\n".join(guarded(display.decode(part.body)) for part in parts if part.kind != "tool_use")
    last = max((row.number for row in rows if row.id in present), default=0)
    after = [
        _in_prompt(row, more if row.number == last else "") if row.id in present else _absent(row, texts[row.id])
        for row in rows
    ]
    return [new for new, old in zip(after, rows, strict=True) if new != old]


def withdrawn(ledger: Ledger, parts: Sequence[Part]) -> list[Row]:
    """The rows of what came in since the newest reply, as they are where the host did not send these parts."""
    if not parts:
        return []
    unsent = Counter((part.role, part.kind, hashlib.sha256(part.body).hexdigest()) for part in parts)
    rows: list[Row] = []
    for row in ledger.backwards():
        if row.role == "assistant":
            break
        if row.present and unsent[row.role, row.kind, row.sha256] > 0:
            unsent[row.role, row.kind, row.sha256] -= 1
            rows.append(_absent(row, ""))
    return rows


def _message(ledger: Ledger, event: Edited) -> list[Row]:
    """The rows of the message, but for those that left in another way than by an edit."""
    if event.call:
        rows = [row for row in ledger.rows() if row.kind == "tool_result" and row.call == event.call][-1:]
    else:
        first = next((row for row in ledger.rows() if wire.own_metadata(row.extra).get("key") == event.key), None)
        rows = [row for row in ledger.rows() if first and row.msg == first.msg and row.kind != "tool_result"]
    return [row for row in rows if row.present or (row.removed_by == _BY_HOST and not row.group)]


def _is_same(row: Row, part: Part) -> bool:
    if row.kind == "tool_use" or part.kind == "tool_use":
        return row.kind == part.kind and row.call == part.call
    return row.kind == part.kind and row.sha256 == hashlib.sha256(part.body).hexdigest()


def _text_for(row: Row, parts: list[Part]) -> str:
    """The text that stands in the row's place, taken out of the parts; empty for none."""
    for part in parts:
        if part.kind == row.kind and row.kind != "tool_use":
            parts.remove(part)
            return guarded(_text(part))
    return ""


def _text(part: Part) -> str:
    items: Sequence[object] | None = wire.items(part.body, part.extra)
    if items is None:
        return display.decode(part.body)
    return "\n".join(item["text"] for item in items if isinstance(item, dict) and isinstance(item.get("text"), str))


def _in_prompt(row: Row, more: str) -> Row:
    if not row.present:
        row = msgspec.structs.replace(row, state="visible", level=0, stub="", removed_by="")
    return msgspec.structs.replace(row, tag=more)


def _absent(row: Row, text: str) -> Row:
    state = "archived" if text else "pruned"
    return msgspec.structs.replace(row, state=state, stub=text, removed_by=_BY_HOST, tag="")
