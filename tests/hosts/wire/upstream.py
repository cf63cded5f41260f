"""All four providers' APIs on one port of 127.0.0.1, in front of one scripted model: whatever is asked, it answers."""

from __future__ import annotations

import gzip
import itertools
import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from tests.hosts.wire import gemini
from tests.messages_api import stream as messages_stream
from tests.openai_api import server as openai

Body = dict[str, Any]
Blocks = list[dict[str, Any]]


@dataclass(frozen=True)
class Failing:
    """An answer that fails: refused with a status, or, with 200, broken off in its middle."""

    blocks: Blocks = field(default_factory=list)
    status: int = 200


#: Seconds after which a client has done what it does with the events before a break.
_TAKEN = 0.3

#: The model: what it says to the body of a request, in blocks of the Messages API.
Model = Callable[[Body], "Blocks | Failing"]

FORMS = {
    "/v1/messages": "messages",
    "/v1/messages/count_tokens": "count",
    "/v1/chat/completions": "chat",
    "/chat/completions": "chat",
    "/v1/responses": "responses",
    "/responses": "responses",
}
_GEMINI = re.compile(r"/v1(?:beta|alpha|beta1)?/(?:.*/)?models/[^/:]+:(\w+)")


def form_of(path: str) -> str:
    """The form of a path: `gemini` and `gemini-stream` too; empty for another."""
    if form := next((form for end, form in FORMS.items() if path.endswith(end)), ""):
        return form
    match = _GEMINI.search(path)
    return {"generateContent": "gemini", "streamGenerateContent": "gemini-stream", "countTokens": "gemini-count"}.get(
        match[1] if match else "", ""
    )


@dataclass
class Upstream:
    """A running server. `url` has no path."""

    url: str
    model: Model
    #: Answers are compressed where the client takes it.
    compressed: bool = False
    #: Seconds between the events of a stream.
    pause: float = 0.0
    faults: list[BaseException] = field(default_factory=list)


