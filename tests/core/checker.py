"""What the Messages API refuses in a list of messages, by its published rules. Knows nothing of ctxvc."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

ID = re.compile(r"[a-zA-Z0-9_-]+")
ASSISTANT_ONLY = {"tool_use", "thinking", "redacted_thinking", "server_tool_use", "mcp_tool_use"}


def problems(messages: Any) -> list[str]:
    """Each reason for which a request with these messages would be refused; empty if there is none."""
    if not isinstance(messages, list) or not messages:
        return ["messages: no list, or an empty one"]
    shapeless = [f"messages.{at}: not a message" for at, one in enumerate(messages) if not _is_message(one)]
    return shapeless or [*_order(messages), *_blocks(messages), *_calls(messages), *_server_calls(messages)]


def _is_message(message: Any) -> bool:
    return (
        isinstance(message, dict)
        and message.keys() == {"role", "content"}
        and message["role"] in ("user", "assistant", "system")
        and isinstance(message["content"], list)
        and all(isinstance(block, dict) and isinstance(block.get("type"), str) for block in message["content"])
    )


def _order(messages: list[dict[str, Any]]) -> Iterator[str]:
    if messages[0]["role"] != "user":
        yield "messages.0: the first message must be the user's"
    if messages[-1]["role"] == "assistant":
        yield f"messages.{len(messages) - 1}: a final assistant message is a prefill"
    for at in range(1, len(messages)):
        if messages[at - 1]["role"] == messages[at]["role"]:
            yield f"messages.{at}: roles must alternate"


def _blocks(messages: list[dict[str, Any]]) -> Iterator[str]:
    for at, message in enumerate(messages):
        if not message["content"]:
            yield f"messages.{at}: content is empty"
        for number, block in enumerate(message["content"]):
            for reason in _block(block, message["role"]):
                yield f"messages.{at}.content.{number}: {reason}"


def _block(block: dict[str, Any], role: str) -> Iterator[str]:
    kind = block["type"]
    if kind in ASSISTANT_ONLY and role != "assistant":
        yield f"{kind} is only for the assistant"
    if kind == "document" and role == "assistant":
        yield "no document directly in an assistant message"
    if kind == "tool_result" and role != "user":
        yield "tool_result is only for the user"
    if kind == "text":
        yield from _text(block, role)
    if kind == "tool_use":
        if not (isinstance(block.get("id"), str) and ID.fullmatch(block["id"])):
            yield f"tool_use.id {block.get('id')!r} does not match {ID.pattern}"
        if not isinstance(block.get("name"), str):
            yield "tool_use.name is no string"
        if not isinstance(block.get("input"), dict):
            yield "tool_use.input is no object"
    if kind == "tool_result":
        yield from _result(block)
    if kind in ("image", "document") and not isinstance(block.get("source"), dict):
        yield f"{kind} without a source"
    if kind == "thinking" and not isinstance(block.get("thinking"), str):
        yield "thinking without its text"


def _text(block: dict[str, Any], role: str) -> Iterator[str]:
    if not isinstance(block.get("text"), str):
        yield "text is no string"
    elif not block["text"].strip():
        yield "text content blocks must be non-empty and not only white"
    if role == "user" and block.get("citations"):
        yield "citations in a user message"


def _result(block: dict[str, Any]) -> Iterator[str]:
    content = block.get("content", [])
    if not isinstance(content, list) or not all(isinstance(item, dict) for item in content):
        yield "the content of a result is no list of blocks"
        return
    if block.get("is_error") not in (None, True, False):
        yield "is_error is neither true nor false"
    if block.get("is_error") and not content:
        yield "content cannot be empty if is_error is true"
    for item in content:
        kind = item.get("type")
        if not isinstance(kind, str) or kind in ASSISTANT_ONLY or kind == "tool_result":
            yield f"{kind!r} in a result"
        elif kind == "text":
            yield from _text(item, "user")
        elif kind == "search_result" and isinstance(item.get("content"), list):
            for inner in item["content"]:
                yield from _text(inner, "user") if isinstance(inner, dict) else ["no block in a search result"]


def _calls(messages: list[dict[str, Any]]) -> Iterator[str]:
    """Calls and results: each call answered once, in the very next message, before anything else there."""
    seen: set[str] = set()
    asked: list[str] = []
    for at, message in enumerate(messages):
        answers = [block.get("tool_use_id") for block in message["content"] if block["type"] == "tool_result"]
        leading = [block["type"] for block in message["content"]][: len(answers)]
        if missing := [call for call in asked if call not in answers]:
            yield f"messages.{at}: tool_use ids without tool_result blocks immediately after: {missing}"
        if unexpected := [call for call in answers if call not in asked]:
            yield f"messages.{at}: unexpected tool_use_id in tool_result blocks: {unexpected}"
        if len(set(map(str, answers))) != len(answers):
            yield f"messages.{at}: each tool_use must have a single result"
        if leading != ["tool_result"] * len(answers):
            yield f"messages.{at}: results do not lead the message"
        asked = [block.get("id", "") for block in message["content"] if block["type"] == "tool_use"]
        for call in asked:
            if call in seen:
                yield f"messages.{at}: tool_use ids must be unique: {call!r}"
            seen.add(call)
    if asked:
        yield f"messages.{len(messages) - 1}: calls without results at the end: {asked}"


def _server_calls(messages: list[dict[str, Any]]) -> Iterator[str]:
    """The provider's own calls and results: each pair in one message, the call first."""
    seen: set[str] = set()
    for at, message in enumerate(messages):
        waiting: set[str] = set()
        for block in message["content"]:
            kind = block["type"]
            if kind in ("server_tool_use", "mcp_tool_use"):
                call = block.get("id")
                if not isinstance(call, str) or call in seen:
                    yield f"messages.{at}: {kind} without an id of its own: {call!r}"
                    continue
                seen.add(call)
                waiting.add(call)
            elif kind.endswith("_tool_result") and kind != "tool_result":
                call = block.get("tool_use_id")
                if not isinstance(call, str) or call not in waiting:
                    yield f"messages.{at}: unexpected tool_use_id in {kind}: {call!r}"
                    continue
                waiting.discard(call)
        if waiting:
            yield f"messages.{at}: the provider's calls without a result: {sorted(waiting)}"
