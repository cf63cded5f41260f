"""Requests to begin from, and the blocks in them."""

from __future__ import annotations

import base64
import struct
from typing import Any

from tests.messages_api.wire import Block

MODEL = "claude-opus-5-5"
TOOL: Block = {"name": "sh", "description": "Runs a command.", "input_schema": {"type": "object", "properties": {}}}


def words(text: str = "x", **fields: Any) -> Block:
    return {"type": "text", "text": text, **fields}


def use(name: Any = "c1", /, **fields: Any) -> Block:
    return {"type": "tool_use", "id": name, "name": "sh", "input": {}, **fields}


def result(name: Any = "c1", **fields: Any) -> Block:
    return {"type": "tool_result", "tool_use_id": name, **fields}


def user(*content: Any) -> Block:
    return {"role": "user", "content": list(content) or [words()]}


def model(*content: Any) -> Block:
    return {"role": "assistant", "content": list(content) or [words()]}


def system(*content: Any, **fields: Any) -> Block:
    return {"role": "system", "content": list(content) or [words()], **fields}


def png(width: int = 56, height: int = 56) -> Block:
    """A picture of which only the head is there."""
    head = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", width, height)
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(head).decode()}
    return {"type": "image", "source": source}


def request(*messages: Block, **fields: Any) -> Block:
    """A request with these messages; a field that is given as None is left out."""
    body = {"model": MODEL, "max_tokens": 1000, "messages": list(messages) or [user()], **fields}
    return {name: value for name, value in body.items() if value is not None}
