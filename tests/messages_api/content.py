"""What the API refuses in one block of content, whoever says it and wherever it stands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tests.messages_api.pictures import decoded
from tests.messages_api.wire import SERVER_CALLS, THINKING, Block, blocks, is_server_result

ID = re.compile(r"[a-zA-Z0-9_-]+")
ASSISTANT_ONLY = {"tool_use", *THINKING, *SERVER_CALLS}
SYSTEM_ONLY = {"tool_addition", "tool_removal"}
#: Whose fields nobody listed; they are taken as they come.
OPEN = {"container_upload", "compaction", "fallback", "mcp_tool_listing", "tool_reference", "browser_state"}
IN_RESULTS = {"text", "image", "document", "search_result", "tool_reference", "browser_state"}

#: A kind → the fields it may have besides `type`.
FIELDS: Mapping[str, frozenset[str]] = {
    "text": frozenset({"text", "citations", "cache_control"}),
    "image": frozenset({"source", "transformations", "cache_control"}),
    "document": frozenset({"source", "title", "context", "citations", "cache_control"}),
    "tool_use": frozenset({"id", "name", "input", "caller", "toolset_name", "cache_control"}),
    "tool_result": frozenset({"tool_use_id", "content", "is_error", "toolset_name", "cache_control"}),
    "thinking": frozenset({"thinking", "signature"}),
    "redacted_thinking": frozenset({"data"}),
    "search_result": frozenset({"source", "title", "content", "citations", "cache_control"}),
}
IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
#: A kind of source → the fields it must have, each a string.
IMAGE_SOURCES = {"base64": ("media_type", "data"), "url": ("url",), "file": ("file_id",)}
DOCUMENT_SOURCES = {
    "base64": ("media_type", "data"),
    "text": ("media_type", "data"),
    "content": (),
    "url": ("url",),
    "file": ("file_id",),
}


def is_content(value: object) -> bool:
    """True for a string, or a list of blocks, also within results; what else is asked of them comes after."""
    if isinstance(value, str):
        return True
    return isinstance(value, list) and all(isinstance(one, dict) and isinstance(one.get("type"), str) for one in value)


def block_problems(block: Block, role: str, *, strict: bool) -> Iterator[str]:
    """What is wrong with what a block says, and with where. `strict`: by the rules of API version 2026-10-21."""
    kind = block["type"]
    yield from _placement(kind, role, strict=strict)
    yield from _marker(block)
    if kind == "text":
        yield from text_problems(block, cited=role != "user" or not strict)
    elif kind == "tool_use":
        yield from _call(block)
    elif kind == "tool_result":
        yield from _result(block, strict=strict)
    elif kind == "image":
        yield from _image(block)
    elif kind == "document":
        yield from _source(block, DOCUMENT_SOURCES)
    elif kind == "search_result":
        yield from _found(block, strict=strict)
    elif kind in THINKING:
        fields = ("thinking", "signature") if kind == "thinking" else ("data",)
        for name in fields:
            if not isinstance(block.get(name), str):
                yield f"{kind}.{name}: is no string"


def form_problems(block: Block) -> Iterator[str]:
    """What is wrong with a block's kind, or with the names of its fields; also in the blocks of a result."""
    kind = block["type"]
    if kind in FIELDS:
        for name in sorted(block.keys() - FIELDS[kind] - {"type"}):
            yield f"{kind}.{name}: Extra inputs are not permitted"
    elif kind not in OPEN | SYSTEM_ONLY and kind not in SERVER_CALLS and not is_server_result(block):
        yield f"Input tag '{kind}' found using 'type' does not match any of the expected tags"
    if kind == "search_result":
        for name in ("source", "title"):
            if not isinstance(block.get(name), str):
                yield f"search_result.{name}: is no string"
    if kind == "tool_result" and is_content(block.get("content", [])):
        for number, inner in enumerate(blocks(block.get("content"))):
            for reason in form_problems(inner):
                yield f"tool_result.content.{number}: {reason}"


