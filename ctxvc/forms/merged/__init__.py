"""Several of the model's answers → one for the client, which has no calls of our tools."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple, Protocol, cast

from ctxvc.core.ledger import wire
from ctxvc.forms import sse

#: The most bytes of the model's answers to one request. What is beyond passes as it is.
LARGEST = 64 << 20
#: What the client is told where the model's answer broke off, so that it asks again.
BROKEN = "the model's answer broke off: send the request again"

#: The data of an event that some servers send last. Clients read no further.
_DONE = b"[DONE]"

_MODULES = {
    "anthropic-messages": "anthropic",
    "openai-chat": "chat",
    "openai-responses": "responses",
    "gemini": "gemini",
}


class Calls(NamedTuple):
    """The calls in the newest of the model's answers: of our tools, and of others, which the client answers."""

    ours: int = 0
    others: int = 0


class MergedAnswer(Protocol):
    """An answer for the client, made of one or several of the model's, each after one that called only our tools.

    Calls of our tools are not in it. It has the beginning and the ids of the first answer, the blocks of all of them
    with their numbers going on, and one ending: it says that tools are called only if the client has a call. Of
    its usage, what the model put out is the sum; the input is that of the last answer alone, since clients take it for
    the size of their newest prompt and compact by it.

    Events of a stream pass as they are complete, and as they came, unless a number, an id or the ending has to be
    another. An answer without a call of ours passes byte for byte if it is the first. Whole bodies come at the end.
    """

    def feed(self, data: bytes) -> bytes:
        """What the client gets now, for the next bytes of the model's answer. After `end`, another answer begins with
        them, even if there are none.
        """

    def end(self) -> Calls:
        """The model's answer has come to its end."""

    def close(self) -> bytes:
        """What the client gets last, where no other answer follows."""

    def broke(self) -> bytes:
        """What the client gets last instead where the answer broke off: an error, unless it has got its ending."""


def merged(form: str, *, stream: bool, ours: Collection[str]) -> MergedAnswer:
    """An answer in the form of that name, for whose tools `ours` names ours."""
    module = import_module(f"ctxvc.forms.merged.{_MODULES[form]}")
    return _Stream(cast(Rules, module.Rules(ours))) if stream else _Body(cast("Bodies", module), ours)


class Rules(ABC):
    """What becomes of the events of a form's streams. An ending waits here while a continuation may follow."""

    def __init__(self, ours: Collection[str]) -> None:
        self.ours = frozenset(ours)
        self.calls = Calls()
        #: Of how many answers it is the continuation.
        self.number = 0
        #: Whether the client has got an ending.
        self.over = False
        self.ending: list[sse.Event] = []

    @property
    def waits(self) -> bool:
        """Whether a continuation may follow: whether all calls of the answer are ours."""
        return self.calls.ours > 0 and not self.calls.others

    def begin(self) -> None:
        """A continuation begins."""
        self.number += 1
        self.calls = Calls()
        self.ending = []

    def passed(self, event: sse.Event) -> bytes:
        """What passes now, once this event is complete."""
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
        """What waits for more of the answer, where no more comes."""
        return b""

    def close(self) -> bytes:
        """The ending that waited."""
        self.over = self.over or bool(self.ending)
        return b"".join(event.raw if event.data == _DONE else self.ended(event) for event in self.ending)

    @abstractmethod
    def ended(self, event: sse.Event) -> bytes:
        """An event of the ending, for an answer that is now known to be all."""

    @abstractmethod
    def error(self) -> bytes:
        """The event that tells of an answer that broke off."""


class Bodies(Protocol):
    """A form's module, for whole bodies."""

    def without(self, value: Any, ours: Collection[str]) -> tuple[Any, Calls] | None:
        """A body without calls of ours, and its calls; None for what is no answer."""

    def joined(self, values: Sequence[Any]) -> Any:
        """The body of one answer or several, of which none has calls of ours."""

    def error(self) -> Any:
        """The body of an answer that broke off."""


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
        """What passes where no more events are taken: the last one may lack its empty line."""
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
        if without is None:  # it passes as it is
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
    """The newest answer's usage with what the model put out in earlier ones: the counts named in `outputs`, and the
    totals with the outputs that each has.
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
    field: str,
    outputs: Collection[str],
    totals: Mapping[str, Collection[str]] = {},
) -> dict[str, Any]:
    """An answer whose usage, in that field, is `summed` with that of earlier ones."""
    if field not in answer:
        return answer
    return {**answer, field: summed(answer[field], (before.get(field) for before in earlier), outputs, totals)}


def _sum(one: Any, other: Any) -> Any:
    if isinstance(one, dict) and isinstance(other, dict):
        return {**other, **{name: _sum(value, other.get(name)) for name, value in one.items()}}
    if type(one) is int and type(other) is int:
        return one + other
    return other if one is None else one


def with_call(calls: Calls, is_ours: bool) -> Calls:
    """With one call more."""
    return Calls(calls.ours + is_ours, calls.others + (not is_ours))


class Numbers:
    """The client's numbers for an answer's blocks: the model's own until one of ours is taken out, and without gaps."""

    def __init__(self) -> None:
        self._next = 0
        self._shift: int | None = 0
        self._places: dict[int, int] = {}
        self._dropped: set[int] = set()

    def begin(self) -> None:
        """A continuation begins."""
        self._shift = None
        self._places, self._dropped = {}, set()

    def add(self, number: int) -> None:
        """A block that passes."""
        if self._shift is None:
            self._shift = self._next - number
        self._places[number] = place = number + self._shift
        self._next = max(self._next, place + 1)

    def drop(self, number: int) -> None:
        """A block of ours."""
        if self._shift is None:
            self._shift = self._next - number
        self._shift -= 1
        self._dropped.add(number)

    def of(self, number: int) -> int | None:
        """A block's number for the client; None for a block of ours."""
        return None if number in self._dropped else self._places.get(number, number + (self._shift or 0))
