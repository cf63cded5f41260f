"""A request's body with other items in its lists, while all other bytes stay; and cut into named pieces, most of which
the next request repeats."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ctxvc.core.ledger import wire
from ctxvc.errors import BadInput

_SPACE = re.compile(rb"[ \t\n\r]*")
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ANY = msgspec.json.Decoder(msgspec.Raw)
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_STR = msgspec.json.Decoder(str)

_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_UNSAFE = re.compile(r"[^A-Za-z0-9_]")
_MOST_ITEMS = 1 << 16
#: The number of pieces at the top that two hex digits can number.
_MOST_PLACES = 256

#: An item of a new list: the number of an item of the old list, or the bytes of a new one.
Element = int | bytes


class NotAnObject(Exception):
    """A text is not a JSON object with each name once; `is_json` says whether it is JSON at all."""

    def __init__(self, *, is_json: bool) -> None:
        super().__init__("no JSON object with each name once")
        self.is_json = is_json


class Span(NamedTuple):
    """The half-open byte range of a value in a text."""

    start: int
    end: int


class Change(NamedTuple):
    """A replacement of a span by a text."""

    span: Span
    text: bytes


class Object(NamedTuple):
    """The text of a JSON object, and the spans of its members' values."""

    text: bytes
    members: Mapping[str, Span]

    def begins(self, name: str, sign: str) -> bool:
        """Whether the value of a member begins with `sign`."""
        span = self.members.get(name)
        return span is not None and self.text[span.start] == ord(sign)


def opened(text: bytes) -> Object:
    """The object in a text. Raises: BadInput if it is none, or has a name twice."""
    try:
        return Object(text, dict(members(text)))
    except NotAnObject:
        raise BadInput("the request is no JSON object with each name once") from None


def changed(data: bytes, changes: Iterable[Change]) -> bytes:
    """The text with the changes, which may not overlap."""
    pieces: list[bytes] = []
    end = 0
    for change in sorted(changes):
        pieces += (data[end : change.span.start], change.text)
        end = change.span.end
    return b"".join([*pieces, data[end:]])


def places(source: Object, name: str) -> list[Span]:
    """The spans of the items of the member `name`. Raises: BadInput if it is no list."""
    if not source.begins(name, "["):
        raise BadInput(f"the request has no list of {name}")
    return items(source.text, source.members[name])


def with_items(source: Object, name: str, own: Sequence[Span], elements: Sequence[Element]) -> Change:
    """The change of the member `name` to a list of these elements. Its `own` items keep the separator before them."""
    text, span = source.text, source.members[name]
    pieces = [text[span.start : own[0].start] if own else b"["]
    for place, element in enumerate(elements):
        if isinstance(element, int):
            before = text[own[element - 1].end : own[element].start] if element else b","
            pieces += (before if place else b"", text[slice(*own[element])])
        else:
            pieces += (b"," if place else b"", element)
    pieces.append(text[own[-1].end if own else span.start + 1 : span.end])
    return Change(span, b"".join(pieces))


def from_one(span: Span, own: bytes, elements: Sequence[Element]) -> list[Change]:
    """The change of one message to a list of these elements, in which number 0 is `own`; none if it stays alone."""
    if list(elements) == [0]:
        return []
    return [Change(span, b"[" + b",".join(own if isinstance(item, int) else item for item in elements) + b"]")]


def added(source: Object, name: str, values: Sequence[Any]) -> list[Change]:
    """The change that adds values to the end of the list `name`, which is added too if it is missing.

    Raises: BadInput if the member is not a list.
    """
    if not values:
        return []
    texts = list(map(wire.compact, values))
    span = source.members.get(name)
    if span is None:
        end = max(value.end for value in source.members.values())
        return [Change(Span(end, end), b"," + wire.compact(name) + b":[" + b",".join(texts) + b"]")]
    if source.text[slice(*span)] == b"null":
        return [Change(span, b"[" + b",".join(texts) + b"]")]
    own = places(source, name)
    return [with_items(source, name, own, [*range(len(own)), *texts])]


def element(message: int | Any) -> Element:
    """The element of a request's list for a message."""
    return message if type(message) is int else wire.compact(message)


# --- places in a text


def members(data: bytes) -> Iterator[tuple[str, Span]]:
    """The members of an object in order: each name, and the span of its value.

    Raises: NotAnObject for any other text; where a name is there twice, after the last member before that.
    """
    try:
        values = _OBJECT.decode(data)
    except _ERRORS:
        raise NotAnObject(is_json=_is_json(data)) from None
    at = _after_space(data, 0)
    for name, value in values.items():
        # A brace or a comma is there.
        key = _STRING.match(data, _after_space(data, at + 1))
        at = _after_space(data, _after_space(data, key.end()) + 1) if key else at
        # The decoder gives a repeated name its last value at its first place.
        if key is None or _STR.decode(key[0]) != name or not data.startswith(value, at):
            raise NotAnObject(is_json=True)
        span = Span(at, at + len(memoryview(value)))
        yield name, span
        at = _after_space(data, span.end)
    if data[at if values else _after_space(data, at + 1)] != ord("}"):
        raise NotAnObject(is_json=True)


def items(data: bytes, span: Span) -> list[Span]:
    """The spans of the items of the list at a span of a text."""
    places: list[Span] = []
    at = span.start
    for item in _ARRAY.decode(memoryview(data)[span.start : span.end]):
        # A bracket or a comma is there.
        start = _after_space(data, at + 1)
        at = start + len(memoryview(item))
        places.append(Span(start, at))
        at = _after_space(data, at)
    return places


def _after_space(data: bytes, at: int) -> int:
    if at < len(data) and data[at] > ord(" "):
        return at
    match = _SPACE.match(data, at)
    return match.end() if match else at


def _is_json(data: bytes) -> bool:
    try:
        _ANY.decode(data)
    except _ERRORS:
        return False
    return True


# --- a body in pieces


def in_pieces(body: bytes) -> list[tuple[str, bytes]]:
    """The pieces of a body as (name, bytes); joined, they are the body byte for byte.

    Of a JSON object each item of a top-level list is a piece, with the separator before it, and so is everything
    between the lists. Names are paths that sort in the order of the pieces, and stay when a list grows. Any other body
    is one piece. Takes time linear in the body's length.
    """
    try:
        return list(_pieces(body))
    except NotAnObject as error:
        return [("00.json" if error.is_json else "00.bin", body)]


def _pieces(body: bytes) -> Iterator[tuple[str, bytes]]:
    place = 0
    start = 0  # of what is in no piece yet
    for name, value in members(body):
        if place > _MOST_PLACES - 3 or body[value.start : value.start + 1] != b"[":
            continue
        yield f"{place:02x}.json", body[start : value.start + 1]
        end = value.start + 1
        ends = [item.end for item in items(body, value)]
        if len(ends) > _MOST_ITEMS:  # the last name's piece has all the rest
            ends = [*ends[: _MOST_ITEMS - 1], ends[-1]]
        label = _UNSAFE.sub("_", name[:40]) or "_"
        for number, item_end in enumerate(ends):
            yield f"{place + 1:02x}-{label}/{number >> 8:02x}/{number & 255:02x}.json", body[end:item_end]
            end = item_end
        place, start = place + 2, end
    yield f"{place:02x}.json", body[start:]
