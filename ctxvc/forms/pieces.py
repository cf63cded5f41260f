"""A request's body as named pieces, whose concatenation it is, byte for byte.

An item of an array at the top of a JSON object is a piece of its own: a client that repeats its history sends the same
pieces again, so that a store which names content by its checksum keeps each of them once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

#: A piece: its name, as a path that sorts in the body's order, and its bytes.
Piece = tuple[str, bytes]

#: Items of one array, and places at the top, beyond which the rest is one piece.
_MOST_ITEMS, _MOST_PLACES = 65_535, 250
_KEY = re.compile(rb'[ \t\r\n]*[{,][ \t\r\n]*"((?:[^"\\]|\\.)*)"[ \t\r\n]*:[ \t\r\n]*', re.DOTALL)
_BETWEEN = re.compile(rb"[ \t\r\n]*[\[,]?[ \t\r\n]*")
_UNNAMED = re.compile(r"[^a-z0-9_]+")
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_array = msgspec.json.Decoder(list[msgspec.Raw])


def split(body: bytes) -> list[Piece]:
    """The pieces of a body: as they join, they are the body. Never raises.

    `00.json` and its like are what stands between arrays, `01-messages/00/05.json` is item 5 of the array `messages`
    with the bytes before it, and `00.bin` a body that is no JSON object.
    """
    try:
        values = list(_object.decode(body).values())
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return [("00.bin", body)]
    return list(_places(body, values)) or [("00.json", body)]


def _places(body: bytes, values: list[msgspec.Raw]) -> Iterator[Piece]:
    place, begin, at = 0, 0, 0  # of the piece that is being gathered, and where in it
    for value in map(bytes, values):
        key = _KEY.match(body, at)
        if not key or not body.startswith(value, key.end()):
            break  # a key that stands there twice: the rest is one piece
        at = key.end()
        items = _items(value) if place < _MOST_PLACES else []
        if items:
            yield f"{place:02x}.json", body[begin:at]
            name = _UNNAMED.sub("_", key[1].decode("utf-8", "replace").lower())[:40] or "_"
            for number, item in enumerate(items):
                yield f"{place + 1:02x}-{name}/{number >> 8:02x}/{number & 255:02x}.json", item
            place, begin = place + 2, at + sum(map(len, items))
        at += len(value)
    yield f"{place:02x}.json", body[begin:]


def _items(value: bytes) -> list[bytes]:
    """The items of an array, each with what stands before it; none of what is no array, or an empty one.

    What stands behind the last one belongs to what follows the array.
    """
    if not value.startswith(b"["):
        return []
    try:
        raw = list(map(bytes, _array.decode(value)))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return []
    items: list[bytes] = []
    begin = 0
    for item in raw[:_MOST_ITEMS]:
        between = _BETWEEN.match(value, begin)
        end = (between.end() if between else begin) + len(item)
        if value[end - len(item) : end] != item:
            return []
        items.append(value[begin:end])
        begin = end
    return items
