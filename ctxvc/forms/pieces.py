"""A request's body in named pieces, of which most are the same in the next request."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ctxvc.forms.scan import NotAnObject, items, members

_NAME = re.compile(r"[^A-Za-z0-9_]")
_MOST_ITEMS = 1 << 16
#: Numbers of two digits that there are.
_MOST_PLACES = 256


def split(body: bytes) -> list[tuple[str, bytes]]:
    """The pieces of a body, each with its name; together they are the body, byte for byte, whatever it is.

    Of a JSON object each item of the lists at the top is a piece, with what separates it from the one before, and so is
    what stands between. Names are paths that sort in the order of the pieces; they stay when a list gets more items. A
    body that is anything else is one piece. Takes time linear in its length.
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
        label = _NAME.sub("_", name[:40]) or "_"
        for number, item_end in enumerate(ends):
            yield f"{place + 1:02x}-{label}/{number >> 8:02x}/{number & 255:02x}.json", body[end:item_end]
            end = item_end
        place, start = place + 2, end
    yield f"{place:02x}.json", body[start:]
