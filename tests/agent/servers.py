"""Servers that speak the Messages API in ways of their own, and what goes wrong with each, on this machine's loopback.

A `Dialect` is how a server writes what is right: ids, usage, comments, the body of an error.
A fault is a list of answers that one turn of an agent gets, and what is to become of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, TypeAlias

from tests.making.provider import MODEL
from tests.making.web import Handler, WebServer
from tests.messages_api import text
from tests.messages_api.wire import Block

#: The window that overflows name.
WINDOW = 16_384
PAGE = (
    b"<!DOCTYPE html>\n<html><head><title>Sign in &amp; go on</title></head><body>" + b"<p>x</p>" * 2_000 + b"</body>"
)


@dataclass(frozen=True)
class Answer:
    """What goes over the wire; with `cut`, less than it promises."""

    status: int
    kind: str
    body: bytes
    cut: bool = False


@dataclass(frozen=True)
class Dialect:
    """How a server writes."""

    name: str
    message_id: str = "msg_01{}"
    call_id: str = "toolu_01{}"
    usage: Mapping[str, Any] = field(
        default_factory=lambda: {"input_tokens": 900, "cache_read_input_tokens": 0, "output_tokens": 20}
    )
    comment: str = ""
    #: Whether `usage` is at the beginning too, and the stream ends with more than `message_stop`.
    starts_with_usage: bool = True
    done: bool = False
    error: Callable[[int, str], object] = lambda _, message: {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": message},
    }


def rows(name: str) -> list[dict[str, Any]]:
    """The cases in a file beside this one, a JSON object a line."""
    return [json.loads(line) for line in (Path(__file__).parent / name).read_text().splitlines()]


DIALECTS = (
    Dialect("Messages API"),
    Dialect(
        "llama.cpp",
        message_id="chatcmpl-x{}",
        call_id="kq9DG6sT0zXf{}",
        error=lambda status, message: {"error": {"code": status, "message": message, "type": "server_error"}},
    ),
    Dialect(
        "vLLM",
        message_id="chatcmpl-{}",
        call_id="chatcmpl-tool-{}",
        usage={"input_tokens": 900, "output_tokens": 20, "cache_read_input_tokens": None},
        error=lambda status, message: {
            "object": "error",
            "message": message,
            "type": "BadRequestError",
            "code": status,
        },
    ),
    Dialect(
        "Ollama",
        message_id="msg_{}",
        call_id="call_{}",
        usage={"input_tokens": 900, "output_tokens": 20},
        error=lambda _, message: {"type": "error", "error": {"type": "api_error", "message": message}},
    ),
    Dialect("LM Studio", error=lambda _, message: {"error": message}),
    Dialect(
        "LiteLLM",
        usage={"input_tokens": 900, "output_tokens": 20, "cache_creation_input_tokens": 0},
        starts_with_usage=False,
        done=True,
        error=lambda status, message: {"error": {"message": message, "type": None, "param": None, "code": str(status)}},
    ),
    Dialect(
        "OpenRouter",
        message_id="gen-17{}",
        usage={"input_tokens": 900, "output_tokens": 20, "cost": 0.0012, "is_byok": False},
        comment=": OPENROUTER PROCESSING\n\n",
        error=lambda status, message: {"error": {"message": message, "code": status}, "user_id": "u"},
    ),
    Dialect(
        "Bedrock",
        message_id="msg_bdrk_{}",
        call_id="toolu_bdrk_{}",
        error=lambda _, message: {"message": message},
    ),
)
#: How servers say that a prompt is too long, of 20,123 tokens for a window of 16,384: the words are those of
#: `refusal._TOO_LONG`, with its sources.
OVERFLOWS = rows("overflows.jsonl")


class Writer:
    """What a server of a dialect answers. Ids are counted, unless a fault wants them otherwise."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self._count = 0

    def message(self, *content: Block, **fields: Any) -> Block:
        self._count += 1
        calls = any(block.get("type") == "tool_use" for block in content)
        return {
            "id": self.dialect.message_id.format(self._count),
            "type": "message",
            "role": "assistant",
            "model": MODEL,
            "content": list(content),
            "stop_reason": "tool_use" if calls else "end_turn",
            "stop_sequence": None,
            "usage": dict(self.dialect.usage),
            **fields,
        }

    def call(self, command: str, **fields: Any) -> Block:
        self._count += 1
        identifier = self.dialect.call_id.format(self._count)
        return {"type": "tool_use", "id": identifier, "name": "bash", "input": {"command": command}, **fields}

    def stream(self, message: Block, *, names: bool = True, tail: Sequence[Block] | None = None) -> Answer:
        """The message as a stream. A call whose input is a text is sent as that, whatever it is. `tail` replaces the
        last two events."""
        opening = {**message, "content": [], "stop_reason": None}
        if not self.dialect.starts_with_usage or "usage" not in message:
            opening.pop("usage", None)
        sent: list[Any] = [{"type": "message_start", "message": opening}, {"type": "ping"}]
        for index, block in enumerate(message["content"]):
            sent += _block(index, block)
        ending = {"delta": {"stop_reason": message["stop_reason"], "stop_sequence": None}}
        counted = {"usage": message["usage"]} if "usage" in message else {}
        sent += [{"type": "message_delta", **ending, **counted}, {"type": "message_stop"}] if tail is None else tail
        lines = [self.dialect.comment]
        lines += [(f"event: {event['type']}\n" if names else "") + f"data: {json.dumps(event)}\n\n" for event in sent]
        lines += ["data: [DONE]\n\n"] if self.dialect.done and tail is None else []
        return Answer(200, "text/event-stream", "".join(lines).encode())

    def whole(self, message: object) -> Answer:
        return Answer(200, "application/json", json.dumps(message).encode())

    def error(self, status: int, message: str) -> Answer:
        return Answer(status, "application/json", json.dumps(self.dialect.error(status, message)).encode())


