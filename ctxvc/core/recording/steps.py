"""Events of a recording → units, each of which becomes one commit. Pure: a function of the events fed so far.

A reply and its results may be in a file in many pieces and out of order (`Said` events); only what follows a unit
closes it, so that a file imported while it grows gives the same units as the finished one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, takewhile

import msgspec

from ctxvc.core.ledger.block import Message, Part
from ctxvc.core.ledger.numbering import interrupted, is_human
from ctxvc.core.recording.events import Closed, Compacted, Edited, Forked, Said, Sent, UnitEvent


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A whole step of `scope` as messages in order. Missing results are included, empty and marked interrupted.

    `parent` is the scope that a sub-agent's scope was opened from and `task` the call that started it, if known. `sent`
    is the recorded request that the reply answers. `unsent` is what the client added earlier, before a recording's end,
    and this request does not repeat in its place.
    """

    scope: str
    messages: tuple[Message, ...]
    end: int
    parent: str = ""
    task: str = ""
    sent: Sent | None = None
    unsent: tuple[Part, ...] = ()


class Compaction(msgspec.Struct, frozen=True, kw_only=True):
    scope: str
    event: Compacted
    end: int


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    scope: str
    event: Edited
    end: int


class Fork(msgspec.Struct, frozen=True, kw_only=True):
    """A new scope that continues `origin` as it was after unit number `unit` (0: before its first step)."""

    scope: str
    origin: str
    unit: int
    end: int
    time: str = ""


Unit = Step | Compaction | Edit | Fork
#: A part's role and its bytes without surrounding white space.
_Text = tuple[str, bytes]


@dataclass(slots=True)
class _Open:
    """The step of a scope that is being assembled. `later` came in meanwhile and belongs to the next one."""

    incoming: list[Message] = field(default_factory=list)
    reply: list[Message] = field(default_factory=list)
    results: list[Part] = field(default_factory=list)
    sources: list[Message] = field(default_factory=list)  # the messages that contained the results
    calls: dict[str, str] = field(default_factory=dict)  # open calls: id → tool
    early: dict[str, tuple[Part, Message]] = field(default_factory=dict)
    later: list[Message] = field(default_factory=list)
    end: int = 0  # after the last line of this step
    later_end: int = 0
    sent: Sent | None = None  # the request that its reply answers
    sent_later: Sent | None = None  # the next request
    unsent: tuple[Part, ...] = ()

    @property
    def empty(self) -> bool:
        return not (self.incoming or self.reply or self.early or self.later)


