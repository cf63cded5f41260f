"""One reply in each form: as a body, as a stream, and as a later request repeats it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import ctxvc.forms
from ctxvc.forms.form import Form
from tests.messages_api import stream as messages_stream
from tests.messages_api.script import Reply
from tests.openai_api import server

#: What the model says everywhere: it thinks, speaks and calls twice.
BLOCKS = [
    {"type": "thinking", "thinking": "Look first: é, \u2028 and {}.", "signature": "c2ln"},
    {"type": "text", "text": 'Reading "a.txt"\nnow \U0001f600.'},
    {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a.txt", "lines": [1, 2]}},
    {"type": "tool_use", "id": "c2", "name": "read", "input": {}},
]


@dataclass(frozen=True)
class Dialect:
    """A reply in one form."""

    path: str
    body: bytes
    stream: bytes
    #: A client's next request, which repeats the reply, in its own spelling.
    request: dict[str, Any]
    #: The field with its messages, and where the reply stands in it.
    conversation: str
    place: slice

    @property
    def form(self) -> Form:
        form = ctxvc.forms.of(self.path)
        assert form is not None
        return form

    def repeated(self) -> list[Any]:
        messages: list[Any] = self.request[self.conversation][self.place]
        return messages


def events(values: Iterable[Any], *, done: bool = False) -> bytes:
    """Unnamed events with these data."""
    return b"".join(b"data: " + json.dumps(value).encode() + b"\n\n" for value in values) + b"data: [DONE]\n\n" * done


def _anthropic() -> Dialect:
    usage = {
        "input_tokens": 10,
        "cache_read_input_tokens": 90,
        "cache_creation_input_tokens": 5,
        "output_tokens": 20,
        "output_tokens_details": {},
    }
    message = {
        "id": "reply-1",
        "type": "message",
        "role": "assistant",
        "model": "a-model",
        "content": BLOCKS,
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": usage,
    }
    repeated = [{**block, "cache_control": {"type": "ephemeral"}} for block in BLOCKS[1:]]
    return Dialect(
        "/v1/messages",
        json.dumps(message).encode(),
        b"".join(map(messages_stream.encoded, messages_stream.events(message))),
        {
            "model": "a-model",
            "max_tokens": 100,
            "stream": True,
            "system": "Be brief.",
            "tools": [{"name": "read", "input_schema": {"type": "object"}}],
            "messages": [
                {"role": "user", "content": "Read it."},
                {"content": repeated, "role": "assistant"},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "one"}]},
            ],
        },
        "messages",
        slice(1, 2),
    )


def _chat() -> Dialect:
    completion = server.completion(Reply(BLOCKS), 1, 105) | {"id": "reply-1", "model": "a-model"}
    completion["usage"] |= {"prompt_tokens_details": {"cached_tokens": 90}}
    repeated = {
        "role": "assistant",
        "content": BLOCKS[1]["text"],
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "read", "arguments": '{"path":"a.txt","lines":[1,2]}'},
            },
            {"id": "c2", "type": "function", "function": {"name": "read", "arguments": "{}"}},
        ],
    }
    return Dialect(
        "/v1/chat/completions",
        json.dumps(completion).encode(),
        events(server.chunks(completion), done=True),
        {
            "model": "a-model",
            "max_completion_tokens": 100,
            "stream": True,
            "tools": [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}],
            "messages": [
                {"role": "developer", "content": "Be brief."},
                {"role": "user", "content": "Read it."},
                repeated,
                {"role": "tool", "tool_call_id": "c1", "content": "one"},
            ],
        },
        "messages",
        slice(2, 3),
    )


def _responses() -> Dialect:
    response = server.response(Reply(BLOCKS), 1, 105) | {"id": "reply-1", "model": "a-model"}
    response["usage"]["input_tokens_details"] = {"cached_tokens": 90}
    text, first, second = response["output"][1:]
    repeated = [
        {"role": "assistant", "content": text["content"][0]["text"]},
        {name: first[name] for name in ("type", "name", "arguments", "call_id")},
        {**second, "id": None, "arguments": " {} "},
    ]
    return Dialect(
        "/v1/responses",
        json.dumps(response).encode(),
        events(server.response_events(response)),
        {
            "model": "a-model",
            "max_output_tokens": 100,
            "stream": True,
            "instructions": "Be brief.",
            "tools": [{"type": "function", "name": "read", "strict": False, "parameters": {"type": "object"}}],
            "input": [
                {"role": "user", "content": "Read it."},
                *repeated,
                {"type": "function_call_output", "call_id": "c1", "output": "one"},
            ],
        },
        "input",
        slice(1, 4),
    )


def _gemini() -> Dialect:
    parts = [
        {"text": BLOCKS[0]["thinking"], "thought": True},
        {"text": BLOCKS[1]["text"]},
        {"functionCall": {"name": "read", "args": BLOCKS[2]["input"]}, "thoughtSignature": "c2ln"},
        {"functionCall": {"name": "read", "args": {}}},
    ]
    counts = {
        "promptTokenCount": 105,
        "cachedContentTokenCount": 90,
        "candidatesTokenCount": 15,
        "thoughtsTokenCount": 5,
        "totalTokenCount": 125,
    }
    response = {
        "candidates": [{"index": 0, "content": {"role": "model", "parts": parts}, "finishReason": "STOP"}],
        "usageMetadata": counts,
        "modelVersion": "a-model",
        "responseId": "reply-1",
    }
    return Dialect(
        "/v1beta/models/a-model:streamGenerateContent",
        json.dumps(response).encode(),
        events(gemini_chunks(response)),
        {
            "systemInstruction": {"parts": [{"text": "Be brief."}]},
            "generationConfig": {"maxOutputTokens": 100},
            "tools": [{"functionDeclarations": [{"name": "read", "parametersJsonSchema": {"type": "object"}}]}],
            "contents": [
                {"role": "user", "parts": [{"text": "Read it."}]},
                {"role": "model", "parts": parts[1:]},
                {"role": "user", "parts": [{"functionResponse": {"name": "read", "response": {"output": "one"}}}]},
            ],
        },
        "contents",
        slice(1, 2),
    )


def gemini_chunks(response: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The response in pieces: texts by the half."""
    (candidate,) = response["candidates"]
    head = {name: response[name] for name in ("modelVersion", "responseId")}
    for part in candidate["content"]["parts"]:
        text = part.get("text", "")
        halves = (text[: len(text) // 2], text[len(text) // 2 :]) if text else ()
        for piece in [{**part, "text": half} for half in halves] or [part]:
            yield {"candidates": [{"content": {"role": "model", "parts": [piece]}}], **head}
    end = {"content": {"role": "model", "parts": [{"text": ""}]}, "finishReason": candidate["finishReason"]}
    yield {"candidates": [end], "usageMetadata": response["usageMetadata"], **head}


DIALECTS = {
    "anthropic-messages": _anthropic(),
    "openai-chat": _chat(),
    "openai-responses": _responses(),
    "gemini": _gemini(),
}
