"""A server's answer, a stream of events or a JSON text, read to a sound message; what is no message is a fault."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

from ctxvc.agent.refusal import Fault, Overflow, is_page, plain, refusal
from ctxvc.core.ledger import wire
from ctxvc.errors import BadInput
from ctxvc.forms import sse
from ctxvc.forms.values import text_of

#: The reasons for an end that gateways take over from the API behind them.
_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
#: After these a reply may well have nothing in it.
_MAY_BE_EMPTY = frozenset({"refusal", "max_tokens", "model_context_window_exceeded", "pause_turn"})
#: No call has more tokens.
_MOST_TOKENS = 1 << 40

ADDRESS = "check the address: it should be that of a server with the Messages API"


def sound(value: object) -> dict[str, Any] | Overflow | Fault:
    """A whole message of the Messages API, or what is wrong with it.

    Its content is a list of blocks with texts that are texts, calls have a name, the reason for its end is one that the
    API has. Arguments of a call that are no object stay the text that the model wrote (`call.malformed`). Ids may be
    missing or repeated: the adapter, which knows those of the session, makes them unique.
    """
    if not isinstance(value, Mapping):
        return unreadable("not an object")
    if value.get("error") or value.get("type") == "error":
        return refusal(200, dict(value))
    if "choices" in value:
        return unreadable("a reply of Chat Completions")
    content = value.get("content")
    if not isinstance(content, str | list | Mapping | None) or (content is None and "stop_reason" not in value):
        return unreadable("no content")
    blocks: list[dict[str, Any]] = []
    for item in [content] if isinstance(content, str | Mapping) else content or ():
        block = _block(item)
        if isinstance(block, Fault):
            return block
        if block:
            blocks.append(block)
    calls = any(block.get("type") == "tool_use" for block in blocks)
    reason = value.get("stop_reason")
    stop = _REASONS.get(reason, reason) if isinstance(reason, str) and reason else "tool_use" if calls else "end_turn"
    if not blocks and stop not in _MAY_BE_EMPTY:
        return Fault("empty", "the model replied with nothing", again=True, hint="try again, or ask differently")
    return {
        **value,
        "id": text_of(value.get("id")),
        "model": text_of(value.get("model")),
        "role": "assistant",
        "content": blocks,
        "stop_reason": stop,
        "usage": _usage(value.get("usage")),
    }


def unreadable(content: str, *, hint: str = ADDRESS, again: bool = False) -> Fault:
    """The fault of an answer that is no message, but has this content."""
    return Fault("unreadable", f"the server's answer is no message: {content}", again=again, hint=hint)


def arguments(text: str) -> dict[str, Any] | str:
    """A call's arguments as they were written: an object, else the text."""
    value = wire.parsed(text, dict)
    return text if value is None else value


def _block(item: object) -> dict[str, Any] | Fault | None:
    """A block of content; None for an empty text, which no request may have."""
    if isinstance(item, str):
        return {"type": "text", "text": item} if item else None
    if not isinstance(item, Mapping):
        return _damaged("a block that is no object")
    match item:
        case {"type": "text", "text": str(text)}:
            return dict(item) if text else None
        case {"type": "text", "text": None}:
            return None
        case {"type": "text"}:
            return _damaged("a text that is no text")
        case {"type": "tool_use", "name": str(name)} if name:
            return {**item, "input": _input(item.get("input"))}
        case {"type": "tool_use"}:
            return _damaged("a call without a name")
        case {"type": "thinking", "thinking": text} if not isinstance(text, str):
            return _damaged("thinking that is no text")
        case {"type": str()}:
            return dict(item)
    return _damaged("a block without a type")


def _damaged(content: str) -> Fault:
    return unreadable(content, again=True, hint="try again, or another model or server")


def _input(value: object) -> dict[str, Any] | str:
    match value:
        case dict():
            return value
        case str():
            return arguments(value) if value.strip() else {}
        case None:
            return {}
    return wire.compact(value).decode("ascii", "replace")


def _usage(value: object) -> dict[str, Any]:
    """The counts that are counts; what else a server reports there stays as it is."""
    counts = value if isinstance(value, Mapping) else {}
    return {
        name: count
        for name, count in counts.items()
        if isinstance(count, dict | list)
        or (isinstance(count, int) and not isinstance(count, bool) and 0 <= count < _MOST_TOKENS)
    }


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
    """The refusal that an event reports, or the fault of a stream of another API."""
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
