"""An answer as servers write it, a stream of events or a JSON text, read to its message or to what came instead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple

from ctxvc.agent.message import ADDRESS, unreadable
from ctxvc.agent.refusal import Fault, Overflow, is_page, plain, refusal
from ctxvc.core.ledger import wire
from ctxvc.errors import BadInput
from ctxvc.forms import sse
from ctxvc.forms.values import text_of

#: Bytes of a reply that are read at most.
LARGEST = 64 << 20
#: The fault of an answer that is not whole.
CUT = Fault("cut", "it ended before it was complete", again=True, hint="check the network")

_MESSAGES = frozenset({"message_start", "content_block_start", "content_block_delta", "message_delta", "message_stop"})

_Event = tuple[str, dict[str, Any]]


class Api(NamedTuple):
    """How one of the providers' APIs answers.

    `assembled` is its form's (`forms`); `text` gives the piece of the reply's text that an event of this kind has, None
    for none; `message` is the message in a whole answer, or what that is instead. `[DONE]` ends a stream in some only.
    """

    name: str
    assembled: Callable[[Iterable[_Event]], tuple[dict[str, Any], bool, str]]
    text: Callable[[str, dict[str, Any]], object]
    message: Callable[[object], dict[str, Any] | Overflow | Fault]
    ends_with_done: bool = False


class _TooLarge(Exception):
    """A reply that does not end."""


def message_of(chunks: Iterable[bytes], say: Callable[[str], None], api: Api) -> dict[str, Any] | Overflow | Fault:
    """The message in the body of an answer with status 200. Its text goes to `say`. Raises what the chunks raise."""
    try:
        return _message(_bounded(chunks), say, api)
    except _TooLarge:
        return unreadable(f"more than {LARGEST >> 20} MiB", hint=ADDRESS)


def _message(chunks: Iterator[bytes], say: Callable[[str], None], api: Api) -> dict[str, Any] | Overflow | Fault:
    head = b""
    for chunk in chunks:
        head += chunk
        if head.strip():
            break
    if head.lstrip().startswith((b"{", b"[", b"<")):
        return _unstreamed(b"".join((head, *chunks)), say, api)
    return _streamed(chain((head,), chunks), say, api)


def _streamed(chunks: Iterable[bytes], say: Callable[[str], None], api: Api) -> dict[str, Any] | Overflow | Fault:
    events: list[_Event] = []
    is_over = False
    for event in _events(chunks):
        if event.data.strip() == b"[DONE]":
            is_over = api.ends_with_done
            continue
        value = event.value
        if value is None:
            is_error = event.name == "error"
            return refusal(0, event.data) if is_error else unreadable("an event that is no JSON object", again=True)
        kind = text_of(value.get("type")) or event.name
        if problem := _problem(kind, value, api):
            return problem
        piece = api.text(kind, value)
        if isinstance(piece, str) and piece:
            say(piece)
        elif not isinstance(piece, str | None):
            return unreadable("a piece of text that is no text", again=True)
        events.append((event.name, value))
    try:
        answer, is_whole, _ = api.assembled(events)
    except BadInput:
        return CUT
    return api.message(answer) if is_whole or is_over or answer.get("stop_reason") else CUT


def _problem(kind: str, event: dict[str, Any], api: Api) -> Overflow | Fault | None:
    """What the server reports in an event instead of going on, or that the stream is another API's."""
    if kind == "error" or event.get("error"):
        return refusal(0, event)
    if kind == "response.failed":
        return refusal(0, event.get("response") or {})
    name = api.name
    if "choices" in event:
        name = "Chat Completions"
    elif kind.startswith("response."):
        name = "the Responses API"
    elif kind in _MESSAGES:
        name = "the Messages API"
    return None if name == api.name else unreadable(f"a stream of {name}")


def _events(chunks: Iterable[bytes]) -> Iterator[sse.Event]:
    """Each event with data; the last one's end may be missing."""
    stream = sse.Events()
    for chunk in chunks:
        yield from (event for event in stream.feed(chunk) if event.data)
    if (tail := stream.tail()).data:
        yield tail


def _unstreamed(body: bytes, say: Callable[[str], None], api: Api) -> dict[str, Any] | Overflow | Fault:
    """The message that is the whole body; it came without a stream, though one was asked for."""
    text = body.decode("utf-8", "replace")
    if is_page(text):
        return unreadable(f"the web page {plain(text)!r}")
    try:
        value = wire.parse(text)
    except ValueError:
        return CUT
    answer = api.message(value)
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
