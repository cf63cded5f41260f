"""A server's message made sound: what is written in another way is put right, and what is no message is a fault."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ctxvc.agent.refusal import Fault, Overflow, refusal
from ctxvc.core.ledger import wire
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
    missing or repeated: the adapter sees to them, which has those of the session.
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
