"""Server-sent events: bytes in, however they were divided; events out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple

from ctxvc.core.ledger import wire

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"
_JSON = (b"{", b"[")
_FIELDS = (b"data:", b"event:", b":", b"id:", b"retry:")


class Event(NamedTuple):
    """An event: its name, which may be empty, and the lines of its data."""

    name: str
    data: str

    def value(self) -> Any:
        """The JSON value of the data; None if it is no JSON."""
        try:
            return wire.parse(self.data)
        except ValueError:
            return None


class Decoder:
    """Takes the bytes of a stream in chunks and gives the events that they complete."""

    def __init__(self) -> None:
        self._tail: list[bytes] = []  # of a line whose end has not come
        self._began = self._after_return = False
        self._name = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> list[Event]:
        """The events whose ends are in `chunk`."""
        if self._after_return and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._after_return = False
        # A return at the end may be half of a line's end; the line is complete in any case.
        self._after_return = self._after_return or chunk.endswith(b"\r")
        first, *later = _LINE_END.split(chunk)
        self._tail.append(first)
        events: list[Event] = []
        for line in later:
            events += self._line(b"".join(self._tail))
            self._tail = [line]
        return events

    def end(self) -> list[Event]:
        """The event that was still open when the stream ended, if there is one; it may be a part."""
        tail, self._tail = b"".join(self._tail), []
        return [*self._line(tail), *self._line(b"")]

    def _line(self, line: bytes) -> list[Event]:
        if not self._began:
            line, self._began = line.removeprefix(_BOM), True
        if not line:
            events = [Event(self._name, "\n".join(self._data))] if self._data else []
            self._name, self._data = "", []
            return events
        field, _, value = line.partition(b":")
        if field in (b"event", b"data"):
            text = value.removeprefix(b" ").decode("utf-8", "replace")
            if field == b"data":
                self._data.append(text)
            else:
                self._name = text
        return []


def events(chunks: Iterable[bytes]) -> Iterator[Event]:
    """The events of a stream, the last one also without its end."""
    decoder = Decoder()
    yield from chain.from_iterable(map(decoder.feed, chunks))
    yield from decoder.end()


def is_stream(answer: bytes, *, stream: bool) -> bool:
    """Whether an answer has events rather than JSON. Its bytes tell; where they do not, its header: `stream`."""
    head = answer[:64].removeprefix(_BOM).lstrip()
    return not head.startswith(_JSON) if stream else head.startswith(_FIELDS)
