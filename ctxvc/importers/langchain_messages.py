"""Messages of LangChain as JSON; helpers for importers.

Three functions of LangChain write one: `dumpd` as `{"lc", "type": "constructor", "id", "kwargs"}`, `message_to_dict` as
`{"type", "data"}`, and pydantic's `model_dump` as its fields alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ctxvc.core import display
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Kind, Message, Origin, Part, Role
from ctxvc.core.recording.usage import counts
from ctxvc.forms import elements
from ctxvc.forms.chat import CallIds
from ctxvc.forms.origins import is_by_client
from ctxvc.forms.values import digest, objects, text_of
from ctxvc.importers.documents import mapping

#: `type` of a message → role and origin.
_TYPES: dict[str, tuple[Role, Origin]] = {
    "human": ("user", "human"),
    "ai": ("assistant", "model"),
    "system": ("system", "client"),
    "developer": ("system", "client"),
    "tool": ("user", "tool"),
    "function": ("user", "tool"),
    "chat": ("user", "human"),
}
_REASONING = frozenset({"thinking", "redacted_thinking", "reasoning"})
#: Pieces of a stream that the complete message has elsewhere.
_FRAGMENTS = frozenset({"input_json_delta", "tool_call_chunk"})


def fields_of(value: Any) -> dict[str, Any] | None:
    """The fields of a message in any of these forms, with its `type`; None for any other value."""
    match value:
        case {"lc": int(), "type": "constructor", "id": [*_, str(name)], "kwargs": dict(kwargs)}:
            message = {"type": name.removesuffix("Chunk").removesuffix("Message"), **kwargs}
        case {"type": str(kind), "data": {"content": _} as data}:
            message = {**data, "type": kind}
        case {"type": str(), "content": _} if "role" not in value or value["type"] == "chat":
            message = dict(value)
        case _:
            return None
    kind = text_of(message["type"]).removesuffix("Chunk").removesuffix("Message").lower()
    return {**message, "type": kind} if kind in _TYPES and "content" in message else None


def is_summary(message: Mapping[str, Any]) -> bool:
    """Whether a message is the summary by which LangChain's own middleware replaced earlier ones."""
    return mapping(message, "additional_kwargs").get("lc_source") == "summarization"


def identity(message: Mapping[str, Any]) -> str:
    """A message's id, or a checksum of its text."""
    return text_of(message.get("id")) or digest([message["type"], message.get("content")]).hex()[:16]


def leading_system(messages: list[dict[str, Any]]) -> tuple[Any, int]:
    """The leading system prompt as a Messages API value, and the number of its messages."""
    blocks: list[Any] = []
    count = 0
    for message in messages:
        content = message.get("content")
        items = [{"type": "text", "text": content}] if content and isinstance(content, str) else content
        if message["type"] not in ("system", "developer") or not isinstance(items, list) or not items:
            break
        texts = [_block(item) for item in items]
        if any(text is None or text.get("type") != "text" for text in texts):
            break
        blocks += texts
        count += 1
    if count == 1 and isinstance(messages[0]["content"], str):
        return messages[0]["content"], 1
    return blocks or None, count


class Reader:
    """Reads one conversation's messages, in order: calls get unique ids, and results are matched to them."""

    def __init__(self) -> None:
        self._ids = CallIds()
        self._newest_result: Any = None

    def message(self, fields: Mapping[str, Any], key: str) -> Message | str:
        """The `Message` for `fields_of` a message, or the reason there is none."""
        role, origin = _TYPES[fields["type"]]
        if fields["type"] in ("tool", "function"):
            parts = self._result(fields)
        elif role == "assistant":
            parts = self._reply(fields)
        else:
            parts = [_by_its_text(part) for part in _parts(fields.get("content"), role, _maker(fields, origin))]
        if not parts:
            return "it is empty"
        metadata = mapping(fields, "response_metadata")
        is_reply = role == "assistant"
        return Message(
            role=role,
            parts=tuple(parts),
            key=key,
            model=text_of(metadata.get("model_name")) or text_of(metadata.get("model")) if is_reply else "",
            usage=usage(fields) if is_reply else {},
        )

    def _reply(self, fields: Mapping[str, Any]) -> list[Part]:
        calls = [*objects(fields.get("tool_calls")), *objects(fields.get("invalid_tool_calls"))]
        calls = calls or [*_calls_in(fields.get("content"))]
        raw = _raw_arguments(fields)
        if calls:
            self._ids.begin()
        by_id = {call["id"]: call for call in calls if isinstance(call.get("id"), str)}
        parts: list[Part] = []
        content = fields.get("content")
        reasoning = text_of(mapping(fields, "additional_kwargs").get("reasoning_content"))
        if reasoning and not any(text_of(item.get("type")) in _REASONING for item in objects(content)):
            parts.append(wire.text_part(reasoning, "assistant", "model", kind="thinking"))
        in_place: set[int] = set()
        for item in _items(content):
            call = by_id.get(_call_id(item))
            if call is None:
                parts += _parts([item], "assistant", self._maker_of_reply(fields))
            elif id(call) not in in_place:
                in_place.add(id(call))
                parts.append(self._call(call, raw, mapping(item, "caller")))
        parts += [self._call(call, raw) for call in calls if id(call) not in in_place]
        return parts

    def _maker_of_reply(self, fields: Mapping[str, Any]) -> Origin:
        """Who made a reply: the client if it repeats a tool's output as the model's answer."""
        is_copy = fields.get("content") and fields.get("content") == self._newest_result
        return "client" if is_copy and not fields.get("response_metadata") else "model"

    def _call(self, call: Mapping[str, Any], raw: Mapping[str, str], caller: Mapping[str, Any] = {}) -> Part:
        name, arguments = text_of(call.get("name")) or "unknown", call.get("args")
        received = text_of(call.get("id"))
        body = raw.get(received, {} if arguments is None else arguments)
        part = wire.call_part(name, self._ids.call(call.get("id"), name), body)
        return msgspec.structs.replace(part, extra={"caller": caller}) if caller else part

    def _result(self, fields: Mapping[str, Any]) -> list[Part]:
        content = fields.get("content")
        self._newest_result = content
        call, tool = self._ids.answered(fields.get("tool_call_id"), text_of(fields.get("name")))
        error = fields.get("status") == "error"
        if not call:
            return [wire.other_part(dict(fields), "user", "tool")]
        if isinstance(content, list) and content:
            blocks = [item if (block := _block(item)) is None else block for item in content]
            return [wire.result_part(blocks, call, tool=tool, error=error)]
        text = content if isinstance(content, str) else "" if not content else wire.compact(content)
        return [wire.result_part(text, call, tool=tool, error=error)]


