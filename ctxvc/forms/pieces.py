"""A request's body in named pieces, of which most are the same in the next request."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

_SPACE = re.compile(rb"[ \t\n\r]*")
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NAME = re.compile(r"[^A-Za-z0-9_]")
_MOST_ITEMS = 1 << 16
#: Numbers of two digits that there are.
_MOST_PLACES = 256

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ANY = msgspec.json.Decoder(msgspec.Raw)
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])


def split(body: bytes) -> list[tuple[str, bytes]]:
    """The pieces of a body, each with its name; together they are the body, byte for byte, whatever it is.

    Of a JSON object each item of the lists at the top is a piece, with what separates it from the one before, and so is
    what stands between. Names are paths that sort in the order of the pieces; they stay when a list gets more items. A
    body that is anything else is one piece. Takes time linear in its length.
    """
    try:
        return list(_pieces(body))
    except _NotAnObject as error:
        return [(str(error), body)]


class _NotAnObject(Exception):
    """The body is to be one piece of the name in the argument."""


def _pieces(body: bytes) -> Iterator[tuple[str, bytes]]:
    place = 0
    start = 0  # of what is in no piece yet
    for name, at, value in _members(body):
        if place > _MOST_PLACES - 3 or body[at : at + 1] != b"[":
            continue
        yield f"{place:02x}.json", body[start : at + 1]
        end = at + 1
        for number, item_end in enumerate(_item_ends(body, at, value)):
            yield f"{place + 1:02x}-{name}/{number >> 8:02x}/{number & 255:02x}.json", body[end:item_end]
            end = item_end
        place, start = place + 2, end
    yield f"{place:02x}.json", body[start:]


def _members(body: bytes) -> Iterator[tuple[str, int, msgspec.Raw]]:
    """The members of the object that a body is: name for a path, where the value begins, and its text."""
    try:
        members = _OBJECT.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _NotAnObject(_name(body)) from None
    at = _after_space(body, 0) + 1
    for name, value in members.items():
        key = _STRING.match(body, _after_space(body, at))
        if key is None:
            raise _NotAnObject("00.json")
        at = _after_space(body, _after_space(body, key.end()) + 1)
        if not body.startswith(value, at):  # a name that is there twice: the values are no longer in order
            raise _NotAnObject("00.json")
        yield _NAME.sub("_", name[:40]) or "_", at, value
        at = _after_space(body, at + len(memoryview(value))) + 1


def _item_ends(body: bytes, at: int, value: msgspec.Raw) -> list[int]:
    """Where each item of the list at `at` ends; of the last name's piece, where all the rest does."""
    ends: list[int] = []
    for item in _ARRAY.decode(value):
        # What stands there is a bracket or a comma.
        at = _after_space(body, at + 1) + len(memoryview(item))
        ends.append(at)
        at = _after_space(body, at)
    return ends if len(ends) <= _MOST_ITEMS else [*ends[: _MOST_ITEMS - 1], ends[-1]]


def _after_space(body: bytes, at: int) -> int:
    match = _SPACE.match(body, at)
    return match.end() if match else at


def _name(body: bytes) -> str:
    """The name of a body that is one piece."""
    try:
        _ANY.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "00.bin"
    return "00.json"
