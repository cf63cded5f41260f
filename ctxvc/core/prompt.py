"""From a ledger to the content of a prompt. Judged on rows alone; bodies are read only for what stands in it.

Whatever left, in whatever order, the outline is valid for the Messages API: each call is answered in the next message,
once, results lead it, and no result stands without its call (reference: the Messages API's rules on tool use).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from ctxvc.core import text, wire
from ctxvc.core.ledger import Group, Ledger, Row

INTERRUPTED = "[no result was recorded: the call was interrupted]"
#: What a masked body still shows at its head and at its tail, in characters.
MASK_SHOWN = 400

Show = Literal["body", "mask", "text"]
_NOT_TEXT = frozenset({"tool_use", "tool_result", "thinking", "image", "document", "other"})


class Slot(msgspec.Struct, frozen=True):
    """One content block of the prompt: a row's body, its masked body, or a text of ours in its place.

    `role` and `kind` are those that it has here: a result whose call is gone stands as user text. `row` is the block
    it comes from.
    """

    row: Row
    show: Show
    role: str
    kind: str
    text: str = ""
    call: str = ""


class Bodies(msgspec.Struct, frozen=True):
    """How bodies are read: `body(row)` and, for siblings, `file(row, suffix)`."""

    body: Callable[[Row], bytes]
    file: Callable[[Row, str], bytes]


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A content block with its bytes, ready for any provider's form. `message` tells what belongs together."""

    message: int
    role: str
    kind: str
    body: bytes
    ext: str = "txt"
    call: str = ""
    tool: str = ""
    error: bool = False
    extra: Mapping[str, Any] = {}
    files: Mapping[str, bytes] = {}


def outline(ledger: Ledger) -> list[Slot]:
    """What stands in the prompt, in order."""
    rows = list(_in_prompt_order(ledger))
    shown = dict(_shown(ledger, rows))
    results = _results(rows)
    calls = {row.call: row for row in rows if row.kind == "tool_use"}
    slots: list[Slot] = []
    asked: list[Row] = []  # calls of the assistant message in the making

    def answer() -> None:
        for call in asked:
            slots.append(_answer(call, results.get(call.call), shown))
        asked.clear()

    for row in rows:
        slot = shown.get(row.id)
        if row.role != "assistant" and asked:
            answer()
        if row.kind == "tool_result" and results.get(row.call) is row and _stands(calls.get(row.call), shown):
            continue  # it was given right behind its call
        if slot is None:
            continue
        if row.kind == "tool_use" and slot.show != "text":
            asked.append(row)
        if row.kind == "tool_result" and slot.show != "text":
            slot = _without_call(slot)
        slots.append(slot)
    answer()
    return slots


def pieces(slots: Iterable[Slot], bodies: Bodies) -> list[Piece]:
    """The slots with their bytes."""
    return [_piece(slot, bodies) for slot in slots]


def sendable(content: Iterable[Piece]) -> list[Piece]:
    """`content` as it may be sent: without the empty and white texts that the Messages API refuses, and with a word
    for the model where a call has no result."""
    sent: list[Piece] = []
    for piece in content:
        if piece.kind == "tool_result" and piece.error and not piece.body:
            sent.append(msgspec.structs.replace(piece, body=text.encode(INTERRUPTED)))
        elif piece.kind in _NOT_TEXT or piece.body.strip():
            sent.append(piece)
    return sent


def _in_prompt_order(ledger: Ledger) -> Iterator[Row]:
    """The rows in the order of the ledger, but for summaries that a host put before a kept tail."""
    moved = {
        block: group.before for group in ledger.groups.values() if group.before for block in group.summary
    }  # fmt: skip
    if not moved:
        yield from ledger.rows()
        return
    by_place: dict[str, list[Row]] = {}
    for block, place in moved.items():
        by_place.setdefault(place, []).append(ledger[block])
    for row in ledger.rows():
        yield from by_place.get(row.id, ())
        if row.id not in moved:
            yield row