def usage(message: Mapping[str, Any]) -> dict[str, int]:
    """A reply's token counts under the Messages API's names, where `input_tokens` exclude cached input."""
    metadata = mapping(message, "response_metadata")
    return (
        usage_of(mapping(message, "usage_metadata"))
        or elements.chat_usage(metadata.get("token_usage"))
        or counts(metadata.get("usage"))
    )


def usage_of(metadata: Mapping[str, Any]) -> dict[str, int]:
    """The same for LangChain's own `usage_metadata`."""
    details = mapping(metadata, "input_token_details")
    cached, written = details.get("cache_read"), details.get("cache_creation")
    return elements.token_counts(metadata.get("input_tokens"), cached, written, metadata.get("output_tokens"))


def _maker(fields: Mapping[str, Any], origin: Origin) -> Origin:
    """Who made a message that is neither reply nor result; programs mark those that they add to the list."""
    added = mapping(fields, "additional_kwargs")
    is_marked = isinstance(added.get("lc_source"), str) or added.get("hide_from_ui") is True
    return "client" if is_marked and origin == "human" else origin


def _by_its_text(part: Part) -> Part:
    if part.kind == "user" and part.origin == "human" and is_by_client(display.decode(part.body)):
        return msgspec.structs.replace(part, origin="client")
    return part


def _raw_arguments(fields: Mapping[str, Any]) -> dict[str, str]:
    """call → its arguments as the provider sent them, if the message still has them."""
    raw: dict[str, str] = {}
    for call in objects(mapping(fields, "additional_kwargs").get("tool_calls")):
        match call:
            case {"id": str(identifier), "function": {"arguments": str(arguments)}}:
                raw[identifier] = arguments
    return raw


def _items(content: Any) -> list[Any]:
    """The items of a message's content, which may be a text alone."""
    return [content] if isinstance(content, str) else content if isinstance(content, list) else []


def _calls_in(content: Any) -> Iterator[dict[str, Any]]:
    """The calls in a provider's content, in messages from before LangChain listed them."""
    for item in objects(content):
        match item:
            case {"type": "tool_use", "id": str(call), "name": str(name)}:
                yield {"id": call, "name": name, "args": item.get("input")}


def _call_id(item: Any) -> str:
    """The id of the call in an item of a reply's content; empty for any other item."""
    match item:
        case {"type": "tool_use" | "tool_call" | "invalid_tool_call", "id": str(call)}:
            return call
        case {"type": "function_call", "call_id": str(call)}:
            return call
    return ""


def _parts(content: Any, role: Role, origin: Origin) -> Iterator[Part]:
    for item in _items(content):
        if item in ("", None) or (isinstance(item, dict) and text_of(item.get("type")) in _FRAGMENTS):
            continue
        block = _block(item)
        if block is not None:
            yield wire.part(block, role, origin)
        else:
            is_reasoning = role == "assistant" and isinstance(item, dict) and text_of(item.get("type")) in _REASONING
            kind: Kind = "thinking" if is_reasoning else "other"
            yield Part(kind=kind, role=role, origin=origin, body=wire.compact(item), ext="json")


def _block(item: Any) -> dict[str, Any] | None:
    """The Messages API's block for an item of a content list; None if there is none."""
    match item:
        case str():
            return {"type": "text", "text": item}
        case {"type": "reasoning", "reasoning": str(text)}:
            signature = text_of(mapping(item, "extras").get("signature"))
            return {"type": "thinking", "thinking": text, **({"signature": signature} if signature else {})}
        case {"type": "image", "base64": str(data), "mime_type": str(media)} | {
            "type": "image",
            "source_type": "base64",
            "data": str(data),
            "mime_type": str(media),
        }:
            return {"type": "image", "source": {"type": "base64", "media_type": media, "data": data}}
        case {"type": "image", "url": str(url)} | {"type": "image_url", "image_url": {"url": str(url)} | str(url)}:
            return elements.image(url)
        case {"type": "text", "text": str()} | {"type": "thinking" | "redacted_thinking" | "document" | "image"}:
            return {name: value for name, value in item.items() if name != "index"}
    return None
