"""Exchanges as an agent and its model have them: the whole history in each request, as all clients send it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ctxvc.wire.exchange import Exchange

TOOLS = [{"name": "Bash", "description": "Runs a command.", "input_schema": {"type": "object"}}]


def exchange(body: bytes, answer: bytes, *, number: int = 0, path: str = "/v1/messages", **fields: Any) -> Exchange:
    """An exchange with this body and answer, a minute after the one with the number before."""
    at = 1_790_000_000.0 + 60 * number
    known: dict[str, Any] = {
        "upstream": "anthropic", "headers": {}, "status": 200, "stream": False, "whole": True,
        "began": at, "first": at + 1, "ended": at + 2,
    }  # fmt: skip
    return Exchange(body=body, answer=answer, path=path, **{**known, **fields})


def body(
    messages: Sequence[Any], *, system: Any = "You are an agent.", tools: Sequence[Any] = TOOLS, **more: Any
) -> bytes:
    request = {"model": "claude-opus-5", "max_tokens": 4096, "system": system, "tools": list(tools)}
    return json.dumps({**request, **more, "messages": list(messages)}, ensure_ascii=False).encode(
        "utf-8", "surrogatepass"
    )


def reply(content: Any, number: int = 0, **usage: int) -> bytes:
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    calls = any(block["type"] == "tool_use" for block in blocks)
    message = {
        "id": f"msg_{number}", "type": "message", "role": "assistant", "model": "claude-opus-5", "content": blocks,
        "stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None,
        "usage": {"input_tokens": 100, "output_tokens": 10, **usage},
    }  # fmt: skip
    return json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass")


def of_trajectory(path: Path) -> Iterator[Exchange]:
    """The calls of a recorded run, each with all that was said before it."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from _calls(lines)


def _calls(lines: Iterator[str]) -> Iterator[Exchange]:
    next(lines)
    system: list[Any] = []
    said: list[Any] = []
    for line in lines:
        message = {name: value for name, value in json.loads(line).items() if name != "meta"}
        if message["role"] == "system" and not said:
            system += message["content"]
            continue
        if message["role"] == "assistant" and said:
            number = len(said)
            yield exchange(body(said, system=system), reply(message["content"], number), number=number)
        said.append(message)


def stream(text: str, number: int = 0) -> list[bytes]:
    """An answer of the Messages API as a stream in chunks: its head, its events, its end."""
    message = {**json.loads(reply("", number)), "content": [], "stop_reason": None}
    words = [text[at : at + 20] for at in range(0, len(text), 20)]
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": it}} for it in words),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 10}},
        {"type": "message_stop"},
    ]
    data = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    return [head, *(b"%x\r\n%s\r\n" % (len(item), item) for item in data), b"0\r\n\r\n"]
