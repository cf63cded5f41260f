"""A stream as servers write them: its events, and the message that they make, whatever is missing or out of order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, Protocol

from ctxvc.agent import message as messages
from ctxvc.agent.message import sound, unreadable
from ctxvc.agent.refusal import Fault, Overflow, is_page, plain, refusal
from ctxvc.core.ledger import wire
from ctxvc.forms import anthropic_stream, sse

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
    for name, data in sse.events(chain((head,), chunks)):
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


def _bounded(chunks: Iterable[bytes]) -> Iterator[bytes]:
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > LARGEST:
            raise _TooLarge
        yield chunk


class Assembly:
    """The message that events of the Messages API make, one after the other."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._assembly = anthropic_stream.Assembly()

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
        if (event.get("type") or name) == "error" or event.get("error"):
            return refusal(0, event)
        if "choices" in event:
            return unreadable("a stream of Chat Completions")
        if damaged := _damaged(event.get("delta")):
            return damaged
        if text := self._assembly.add(name, event):
            self._say(text)
        return None

    def message(self) -> dict[str, Any] | Overflow | Fault:
        """The whole message; a fault if it is not complete."""
        if not self._assembly.ended:
            return Fault("cut", "it ended before it was complete", again=True, hint="check the network")
        return sound(self._assembly.message())


#: Of each kind of piece: its field, and the type of the block that it is of.
_PIECES = {
    "text_delta": ("text", "text"),
    "input_json_delta": ("partial_json", "tool_use"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "thinking"),
}


def _damaged(delta: object) -> Fault | None:
    """The fault of a piece that should be text and is none."""
    kind = delta.get("type") if isinstance(delta, dict) else None
    if not isinstance(delta, dict) or not isinstance(kind, str) or kind not in _PIECES:
        return None
    field, block = _PIECES[kind]
    is_text = delta.get(field) is None or isinstance(delta[field], str)
    return None if is_text else unreadable(f"a piece of {block} that is no text", again=True)
