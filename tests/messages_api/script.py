"""A scripted assistant: what it says to each request, and what goes wrong on the way."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tests.messages_api.wire import Block, Request


@dataclass(frozen=True)
class Refusal:
    """An error instead of a reply."""

    status: int
    type: str
    message: str
    headers: Mapping[str, str] = field(default_factory=dict)
    error_code: str | None = None


@dataclass(frozen=True)
class Reply:
    """A reply, and how it comes: the last four speak of a stream."""

    content: str | Sequence[Block]
    stop_reason: str = ""
    #: What it costs by its own account, where that differs from the count.
    usage: Mapping[str, int] = field(default_factory=dict)
    #: Events after which the stream ends before its time; with an error event if there is an `error`.
    cut_after: int | None = None
    error: Refusal | None = None
    #: True: the connection breaks there. False: the stream ends as if all had been said.
    broken: bool = False
    #: Seconds before each event.
    pause: float = 0.0


Said: TypeAlias = "Reply | Refusal | str | Sequence[Block]"
#: Called with the body of each request that the API takes.
Assistant: TypeAlias = Callable[[Request], Said]


class ScriptEnded(Exception):
    """One more request than the script has replies."""


def script(*said: Said) -> Assistant:
    """An assistant that says these things in turn. Raises, when called once too often: ScriptEnded."""
    return _following(iter(said))


def endless(said: Iterable[Said]) -> Assistant:
    """An assistant that says these things over and over."""
    return _following(itertools.cycle(said))


def _following(lines: Iterator[Said]) -> Assistant:
    def assistant(_: Request) -> Said:
        try:
            return next(lines)
        except StopIteration:
            raise ScriptEnded("the script has no reply to this request") from None

    return assistant


def text(words: str) -> Block:
    """A text of the assistant."""
    return {"type": "text", "text": words}


def call(name: str, /, **given: object) -> Block:
    """A call of a tool; the server gives it an id."""
    return {"type": "tool_use", "name": name, "input": given}


def thought(words: str) -> Block:
    """Thinking, which the server signs; whether its words come back is for the request to say."""
    return {"type": "thinking", "thinking": words}


def rate_limited(retry_after: float = 0.01) -> Refusal:
    """Too many requests; come back after so many seconds."""
    headers = {"retry-after": f"{retry_after:g}", "retry-after-ms": f"{retry_after * 1000:g}"}
    return Refusal(429, "rate_limit_error", "This request would exceed your rate limit.", headers)


def overloaded(retry_after: float = 0.01) -> Refusal:
    """The provider has too much to do."""
    return Refusal(529, "overloaded_error", "Overloaded", {"retry-after-ms": f"{retry_after * 1000:g}"})


def too_long(tokens: int = 208_310, window: int = 200_000) -> Refusal:
    """The prompt does not fit the window, whatever its size is here."""
    return Refusal(400, "invalid_request_error", f"prompt is too long: {tokens} tokens > {window} maximum")
