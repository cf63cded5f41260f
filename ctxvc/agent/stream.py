"""A stream as servers write them: its events, and the message that they make, whatever is missing or out of order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, Protocol

from ctxvc.agent import message as messages
from ctxvc.agent.message import sound, unreadable
from ctxvc.agent.refusal import Fault, Overflow, is_page, plain, refusal
from ctxvc.core.ledger import wire
from ctxvc.forms.values import call_input

#: Bytes of a reply that are read at most.
LARGEST = 64 << 20


class _TooLarge(Exception):
    """A reply that does not end."""


class Events(Protocol):
    """Puts a message together from the events of a stream."""

    def add(self, name: str, data: str) -> Overflow | Fault | None:
        """Takes in an event; gives what the server reported instead of going on, if it did."""

    def message(self) -> dict[str, Any] | Overflow | Fault:
        """The whole message; a fault if it is not complete."""


def message_of(
    chunks: Iterable[bytes],
    say: Callable[[str], None],
    *,
    assembly: Events | None = None,
    from_json: Callable[[object], dict[str, Any] | Overflow | Fault] = sound,
) -> dict[str, Any] | Overflow | Fault:
    """The message in the body of an answer with status 200: a stream of events, or a JSON text. Its text goes to `say`.

    Another API than the Messages API has an `assembly` of its own for its events, which has `say` already, and reads
    what came as JSON in its own way: `from_json`. Raises what the chunks raise.
    """
    try:
        return _message(_bounded(chunks), say, assembly or Assembly(say), from_json)
    except _TooLarge:
        return unreadable(f"more than {LARGEST >> 20} MiB", hint=messages.ADDRESS)


def _message(
    chunks: Iterator[bytes],
    say: Callable[[str], None],
    assembly: Events,
    from_json: Callable[[object], dict[str, Any] | Overflow | Fault],
) -> dict[str, Any] | Overflow | Fault:
    head = b""
    for chunk in chunks:
        head += chunk
        if head.strip():
            break
    if head.lstrip().startswith((b"{", b"[", b"<")):
        return _unstreamed(b"".join((head, *chunks)), say, from_json)
    for name, data in events(chain((head,), chunks)):
        if refused := assembly.add(name, data):
            return refused
    return assembly.message()


def _unstreamed(
    body: bytes, say: Callable[[str], None], from_json: Callable[[object], dict[str, Any] | Overflow | Fault]
) -> dict[str, Any] | Overflow | Fault:
    """The message that is the whole body; it came without a stream, though one was asked for."""
    text = body.decode("utf-8", "replace")
    if is_page(text):
        return unreadable(f"the web page {plain(text)!r}")
    try:
        value = wire.parse(text)
    except ValueError:
        return Fault("cut", "it ended before it was complete", again=True, hint="check the network")
    answer = from_json(value)
    if isinstance(answer, dict):
        for block in answer["content"]:
            if block.get("type") == "text":
                say(block["text"])
    return answer


def events(chunks: Iterable[bytes]) -> Iterator[tuple[str, str]]:
    """The name and the data of each server-sent event; a name may be missing, and the last event's end."""
    name = ""
    data: list[str] = []
    for line in chain(_lines(chunks), ("",)):
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line and data:
            yield name, "\n".join(data)
        if not line:
            name, data = "", []
        elif field == "event":
            name = value
        elif field == "data":
            data.append(value)


def _lines(chunks: Iterable[bytes]) -> Iterator[str]:
    tail: list[bytes] = []  # of a line whose end has not come
    for chunk in chunks:
        first, *later = chunk.split(b"\n")
        tail.append(first)
        for line in later:
            yield b"".join(tail).removesuffix(b"\r").decode("utf-8", "replace")
            tail = [line]
    yield b"".join(tail).decode("utf-8", "replace")


def _bounded(chunks: Iterable[bytes]) -> Iterator[bytes]:
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > LARGEST:
            raise _TooLarge
        yield chunk


