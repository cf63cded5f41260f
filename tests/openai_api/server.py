"""A server of both APIs on a free port of 127.0.0.1; its assistant is scripted as that of `tests.messages_api`."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from ctxvc.tokens.count import count
from tests.making.web import Handler, WebServer
from tests.messages_api.script import Assistant, Refusal, Reply, ScriptEnded
from tests.openai_api.judge import chat_problem, responses_problem


@dataclass
class OpenAIApi:
    """A running server, and all that was asked of it, in order."""

    url: str
    assistant: Assistant
    #: Tokens that the model takes; a longer prompt is refused.
    window: int = 200_000
    models: tuple[str, ...] = ("local-model",)
    #: Parameters that this server does not know.
    unknown: tuple[str, ...] = ()
    #: A whole body instead of a stream, though one was asked for.
    whole: bool = False
    bodies: list[dict[str, Any]] = field(default_factory=list)
    #: Why requests were refused: by the judge, not by the script.
    problems: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    faults: list[BaseException] = field(default_factory=list)


@contextmanager
def serve(assistant: Assistant, **options: Any) -> Iterator[OpenAIApi]:
    """A server whose address ends with `/v1`. Raises, on leaving, the first thing that went wrong within it."""
    server = _Server(_Handler)
    server.api = OpenAIApi(f"{server.address}/v1", assistant, faults=server.faults, **options)
    with server.running():
        yield server.api


class _Server(WebServer):
    api: OpenAIApi


class _Handler(Handler, BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        api = self.server.api
        if self.path == "/v1/models":
            entries = [{"id": name, "object": "model", "max_model_len": api.window} for name in api.models]
            self.send_json(200, {"object": "list", "data": entries})
        else:
            self._refuse(Refusal(404, "not_found_error", f"no {self.path}"))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with self.server.lock:
            self._answer(body)

    def _answer(self, body: dict[str, Any]) -> None:
        api = self.server.api
        is_chat = self.path == "/v1/chat/completions"
        if not is_chat and self.path != "/v1/responses":
            self._refuse(Refusal(404, "not_found_error", f"no {self.path}"))
            return
        if names := [name for name in api.unknown if name in json.dumps(body)]:
            self._refuse(Refusal(400, "invalid_request_error", f"Unsupported parameter: '{names[0]}'"))
            return
        if problem := (chat_problem if is_chat else responses_problem)(_judged(body)):
            api.problems.append(problem)
            self._refuse(Refusal(400, "invalid_request_error", problem))
            return
        size = _size(body)
        if size > api.window:
            takes = f"This model's maximum context length is {api.window} tokens."
            text = f"{takes} However, your messages resulted in {size} tokens."
            self._refuse(Refusal(400, "invalid_request_error", text, error_code="context_length_exceeded"))
            return
        try:
            scripted = api.assistant(body)
        except ScriptEnded as ended:
            api.faults.append(ended)
            self._refuse(Refusal(400, "invalid_request_error", str(ended)))
            return
        if isinstance(scripted, Refusal):
            self._refuse(scripted)
            return
        api.bodies.append(body)
        api.sizes.append(size)
        reply = scripted if isinstance(scripted, Reply) else Reply(scripted)
        made = (completion if is_chat else response)(reply, next(self.server.numbers), size)
        if body.get("stream") and not api.whole:
            events = list((chunks if is_chat else response_events)(made))
            self._stream(events[: reply.cut_after], done=is_chat and reply.cut_after is None)
        else:
            self.send_json(200, made)

    def _refuse(self, refusal: Refusal) -> None:
        error = {"message": refusal.message, "type": refusal.type, "param": None, "code": refusal.error_code}
        self.send_json(refusal.status, {"error": error}, {"x-should-retry": "false", **refusal.headers})

    def _stream(self, events: list[dict[str, Any]], *, done: bool) -> None:
        self.begin(200, {"content-type": "text/event-stream"})
        for event in events:
            self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        if done:
            self.wfile.write(b"data: [DONE]\n\n")


def _size(body: dict[str, Any]) -> int:
    """The tokens of a prompt: what it says, and some for each item around it, as chat templates take."""
    items = body.get("messages", body.get("input"))
    items = [items] if isinstance(items, str) else items
    spoken = [
        body.get("instructions") or "",
        json.dumps(body.get("tools", [])),
        *(text for item in items for text in _texts(item)),
    ]
    return sum(map(count, spoken)) + 8 * len(items)


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case list():
            for item in value:
                yield from _texts(item)
        case dict():
            for name, field in value.items():
                if name not in ("id", "call_id", "tool_call_id", "type", "role", "status", "encrypted_content"):
                    yield from _texts(field)


def _judged(body: dict[str, Any]) -> dict[str, Any]:
    """The body without what servers of local models take besides: reasoning in messages."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        return body
    known = [{name: value for name, value in item.items() if name != "reasoning_content"} for item in messages]
    return {**body, "messages": known}