def _placement(kind: str, role: str, *, strict: bool) -> Iterator[str]:
    if role == "system" and kind != "text" and kind not in SYSTEM_ONLY:
        yield f"{kind} in a system message"
    elif role != "assistant" and (kind in ASSISTANT_ONLY or is_server_result({"type": kind})):
        yield f"{kind} is only for the assistant"
    elif role != "user" and kind == "tool_result":
        yield "tool_result is only for the user"
    elif role != "system" and kind in SYSTEM_ONLY:
        yield f"{kind} is only for a system message"
    elif role == "assistant" and kind == "document" and strict:
        yield "no document directly in an assistant message"


def _marker(block: Mapping[str, Any]) -> Iterator[str]:
    marker = block.get("cache_control")
    if marker is not None and block["type"] not in THINKING:
        yield from marker_problems(marker)


def marker_problems(marker: object) -> Iterator[str]:
    """What is wrong with a mark that the prefix up to here may be cached."""
    if not isinstance(marker, dict) or marker.get("type") != "ephemeral":
        yield "cache_control.type: Input should be 'ephemeral'"
    elif marker.get("ttl", "5m") not in ("5m", "1h"):
        yield "cache_control.ttl: Input should be '5m' or '1h'"
    elif extra := marker.keys() - {"type", "ttl"}:
        yield f"cache_control.{min(extra)}: Extra inputs are not permitted"


def text_problems(block: Mapping[str, Any], *, cited: bool) -> Iterator[str]:
    """What is wrong with a text. `cited`: it may carry citations."""
    if not isinstance(block.get("text"), str):
        yield "text is no string"
    elif not block["text"].strip():
        yield "text content blocks must be non-empty, and not only white"
    if block.get("citations") and not cited:
        yield "citations in a user message"


def _call(block: Block) -> Iterator[str]:
    if not (isinstance(block.get("id"), str) and ID.fullmatch(block["id"])):
        yield f"tool_use.id: {block.get('id')!r} does not match '^{ID.pattern}$'"
    if not (isinstance(block.get("name"), str) and block["name"]):
        yield "tool_use.name is no string, or an empty one"
    if not isinstance(block.get("input"), dict):
        yield "tool_use.input is no object"


def _result(block: Block, *, strict: bool) -> Iterator[str]:
    content = block.get("content", [])
    if not is_content(content):
        yield "tool_result.content: neither a string nor a list of blocks"
        return
    if not isinstance(block.get("is_error", False), bool):
        yield "tool_result.is_error: is neither true nor false"
    if block.get("is_error") and not content:
        yield "tool_result: content cannot be empty if `is_error` is true"
    if isinstance(content, str):
        return
    for number, inner in enumerate(content):
        if inner["type"] not in IN_RESULTS:
            yield f"tool_result.content.{number}: {inner['type']!r} in a result"
        else:
            for reason in block_problems(inner, "user", strict=strict):
                yield f"tool_result.content.{number}: {reason}"


def _image(block: Block) -> Iterator[str]:
    yield from _source(block, IMAGE_SOURCES)
    source = block.get("source")
    if isinstance(source, dict) and source.get("type") == "base64":
        if source.get("media_type") not in IMAGE_TYPES:
            yield f"image.source.media_type: {source.get('media_type')!r} is not taken"
        if not decoded(source.get("data")):
            yield "image.source.data: no base64, or none at all"


def _source(block: Block, sources: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    source = block.get("source")
    kind = source.get("type") if isinstance(source, dict) else None
    if not isinstance(source, dict) or not isinstance(kind, str) or kind not in sources:
        yield f"{block['type']} without a source"
        return
    for name in sources[kind]:
        if not isinstance(source.get(name), str):
            yield f"{block['type']}.source.{name}: is no string"


def _found(block: Block, *, strict: bool) -> Iterator[str]:
    content = block.get("content")
    if not isinstance(content, list) or not is_content(content):
        yield "search_result.content: is no list of texts"
        return
    for number, inner in enumerate(blocks(content)):
        if inner["type"] != "text":
            yield f"search_result.content.{number}: {inner['type']!r} in a search result"
        else:
            for reason in text_problems(inner, cited=not strict):
                yield f"search_result.content.{number}: {reason}"
