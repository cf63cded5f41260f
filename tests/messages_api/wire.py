"""The shapes of the wire, and the few questions that all the rules ask of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

#: A block of content, a message and a request, as JSON gives them.
Block: TypeAlias = dict[str, Any]
Message: TypeAlias = Mapping[str, Any]
Request: TypeAlias = Mapping[str, Any]

THINKING = ("thinking", "redacted_thinking")
SERVER_CALLS = ("server_tool_use", "mcp_tool_use")

#: Beta headers that the rules know.
BINDING_BETA = "thinking-binding-controls-2026-08-01"
CLEAR_AT_BETA = "mid-conversation-system-clear-at-2026-08-21"


def blocks(content: object) -> list[Block]:
    """The blocks of a content; a string is short for one block of text."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return list(content) if isinstance(content, (list, tuple)) else []


def is_server_result(block: Mapping[str, Any]) -> bool:
    """True for what a tool of the provider's own answered; it stands in the assistant's message."""
    kind = block["type"]
    return isinstance(kind, str) and kind.endswith("_tool_result") and kind != "tool_result"


def may_be_paused(message: Message) -> bool:
    """True if the provider's own tool was called or spoke in it: it may be a turn that the provider paused."""
    return any(block["type"] in SERVER_CALLS or is_server_result(block) for block in blocks(message["content"]))


def signature(block: Mapping[str, Any]) -> str:
    """What a block of thinking is known by."""
    return str(block.get("data" if block["type"] == "redacted_thinking" else "signature", ""))


def shown(messages: Sequence[Message]) -> Iterator[tuple[int, Message]]:
    """The messages that the model sees, each with its place in the request.

    A system message with `clear_at` is not seen any more once a later message of the user stands in the request; a
    message that holds only results is one of the user.
    """
    last_of_user = max((at for at, message in enumerate(messages) if message["role"] == "user"), default=-1)
    for at, message in enumerate(messages):
        if message.get("clear_at") != "next_user_message" or at > last_of_user:
            yield at, message


def images(content: object) -> Iterator[Block]:
    """Every image in a content, also inside results."""
    for block in blocks(content):
        if block["type"] == "image":
            yield block
        elif block["type"] == "tool_result":
            yield from images(block.get("content"))