def _block(index: int, block: Any) -> Iterator[Block]:
    kind = block.get("type") if isinstance(block, dict) else None
    if kind == "text":
        yield {"type": "content_block_start", "index": index, "content_block": {"type": "text", "text": ""}}
        yield {"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": block["text"]}}
    elif kind == "tool_use":
        yield {"type": "content_block_start", "index": index, "content_block": {**block, "input": {}}}
        written = block["input"] if isinstance(block["input"], str) else json.dumps(block["input"])
        for at in range(0, len(written), 9):
            delta = {"type": "input_json_delta", "partial_json": written[at : at + 9]}
            yield {"type": "content_block_delta", "index": index, "delta": delta}
    else:
        yield {"type": "content_block_start", "index": index, "content_block": block}
    yield {"type": "content_block_stop", "index": index}


@dataclass(frozen=True)
class Fault:
    """What goes wrong in a turn: its answers, in order, and what becomes of it.

    `says` is in the one line in which a run ends, empty where it goes on; `ran` the commands that were run; `faults`
    how many are recorded; `requests` how many the server got.
    """

    name: str
    answers: Callable[[Writer], Sequence[Answer]]
    becomes: str
    says: str = ""
    ran: Sequence[str] = ()
    faults: int = 0
    requests: int = 0


def _same(w: Writer, **fields: Any) -> list[Answer]:
    """Two replies that are the same but for what `fields` says, and the last."""
    again = [w.stream({**w.message(w.call("poll", **fields)), "id": "msg_1"}) for _ in range(2)]
    return [*again, w.stream({**w.message(text("Done.")), "id": "msg_1"})]


def _one_id(w: Writer) -> list[Answer]:
    calls = [w.call(command, id="call_0") for command in ("a", "b", "c")]
    return [w.stream(w.message(*calls)), w.stream(w.message(w.call("d", id="call_0"))), _done(w)]


