"""What a host gets back: its own messages according to a ledger, with our stubs where blocks have left.

The host's messages decide what can be in the prompt; their content stays verbatim. The store supplies only what they
lack: blocks restored since they were written, and notes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

import msgspec

from ctxvc.core import display
from ctxvc.core.hosts.match import Match, Place
from ctxvc.core.hosts.message import HostMessage, ToolResult, ToolUse
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.ledger import RENDER, Ledger, Row
from ctxvc.core.prompt import stub
from ctxvc.core.prompt.cut import CUT
from ctxvc.core.prompt.outline import Bodies, Slot, outline, pieces
from ctxvc.core.prompt.sanitise import Piece

#: Kinds that no host takes back unchanged, so that a mask replaces them.
_MEDIA = frozenset({"image", "document"})


def hosted(ledger: Ledger, match: Match, restored: Collection[str] = ()) -> Ledger:
    """The ledger of the prompt that the host has, and can have: without what its messages do not show.

    Thinking, reminders and anything else that the host keeps to itself count as pruned by it; an image or document in
    the prompt is masked, since only text can be returned. Blocks in `restored`, and notes, come from the store. It
    renders by the newest rules, as after any cut.
    """
    visible = {block for place in match.places if place.shows in ("whole", "changed") for block in place.blocks}
    shown_messages = {row.msg for block in visible if (row := ledger.get(block))}
    changed: list[Row] = []
    for row in ledger.rows():
        if not row.present or row.id in visible or row.kind == "note":
            continue
        if row.kind in _MEDIA and row.role == "user" and row.msg in shown_messages:
            if row.state != "masked":
                changed.append(msgspec.structs.replace(row, state="masked", removed_by="host"))
        elif row.kind in CUT or (row.id not in restored and row.state != "masked"):
            changed.append(msgspec.structs.replace(row, state="pruned", removed_by="host"))
    meta = msgspec.structs.replace(ledger.meta, render=RENDER)
    return ledger.with_meta(meta).with_rows(changed)


def render(ledger: Ledger, bodies: Bodies, messages: Sequence[HostMessage], match: Match) -> list[HostMessage]:
    """The messages of a ledger (`hosted`, or the result of a plan on it) in the host's form.

    A call is answered in the next message, no result appears without its call, and the first message is the user's.
    """
    host = _Host.of(messages, match)
    parts = [part for part in _parts(ledger, bodies, host) if not isinstance(part.value, str) or part.value.strip()]
    together = list(_messages(_paired(parts, host)))
    if together and together[0].role != "user":
        together.insert(0, HostMessage(role="user", text=stub.BEGINNING))
    return together


class _Part(NamedTuple):
    """A part of a future message. `message` is equal for parts of a reply that form one message."""

    role: str
    value: str | ToolUse | ToolResult
    message: tuple[int, int] = (0, 0)


class _Host(NamedTuple):
    """A host's messages by the blocks that they show.

    `new` are parts that the store lacks, each with the number of the newest block before it; `results` are those of
    them that answer a call.
    """

    values: Mapping[str, str | ToolUse | ToolResult]
    joined: Mapping[str, str]  # a block whose text the host joined with others → the first of them
    new: list[tuple[int, _Part]]
    results: Mapping[str, ToolResult]

    @staticmethod
    def of(messages: Sequence[HostMessage], match: Match) -> _Host:
        values: dict[str, str | ToolUse | ToolResult] = {}
        joined: dict[str, str] = {}
        new: list[tuple[int, _Part]] = []
        newest = 0
        for place in match.places:
            message = messages[place.message]
            value = _value(message, place)
            numbers = [int(block[1:]) for block in place.blocks]
            if place.shows == "new":
                new.append((newest, _Part(message.role, value, (-1, place.message))))
            elif place.shows in ("whole", "changed"):
                values[place.blocks[0]] = value
                joined |= dict.fromkeys(place.blocks[1:], place.blocks[0])
            if place.shows != "again":
                newest = max([newest, *numbers])
        results = {part.value.id: part.value for _, part in new if isinstance(part.value, ToolResult)}
        return _Host(values, joined, new, results)

    def without_broken(self, intact: Set[str]) -> _Host:
        """The same without joined texts of which a block is not `intact`: what stays is rendered block by block."""
        broken = {first for block, first in self.joined.items() if not {block, first} <= intact}
        values = {block: value for block, value in self.values.items() if block not in broken}
        joined = {block: first for block, first in self.joined.items() if first not in broken}
        return self._replace(values=values, joined=joined)


def _value(message: HostMessage, place: Place) -> str | ToolUse | ToolResult:
    match place.part:
        case "tool_use":
            return message.tool_uses[place.at]
        case "tool_result":
            return message.tool_results[place.at]
    return message.text


def _parts(ledger: Ledger, bodies: Bodies, host: _Host) -> Iterator[_Part]:
    """The parts in order; what the store lacks follows the block that it came after, a result its call."""
    slots = outline(ledger)
    host = host.without_broken({slot.row.id for slot in slots if slot.show == "body"})
    calls = {slot.call for slot in slots if slot.kind == "tool_use"}
    new = ((at, part) for at, part in host.new if not (isinstance(part.value, ToolResult) and part.value.id in calls))
    upcoming = next(new, None)
    for slot in slots:
        while upcoming and upcoming[0] < slot.row.number and slot.kind != "tool_result":
            yield upcoming[1]
            upcoming = next(new, None)
        yield _part(slot, bodies, ledger.meta.render, host)
    if upcoming:
        yield upcoming[1]
    for _, part in new:
        yield part


def _part(slot: Slot, bodies: Bodies, render: int, host: _Host) -> _Part:
    """The part that a slot becomes; its value is empty if it shows nothing to a host."""
    role = "assistant" if slot.role == "assistant" else "user"
    block, message = slot.row.id, (slot.row.msg, 0)
    if slot.show == "body" and block in host.joined and host.joined[block] in host.values:
        return _Part(role, "")
    value = host.values.get(block) if slot.show == "body" else None
    if isinstance(value, ToolResult) and slot.kind != "tool_result":
        value = value.text
    if isinstance(value, ToolResult | ToolUse):
        return _Part(role, msgspec.structs.replace(value, id=slot.call), message)
    if value is None and slot.kind == "tool_result" and slot.row.kind == "tool_use":
        return _Part(role, host.results.get(slot.row.call, ToolResult(id=slot.call, text=stub.INTERRUPTED, error=True)))
    if slot.row.kind in _MEDIA and slot.show == "mask":
        size = display.human_bytes(slot.row.bytes)
        return _Part(role, f"[masked {slot.row.handle}: {slot.row.kind}, {size} left out]", message)
    (piece,) = pieces([slot], bodies, render)
    match slot.kind:
        case "tool_result":
            return _Part(role, ToolResult(id=slot.call, text=_plain(piece), error=slot.row.error), message)
        case "tool_use":
            arguments = wire.arguments(piece.body, piece.ext)
            return _Part(role, ToolUse(id=slot.call, tool=slot.row.tool, input=arguments), message)
    return _Part(role, value if isinstance(value, str) else _plain(piece), message)


def _plain(piece: Piece) -> str:
    """A piece as text; non-text items in a result of several parts are named by their type."""
    items = wire.items(piece.body, piece.extra)
    if items is None:
        return display.decode(piece.body) if piece.ext in ("txt", "json") else f"[{piece.kind}]"
    return "\n".join(map(_item_text, items))


def _item_text(item: object) -> str:
    match item:
        case str():
            return item
        case {"text": str(text)}:
            return text
        case {"type": str(kind)}:
            return f"[{kind}]"
    return ""


def _paired(parts: Iterable[_Part], host: _Host) -> Iterator[_Part]:
    """The parts, with each call answered exactly once, before any other user part."""
    open_calls: dict[str, bool] = {}
    answered: set[str] = set()
    for part in parts:
        match part.value:
            case ToolUse(id=call):
                if call in open_calls or call in answered:
                    continue
                open_calls[call] = True
            case ToolResult(id=call):
                if call in answered:
                    continue
                if call not in open_calls:
                    yield _Part("user", part.value.text)
                    continue
                del open_calls[call]
                answered.add(call)
            case _ if part.role == "user" and open_calls:
                yield from _interrupted(open_calls, host)
                answered |= set(open_calls)
                open_calls.clear()
        yield part
    yield from _interrupted(open_calls, host)


def _interrupted(open_calls: Iterable[str], host: _Host) -> Iterator[_Part]:
    for call in open_calls:
        yield _Part("user", host.results.get(call, ToolResult(id=call, text=stub.INTERRUPTED, error=True)))


def _messages(parts: Iterable[_Part]) -> Iterator[HostMessage]:
    """The parts as messages: the calls of a reply form one, and so do consecutive results."""
    text, uses, results = "", list[ToolUse](), list[ToolResult]()
    origin = (0, 0)

    def message() -> Iterator[HostMessage]:
        if text or uses:
            yield HostMessage(role="assistant", text=text, tool_uses=tuple(uses))
        if results:
            yield HostMessage(role="user", tool_results=tuple(results))

    for part in parts:
        match part.value:
            case ToolResult() as result if not (text or uses):
                results.append(result)
            case ToolUse() as use if not results and (not (text or uses) or part.message == origin):
                uses.append(use)
                origin = part.message
            case value:
                yield from message()
                text, uses, results, origin = "", [], [], part.message
                if isinstance(value, ToolResult):
                    results.append(value)
                elif isinstance(value, ToolUse):
                    uses.append(value)
                elif part.role == "assistant":
                    text = value
                else:
                    yield HostMessage(role="user", text=value)
    yield from message()
