"""Helpers for importers of logs of requests, in which each entry may repeat the whole conversation so far."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from ctxvc.core.ledger import name_rules, wire
from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.ledger import Window
from ctxvc.core.recording.events import Compacted, Event, Forked, Opened, Said, Warned
from ctxvc.errors import BadInput
from ctxvc.forms.form import Facts
from ctxvc.forms.values import digest, has_role
from ctxvc.importers.file import Recording


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One value of a log: a request (`is_request`: its messages are the conversation so far), or further messages.

    `reply`, `usage` and `time` belong to a model's reply, which is then the only message. `left_out` describes content
    that is not imported; `window` is the model's, in tokens, 0 if unknown.

    `compacted` is set on a request whose prompt the host compacted; `summary` has the indices of the messages that
    replaced earlier ones, None if the recording does not say which.
    """

    messages: list[Any]
    is_request: bool = False
    model: str = ""
    system: Any = None
    tools: Any = None
    missing: tuple[str, ...] = ()
    reply: str = ""
    usage: dict[str, int] = {}
    time: str = ""
    left_out: str = ""
    window: int = 0
    compacted: bool = False
    summary: frozenset[int] | None = None

    @property
    def facts(self) -> Facts:
        """The facts about the reply; without a model for a request."""
        return Facts(reply=self.reply, model="" if self.is_request else self.model, usage=self.usage, time=self.time)


class Record(msgspec.Struct, frozen=True):
    """A JSON value of a file. `line` is 0 if the value spans several lines; `end` is as in events."""

    value: Any
    line: int
    end: int


class _Node:
    """A message in the tree of those read so far. `key` is the last message's with an event on the way to it."""

    def __init__(self, key: str, depth: int) -> None:
        self.key = key
        self.depth = depth
        self.next: dict[bytes, _Node] = {}


class _Places(NamedTuple):
    """The indices in a compacted prompt of messages that stay, by their keys, and of the summary.

    `answers` is the index of the results for the newest reply, -1 if there are none.
    """

    staying: dict[int, str]
    summary: list[int]
    answers: int

    @property
    def end(self) -> int:
        """The index after all of these."""
        return max((*self.staying, *self.summary, self.answers)) + 1 if self.staying or self.summary else 0

    @property
    def behind_summary(self) -> str:
        """The key of the first message that stays after the summary; empty if there is none."""
        return next((key for place, key in self.staying.items() if self.summary and place > self.summary[0]), "")


