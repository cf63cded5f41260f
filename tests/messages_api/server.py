"""The Messages API on this machine's loopback: a real server for a real client, and an assistant that is scripted.

with serve(script("Hello")) as api:
    client = anthropic.Anthropic(api_key="test", base_url=api.url, max_retries=0)
"""

from __future__ import annotations

import itertools
import json
import socket
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from urllib.parse import unquote, urlsplit

from tests.making.web import Handler, WebServer
from tests.messages_api import stream
from tests.messages_api.judge import Judge
from tests.messages_api.models import Model, find
from tests.messages_api.script import Assistant, Refusal, Reply, ScriptEnded
from tests.messages_api.wire import Block

LARGEST_BODY = 32 * 1024 * 1024
#: What the rules know and this server does not play: to ignore it would be to lie.
UNPLAYED = ("thread", "compaction", "context_management", "fallbacks", "mcp_servers")


@dataclass(frozen=True)
class Call:
    """A request as it came in, and what became of it."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Block
    status: int
    #: The message or the error that was answered; of a stream, the message it would have made.
    answer: Block


@dataclass
class MessagesApi:
    """A running server: its address, its account, and all that was asked of it, in order."""

    url: str
    judge: Judge
    assistant: Assistant
    calls: list[Call] = field(default_factory=list)
    #: What went wrong in the server or the script; it is raised when the server closes.
    faults: list[BaseException] = field(default_factory=list)
    #: A body as the rules know it: a client may send fields of betas that they do not have. `calls` has what was sent.
    reading: Callable[[Block], Block] = dict

    @property
    def bodies(self) -> list[Block]:
        """The bodies of the requests for messages that were taken."""
        return [one.body for one in self.calls if one.path == "/v1/messages" and one.status == 200]


@contextmanager
def serve(
    assistant: Assistant,
    *,
    judge: Judge | None = None,
    listener: socket.socket | None = None,
    reading: Callable[[Block], Block] = dict,
) -> Iterator[MessagesApi]:
    """A server on a free port of 127.0.0.1 that answers as the API does, in the words of the assistant.

    `listener`: the socket to serve instead, bound and listening, as one of another network namespace.
    Raises, on leaving, the first thing that went wrong within the server or the script.
    """
    server = _Server(_Handler, listener)
    server.api = MessagesApi(server.address, judge or Judge(), assistant, faults=server.faults, reading=reading)
    with server.running():
        yield server.api


class _Server(WebServer):
    api: MessagesApi


class _Refused(Exception):
    """This request is answered with an error."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class _Handler(Handler, BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._answer({}, self._get)

    def do_HEAD(self) -> None:
        self._answer({}, self._get)

    def do_POST(self) -> None:
        try:
            body = self._body()
        except _Refused as refused:
            self._refuse({}, refused.refusal)
        else:
            self._answer(body, self._post)

    def _answer(self, body: Block, method: Callable[[Block], None]) -> None:
        try:
            method(body)
        except _Refused as refused:
            self._refuse(body, refused.refusal)
        except ScriptEnded as ended:
            self.server.api.faults.append(ended)
            self._refuse(body, Refusal(500, "api_error", str(ended), {"x-should-retry": "false"}))

    @property
    def _route(self) -> str:
        return unquote(urlsplit(self.path).path).rstrip("/")

    def _body(self) -> Block:
        length = self.headers.get("content-length", "")
        # A body that is not read would be taken for the next request.
        closing = {"connection": "close"}
        if not length.isdecimal():
            raise _Refused(Refusal(400, "invalid_request_error", "content-length: Field required", closing))
        if int(length) > LARGEST_BODY:
            raise _Refused(Refusal(413, "request_too_large", "Request exceeds the maximum size", closing))
        try:
            body = json.loads(self.rfile.read(int(length)))
        except ValueError:
            raise _invalid("The request body is not valid JSON") from None
        if not isinstance(body, dict):
            raise _invalid("The request body is no object")
        return body

    def _get(self, body: Block) -> None:
        models = self.server.api.judge.models
        if not f"{self._route}/".startswith("/v1/models/"):
            raise _missing(self._route)
        self._authenticate()
        if self._route == "/v1/models":
            listed = [_model(model) for model in models.values()]
            page = {"data": listed, "has_more": False, "first_id": listed[0]["id"], "last_id": listed[-1]["id"]}
            self._send(body, 200, page)
            return
        name = self._route.removeprefix("/v1/models/")
        if (model := find(name, models)) is None:
            raise _missing(f"model: {name}")
        self._send(body, 200, _model(model))

    def _post(self, body: Block) -> None:
        if self._route not in ("/v1/messages", "/v1/messages/count_tokens"):
            raise _missing(self._route)
        self._authenticate()
        counting = self._route.endswith("count_tokens")
        betas = frozenset(filter(None, map(str.strip, self.headers.get("anthropic-beta", "").split(","))))
        with self.server.lock:
            said = self._said(self.server.api.reading(body), betas, counting=counting)
        if isinstance(said, dict):
            self._send(body, 200, said)
        else:
            self._stream(body, *said)

    def _said(self, body: Block, betas: Collection[str], *, counting: bool) -> Block | tuple[Block, Reply]:
        """The answer; with how it comes if it is to be streamed."""
        api = self.server.api
        version = self.headers.get("anthropic-version")
        if version is None:
            raise _invalid("anthropic-version: header is required")
        if find(body.get("model"), api.judge.models) is None and isinstance(body.get("model"), str):
            raise _missing(f"model: {body['model']}")
        ruling = api.judge.rule(body, betas=betas, version=version, counting=counting)
        if ruling.problems:
            raise _invalid(ruling.problems[0])
        for name in UNPLAYED:
            if body.get(name) is not None:
                raise _invalid(f"{name}: not played by this server")
        if counting:
            return {"input_tokens": ruling.tokens}
        said = api.assistant(body)
        if isinstance(said, Refusal):
            raise _Refused(said)
        reply = said if isinstance(said, Reply) else Reply(said)
        message = api.judge.answer(body, ruling, reply.content, betas=betas, stop_reason=reply.stop_reason)
        message["usage"].update(reply.usage)
        return (message, reply) if body.get("stream") else message

    def _authenticate(self) -> None:
        if not (self.headers.get("authorization") or self.headers.get("x-api-key")):
            raise _Refused(Refusal(401, "authentication_error", "x-api-key header is required"))

    def _refuse(self, body: Block, refusal: Refusal) -> None:
        self._send(body, refusal.status, _error(refusal), refusal.headers)

    def _send(self, body: Block, status: int, answer: Block, headers: Mapping[str, str] | None = None) -> None:
        request_id = f"req_{next(self.server.numbers):024}"
        if answer.get("type") == "error":
            answer = {**answer, "request_id": request_id}
        self._keep(body, status, answer)
        self.send_json(status, answer, {"request-id": request_id, **(headers or {})})

    def _stream(self, body: Block, message: Block, reply: Reply) -> None:
        self._keep(body, 200, message)
        headers = {"content-type": "text/event-stream; charset=utf-8", "transfer-encoding": "chunked"}
        self.begin(200, {**headers, "request-id": f"req_{next(self.server.numbers):024}"})
        for event in itertools.islice(stream.events(message), reply.cut_after):
            if reply.pause and self.server.closing.wait(reply.pause):
                return
            self._chunk(stream.encoded(event))
        if reply.error:
            self._chunk(stream.encoded(_error(reply.error)))
        if reply.broken:
            self.close_connection = True
        else:
            self._chunk(b"")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _keep(self, body: Block, status: int, answer: Block) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.api.calls.append(Call(self.command, self._route, headers, body, status, answer))