@contextmanager
def serve(model: Model, *, compressed: bool = False, pause: float = 0.0) -> Iterator[Upstream]:
    """A server until the end. Raises, on leaving, the first thing that went wrong within the model."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.upstream = Upstream(f"http://127.0.0.1:{server.server_address[1]}", model, compressed, pause)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.upstream
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    if server.upstream.faults:
        raise server.upstream.faults[0]


class _Server(ThreadingHTTPServer):
    upstream: Upstream
    daemon_threads = True

    def __init__(self, *given: Any) -> None:
        self.numbers = itertools.count(1)
        self.lock = threading.Lock()
        super().__init__(*given)

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002
        """A fault is kept for who runs the server; a client that has gone is none."""
        fault = sys.exc_info()[1]
        if fault is not None and not isinstance(fault, ConnectionError):
            self.upstream.faults.append(fault)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a tap keeps what passes."""

    def do_GET(self) -> None:
        if self.headers.get("upgrade"):
            self._send(426, {"error": {"message": "no WebSocket here", "type": "invalid_request_error", "code": None}})
            return
        self._send(404, {"error": {"message": f"no {self.path}", "type": "not_found_error", "code": None}})

    do_HEAD = do_DELETE = do_PUT = do_GET  # noqa: N815

    def do_POST(self) -> None:
        form = form_of(urlsplit(self.path).path)
        try:
            body = json.loads(self._body())
        except ValueError:
            self._send(400, {"error": {"message": "no JSON", "type": "invalid_request_error", "code": None}})
            return
        if not form:
            self.do_GET()
        elif form.endswith("count"):
            self._send(200, {"input_tokens": 100} if form == "count" else {"totalTokens": 100})
        else:
            self._answer(form, body)

    def _answer(self, form: str, body: Body) -> None:
        with self.server.lock:
            try:
                said = self.server.upstream.model(body)
            except BaseException as fault:
                self.server.upstream.faults.append(fault)
                self._send(400, {"error": {"message": repr(fault), "type": "invalid_request_error", "code": None}})
                return
            number = next(self.server.numbers)
        failing = said if isinstance(said, Failing) else None
        if failing and failing.status != 200:
            self._send(failing.status, _refusal(form, failing.status))
            return
        blocks = said.blocks if isinstance(said, Failing) else said
        size = max(1, len(json.dumps(body)) // 4)
        answer, events = _FORMS[form.removesuffix("-stream")](body, blocks, number, size)
        if form == "gemini-stream" or body.get("stream"):
            self._stream(events, breaks=failing is not None)
        else:
            self._send(200, answer, breaks=failing is not None)

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            data = b"".join(parts)
        else:
            data = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.headers.get("content-encoding") == "gzip":
            return gzip.decompress(data)
        return data

    @property
    def _compresses(self) -> bool:
        return self.server.upstream.compressed and "gzip" in self.headers.get("accept-encoding", "")

    def _send(self, status: int, answer: Any, *, breaks: bool = False) -> None:
        data = json.dumps(answer, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        if self._compresses:
            data = gzip.compress(data, mtime=0)
            self.send_header("content-encoding", "gzip")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data[: len(data) // 2] if breaks else data)
        self.close_connection = self.close_connection or breaks

    def _stream(self, events: Iterable[bytes], *, breaks: bool = False) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        if self._compresses:
            self.send_header("content-encoding", "gzip")
            events = [gzip.compress(b"".join(events), mtime=0)]
        self.end_headers()
        events = list(events)
        for event in events[: len(events) // 2] if breaks else events:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
            time.sleep(self.server.upstream.pause)
        if breaks:
            time.sleep(_TAKEN)
            self.close_connection = True
            return
        self.wfile.write(b"0\r\n\r\n")


def _messages(body: Body, blocks: Blocks, number: int, size: int) -> tuple[Body, Iterable[bytes]]:
    content = [
        {"type": "tool_use", "id": f"toolu_{number:04}{at}", **block} if block["type"] == "tool_use" else block
        for at, block in enumerate(blocks)
    ]
    message = {
        "id": f"msg_{number:020}",
        "type": "message",
        "role": "assistant",
        "model": body.get("model", ""),
        "content": content,
        "stop_reason": "tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": size,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 20,
            "output_tokens_details": {"thinking_tokens": 0},
        },
    }
    return message, (messages_stream.encoded(event) for event in messages_stream.events(message))


def _chat(body: Body, blocks: Blocks, number: int, size: int) -> tuple[Body, Iterable[bytes]]:
    completion = {**openai.completion(openai.Reply(blocks), number, size), "model": body.get("model", "")}
    return completion, (*_data(openai.chunks(completion)), b"data: [DONE]\n\n")


def _responses(body: Body, blocks: Blocks, number: int, size: int) -> tuple[Body, Iterable[bytes]]:
    plain = [{"name": "", "input": "", **block, "type": _PLAIN.get(block["type"], block["type"])} for block in blocks]
    response = {**openai.response(openai.Reply(plain), number, size), "model": body.get("model", "")}
    response["output"] = [_tool_item(*pair) for pair in zip(blocks, response["output"], strict=True)]
    events = openai.response_events(response)
    return response, (b"event: %s\n" % event["type"].encode() + data for event in events for data in _data([event]))


#: What the Messages API has no block for → a block that has an item of the same fields.
_PLAIN = {"custom_tool_use": "tool_use", "compaction": "tool_use"}


def _tool_item(block: Body, item: Body) -> Body:
    """The item of what the Messages API has no block for; any other as it is."""
    if block["type"] == "compaction":
        return {**block, "id": item["id"]}
    if block["type"] == "custom_tool_use":
        named = {name: item[name] for name in ("id", "status", "call_id", "name")}
        return {"type": "custom_tool_call", **named, "input": block["input"]}
    return {**item, "namespace": block["namespace"]} if "namespace" in block else item


def _gemini(body: Body, blocks: Blocks, number: int, size: int) -> tuple[Body, Iterable[bytes]]:
    return gemini.answer(blocks, number, size), _data(gemini.chunks(blocks, number, size), end=b"\r\n\r\n")


def _data(events: Iterable[Body], end: bytes = b"\n\n") -> Iterator[bytes]:
    return (b"data: " + json.dumps(event, ensure_ascii=False).encode() + end for event in events)


def _refusal(form: str, status: int) -> Body:
    """The body of a refusal that a client may try again."""
    if form == "messages":
        return {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    if form.startswith("gemini"):
        return {"error": {"code": status, "message": "Resource exhausted", "status": "RESOURCE_EXHAUSTED"}}
    return {"error": {"message": "Rate limit reached", "type": "rate_limit_error", "code": "rate_limit_exceeded"}}


_FORMS = {"messages": _messages, "chat": _chat, "responses": _responses, "gemini": _gemini}
