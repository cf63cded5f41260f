"""The host's own record of its requests: the `api-request*` lines of 2.1.329 and later.

A request lists the hashes of its messages, and may begin with the first messages of an earlier one. A message has a
line of its own (a blob) only if no other line of the transcript has it as it was sent; the system prompt and the tools
have one too (a shape). A hash is the SHA-256 of the value as JSON with sorted keys, a bare string as a text block. A
value that does not match its hash is rejected, and a request with an unknown hash is ignored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from ctxvc.core.ledger import wire
from ctxvc.core.prompt import formats
from ctxvc.core.prompt.request import canonical

TYPES = frozenset({"api-request", "api-request-blob", "api-request-shape"})
#: Requests that a later one may begin with, and the messages that one may have: the host itself sends 4,096 at most.
_EARLIER = 16
_MOST = 20_000


class SentRequest(NamedTuple):
    """A request of the host. `digests` are those of its messages, in the form of `formats.normalise_anthropic`.

    `arrivals` are the messages after its last reply, and `beginning` those before its first, as they were sent; the
    latter empty if one is not known in full. `system` and `tools` are None if no line has them.
    """

    digests: tuple[str, ...]
    arrivals: list[dict[str, Any]]
    beginning: list[dict[str, Any]]
    system: Any
    tools: Any


class _Message(NamedTuple):
    """A message by its hash: the digest of its normal form, empty for an empty one; in full only if it may be new."""

    role: str
    digest: str
    message: dict[str, Any] | None


class _Request(NamedTuple):
    """A request: the hashes of its messages, the first `keep` of which are those of its `base`."""

    hashes: tuple[str, ...]
    shape: str
    base: str
    keep: int


class _Line(msgspec.Struct, rename="camel"):
    type: str
    id: str = ""
    hash: str = ""
    message: dict[str, Any] = {}
    shape_hash: str = ""
    shape: dict[str, Any] = {}
    base: str | None = None
    keep: int = 0
    tail: list[str] = []


_LINE = msgspec.json.Decoder(_Line)


class Requests:
    """The requests of one transcript, by its lines so far."""

    def __init__(self) -> None:
        self._requests: dict[str, _Request] = {}
        self._digests: dict[str, tuple[str, ...]] = {}  # request → the digest of each message
        self._shapes: dict[str, tuple[Any, Any]] = {}
        self._messages: dict[str, _Message] = {}  # by hash
        self._reply: list[msgspec.Raw] = []  # the content of the newest reply, a line each
        self._heard: list[msgspec.Raw] = []  # that of the user's messages since then
        self._whole: list[str] = []  # the hashes of those messages, which are known in full until the next reply

    @property
    def are_recorded(self) -> bool:
        """Whether the transcript had a request so far."""
        return bool(self._requests)

    def line(self, data: bytes) -> str:
        """Reads a line of the record; returns the reason if it is ignored, else an empty text."""
        try:
            return self._take(_LINE.decode(data))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return f"a line of the requests cannot be read: {error}"

    def _take(self, line: _Line) -> str:
        match line.type:
            case "api-request-blob":
                if not _is_message(line.message):
                    return "a message of the requests has no role or no content"
                if _hash(line.message) != line.hash:
                    return "a message of the requests is not the one that its hash names"
                self._messages[line.hash] = _message(line.message)
            case "api-request-shape":
                if hashlib.sha256(canonical(line.shape)).hexdigest() != line.shape_hash:
                    return "the tools of the requests are not those that their hash names"
                tools = line.shape.get("tools")
                self._shapes[line.shape_hash] = line.shape.get("system"), tools if isinstance(tools, list) else []
            case "api-request":
                return self._request(line)
        return ""

    def _request(self, line: _Line) -> str:
        base = self._requests.get(line.base or "")
        earlier = base.hashes if base else ()
        if not 0 <= line.keep <= len(earlier) or line.keep + len(line.tail) > _MOST:
            return "a request begins with messages of one that is not known"
        hashes = (*earlier[: line.keep], *line.tail)
        self._requests[line.id] = _Request(hashes, line.shape_hash, line.base or "", line.keep)
        self._digests.pop(line.id, None)
        while len(self._requests) > _EARLIER:
            oldest = next(iter(self._requests))
            del self._requests[oldest]
            self._digests.pop(oldest, None)
        return ""

    def heard(self, content: msgspec.Raw) -> None:
        """Adds the content of a line with a user's message."""
        self._heard.append(content)

    def replied(self, content: msgspec.Raw, *, goes_on: bool) -> None:
        """Adds the content of a line that begins a reply, or `goes_on` with the newest one."""
        if not goes_on:
            self._settle()
            self._reply, self._heard = [], []
            for name in self._whole:
                self._messages[name] = self._messages[name]._replace(message=None)
            self._whole = []
        self._reply.append(content)

    def sent(self, name: str) -> SentRequest | None:
        """The request `name`, which the next reply answers; None if a message of it is not known."""
        request = self._requests.get(name)
        if request is None:
            return None
        self._settle()
        digests = self._digests_of(name, request)
        if not digests:
            return None
        arrivals: list[dict[str, Any]] = []
        for message_hash in reversed(request.hashes):
            message = self._messages[message_hash]
            if message.role == "assistant":
                break
            if message.message is None:
                return None
            arrivals.append(message.message)
        system, tools = self._shapes.get(request.shape, (None, None))
        return SentRequest(
            digests=tuple(filter(None, digests)),
            arrivals=arrivals[::-1],
            beginning=self._beginning(request) if len(arrivals) < len(request.hashes) else [],
            system=system,
            tools=tools,
        )

    def _beginning(self, request: _Request) -> list[dict[str, Any]]:
        """The messages before the first reply, as they were sent; empty if one is not known in full."""
        messages: list[dict[str, Any]] = []
        for message_hash in request.hashes:
            message = self._messages[message_hash]
            if message.role == "assistant":
                break
            if message.message is None:
                return []
            messages.append(message.message)
        return messages

    def _digests_of(self, name: str, request: _Request) -> tuple[str, ...]:
        """The digest of each message, empty for an empty one; no digests if a message is not known."""
        begin = self._digests.get(request.base, ())[: request.keep]
        newer = [self._messages.get(message_hash) for message_hash in request.hashes[len(begin) :]]
        if None in newer:
            return ()
        digests = (*begin, *(message.digest for message in newer if message))
        self._digests[name] = digests
        return digests

    def _settle(self) -> None:
        """Records the messages in lines since the newest reply began, if any request was recorded."""
        if not self._requests:
            return
        reply = {"role": "assistant", "content": [block for content in self._reply for block in _blocks(content)]}
        if _is_message(reply):
            self._messages.setdefault(_hash(reply), _message(reply)._replace(message=None))
        heard = [_blocks(content) for content in self._heard]
        results = [block for blocks in heard for block in blocks if _is_result(block)]
        for blocks in (*heard, results):  # results of parallel calls have a line each, and are sent in one message
            message = {"role": "user", "content": blocks}
            if not _is_message(message):
                continue
            name = _hash(message)
            if name not in self._messages or self._messages[name].message is None:
                self._messages[name] = _message(message)
                self._whole.append(name)


def _message(message: dict[str, Any]) -> _Message:
    normal = formats.normalise_anthropic([message])
    says_something = bool(normal and normal[0]["content"])
    return _Message(
        message["role"], hashlib.sha256(canonical(normal[0])).hexdigest() if says_something else "", message
    )


def _is_message(message: Mapping[str, Any]) -> bool:
    match message:
        case {"role": "user" | "assistant" | "system", "content": str()}:
            return True
        case {"role": "user" | "assistant" | "system", "content": list(blocks)}:
            return all(isinstance(block, dict) for block in blocks)
    return False


def _is_result(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "tool_result"


def _hash(message: Mapping[str, Any]) -> str:
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return hashlib.sha256(canonical({**message, "content": blocks})).hexdigest()


def _blocks(content: msgspec.Raw) -> list[Any]:
    """The blocks of a message's content; empty for any other value."""
    value = wire.parsed(bytes(content), object)
    if isinstance(value, str):
        return [{"type": "text", "text": value}]
    return value if isinstance(value, list) else []
