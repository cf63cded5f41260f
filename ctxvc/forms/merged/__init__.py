"""Several answers of the model → one for the client, without calls of our tools."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple, Protocol, cast

from ctxvc.core.ledger import wire
from ctxvc.forms import sse

#: The most bytes of the answers to one request. What comes after them passes unchanged.
LARGEST = 64 << 20
#: The error for the client after an answer that broke off, so that it sends the request again.
BROKEN = "the model's answer broke off: send the request again"

#: The data of an event that ends the streams of some servers. Clients read no further.
_DONE = b"[DONE]"

_MODULES = {
    "anthropic-messages": "anthropic",
    "openai-chat": "chat",
    "openai-responses": "responses",
    "gemini": "gemini",
}


class Calls(NamedTuple):
    """The number of calls in the newest answer: of our tools, and of others, which the client answers."""

    ours: int = 0
    others: int = 0


class MergedAnswer(Protocol):
    """The client's answer, made of one or several of the model's, all but the last of which call only our tools.

    It has no calls of our tools. It has the beginning and ids of the first answer, the blocks of all answers, numbered
    consecutively, and one ending, which reports tool calls only if the client has one. Its output tokens are the sum of
    all answers; its input tokens are the last answer's, since clients take them for the size of their newest prompt and
    compact by it.

    Events of a stream pass as soon as they are complete, and unchanged unless a number, an id or the ending must
    change. A first answer without our calls passes byte for byte. Whole bodies pass at the end.
    """

    def feed(self, data: bytes) -> bytes:
        """The bytes to send to the client after the next bytes of the model's answer. The first call after `end` begins
        another answer, even without bytes.
        """

    def end(self) -> Calls:
        """Ends the model's answer, and returns its calls."""

    def close(self) -> bytes:
        """The last bytes for the client, if no other answer follows."""

    def broke(self) -> bytes:
        """The last bytes for the client if the answer broke off: an error, unless the ending was already sent."""


def merged(form: str, *, stream: bool, ours: Collection[str]) -> MergedAnswer:
    """The merged answer in the form of that name; `ours` names our tools."""
    module = import_module(f"ctxvc.forms.merged.{_MODULES[form]}")
    return _Stream(cast(Rules, module.Rules(ours))) if stream else _Body(cast("Bodies", module), ours)


class Rules(ABC):
    """The events of a form's streams, rewritten for the client. An ending waits while a continuation may follow."""

    def __init__(self, ours: Collection[str]) -> None:
        self.ours = frozenset(ours)
        self.calls = Calls()
        #: How many answers came before this one.
        self.number = 0
        #: Whether an ending was sent to the client.
        self.over = False
        self.ending: list[sse.Event] = []

    @property
    def waits(self) -> bool:
        """Whether a continuation may follow: the answer has calls, and all are ours."""
        return self.calls.ours > 0 and not self.calls.others

    def begin(self) -> None:
        """Begins a continuation."""
        self.number += 1
        self.calls = Calls()
        self.ending = []

    def passed(self, event: sse.Event) -> bytes:
        """The bytes to send now that this event is complete."""
        if event.data != _DONE:
            return self.event(event)
        passing = self.flush()
        if self.waits:
            self.ending.append(event)
            return passing
        self.over = True
        return passing + event.raw

    @abstractmethod
    def event(self, event: sse.Event) -> bytes: ...

    def flush(self) -> bytes:
        """The bytes that waited for more of the answer, once no more comes."""
        return b""

    def close(self) -> bytes:
        """The ending that waited."""
        self.over = self.over or bool(self.ending)
        return b"".join(event.raw if event.data == _DONE else self.ended(event) for event in self.ending)

    @abstractmethod
    def ended(self, event: sse.Event) -> bytes:
        """An event of the ending, once no continuation follows."""

    @abstractmethod
    def error(self) -> bytes:
        """The event that reports that the answer broke off."""


class Bodies(Protocol):
    """A form's module, as far as it merges whole bodies."""

    def without(self, value: Any, ours: Collection[str]) -> tuple[Any, Calls] | None:
        """A body without our calls, and the number of its calls; None if it is no answer."""

    def joined(self, values: Sequence[Any]) -> Any:
        """One body made of those of all answers, from which our calls are gone."""

    def error(self) -> Any:
        """The body that reports that the answer broke off."""


