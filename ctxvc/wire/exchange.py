"""Requests to a model and their answers, and how both are copied as they pass."""

from __future__ import annotations

import re
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Protocol

import msgspec

#: The most bytes that are kept of a request or an answer, encoded or decoded.
LARGEST = 64 << 20
#: The most bytes that may wait to be recorded; anything beyond is left out, for the reason that follows.
MOST_WAITING = 256 << 20
TOO_FAST = "requests come faster than they can be recorded; one was left out"

#: The headers of a request that are kept: who sent it, in which session, under which protocol. Any other may
#: authenticate somebody.
_KEPT = re.compile(
    r"accept|content-type|content-encoding|user-agent|originator|version|openai-beta|x-initiator"
    r"|anthropic-(?:beta|version|dangerous-direct-browser-access)"
    r"|(?:conversation|session|thread|task|request|prompt)[-_]id"
    r"|x-(?:claude-code|codex|stainless|opencode|copilot|gemini|qwen|crush|goose|session|thread|interaction|agent)-[a-z0-9-]*"
    r"|x-(?:client-request|request|app|session|thread)(?:-id)?|x-goog-api-client"
)
_SECRET = re.compile(r"auth|token|cookie|secret|credential|api[-_]?key")


#: How a stream's last event begins or ends; some clients read no further.
_LAST = b"data: [DONE]"
_LAST_EVENT = re.compile(rb"(?:event: ?|data: ?\{\"type\": ?\")(?:message_stop|response\.(?:completed|incomplete))\b")


