"""A request's body with other items in its lists. What is not named keeps its bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
