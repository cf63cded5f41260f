"""Messages of the pi coding agent (its `AgentMessage`), in the Messages API's form and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ctxvc.core.ledger.block import Origin
from ctxvc.importers import pi as recording
from ctxvc.integrations.conversation import FrameworkMessage
from ctxvc.integrations.hosts.message import Edit, Piece

NAME = "pi"
MISSING = ("pi's own words around summaries",)
RESULTS_INSIDE = False

#: Roles whose `content` may be edited.
_OWN_CONTENT = frozenset({"user", "assistant", "toolResult", "custom"})
_ROLES = frozenset({*_OWN_CONTENT, "bashExecution", "compactionSummary", "branchSummary"})


def key(raw: Mapping[str, Any]) -> str:
    """A result goes by its call, all else by role and moment: these stay when pi copies a session."""
    role, moment = str(raw.get("role")), raw.get("timestamp")
    if role not in _ROLES:
        return ""
    if role == "toolResult":
        call = raw.get("toolCallId")
        return f"result:{call}" if isinstance(call, str) and call else ""
    return f"{role}:{moment}" if isinstance(moment, int | float) else ""


def role(raw: Mapping[str, Any]) -> str:
    return {"assistant": "assistant", "toolResult": "result"}.get(str(raw.get("role")), "user")


def pieces(raw: Mapping[str, Any], key: str) -> list[Piece]:
    """One piece; none for a message that the model is not sent."""
    origins: list[Origin] = []
    match raw:
        case {"role": "assistant"}:
            blocks = list(_reply(raw))
            message: dict[str, Any] = {"role": "assistant", "content": [block for _, block in blocks]}
            message |= {"model": raw.get("model", ""), "usage": recording.usage(raw.get("usage"))}
            origin: Origin = "human"
        case {"role": "toolResult", "toolCallId": str(call)}:
            shown_blocks = [block for _, block in _items(raw)]
            result: dict[str, Any] = {"type": "tool_result", "tool_use_id": call, "content": shown_blocks}
            if raw.get("isError") is True:
                result["is_error"] = True
            blocks, message, origin = [(0, result)], {"role": "user", "content": [result]}, "client"
        case {"role": "user" | "custom"}:
            blocks = list(_items(raw))
            message = {"role": "user", "content": [block for _, block in blocks]}
            origin = "client"
            if raw["role"] == "user":
                content = _content(raw)
                origins = [recording.origin(content[place]) for place, _ in blocks]
        case _:
            texts = recording.shown_texts(raw)
            blocks = list(enumerate(_texts([text for text, _ in texts])))
            message, origin = {"role": "user", "content": [block for _, block in blocks]}, "client"
            origins = [maker for _, maker in texts]
    if not blocks:
        return []
    recorded = FrameworkMessage(id=key, message=message, source=None, origin=origin, origins=origins)
    return [Piece(recorded, tuple(place for place, _ in blocks))]


def edited(raw: Mapping[str, Any], edit: Edit) -> dict[str, Any] | None:
    own = [{"type": "text", "text": text} for text in edit.appended]
    if str(raw.get("role")) not in _OWN_CONTENT:
        if not any(edit):
            return dict(raw)
        own_texts = enumerate(text for text, _ in recording.shown_texts(raw))
        texts = [edit.replaced.get(place, text) for place, text in own_texts if place not in edit.dropped]
        return {"role": "user", "content": [*_texts(texts), *own], "timestamp": raw.get("timestamp")} if texts else None
    if raw["role"] == "toolResult":
        if 0 in edit.dropped:
            return None
        items = _texts([edit.replaced[0]]) if 0 in edit.replaced else _content(raw)
        return {**raw, "content": [*items, *own]}
    items = [
        {"type": "text", "text": edit.replaced[place]} if place in edit.replaced else item
        for place, item in enumerate(_content(raw))
        if place not in edit.dropped
    ]
    if (not items and not own) or all(_kind(item) == "thinking" for item in [*items, *own]):
        return None
    return {**raw, "content": [*items, *own]}


def is_summary(raw: Mapping[str, Any]) -> bool:
    return raw.get("role") == "compactionSummary"


def own(texts: Sequence[str], near: Mapping[str, Any] | None) -> dict[str, Any]:
    return {"role": "user", "content": _texts(texts), "timestamp": near.get("timestamp", 0) if near else 0}


def _texts(texts: Sequence[str]) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text} for text in texts]


def _content(raw: Mapping[str, Any]) -> list[Any]:
    content = raw.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else []


def _kind(item: Any) -> str:
    return str(item.get("type")) if isinstance(item, Mapping) else ""


def _items(raw: Mapping[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The items of a user's or a tool's message, each with its place."""
    for place, item in enumerate(_content(raw)):
        match item:
            case {"type": "text", "text": str(text)} if text:
                yield place, {"type": "text", "text": text}
            case {"type": "image", "data": str(data), "mimeType": str(media)}:
                yield place, {"type": "image", "source": {"type": "base64", "media_type": media, "data": data}}


def _reply(raw: Mapping[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    own_signatures = str(raw.get("api")).startswith("anthropic")
    for place, item in enumerate(_content(raw)):
        match item:
            case {"type": "text", "text": str(text)} if text:
                yield place, {"type": "text", "text": text}
            case {"type": "thinking", "thinking": str(), "redacted": True, "thinkingSignature": str(data)}:
                yield place, {"type": "redacted_thinking", "data": data}
            case {"type": "thinking", "thinking": str(text)}:
                signature = item.get("thinkingSignature") if own_signatures else None
                signed = {"signature": signature} if isinstance(signature, str) and signature else {}
                yield place, {"type": "thinking", "thinking": text, **signed}
            case {"type": "toolCall", "id": str(call), "name": str(name)} if call:
                arguments = item.get("arguments")
                fit = arguments if isinstance(arguments, dict) else {}
                yield place, {"type": "tool_use", "id": call, "name": name, "input": fit}