class Assembly:
    """The message that events of the Messages API make, one after the other.

    An event is what its data says, since not every server names it. A block that has no beginning is begun by its
    first piece; one that begins under a number in use is another block.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._message: dict[str, Any] = {}
        self._usage: dict[str, Any] = {}
        self._blocks: list[dict[str, Any]] = []
        self._pieces: dict[tuple[int, str], list[str]] = {}  # of a block's field, by its place
        self._places: dict[object, int] = {}  # a block's place by its number in the stream
        self._ended = False

    def add(self, name: str, data: str) -> Overflow | Fault | None:
        """Takes in an event; gives what the server reported instead of going on, if it did."""
        if data.strip() == "[DONE]":
            return None
        try:
            event = wire.parse(data)
        except ValueError:
            return refusal(0, data) if name == "error" else unreadable("an event that is not JSON", again=True)
        if not isinstance(event, dict):
            return unreadable("an event that is no object", again=True)
        kind = event.get("type") or name
        if kind == "error" or event.get("error"):
            return refusal(0, event)
        if "choices" in event:
            return unreadable("a stream of Chat Completions")
        match kind:
            case "message_start":
                self._begin(event.get("message"))
            case "content_block_start":
                self._start(event.get("index"), event.get("content_block"))
            case "content_block_delta":
                return self._extend(event.get("index"), event.get("delta"))
            case "message_delta":
                self._end(event)
            case "message_stop":
                self._ended = True
        return None

    def message(self) -> dict[str, Any] | Overflow | Fault:
        """The whole message; a fault if it is not complete."""
        if not self._ended and not self._message.get("stop_reason"):
            return Fault("cut", "it ended before it was complete", again=True, hint="check the network")
        for (place, field), pieces in self._pieces.items():
            text, before = "".join(pieces), self._blocks[place].get(field)
            if field == "input":
                self._blocks[place][field] = call_input(text) if text.strip() else before
            else:
                self._blocks[place][field] = (before if isinstance(before, str) else "") + text
        return sound({**self._message, "content": self._blocks, "usage": self._usage})

    def _begin(self, message: object) -> None:
        if not isinstance(message, dict):
            return
        self._message.update(message)
        self._count(message.get("usage"))
        content = message.get("content")
        for block in content if isinstance(content, list) else ():
            self._start(None, block)

    def _end(self, event: dict[str, Any]) -> None:
        delta = event.get("delta")
        if isinstance(delta, dict):
            self._message.update({name: value for name, value in delta.items() if value is not None})
        self._count(event.get("usage"))

    def _count(self, usage: object) -> None:
        """The end tells what was counted since the beginning; what it leaves out, or calls null, was told there."""
        if isinstance(usage, dict):
            self._usage.update({name: count for name, count in usage.items() if count is not None})

    def _start(self, index: object, block: object) -> None:
        self._places[_number(index)] = len(self._blocks)
        self._blocks.append(dict(block) if isinstance(block, dict) else {})
        if isinstance(text := self._blocks[-1].get("text"), str) and text:
            self._say(text)

    def _extend(self, index: object, delta: object) -> Fault | None:
        if not isinstance(delta, dict):
            return None
        kind = delta.get("type")
        field = _FIELDS.get(kind) if isinstance(kind, str) else None
        if field is None:
            return None
        source, target, block_kind = field
        piece = delta.get(source)
        if piece is None:
            return None
        if target != "citations" and not isinstance(piece, str):
            return unreadable(f"a piece of {block_kind} that is no text", again=True)
        if _number(index) not in self._places:
            self._start(index, {"type": block_kind})
        place = self._places[_number(index)]
        block = self._blocks[place]
        if target == "citations":
            before = block.get("citations")
            block["citations"] = [*(before if isinstance(before, list) else ()), piece]
        else:
            self._pieces.setdefault((place, target), []).append(piece)
        if target == "text":
            self._say(piece)
        return None


#: Of each kind of piece: its field, the block's field that it extends, and the block's type.
_FIELDS = {
    "text_delta": ("text", "text", "text"),
    "input_json_delta": ("partial_json", "input", "tool_use"),
    "thinking_delta": ("thinking", "thinking", "thinking"),
    "signature_delta": ("signature", "signature", "thinking"),
    "citations_delta": ("citation", "citations", "text"),
}


def _number(index: object) -> object:
    return index if isinstance(index, int | str) else None