class _Stream:
    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._events = sse.Events()
        self._size = 0
        self._tail = b""
        self._ended = False

    def feed(self, data: bytes) -> bytes:
        if self._size > LARGEST:
            return data
        if self._ended:
            self._rules.begin()
            self._events, self._tail, self._ended = sse.Events(), b"", False
        self._size += len(data)
        passed = b"".join(map(self._rules.passed, self._events.feed(data)))
        return passed + self._leave() if self._size > LARGEST else passed

    def end(self) -> Calls:
        if self._size > LARGEST:
            return Calls()
        if not self._ended:
            self._tail = self._leave()
            self._ended = True
        return self._rules.calls

    def close(self) -> bytes:
        if self._size > LARGEST:
            return b""
        self.end()
        return self._tail + self._rules.close()

    def broke(self) -> bytes:
        return b"" if self._rules.over else self._rules.error()

    def _leave(self) -> bytes:
        """The bytes left once no more events are read: the last event may lack its empty line."""
        tail = self._events.tail()
        return (self._rules.passed(tail) if tail.raw else b"") + self._rules.flush()


class _Body:
    def __init__(self, bodies: Bodies, ours: Collection[str]) -> None:
        self._bodies, self._ours = bodies, ours
        self._pieces: list[bytes] = []
        self._size = 0
        self._newest = b""
        self._values: list[Any] = []
        self._is_changed = False
        self._calls = Calls()

    def feed(self, data: bytes) -> bytes:
        self._size += len(data)
        self._pieces.append(data)
        if self._size <= LARGEST:
            return b""
        passed, self._pieces = b"".join(self._pieces), []
        return passed

    def end(self) -> Calls:
        if self._size > LARGEST or not self._pieces:
            return Calls() if self._size > LARGEST else self._calls
        self._newest, self._pieces = b"".join(self._pieces), []
        without = self._bodies.without(wire.parsed(self._newest, object), self._ours)
        if without is None:  # it passes unchanged
            self._values, self._calls = [], Calls()
            return self._calls
        self._values.append(without[0])
        self._calls = without[1]
        self._is_changed = self._is_changed or self._calls.ours > 0
        return self._calls

    def close(self) -> bytes:
        self.end()
        if self._size > LARGEST:
            return b""
        return wire.compact(self._bodies.joined(self._values)) if self._values and self._is_changed else self._newest

    def broke(self) -> bytes:
        return wire.compact(self._bodies.error())


def summed(
    usage: Any, earlier: Iterable[Any], outputs: Collection[str], totals: Mapping[str, Collection[str]] = {}
) -> Any:
    """The newest answer's usage, plus the output of the earlier answers.

    `outputs` names the counts of output; `totals` maps each total to the outputs that it includes.
    """
    if not isinstance(usage, dict):
        return usage
    usage = dict(usage)
    for before in earlier:
        if not isinstance(before, dict):
            continue
        for total, parts in totals.items():
            if type(usage.get(total)) is int:
                usage[total] += sum(before[part] for part in parts if type(before.get(part)) is int)
        usage |= {name: _sum(usage.get(name), before[name]) for name in outputs if before.get(name) is not None}
    return usage


def with_usage(
    answer: dict[str, Any],
    earlier: Iterable[Mapping[str, Any]],
    outputs: Collection[str],
    totals: Mapping[str, Collection[str]] = {},
) -> dict[str, Any]:
    """An answer whose `usage` is `summed` with that of earlier ones."""
    if "usage" not in answer:
        return answer
    usage = summed(answer["usage"], (before.get("usage") for before in earlier), outputs, totals)
    return {**answer, "usage": usage}


def _sum(one: Any, other: Any) -> Any:
    if isinstance(one, dict) and isinstance(other, dict):
        return {**other, **{name: _sum(value, other.get(name)) for name, value in one.items()}}
    if type(one) is int and type(other) is int:
        return one + other
    return other if one is None else one


def with_call(calls: Calls, is_ours: bool) -> Calls:
    """The calls with one more."""
    return Calls(calls.ours + is_ours, calls.others + (not is_ours))


class Numbers:
    """The client's numbers of an answer's blocks, without gaps: the model's own until one of ours is removed."""

    def __init__(self) -> None:
        self._next = 0
        self._shift: int | None = 0
        self._places: dict[int, int] = {}
        self._dropped: set[int] = set()

    def begin(self) -> None:
        """Begins a continuation."""
        self._shift = None
        self._places, self._dropped = {}, set()

    def add(self, number: int) -> None:
        """Adds a block that passes."""
        if self._shift is None:
            self._shift = self._next - number
        self._places[number] = place = number + self._shift
        self._next = max(self._next, place + 1)

    def drop(self, number: int) -> None:
        """Removes a block of ours."""
        if self._shift is None:
            self._shift = self._next - number
        self._shift -= 1
        self._dropped.add(number)

    def of(self, number: int) -> int | None:
        """A block's number for the client; None for a block of ours."""
        return None if number in self._dropped else self._places.get(number, number + (self._shift or 0))
