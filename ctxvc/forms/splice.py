"""A request's body with other items in its lists, of which what is not named keeps its bytes; and in named pieces, of
which most are the same in the next request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ctxvc.core.ledger import wire
from ctxvc.errors import BadInput
from ctxvc.forms.scan import NotAnObject, Span, items, members

#: An item of a list that is being made: the number of one that the list has, or a text.
Element = int | bytes


class Change(NamedTuple):
    """A text in the place of another."""

    span: Span
    text: bytes


class Object(NamedTuple):
    """The text of a JSON object, and the places of its members."""

    text: bytes
    members: Mapping[str, Span]

    def begins(self, name: str, sign: str) -> bool:
        """Whether the text of a member begins with a sign."""
        span = self.members.get(name)
        return span is not None and self.text[span.start] == ord(sign)


def opened(text: bytes) -> Object:
    """Raises: BadInput for what is no object, and where a name is there twice."""
    try:
        return Object(text, dict(members(text)))
    except NotAnObject:
        raise BadInput("the request is no JSON object with each name once") from None


def changed(data: bytes, changes: Iterable[Change]) -> bytes:
    """The text with the changes, of which no two overlap."""
    pieces: list[bytes] = []
    end = 0
    for change in sorted(changes):
        pieces += (data[end : change.span.start], change.text)
        end = change.span.end
    return b"".join([*pieces, data[end:]])


def places(source: Object, name: str) -> list[Span]:
    """The places of the items of a list that is a member. Raises: BadInput if there is none."""
    if not source.begins(name, "["):
        raise BadInput(f"the request has no list of {name}")
    return items(source.text, source.members[name])


def with_items(source: Object, name: str, own: Sequence[Span], elements: Sequence[Element]) -> Change:
    """A list that is a member, with these elements. One of its `own` brings along what parts it from the one before."""
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
    """The change that puts a list of these elements where a request has one message, `own` as an element of it."""
    if list(elements) == [0]:
        return []
    return [Change(span, b"[" + b",".join(own if isinstance(item, int) else item for item in elements) + b"]")]


def added(source: Object, name: str, values: Sequence[Any]) -> list[Change]:
    """The change that adds values to the end of a list that is a member, and the list if there is none.

    Raises: BadInput if something else stands there.
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
    """A message of a request as an element of its list."""
    return message if type(message) is int else wire.compact(message)


_NAME = re.compile(r"[^A-Za-z0-9_]")
_MOST_ITEMS = 1 << 16
#: Numbers of two digits that there are.
_MOST_PLACES = 256


def in_pieces(body: bytes) -> list[tuple[str, bytes]]:
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