def _done(w: Writer) -> Answer:
    return w.stream(w.message(text("Done.")))


def _without(message: Block, name: str) -> Block:
    return {key: value for key, value in message.items() if key != name}


_CALL = '{"command": "a", '
_BAD_USAGE = {"input_tokens": "many", "output_tokens": -4, "cache_read_input_tokens": 1e300, "x": [1], "y": True}

_One: TypeAlias = Callable[[Writer], Answer]


def _read(name: str, answer: _One, becomes: str = "read", ran: Sequence[str] = ("a",)) -> Fault:
    """What is read all the same: the run goes on to its end."""
    return Fault(name, lambda w: [answer(w), _done(w)], becomes, ran=ran, requests=2)


def _asked_again(name: str, answer: _One) -> Fault:
    return Fault(name, lambda w: [answer(w), _done(w)], "asked again", faults=1, requests=2)


def _ends(name: str, answer: _One, says: str) -> Fault:
    return Fault(name, lambda w: [answer(w)], "one line", says=says, faults=1, requests=1)


def _corrected(name: str, answer: _One, ran: Sequence[str]) -> Fault:
    """What goes back to the model, which then does right."""
    back = "back to the model as an error result"
    return Fault(name, lambda w: [answer(w), w.stream(w.message(w.call("a"))), _done(w)], back, ran=ran, requests=3)


def _json(status: int, body: bytes) -> _One:
    return lambda _: Answer(status, "application/json", body)


def _without_end(w: Writer) -> Answer:
    """A stream that has no last event, and no end of the one before."""
    ending = {"type": "message_delta", "delta": {"stop_reason": "tool_use"}}
    answer = w.stream(w.message(w.call("a")), tail=[ending])
    return Answer(answer.status, answer.kind, answer.body.rstrip())


def _half(w: Writer) -> Answer:
    """A stream without its ending, which is called done all the same."""
    half = w.stream(w.message(text("Do"), w.call("a")), tail=())
    return Answer(half.status, half.kind, half.body + b"data: [DONE]\n\n")


_OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
_DETAIL = b'{"detail": [{"loc": ["body", "x"], "msg": "field required"}]}'
_POLLED = ("poll", "poll")