class Exchange(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A request that was forwarded, with its answer.

    `path` is the client's, below the proxy's key and without the query; `headers` are the kept ones of the request, in
    lower case. `body` and `answer` are decoded, as far as they arrived; `whole` says whether the answer came to its
    end. `began`, `first` and `ended` are when the request came and its answer began and ended, in seconds since 1970.
    `number` is that of the `Requested` before it, 0 if there was none; with one, both bodies are the client's, whatever
    the model was sent.
    """

    upstream: str
    path: str
    headers: dict[str, str]
    body: bytes
    status: int
    answer: bytes
    stream: bool
    whole: bool
    began: float
    first: float
    ended: float
    number: int = 0

    @property
    def size(self) -> int:
        """Bytes of both bodies."""
        return len(self.body) + len(self.answer)


class Requested(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A client's request, whole and decoded, before it goes to the model. `number` is unique."""

    number: int
    upstream: str
    path: str
    headers: dict[str, str]
    body: bytes
    began: float

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return len(self.body)


class Answered(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The model's answer to the request of this number, or to a continuation of it."""

    number: int
    status: int
    answer: bytes
    stream: bool
    whole: bool
    first: float
    ended: float

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return len(self.answer)


class Managed(msgspec.Struct, frozen=True, kw_only=True):
    """What the model is sent next. An empty `body` means the client's own request, or no continuation.

    `tools` names the tools whose calls are answered here. The client does not have them and sees none of their calls.
    """

    body: bytes = b""
    tools: tuple[str, ...] = ()


#: The policy for an agent that is not made for our tools: few of them cost little as long as nothing leaves.
POLICY = "default:tools=few"


class Management(msgspec.Struct, frozen=True, kw_only=True):
    """A person's settings: the most tokens of a prompt, the policy's spec, and whether the model gets our tools."""

    budget: int
    policy: str = POLICY
    tools: bool = True


def managing(budget: int, policy: str = POLICY, *, tools: bool = True) -> Management | None:
    """The management under a budget in tokens; None if the budget is 0. Raises: BadInput for an unknown policy."""
    if not budget:
        return None
    from ctxvc import policies

    policies.parse(policy)
    return Management(budget=budget, policy=policy, tools=tools)


class Recorder(Protocol):
    """Takes exchanges and, if it manages prompts, decides what goes to the model. No method raises.

    A managed exchange is `ask` for the request, then for each answer of the model if the request got `tools`, then
    `record`.
    """

    manages: bool

    def ask(self, item: Requested | Answered) -> Future[Managed]:
        """What goes out instead of a request, or after an answer: a continuation if all its calls are answered here."""

    def record(self, exchange: Exchange) -> None:
        """Puts an exchange into the queue; does not wait."""

    def close(self) -> None:
        """Records what is in the queue, then ends the recorder."""


class NoRecorder:
    """Records nothing and manages nothing, for when the person has turned recording off."""

    manages = False

    def ask(self, item: Requested | Answered) -> Future[Managed]:  # noqa: ARG002
        future: Future[Managed] = Future()
        future.set_result(Managed())
        return future

    def record(self, exchange: Exchange) -> None:
        pass

    def close(self) -> None:
        pass


def identifying(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The headers that may be kept, with their names in lower case."""
    lowered = ((name.lower(), value) for name, value in headers)
    return {name: value for name, value in lowered if _KEPT.fullmatch(name) and not _SECRET.search(name)}


class Copy:
    """A copy of an exchange that is passing. At its end, the exchange goes to `record`.

    No method raises: failures go to `report`, and the exchange keeps passing.
    """

    def __init__(
        self,
        upstream: str,
        path: str,
        headers: Iterable[tuple[str, str]],
        *,
        record: Callable[[Exchange], None],
        report: Callable[[Exception], None],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._record, self._report, self._now = record, report, now
        self._upstream, self._path = upstream, path
        self._headers = {name.lower(): value for name, value in headers}
        self._body, self._answer = Bounded(), Bounded()
        self._status = 0
        self._answered: Mapping[str, str] = {}
        self.began = now()
        #: The number of the `Requested` before it.
        self.number = 0
        self._first = 0.0
        self._over = self._complete = False

    def sent(self, data: bytes) -> None:
        """Takes a piece of the request's body."""
        self._body.add(data)

    def answered(self, status: int, headers: Iterable[tuple[str, str]]) -> None:
        """Takes the head of the answer."""
        self._status = status
        self._answered = {name.lower(): value for name, value in headers}
        self._first = self._now()

    def received(self, data: bytes) -> None:
        """Takes a piece of the answer's body."""
        self._answer.add(data)

    @property
    def encoded(self) -> bool:
        """Whether `end` takes a while, since something has to be decoded."""
        return "content-encoding" in self._headers or "content-encoding" in self._answered

    def end(self) -> None:
        """Takes note that the answer has come to its end."""
        self._complete = True
        self.leave()

    def leave(self) -> None:
        """Ends the copy: without `end` before, the answer broke off. A request without an answer is not recorded."""
        if self._over or not self._status:
            return
        self._over = True
        try:
            exchange = self._exchange()
            if exchange:
                self._record(exchange)
        # The boundary: whatever is wrong with the copy, the exchange itself has passed.
        except Exception as error:
            self._report(error)

    def _exchange(self) -> Exchange | None:
        if self._body.cut:
            return None
        body = decoded(self._body.bytes(), self._headers.get("content-encoding", ""))
        answer = decoded(self._answer.bytes(), self._answered.get("content-encoding", ""))
        stream = is_stream(self._answered)
        return Exchange(
            upstream=self._upstream,
            path=self._path,
            headers=identifying(self._headers.items()),
            body=body,
            status=self._status,
            answer=answer,
            stream=stream,
            whole=is_whole(answer, stream=stream, complete=self._complete) and not self._answer.cut,
            began=self.began,
            first=self._first,
            ended=self._now(),
            number=self.number,
        )


def is_stream(headers: Mapping[str, str]) -> bool:
    """Whether an answer is a stream of events, by its headers, whose names are in lower case."""
    return headers.get("content-type", "").lower().startswith("text/event-stream")


def is_whole(answer: bytes, *, stream: bool, complete: bool) -> bool:
    """Whether an answer is complete, or its connection broke only after everything that clients read."""
    return complete or (stream and _has_last(answer))


def _has_last(answer: bytes) -> bool:
    """Whether the last event of a stream is there, whole."""
    if not answer.endswith((b"\n\n", b"\r\n\r\n")):
        return answer.rstrip().endswith(_LAST)
    events = answer.rstrip().replace(b"\r\n", b"\n")
    return events.endswith(_LAST) or _LAST_EVENT.match(events.rpartition(b"\n\n")[2]) is not None


class Bounded:
    """Bytes that come in pieces, up to `LARGEST`."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self.cut = False

    def add(self, data: bytes) -> None:
        if self.cut:
            return
        self._size += len(data)
        if self._size > LARGEST:
            self.cut = True
            data = data[: LARGEST - self._size]
        self._pieces.append(data)

    def bytes(self) -> bytes:
        return b"".join(self._pieces)


def decoded(data: bytes, encoding: str) -> bytes:
    """The content of a body with this `Content-Encoding`, as far as it can be read, and at most `LARGEST` bytes.

    Raises: ValueError for an unknown encoding, or if the data is not in that encoding from the beginning.
    """
    for name in reversed([part.strip().lower() for part in encoding.split(",")]):
        if name not in ("", "identity") and data:
            data = _DECODERS.get(name, _unknown)(data)
    return data


def _unknown(_data: bytes) -> bytes:
    raise ValueError("the body has an encoding that cannot be read")


def _inflated(data: bytes) -> bytes:
    """The content of gzip, in one or several members, of zlib, or of raw deflate, which servers call deflate, too."""
    result = b""
    while data and len(result) < LARGEST:
        inflater = zlib.decompressobj(47)
        try:
            result += inflater.decompress(data, LARGEST - len(result))
        except zlib.error as error:
            if result:
                break
            inflater = zlib.decompressobj(-15)
            try:
                result = inflater.decompress(data, LARGEST)
            except zlib.error:
                raise ValueError(f"the compressed body is damaged: {error}") from error
        data = inflater.unused_data
    return result


def _unbrotli(data: bytes) -> bytes:
    import brotli

    try:
        result: bytes = brotli.Decompressor().process(data, output_buffer_limit=LARGEST)
    except brotli.error as error:
        raise ValueError("the body is not valid brotli") from error
    return result


def _unzstd(data: bytes) -> bytes:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd

    result = b""
    while data and len(result) < LARGEST:
        decompressor = zstd.ZstdDecompressor()
        try:
            result += decompressor.decompress(data, LARGEST - len(result))
        except zstd.ZstdError as error:
            if result:
                break
            raise ValueError("the body is not valid zstd") from error
        data = decompressor.unused_data if decompressor.eof else b""
    return result


_DECODERS: Mapping[str, Callable[[bytes], bytes]] = {
    "gzip": _inflated, "x-gzip": _inflated, "deflate": _inflated, "br": _unbrotli, "zstd": _unzstd,
}  # fmt: skip
