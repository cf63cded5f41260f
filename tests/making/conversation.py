"""Messages of the canonical kind: what a human types, what a client puts in, what a model says and calls, results."""

from __future__ import annotations

import json
from typing import Any

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message, Part

LONG = "a line of output\n" * 200  # 851 tokens


def human(text: str, *, key: str = "") -> Message:
    """What a person types."""
    return Message(role="user", parts=(wire.text_part(text, "user", "human"),), key=key)


def injected(text: str) -> Message:
    """What the client puts in by itself."""
    return Message(role="user", parts=(wire.text_part(text, "user", "client"),))


def reply(text: str, *calls: str) -> Message:
    """A model's reply: text, then a call of the tool `sh` for each of `calls`."""
    texts = (wire.text_part(text, "assistant", "model"),) if text else ()
    made = (wire.call_part("sh", call, b'{"cmd":"%s"}' % call.encode()) for call in calls)
    return Message(role="assistant", parts=(*texts, *made))


def result(call: str, content: str | bytes) -> Part:
    return wire.result_part(content, call)


def results(*parts: Part) -> Message:
    return Message(role="user", parts=parts)


def raw(body: bytes, *, ext: str = "bin") -> Message:
    """A message of exactly these bytes."""
    return Message(role="user", parts=(Part(kind="user", role="user", origin="human", body=body, ext=ext),))


def exchange(number: int) -> list[Message]:
    """A whole step of four blocks: question, reply with a call, its result."""
    call = f"c{number}"
    return [
        human(f"question {number}"),
        reply(f"thinking about {number}", call),
        results(result(call, f"out {number}")),
    ]


def step(number: int, *outputs: str, tool: str = "sh", error: bool = False, words: str = "") -> list[Message]:
    """A reply that makes a call for each output, and the message with the results."""
    ids = [f"c{number}-{at}" for at in range(len(outputs))]
    calls = [wire.call_part(tool, each, json.dumps({"command": f"look {each}"}).encode()) for each in ids]
    text = [wire.text_part(words, "assistant", "model")] if words else []
    results = tuple(wire.result_part(output, each, error=error) for each, output in zip(ids, outputs, strict=True))
    return [Message(role="assistant", parts=(*text, *calls)), Message(role="user", parts=results)]


def steps(count: int, output: str = LONG, first: int = 1) -> list[Message]:
    return [message for number in range(first, first + count) for message in step(number, output)]


def as_stored(part: Part) -> dict[str, Any]:
    """What a store keeps of a part, by the names that `wire.block` and a `Piece` have for it."""
    names = ("kind", "body", "ext", "call", "tool", "error", "extra")
    return {**{name: getattr(part, name) for name in names}, "files": dict(part.files)}


def block_of(part: Part) -> dict[str, Any]:
    """The content block that a part was made of."""
    return wire.block(**as_stored(part))