FAULTS = (
    _corrected(
        "arguments that are no JSON", lambda w: w.stream(w.message(w.call("", input=_CALL), w.call("b"))), ("b", "a")
    ),
    _corrected("arguments that are a list", lambda w: w.whole(w.message(w.call("", input=["a"]))), ("a",)),
    _read("arguments as a text of JSON", lambda w: w.whole(w.message(w.call("", input='{"command": "a"}')))),
    _read("no usage", lambda w: w.stream(_without(w.message(w.call("a")), "usage")), "our own count"),
    _read("usage that is no numbers", lambda w: w.stream(w.message(w.call("a"), usage=_BAD_USAGE)), "our own count"),
    _read("a JSON text, not a stream", lambda w: w.whole(w.message(w.call("a")))),
    _read("events without names", lambda w: w.stream(w.message(w.call("a")), names=False)),
    _read("a stream without its last event", _without_end),
    _read("no reason for the end", lambda w: w.stream(w.message(w.call("a"), stop_reason=None))),
    _read("the words of Chat Completions for it", lambda w: w.stream(w.message(w.call("a"), stop_reason="tool_calls"))),
    _read("a reply without an id", lambda w: w.stream(_without(w.message(w.call("a")), "id"))),
    Fault("one id for all replies", _same, "read", ran=_POLLED, requests=3),
    Fault("one id for all, calls too", lambda w: _same(w, id="call_0"), "calls are numbered", ran=_POLLED, requests=3),
    Fault("one id for all calls of a reply", _one_id, "calls are numbered", ran=("a", "b", "c", "d"), requests=3),
    _read(
        "a call without an id",
        lambda w: w.stream(w.message(w.call("a", id=None), w.call("b", id=""))),
        "calls are numbered",
        ("a", "b"),
    ),
    _asked_again("a call without a name", lambda w: w.stream(w.message(w.call("a", name=None)))),
    _asked_again("an empty reply", lambda w: w.stream(w.message())),
    Fault(
        "empty replies only",
        lambda w: [w.stream(w.message(text("")))] * 5,
        "one line",
        says="the model replied with nothing, 5 times",
        faults=5,
        requests=5,
    ),
    _asked_again("a stream that ends early", _half),
    _asked_again(
        "a connection that breaks",
        lambda w: Answer(200, "text/event-stream", w.stream(w.message(text("Do"))).body[:-80], cut=True),
    ),
    _asked_again("a JSON text that ends early", _json(200, b'{"id": "msg_1", "content": [{"ty')),
    _asked_again("an error in the stream", lambda w: w.stream(w.message(text("Do")), tail=[_OVERLOADED])),
    _asked_again(
        "an event that is no JSON",
        lambda _: Answer(200, "text/event-stream", b"event: message_start\ndata: {'a': 1}\n\n"),
    ),
    _asked_again("a text that is a number", lambda w: w.stream(w.message({"type": "text", "text": 7}))),
    _ends("content that is a number", lambda w: w.whole({**w.message(), "content": 7}), "no message: no content"),
    _ends(
        "a reply of Chat Completions",
        lambda w: w.whole({"choices": [{"message": {"content": "x"}}]}),
        "no message: a reply of Chat Completions",
    ),
    _ends(
        "a web page with status 200",
        lambda _: Answer(200, "text/html", PAGE),
        "no message: the web page 'Sign in & go on'",
    ),
    _ends(
        "a web page with status 502", lambda _: Answer(502, "text/html", PAGE), "the provider failed: Sign in & go on"
    ),
    _ends(
        "an error in words of its own",
        lambda w: w.error(500, "the model\ncrashed"),
        "the provider failed: the model crashed",
    ),
    _ends("an error of a validator", _json(422, _DETAIL), "the provider failed: field required"),
    _ends("an error without words", _json(500, b"{}"), "the provider failed: status 500"),
    _ends("a key that is refused", lambda w: w.error(401, "no such key"), "rejected the key: no such key"),
)


@dataclass
class Loopback:
    """A server that gives the answers that it is set, and keeps the bodies that it was sent.

    `places` are what it answers elsewhere, by path; each request there is in `asked`, with its body, and its key in
    `keys`.
    """

    url: str
    answers: list[Answer] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)
    betas: frozenset[str] = frozenset()
    places: dict[str, Answer] = field(default_factory=dict)
    asked: list[tuple[str, Any]] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)


@contextmanager
def serving() -> Iterator[Loopback]:
    server = _Server(_Handler)
    server.loopback = Loopback(server.address)
    with server.running():
        yield server.loopback


class _Server(WebServer):
    loopback: Loopback


class _Handler(Handler, BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        self._place(None)

    def do_POST(self) -> None:
        loopback = self.server.loopback
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path != "/v1/messages":
            self._place(body)
            return
        loopback.bodies.append(body)
        loopback.betas = frozenset(filter(None, self.headers.get("anthropic-beta", "").split(",")))
        self._send(loopback.answers.pop(0))

    def _place(self, body: object) -> None:
        loopback = self.server.loopback
        loopback.asked.append((self.path, body))
        loopback.keys |= {*filter(None, map(self.headers.get, ("x-api-key", "authorization", "cookie")))}
        self._send(loopback.places.get(self.path) or Answer(404, "application/json", b'{"error": "not found"}'))

    def _send(self, answer: Answer) -> None:
        length = str(len(answer.body) + 100 * answer.cut)
        self.begin(answer.status, {"content-type": answer.kind, "content-length": length})
        self.wfile.write(answer.body)
        self.close_connection = True