class Log:
    """The events of a log: each message once, in the order of first appearance.

    `fingerprint` is equal for repetitions of a message; `message` converts one, or returns the reason it cannot.
    """

    def __init__(
        self,
        format: str,
        stem: str,
        fingerprint: Callable[[Any], bytes],
        message: Callable[[Any, str, Facts], Message | str],
    ) -> None:
        self._format = format
        self._stem = stem
        self._fingerprint = fingerprint
        self._message = message
        self._known: dict[str, Any] = {}
        self._opened = self._changed = self._has_messages = False
        self._root = self._newest = self._at = _Node("", 0)
        self._path: list[tuple[bytes, _Node]] = []  # the messages of the newest prompt and what followed it
        self._was_compacted = False
        self._count_at: dict[int, int] = {}
        self._replies: dict[str, int] = {}  # id of a response → how many had it

    def events(self, records: Iterable[Record | Warned], turns: Callable[[Any], Iterator[Turn]]) -> Iterator[Event]:
        """The events of all records. Raises: BadInput if none has a message."""
        for record in records:
            if isinstance(record, Warned):
                yield from self._opening(Turn(messages=[]), 0)
                yield record
                continue
            for turn in turns(record.value):
                yield from self._opening(turn, record.line)
                yield from self._turn(turn, record)
                if turn.left_out:
                    yield Warned(text=f"skipped: {turn.left_out}", line=record.line)
        if not self._has_messages:
            raise BadInput(f"{self._stem}: no message in the format {self._format}")

    def _opening(self, turn: Turn, line: int) -> Iterator[Event]:
        facts = {"model": turn.model, "system": turn.system, "tools": turn.tools}
        news = {name: value for name, value in facts.items() if value and name not in self._known}
        if turn.window > 0 and turn.window != self._known.get("window"):
            self._known["window"] = turn.window
            yield from self._opening(msgspec.structs.replace(turn, window=0), line)
            yield Opened(format=self._format, window=Window(tokens=turn.window, by="host"))
            return
        if not self._opened:
            self._opened = True
            name = name_rules.slug(self._stem)
            yield Opened(format=self._format, source=self._identity(turn), name=name, missing=turn.missing, **news)
        elif news:
            yield Opened(format=self._format, **news)
        self._known.update(news)
        if not self._changed and any(facts[name] and facts[name] != self._known[name] for name in ("system", "tools")):
            self._changed = True
            yield Warned(text="system prompt or tools change within the file; the first ones are kept", line=line)

    def _identity(self, turn: Turn) -> str:
        """An id for a recording without one, from the file's name and its beginning: many files share a name."""
        beginning = [turn.system, *(self._fingerprint(message).hex() for message in turn.messages[:1])]
        return f"{self._stem}-{digest(beginning).hex()[:12]}"

    def _turn(self, turn: Turn, record: Record) -> Iterator[Event]:
        turn = self._distinct(turn)
        prints = [self._fingerprint(message) for message in turn.messages]
        skip = 0
        if turn.is_request:
            path = self._known_beginning(prints)
            if self._is_compaction(turn, path, prints):
                yield from self._compaction(turn, path, prints, record)
            self._path, self._was_compacted, skip = path, turn.compacted, len(path)
            self._at = path[-1][1] if path else self._root
        for message, fingerprint in zip(turn.messages[skip:], prints[skip:], strict=True):
            at = self._at
            key = self._key(at.depth + 1)
            converted = self._message(message, key, turn.facts)
            if isinstance(converted, str) and not isinstance(message, dict) and not turn.is_request:
                # No later request repeats it, so it has no place in the tree.
                yield Warned(text=f"message {at.depth + 1} was skipped: {converted}", line=record.line)
                continue
            node = at.next[fingerprint] = _Node(at.key if isinstance(converted, str) else key, at.depth + 1)
            if isinstance(converted, str):
                yield Warned(text=f"message {node.depth} was skipped: {converted}", line=record.line)
            else:
                # Only here, so that going back and forth along a known branch is not a fork.
                if at.key != self._newest.key:
                    yield Forked(after=at.key, end=record.end)
                self._has_messages, self._newest = True, node
                yield Said(message=converted, end=record.end)
            self._at = node
            self._path.append((fingerprint, node))

    def _known_beginning(self, prints: list[bytes]) -> list[tuple[bytes, _Node]]:
        """The path of the leading messages that were in a prompt before."""
        path: list[tuple[bytes, _Node]] = []
        at = self._root
        for fingerprint in prints:
            if (node := at.next.get(fingerprint)) is None:
                break
            path.append((fingerprint, at := node))
        return path

    def _is_compaction(self, turn: Turn, path: list[tuple[bytes, _Node]], prints: list[bytes]) -> bool:
        """Whether the host newly compacted the prompt; some hosts say so of every prompt from then on."""
        is_new = turn.summary is not None or (turn.compacted and not self._was_compacted)
        return is_new and len(path) < min(len(self._path), len(prints))

    def _compaction(
        self, turn: Turn, path: list[tuple[bytes, _Node]], prints: list[bytes], record: Record
    ) -> Iterator[Event]:
        """The events of the compaction before a request, if there was one; extends `path` by its prompt."""
        stays = [node.key for _, node in path]
        places = self._places(turn, len(path), prints)
        if places is None:
            return
        at = path[-1][1] if path else self._root
        summary: list[Message] = []
        answers: list[Said] = []
        arrivals: list[Said] = []
        for place in range(len(path), places.end):
            key = places.staying.get(place) or self._key(at.depth + 1)
            if place not in places.staying:
                converted = self._message(turn.messages[place], key, turn.facts)
                if isinstance(converted, str):
                    key = at.key
                elif place in places.summary:
                    summary.append(converted)
                else:
                    (answers if place == places.answers else arrivals).append(Said(message=converted, end=record.end))
            at.next[prints[place]] = at = _Node(key, at.depth + 1)
            path.append((prints[place], at))
        yield from answers
        yield Compacted(
            summary=tuple(summary),
            kept=frozenset((*stays, *places.staying.values(), *(event.message.key for event in answers))),
            before=places.behind_summary,
            end=record.end,
        )
        yield from arrivals
        self._has_messages, self._newest = True, at

    def _places(self, turn: Turn, first: int, prints: list[bytes]) -> _Places | None:
        """The places in a compacted prompt, from its message `first` on.

        A summary that is not named is all that is new before a message that stays, or replaces everything. None for a
        prompt that is no compaction, such as one with a shortened result.
        """
        stood: dict[bytes, list[str]] = {}
        for fingerprint, node in reversed(self._path[first:]):
            stood.setdefault(fingerprint, []).append(node.key)
        staying = {at: stood[one].pop() for at, one in enumerate(prints[first:], first) if stood.get(one)}
        answers = next((at + 1 for at, key in staying.items() if key == self._newest.key), len(prints))
        if answers == len(prints) or answers in staying or not self._has_calls(turn.messages[answers], turn):
            answers = -1
        if turn.summary is not None:
            return _Places(staying, sorted(at for at in turn.summary if first <= at < len(prints)), answers)
        new = [at for at in range(first, max(staying, default=first) + 1) if at not in staying and at != answers]
        return None if any(self._has_calls(turn.messages[at], turn) for at in new) else _Places(staying, new, answers)

    def _has_calls(self, message: Any, turn: Turn) -> bool:
        """Whether a message has a call or a result."""
        converted = self._message(message, "", turn.facts)
        return isinstance(converted, Message) and any(part.call for part in converted.parts)

    def _distinct(self, turn: Turn) -> Turn:
        """The turn with a unique reply id: some servers give every response the same."""
        if not turn.reply:
            return turn
        count = self._replies[turn.reply] = self._replies.get(turn.reply, 0) + 1
        return turn if count == 1 else msgspec.structs.replace(turn, reply=f"{turn.reply}~{count}")

    def _key(self, depth: int) -> str:
        count = self._count_at[depth] = self._count_at.get(depth, 0) + 1
        return f"message:{depth}" if count == 1 else f"message:{depth}~{count}"