@dataclass(slots=True)
class Gatherer:
    """Turns the events that it is fed into units, yielding those that are certain. `rest` counts what is still open."""

    main: str = "main"
    rewind: str = "rewind"  # the prefix of scope names after a rewind
    number: int = 0
    current: str = ""
    _open: dict[str, _Open] = field(default_factory=dict)
    _places: dict[str, tuple[str, int, bool]] = field(default_factory=dict)  # key → scope, unit, came in before reply
    _key_of: dict[str, str] = field(default_factory=dict)  # key of a line → key of the message that contains it
    _before: dict[tuple[str, int], tuple[int, tuple[Message, ...]]] = field(default_factory=dict)
    _last: dict[str, int] = field(default_factory=dict)  # scope → its newest unit
    # What came in after the newest reply but is in a unit already, because a recording's end closed its step: scope →
    # parts.
    _unanswered: dict[str, list[Part]] = field(default_factory=dict)
    _opened: dict[str, tuple[str, str]] = field(default_factory=dict)  # sub-agent's scope → parent scope, task
    _seen: set[str] = field(default_factory=set)  # every call so far
    _rewinds: int = 0

    def __post_init__(self) -> None:
        self.current = self.current or self.main

    def feed(self, event: UnitEvent) -> Iterator[Unit]:
        match event:
            case Said():
                yield from self._message_added(event)
            case Sent():
                self._request(event)
            case Closed():
                open_step = self._at(event.scope)
                if open_step.reply and not open_step.calls:
                    yield from self._close(event.scope or self.current)
            case Compacted():
                scope = event.scope or self.current
                yield from self._close(scope)
                yield from self._close(scope)  # what came in meanwhile, without a reply
                self._unanswered.pop(scope, None)
                # The rest of a message with results is elsewhere, under its own key.
                kept_keys = event.kept.union(self._key_of.get(key, key) for key in event.kept)
                before = self._key_of.get(event.before, event.before)
                event = msgspec.structs.replace(event, kept=kept_keys, before=before)
                yield self._numbered(Compaction(scope=scope, event=event, end=event.end))
                for message in (*event.summary, *event.prompt):
                    self._places.setdefault(message.key, (scope, self.number, False))
            case Edited():
                # An edited message was sent before; an open step whose calls are answered therefore ends here.
                open_step = self._at("")
                if open_step.reply and not open_step.calls:
                    yield from self._close(self.current)
                event = msgspec.structs.replace(event, key=self._key_of.get(event.key, event.key))
                yield self._numbered(Edit(scope=self.current, event=event, end=event.end))
            case Forked():
                yield from self._forked(event)

    def finish(self) -> Iterator[Unit]:
        """The units of the open steps as they are, for a recording that has ended."""
        for scope in list(self._open):
            while not self._open[scope].empty:
                yield from self._close(scope)

    def rest(self) -> int:
        """The number of messages waiting for their step's end."""
        return sum(
            len(step.incoming) + len(step.reply) + len(step.later) + len(step.early) for step in self._open.values()
        )

    def _at(self, scope: str) -> _Open:
        scope = scope or self.current
        step = self._open.get(scope)
        if step is None:
            step = self._open[scope] = _Open()
        return step

    def _message_added(self, event: Said) -> Iterator[Unit]:
        scope, message = event.scope or self.current, event.message
        if event.scope and event.scope not in self._opened:
            self._opened[event.scope] = (self.current, event.task)
        step = self._at(scope)
        if message.role == "assistant":
            same = bool(step.reply and message.reply and step.reply[-1].reply == message.reply)
            if not message.parts and not same:
                return  # late usage of a closed reply
            if step.reply and not same:
                yield from self._close(scope)
                step = self._at(scope)
            self._replied(step, message)
        else:
            answered = self._answered(step, message)
            if answered.parts:
                human = any(is_human(part.role, part.origin) for part in answered.parts)
                if human and step.reply and not step.calls:
                    yield from self._close(scope)
                    step = self._at(scope)
                if step.reply:
                    step.later.append(answered)
                    step.later_end = event.end
                    return
                step.incoming.append(answered)
        step.end = event.end

    def _replied(self, step: _Open, message: Message) -> None:
        step.reply.append(message)
        for part in message.parts:
            if part.kind == "tool_use":
                self._seen.add(part.call)
                if part.call in step.early:
                    result, source = step.early.pop(part.call)
                    self._take(step, result, source)
                else:
                    step.calls[part.call] = part.tool

    def _answered(self, step: _Open, message: Message) -> Message:
        """The rest of the message; takes the results of open calls, and sets aside those whose call is yet to come."""
        rest: list[Part] = []
        for part in message.parts:
            if part.kind == "tool_result" and part.call in step.calls:
                del step.calls[part.call]
                self._take(step, part, message)
            elif part.kind == "tool_result" and part.call not in self._seen and part.call not in step.early:
                step.early[part.call] = (part, message)
            else:
                rest.append(part)
        return message if len(rest) == len(message.parts) else msgspec.structs.replace(message, parts=tuple(rest))

    def _request(self, event: Sent) -> None:
        """Replaces what came in since the newest reply by what was sent, without results of earlier steps."""
        step = self._at(event.scope)
        answers: list[Part] = []
        incoming: list[Message] = []
        open_results = {part.call for part in step.results}
        unanswered = [] if step.reply else self._unanswered.get(event.scope or self.current, [])
        news = [
            [part for part in message.parts if part.kind != "tool_result" or part.call not in self._seen]
            for message in event.messages
        ]
        recorded, unsent = _in_place(unanswered, list(chain(*news[event.before + event.after :])))
        counts = [0, 0, 0]  # messages before the summary, directly after it, and elsewhere
        for at, (message, new) in enumerate(zip(event.messages, news, strict=True)):
            answers += [part for part in message.parts if part.kind == "tool_result" and part.call in open_results]
            place = (at >= event.before) + (at >= event.before + event.after)
            if unseen := tuple(_without(new, recorded) if place == 2 else new):
                incoming.append(msgspec.structs.replace(message, parts=unseen))
                counts[place] += 1
        event = msgspec.structs.replace(event, before=counts[0], after=counts[1])
        if sorted(part.call for part in answers) == sorted(part.call for part in step.results):
            step.results = answers
        if step.reply:
            step.later, step.sent_later = incoming, event
        else:
            step.incoming, step.sent, step.unsent = incoming, event, unsent

    @staticmethod
    def _take(step: _Open, part: Part, source: Message) -> None:
        step.results.append(part)
        step.sources.append(source)

    def _close(self, scope: str) -> Iterator[Unit]:
        """The open step as a unit, if there is one; what came in meanwhile begins the next."""
        step = self._open.get(scope)
        if step is None or step.empty:
            return
        if not step.reply:  # only incoming messages, and results without a call
            step.incoming += [msgspec.structs.replace(source, parts=(part,)) for part, source in step.early.values()]
            step.early = {}
        if step.reply:
            self._unanswered.pop(scope, None)
        else:
            self._unanswered.setdefault(scope, []).extend(part for message in step.incoming for part in message.parts)
        results = [*step.results, *(interrupted(call, tool) for call, tool in step.calls.items())]
        messages = [*step.incoming]
        if step.reply:
            messages.append(_joined(step.reply))
        if results:
            source = step.sources[-1] if step.sources else Message(role="user", parts=(), time=step.reply[-1].time)
            messages.append(msgspec.structs.replace(source, role="user", parts=tuple(results)))
        previous = self._last.get(scope, 0)
        parent, task = self._opened.get(scope, ("", ""))
        unit = self._numbered(
            Step(
                scope=scope,
                messages=tuple(messages),
                end=step.end,
                parent=parent,
                task=task,
                sent=step.sent,
                unsent=step.unsent,
            )
        )
        for message in step.incoming:
            place = self._places.get(message.key)
            # A message whose results are in an earlier step of the scope ends here.
            if place is None or (place[0] == scope and not place[2]):
                self._places[message.key] = (scope, self.number, True)
        for together in (step.reply, step.sources[::-1]):
            for message in together:
                self._places.setdefault(message.key, (scope, self.number, False))
                if message.key:
                    self._key_of[message.key] = together[0].key
        for alias, key in (step.sent.aliases if step.sent else {}).items():
            self._places.setdefault(alias, (scope, self.number, True))
            self._key_of[alias] = key
        self._before[scope, self.number] = (previous, tuple(step.incoming))
        self._open[scope] = _Open(
            incoming=step.later, early=step.early, end=max(step.end, step.later_end), sent=step.sent_later
        )
        yield unit

    def _numbered(self, unit: Unit) -> Unit:
        self.number += 1
        self._last[unit.scope] = self.number
        return unit

    def _forked(self, event: Forked) -> Iterator[Unit]:
        yield from self._close(self.current)
        yield from self._close(self.current)
        origin, unit = self.current, 0
        again: tuple[Message, ...] = ()
        if event.after:
            if event.after not in self._places:
                return  # the parent was never written: only the file order is known
            origin, unit, came_in = self._places[event.after]
            if came_in:
                unit, incoming = self._before[origin, unit]
                again = _up_to(incoming, self._key_of.get(event.after, event.after))
        self._rewinds += 1
        scope = f"{self.rewind}-{self._rewinds}"
        yield self._numbered(Fork(scope=scope, origin=origin, unit=unit, end=event.end, time=event.time))
        self.current = scope
        self._open[scope] = _Open(incoming=list(again), end=event.end)