def _invalid(message: str) -> _Refused:
    return _Refused(Refusal(400, "invalid_request_error", message))


def _missing(what: str) -> _Refused:
    return _Refused(Refusal(404, "not_found_error", what))


def _error(refusal: Refusal) -> Block:
    error: Block = {"type": refusal.type, "message": refusal.message}
    if refusal.error_code:
        error["details"] = {"error_code": refusal.error_code}
    return {"type": "error", "error": error}


def _model(model: Model) -> Block:
    """The model as `GET /v1/models` tells of it."""

    def can(supported: bool) -> Block:
        return {"supported": supported}

    kinds = ("adaptive", "between_tools", "disabled", "enabled")
    efforts = {level: can(model.id != "claude-haiku-4-5") for level in ("low", "medium", "high", "xhigh", "max")}
    edits = ("clear_thinking_20251015", "clear_tool_uses_20250919", "compact_20260112")
    return {
        "id": model.id,
        "type": "model",
        "display_name": model.id.replace("-", " ").title(),
        "created_at": "2026-01-01T00:00:00Z",
        "lifecycle": "active",
        "line": model.family,
        "max_input_tokens": model.window,
        "max_tokens": model.max_output,
        "capabilities": {
            **{name: can(False) for name in ("batch", "citations", "code_execution", "structured_outputs")},
            **{name: can(True) for name in ("image_input", "pdf_input")},
            "server_tools": {**can(False), "code_execution": can(False), "web_search": can(False)},
            "context_management": {**can(False), **{name: can(False) for name in edits}},
            "effort": {**can(model.id != "claude-haiku-4-5"), **efforts},
            "thinking": {**can(True), "types": {kind: can(kind in model.thinking) for kind in kinds}},
        },
    }