def records(recording: Recording) -> Iterator[Record | Warned]:
    """Every JSON value of a file: one a line, or the whole file if its first line is not JSON. Raises: BadInput."""
    lines = recording.lines()
    first = next(lines, None)
    if first is None:
        raise BadInput(f"{recording.path}: the file is empty")
    try:
        value = wire.parse(first.data)
    except ValueError:
        data = recording.document()
        try:
            value = wire.parse(data)
        except ValueError as error:
            raise BadInput(f"{recording.path}: neither a JSON document nor JSON lines: {error}") from error
        yield Record(value, 0, recording.length)
        return
    yield Record(value, first.number, first.end)
    for line in lines:
        try:
            yield Record(wire.parse(line.data), line.number, line.end)
        except ValueError as error:
            yield Warned(text=f"not JSON: {error}", line=line.number)


#: A string, complete or cut off, or a structural character.
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[{}\[\],]', re.DOTALL)


def opening(head: bytes) -> list[Any]:
    """The values of the complete lines in a file's head, or the complete part of one document; empty if not JSON."""
    lines = head.split(b"\n")
    values = []
    try:
        for line in lines[:-1] or lines:
            if line.strip():
                values.append(wire.parse(line))
        return values
    except ValueError:
        pass
    cut, closing = 0, b""
    stack: list[bytes] = []
    for token in _TOKEN.finditer(head):
        mark = token[0]
        if mark in (b"{", b"["):
            stack.append(b"}" if mark == b"{" else b"]")
        elif mark == b",":
            cut, closing = token.start(), b"".join(reversed(stack))
        elif mark in (b"}", b"]"):
            if not stack:
                return []
            stack.pop()
            cut, closing = token.end(), b"".join(reversed(stack))
    try:
        return [wire.parse(head[:cut] + closing)]
    except ValueError:
        return []


def whole_messages(turns: list[Turn]) -> list[Any]:
    """All messages of a file's head, except a last one that is cut off before its role."""
    messages = [message for turn in turns for message in turn.messages]
    return messages if not messages or has_role(messages[-1]) else messages[:-1]
