"""Where the members of a JSON object and the items of a list stand in a text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

_SPACE = re.compile(rb"[ \t\n\r]*")
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ANY = msgspec.json.Decoder(msgspec.Raw)
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_NAME = msgspec.json.Decoder(str)

_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class NotAnObject(Exception):
    """A text is no JSON object whose members can be told apart; `is_json` says whether it is JSON at all."""

    def __init__(self, *, is_json: bool) -> None:
        super().__init__("no JSON object with each name once")
        self.is_json = is_json


class Span(NamedTuple):
    """A value's place in a text: from its first byte to behind its last."""

    start: int
    end: int


def members(data: bytes) -> Iterator[tuple[str, Span]]:
    """The members of an object in their order, each name with its value's place.

    Raises: NotAnObject for any other text, and behind the last member that can be told where a name is there twice.
    """
    try:
        values = _OBJECT.decode(data)
    except _ERRORS:
        raise NotAnObject(is_json=_is_json(data)) from None
    at = _after_space(data, 0)
    for name, value in values.items():
        # What stands there is a brace or a comma.
        key = _STRING.match(data, _after_space(data, at + 1))
        at = _after_space(data, _after_space(data, key.end()) + 1) if key else at
        # Of a name that is there twice the newer value is at the older one's place among the values.
        if key is None or _NAME.decode(key[0]) != name or not data.startswith(value, at):
            raise NotAnObject(is_json=True)
        span = Span(at, at + len(memoryview(value)))
        yield name, span
        at = _after_space(data, span.end)
    if data[at if values else _after_space(data, at + 1)] != ord("}"):
        raise NotAnObject(is_json=True)


def items(data: bytes, span: Span) -> list[Span]:
    """The places of the items of the list that stands at a place in a text."""
    places: list[Span] = []
    at = span.start
    for item in _ARRAY.decode(memoryview(data)[span.start : span.end]):
        # What stands there is a bracket or a comma.
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