def _text(part: Part) -> _Text:
    return part.role, part.body.strip()


def _in_place(earlier: Sequence[Part], sent: Sequence[Part]) -> tuple[Counter[_Text], tuple[Part, ...]]:
    """The texts of `earlier` parts that match `sent`, and the parts that leave because they do not.

    Those that `sent` begins with match. What a person wrote stays wherever it is.
    """
    alike = list(takewhile(lambda pair: _is_alike(*pair), zip(earlier, sent, strict=False)))
    remaining = earlier[len(alike) :]
    stays = [part for part in remaining if is_human(part.role, part.origin)]
    recorded = Counter(_text(part) for part in (*(part for part, _ in alike), *stays))
    return recorded, tuple(part for part in remaining if not is_human(part.role, part.origin))


def _is_alike(earlier: Part, sent: Part) -> bool:
    """Whether a part was sent as recorded. A system message from a line lacks the mark of a sent one."""
    return (earlier.role, earlier.kind, earlier.body, earlier.role == "system" and earlier.extra) == (
        *(sent.role, sent.kind, sent.body),
        sent.role == "system" and sent.extra,
    )


def _without(parts: Iterable[Part], texts: Counter[_Text]) -> Iterator[Part]:
    """The parts except those with one of these texts, each of which is removed once."""
    for part in parts:
        if part.kind != "tool_result" and texts[_text(part)] > 0:
            texts[_text(part)] -= 1
        else:
            yield part


def _joined(reply: list[Message]) -> Message:
    """The lines of one reply as one message, with the largest usage: the others count only a part of it."""
    if len(reply) == 1:
        return reply[0]
    parts = tuple(part for message in reply for part in message.parts)
    usage = max((message.usage for message in reversed(reply)), key=lambda usage: usage.get("output_tokens", -1))
    return msgspec.structs.replace(reply[-1], parts=parts, key=reply[0].key, usage=usage)


def _up_to(messages: tuple[Message, ...], key: str) -> tuple[Message, ...]:
    for at, message in enumerate(messages):
        if message.key == key:
            return messages[: at + 1]
    return messages