def _blocks(reply: Reply, number: int) -> list[dict[str, Any]]:
    blocks = [{"type": "text", "text": reply.content}] if isinstance(reply.content, str) else list(reply.content)
    return [
        {"id": f"call_{number}_{at}", **block} if block["type"] == "tool_use" else dict(block)
        for at, block in enumerate(blocks)
    ]


def _written(value: Any) -> str:
    """The arguments of a call: a script may have text that is no JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def completion(reply: Reply, number: int, size: int) -> dict[str, Any]:
    blocks = _blocks(reply, number)
    message: dict[str, Any] = {
        "role": "assistant",
        "content": "".join(block["text"] for block in blocks if block["type"] == "text") or None,
    }
    if thoughts := [block["thinking"] for block in blocks if block["type"] == "thinking"]:
        message["reasoning_content"] = "".join(thoughts)
    calls = [block for block in blocks if block["type"] == "tool_use"]
    if calls:
        message["tool_calls"] = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": _written(call["input"])},
            }
            for call in calls
        ]
    finish = reply.stop_reason or ("tool_calls" if calls else "stop")
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 1,
        "model": "local-model",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": size, "completion_tokens": 20, "total_tokens": size + 20},
    }


def chunks(completion: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The completion in pieces: texts by the half, arguments too."""
    choice = completion["choices"][0]
    head = {name: completion[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    yield chunk({"role": "assistant", "content": ""})
    for name in ("reasoning_content", "content"):
        text = choice["message"].get(name) or ""
        yield from (chunk({name: piece}) for piece in (text[: len(text) // 2], text[len(text) // 2 :]) if piece)
    for index, call in enumerate(choice["message"].get("tool_calls", ())):
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        yield chunk({"tool_calls": [{**call, "index": index, "function": {"name": name, "arguments": ""}}]})
        for piece in (arguments[:3], arguments[3:]):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, choice["finish_reason"])
    yield {**head, "choices": [], "usage": completion["usage"]}


def response(reply: Reply, number: int, size: int) -> dict[str, Any]:
    usage = {
        "input_tokens": size,
        "output_tokens": 20,
        "total_tokens": size + 20,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    state: dict[str, Any] = {"status": "completed"}
    if reply.stop_reason:
        state = {"status": "incomplete", "incomplete_details": {"reason": reply.stop_reason}}
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1,
        "model": "local-model",
        "output": [_item(block, f"{number}_{at}") for at, block in enumerate(_blocks(reply, number))],
        "usage": usage,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "error": None,
        **state,
    }


def _item(block: dict[str, Any], number: str) -> dict[str, Any]:
    match block["type"]:
        case "text":
            part = {"type": "output_text", "text": block["text"], "annotations": []}
            head = {"type": "message", "id": f"msg_{number}", "status": "completed"}
            return {**head, "role": "assistant", "content": [part]}
        case "thinking":
            summary = [{"type": "summary_text", "text": block["thinking"]}]
            return {"type": "reasoning", "id": f"rs_{number}", "summary": summary, "encrypted_content": f"gA{number}"}
    arguments = {"call_id": block["id"], "name": block["name"], "arguments": _written(block["input"])}
    return {"type": "function_call", "id": f"fc_{number}", "status": "completed", **arguments}


def response_events(response: dict[str, Any]) -> Iterator[dict[str, Any]]:
    numbers = itertools.count()
    begun = {**response, "status": "in_progress", "output": []}
    yield {"type": "response.created", "sequence_number": next(numbers), "response": begun}
    for index, item in enumerate(response["output"]):
        place = {"output_index": index, "sequence_number": next(numbers)}
        yield {"type": "response.output_item.added", **place, "item": item}
        if item["type"] == "message":
            delta = {"item_id": item["id"], "content_index": 0, "delta": item["content"][0]["text"], "logprobs": []}
            yield {"type": "response.output_text.delta", **place, **delta}
        yield {"type": "response.output_item.done", **place, "item": item}
    yield {"type": f"response.{response['status']}", "sequence_number": next(numbers), "response": response}
