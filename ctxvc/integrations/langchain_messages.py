"""Messages and tools of LangChain in the Messages API's form, and back."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.utils.function_calling import convert_to_openai_tool

from ctxvc.core.ledger import wire
from ctxvc.core.prompt.request import canonical
from ctxvc.integrations.conversation import FrameworkMessage, Sent

#: Bytes of what a message has besides its content; of more, only the message's type is kept.
_LARGEST = 64 << 10


def definition(tool: Any) -> dict[str, Any] | None:
    """A tool in the Messages API's form; None for one that a provider runs itself."""
    if isinstance(tool, dict) and not ({"function", "input_schema", "parameters"} & tool.keys()):
        return None
    function = convert_to_openai_tool(tool)["function"]
    schema = function.get("parameters") or {"type": "object", "properties": {}}
    return {"name": function["name"], "description": function.get("description", ""), "input_schema": schema}


def framework_message(message: BaseMessage) -> FrameworkMessage[BaseMessage]:
    """A message of LangChain as a conversation takes it."""
    blocks = _blocks(message.content)
    if isinstance(message, ToolMessage):
        error = {"is_error": True} if message.status == "error" else {}
        result = {"type": "tool_result", "tool_use_id": message.tool_call_id, "content": blocks, **error}
        plain: dict[str, Any] = {"role": "user", "content": [result]}
    elif isinstance(message, AIMessage):
        texts = [block for block in blocks if block["type"] != "tool_use"]
        calls = [
            {"type": "tool_use", "id": str(call["id"]), "name": call["name"], "input": call["args"]}
            for call in message.tool_calls
        ]
        plain = {"role": "assistant", "content": [*texts, *calls], "usage": _usage(message)}
    else:
        plain = {"role": "user", "content": blocks}
    return FrameworkMessage(
        id=message.id or f"{message.type}-{hashlib.sha256(canonical(plain)).hexdigest()[:16]}",
        message=plain,
        source=message,
        origin="human" if isinstance(message, HumanMessage) else "client",
        record=_record(message),
    )


def _blocks(content: str | Sequence[Any]) -> list[dict[str, Any]]:
    """Content as blocks of the Messages API; those of other providers stay as they are."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [_block(item) for item in content if item]


def _block(item: Any) -> dict[str, Any]:
    match item:
        case {"type": "text", "text": str(text)} | str(text):
            return {"type": "text", "text": text}
        case {"type": "image", "base64": str(data), "mime_type": str(media)}:
            return {"type": "image", "source": {"type": "base64", "media_type": media, "data": data}}
        case {"type": "image", "url": str(url)} | {"type": "image_url", "image_url": {"url": str(url)} | str(url)}:
            return {"type": "image", "source": _image_source(url)}
        case {"type": str()}:
            return {field: value for field, value in item.items() if field != "index"}
    return {"type": "text", "text": str(item)}


def _image_source(url: str) -> dict[str, str]:
    media, is_data, data = url.removeprefix("data:").partition(";base64,")
    if url.startswith("data:") and is_data:
        return {"type": "base64", "media_type": media, "data": data}
    return {"type": "url", "url": url}


def _usage(message: AIMessage) -> dict[str, int]:
    """What the provider counted, with the Messages API's names: there, what the cache had is not in `input_tokens`."""
    usage: Any = message.usage_metadata
    if not usage:
        return {}
    details = usage.get("input_token_details") or {}
    hits, writes = details.get("cache_read") or 0, details.get("cache_creation") or 0
    cached = {"cache_read_input_tokens": hits, "cache_creation_input_tokens": writes}
    return {
        "input_tokens": max(0, usage["input_tokens"] - hits - writes),
        "output_tokens": usage["output_tokens"],
        **{name: count for name, count in cached.items() if count},
    }


def _record(message: BaseMessage) -> dict[str, Any]:
    """What a message has besides its content and calls, as JSON."""
    fields = message.model_dump(mode="json", exclude={"content", "tool_calls", "id"}, exclude_defaults=True)
    record = {**fields, "type": message.type}
    return record if len(wire.compact(record)) <= _LARGEST else {"type": message.type}


def langchain_message(sent: Sent[BaseMessage]) -> BaseMessage:
    """A message of the prompt as LangChain has it: the agent's own where it says the same."""
    if sent.source is not None:
        return sent.source
    blocks = sent.message["content"]
    if sent.message["role"] == "assistant":
        return _reply(blocks, sent.basis)
    if blocks[0]["type"] != "tool_result":
        return HumanMessage(_content(blocks))
    result = blocks[0]
    content = _content(result.get("content", []))
    if isinstance(sent.basis, ToolMessage):
        return sent.basis.model_copy(update={"content": content})
    status = "error" if result.get("is_error") else "success"
    return ToolMessage(content, tool_call_id=result["tool_use_id"], status=status)


def _reply(blocks: Sequence[Mapping[str, Any]], basis: BaseMessage | None) -> AIMessage:
    calls = [
        {"type": "tool_call", "id": block["id"], "name": block["name"], "args": block["input"]}
        for block in blocks
        if block["type"] == "tool_use"
    ]
    content = _content([block for block in blocks if block["type"] != "tool_use"])
    if isinstance(basis, AIMessage):
        return basis.model_copy(update={"content": content, "tool_calls": calls})
    return AIMessage(content, tool_calls=calls)


def _content(blocks: Sequence[Mapping[str, Any]]) -> Any:
    """Blocks as LangChain's content: a string where they are all text, which every provider takes."""
    if all(block["type"] == "text" for block in blocks):
        return "\n\n".join(block["text"] for block in blocks)
    return [_item(block) for block in blocks]


def _item(block: Mapping[str, Any]) -> dict[str, Any]:
    match block:
        case {"type": "image", "source": {"type": "base64", "media_type": media, "data": data}}:
            return {"type": "image", "base64": data, "mime_type": media}
        case {"type": "image", "source": {"type": "url", "url": url}}:
            return {"type": "image", "url": url}
    return dict(block)
