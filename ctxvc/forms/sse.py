"""Server-sent events: bytes in, events out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from ctxvc.core.ledger import wire

#: The end of an event: an empty line. A carriage return may be the first half of a line's end.
_END = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r)")
#: The longest beginning of an end, in bytes, that an earlier read may have brought.
_ALL_BUT_ONE = 3
_BOM = b"\xef\xbb\xbf"


class Event(NamedTuple):
    """An event: its bytes with the empty line, its name and its data, both of which may be empty."""

    raw: bytes
    name: str
    data: bytes

    @property
    def value(self) -> dict[str, Any] | None:
        """The JSON object in the data; None for any other data."""
        if not self.data:
            return None
        value: dict[str, Any] | None = wire.parsed(self.data, dict)
        if value is None and not self.data.isascii():
            value = wire.parsed(self.data.decode("utf-8", "replace").encode(), dict)
        return value

    def with_value(self, value: Any) -> bytes:
        """The event's bytes with other data; all its other lines stay."""
        if self.raw.endswith(b"data: " + self.data + b"\n\n"):
            return self.raw[: -len(self.data) - 2] + wire.compact(value) + b"\n\n"
        lines = self.raw.splitlines(keepends=True)
        places = [place for place, line in enumerate(lines) if _field(line)[0] == b"data"]
        ending = lines[places[0]][len(lines[places[0]].rstrip(b"\r\n")) :]
        lines[places[0]] = b"data: " + wire.compact(value) + ending
        for place in reversed(places[1:]):
            del lines[place]
        return b"".join(lines)


class Events:
    """Cuts a stream, read in chunks of any size, into its events; joined, they are the stream byte for byte."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._newest = b""

    def feed(self, data: bytes) -> list[Event]:
        """The events that are complete now. One that ends with a carriage return waits for the next byte."""
        newest = self._newest + data
        self._pieces.append(data)
        self._newest = newest[-_ALL_BUT_ONE:]
        if not _END.search(newest):
            return []
        *complete, tail = _split(b"".join(self._pieces))
        self._pieces = [tail]
        return [_event(raw) for raw in complete]

    def tail(self) -> Event:
        """The bytes after the last event, as one event."""
        tail, self._pieces, self._newest = b"".join(self._pieces), [], b""
        return _event(tail)


def events(data: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    """The name, which may be empty, and the JSON object of each event in a stream.

    An event that is cut off, or whose data is no JSON object, is left out.
    """
    stream = Events()
    complete = stream.feed(data)
    tail = stream.tail()
    for event in [*complete, tail] if _END.search(tail.raw) else complete:
        if (value := event.value) is not None:
            yield event.name, value


def _split(data: bytes) -> list[bytes]:
    """The events in some bytes, then the rest after the last one."""
    if b"\r" not in data:
        *complete, tail = data.split(b"\n\n")
        return [*(raw + b"\n\n" for raw in complete), tail]
    ends = [match.end() for match in _END.finditer(data)]
    if ends and ends[-1] == len(data) and data.endswith(b"\r"):
        ends.pop()
    return [data[start:end] for start, end in pairwise([0, *ends, len(data)])]


def _event(raw: bytes) -> Event:
    match raw.split(b"\n"):  # as nearly all servers write it
        case [name, data, b"", b""] if name[:7] == b"event: " and data[:6] == b"data: " and b"\r" not in raw:
            return Event(raw, name[7:].decode("utf-8", "replace"), data[6:])
        case [data, b"", b""] if data[:6] == b"data: " and b"\r" not in raw:
            return Event(raw, "", data[6:])
    name, values = b"", []
    for line in raw.splitlines():
        field, value = _field(line)
        if field == b"event":
            name = value
        elif field == b"data":
            values.append(value)
    return Event(raw, name.decode("utf-8", "replace"), b"\n".join(values))


def _field(line: bytes) -> tuple[bytes, bytes]:
    field, _, value = line.removeprefix(_BOM).rstrip(b"\r\n").partition(b":")
    return field, value.removeprefix(b" ")