def _shown(ledger: Ledger, rows: list[Row]) -> Iterator[tuple[str, Slot]]:
    """For each row that shows something: what, as if calls and results did not depend on each other."""
    told: set[str] = set()
    for row in rows:
        if row.present:
            show: Show = "mask" if row.state == "masked" else "body"
            yield row.id, Slot(row, show, row.role, row.kind, call=row.call)
            continue
        if row.state not in ("archived", "blocked", "deleted"):
            continue
        stub = row.stub
        if row.group:
            group = _outermost(ledger, row.group)
            first = group.id not in told
            told.add(group.id)
            stub = group.stub if first else ""
        if stub:
            yield row.id, Slot(row, "text", row.role, row.role, stub)


def _outermost(ledger: Ledger, name: str) -> Group:
    group = ledger.groups[name]
    while group.group:
        group = ledger.groups[group.group]
    return group


def _results(rows: Iterable[Row]) -> dict[str, Row]:
    """call → the result that stands for it: the newest that was really recorded."""
    found: dict[str, Row] = {}
    for row in rows:
        if row.kind == "tool_result" and row.call and not (row.call in found and _interrupted(row)):
            found[row.call] = row
    return found


def _interrupted(row: Row) -> bool:
    return bool(row.extra.get("ctxvc", {}).get("interrupted"))


def _stands(call: Row | None, shown: Mapping[str, Slot]) -> bool:
    return call is not None and call.id in shown and shown[call.id].show != "text"


def _answer(call: Row, result: Row | None, shown: Mapping[str, Slot]) -> Slot:
    """The slot behind a call: its result, or what stands for it."""
    if result is None:
        return Slot(call, "text", "user", "tool_result", "", call.call)
    slot = shown.get(result.id)
    if slot is None:
        where = f" in {result.group}" if result.group else ""
        return Slot(result, "text", "user", "tool_result", f"[{result.state} {result.id}{where}]", call.call)
    if slot.show == "text":
        return msgspec.structs.replace(slot, role="user", kind="tool_result", call=call.call)
    return slot


def _without_call(slot: Slot) -> Slot:
    """A result whose call is not in the prompt, as ordinary text: the API would refuse it as a result."""
    return msgspec.structs.replace(slot, kind="user", role="user", call="")


def _piece(slot: Slot, bodies: Bodies) -> Piece:
    row = slot.row
    piece = Piece(
        message=row.msg, role=slot.role, kind=slot.kind, body=b"", call=slot.call, tool=row.tool, error=row.error
    )
    if slot.show == "text":
        failed = slot.kind == "tool_result" and (row.error or not slot.text)
        return msgspec.structs.replace(piece, body=text.encode(slot.text), error=failed)
    body = bodies.body(row)
    if slot.show == "mask":
        return msgspec.structs.replace(piece, body=text.encode(_masked(text.decode(body), row)))
    if row.kind == "tool_result" and slot.kind != "tool_result":
        return msgspec.structs.replace(piece, body=text.encode(_plain(body, row)))
    files = {suffix: bodies.file(row, suffix) for suffix in row.files}
    return msgspec.structs.replace(piece, body=body, ext=row.ext, extra=row.extra, files=files)


def _masked(value: str, row: Row) -> str:
    if len(value) <= 2 * MASK_SHOWN:
        return value
    left_out = len(value) - 2 * MASK_SHOWN
    return f"{value[:MASK_SHOWN]}\n[masked {row.handle}: {left_out:,} characters left out]\n{value[-MASK_SHOWN:]}"


def _plain(body: bytes, row: Row) -> str:
    """The text of a result that stands without its call."""
    if row.extra.get("ctxvc", {}).get("parts"):
        parts = wire.parse(body)
        return "\n".join(str(part.get("text") or f"[{part.get('type')}]") for part in parts if isinstance(part, dict))
    return text.decode(body)
