"""Answers of a model in each form, whole and as a stream, made of the same blocks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ctxvc.forms.form import Form, of
from tests.forms.dialects import DIALECTS, gemini_chunks
from tests.messages_api import stream as messages_stream
from tests.messages_api.script import Reply
from tests.openai_api import server

FORMS = list(DIALECTS)
OURS = ("recover", "search")

THINKING = {"type": "thinking", "thinking": "Look first: é, \u2028 and {}.", "signature": "c2ln"}
TEXT = {"type": "text", "text": 'Reading "a.txt"\nnow \U0001f600.'}
MORE = {"type": "text", "text": "It says tool_calls, functionCall and content_block_start."}


def call(name: str, number: int = 1, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"call_{name}_{number}", "name": name, "input": arguments or {"path": "a.txt"}}


def form_of(name: str) -> Form:
    form = of(DIALECTS[name].path)
    assert form is not None
    return form


@dataclass(frozen=True)
class Answer:
    """A model's answer: `number` makes its id and the size of its prompt another."""

    blocks: Sequence[dict[str, Any]]
    number: int = 1
    output: int = 20
    id: str = ""

    @property
    def thought(self) -> int:
        """Of the output."""
        return self.output // 20

    def body(self, form: str) -> bytes:
        return json.dumps(self.value(form)).encode()

    def stream(self, form: str) -> bytes:
        return b"".join(self.events(form))

    def value(self, form: str) -> dict[str, Any]:
        value: dict[str, Any] = _MADE[form](self)
        return value

    def events(self, form: str) -> list[bytes]:
        value = self.value(form)
        match form:
            case "anthropic-messages":
                return [messages_stream.encoded(event) for event in messages_stream.events(value)]
            case "openai-chat":
                return [*_unnamed(server.chunks(value)), b"data: [DONE]\n\n"]
            case "openai-responses":
                return [_numbered(number, event) for number, event in enumerate(server.response_events(value))]
        return list(_unnamed(gemini_chunks(value)))


def _unnamed(values: Iterable[Any]) -> Iterable[bytes]:
    return (b"data: %s\n\n" % json.dumps(value).encode() for value in values)


def _numbered(number: int, event: dict[str, Any]) -> bytes:
    data = json.dumps({**event, "sequence_number": number})
    return f"event: {event['type']}\ndata: {data}\n\n".encode()


def _anthropic(answer: Answer) -> dict[str, Any]:
    calls = any(block["type"] == "tool_use" for block in answer.blocks)
    return {
        "id": answer.id or f"answer-{answer.number}",
        "type": "message",
        "role": "assistant",
        "model": "a-model",
        "content": list(answer.blocks),
        "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 100 * answer.number,
            "cache_read_input_tokens": 90,
            "output_tokens": answer.output,
            "output_tokens_details": {"thinking_tokens": answer.thought},
        },
    }


def _chat(answer: Answer) -> dict[str, Any]:
    completion = server.completion(Reply(answer.blocks), answer.number, 100 * answer.number)
    completion["id"] = answer.id or f"answer-{answer.number}"
    completion["usage"] |= {
        "completion_tokens": answer.output,
        "total_tokens": 100 * answer.number + answer.output,
        "completion_tokens_details": {"reasoning_tokens": answer.thought},
    }
    return completion


def _responses(answer: Answer) -> dict[str, Any]:
    response = server.response(Reply(answer.blocks), answer.number, 100 * answer.number)
    response["id"] = answer.id or f"answer-{answer.number}"
    response["usage"] |= {"output_tokens": answer.output, "total_tokens": 100 * answer.number + answer.output}
    response["usage"]["output_tokens_details"] = {"reasoning_tokens": answer.thought}
    return response


def _part(block: dict[str, Any]) -> dict[str, Any]:
    match block["type"]:
        case "thinking":
            return {"text": block["thinking"], "thought": True}
        case "tool_use":
            function = {"name": block["name"], "args": block["input"]}
            return {"functionCall": function, "thoughtSignature": f"s-{block['id']}"}
    return {"text": block["text"]}


def _gemini(answer: Answer) -> dict[str, Any]:
    counts = {
        "promptTokenCount": 100 * answer.number,
        "candidatesTokenCount": answer.output - answer.thought,
        "thoughtsTokenCount": answer.thought,
        "totalTokenCount": 100 * answer.number + answer.output,
    }
    parts = [_part(block) for block in answer.blocks]
    return {
        "candidates": [{"index": 0, "content": {"role": "model", "parts": parts}, "finishReason": "STOP"}],
        "usageMetadata": counts,
        "modelVersion": "a-model",
        "responseId": answer.id or f"answer-{answer.number}",
    }


_MADE = {
    "anthropic-messages": _anthropic,
    "openai-chat": _chat,
    "openai-responses": _responses,
    "gemini": _gemini,
}
