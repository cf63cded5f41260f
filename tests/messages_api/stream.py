"""A message as the events of a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tests.messages_api.wire import Block

#: Characters in one delta.
PART = 24

#: A kind of block → the field that comes in parts, the delta's type and the delta's field.
_PARTS = {
    "text": ("text", "text_delta", "text"),
    "thinking": ("thinking", "thinking_delta", "thinking"),
    "tool_use": ("input", "input_json_delta", "partial_json"),
    "server_tool_use": ("input", "input_json_delta", "partial_json"),
}


def events(message: Block) -> Iterator[Block]:
    """The events in which a message is sent; each names its `type`."""
    usage = {**message["usage"], "output_tokens": min(1, message["usage"]["output_tokens"])}
    opening = {**message, "content": [], "stop_reason": None, "usage": usage}
    yield {"type": "message_start", "message": opening}
    yield {"type": "ping"}
    for index, block in enumerate(message["content"]):
        yield from _block(index, block)
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": message["stop_reason"], "stop_sequence": message["stop_sequence"]},
        "usage": {
            "output_tokens": message["usage"]["output_tokens"],
            "output_tokens_details": message["usage"]["output_tokens_details"],
        },
    }
    yield {"type": "message_stop"}


def _block(index: int, block: Block) -> Iterator[Block]:
    start, whole = dict(block), ""
    if block["type"] in _PARTS:
        field, kind, name = _PARTS[block["type"]]
        value = block[field]
        whole = value if isinstance(value, str) else json.dumps(value) if value else ""
        start[field] = "" if isinstance(value, str) else {}
    if "signature" in start:
        start["signature"] = ""
    yield {"type": "content_block_start", "index": index, "content_block": start}
    for at in range(0, len(whole), PART):
        yield {
            "type": "content_block_delta",
            "index": index,
            "delta": {"type": kind, name: whole[at : at + PART]},
        }
    if "signature" in block:
        delta = {"type": "signature_delta", "signature": block["signature"]}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def encoded(event: Block) -> bytes:
    """The event as it goes over the wire."""
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
