"""Values of a JSON text by path, as in `items[0].name`; `items[].name` selects that of every item.

Each value keeps its own spelling: numbers are not parsed, so that none loses a digit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from ctxvc.core.display import one_line
from ctxvc.errors import BadInput

Step = str | int | None
#: A key, an index from the beginning or the end, or all items (None).
_STEP = re.compile(r'\.?([^\s.\[\]"]+)|\[(-?[0-9]{1,9})?\]|\[("(?:[^"\\]|\\.)*")\]')
#: The most keys that an error names, and the most characters of a path.
_NAMED, _LONGEST = 8, 1_000


def steps(path: str) -> Sequence[Step]:
    """The steps of a path. Raises: BadInput if it is invalid."""
    way: list[Step] = []
    at = 0
    while at < len(path):
        match = _STEP.match(path, at)
        if not match or len(path) > _LONGEST:
            raise BadInput(
                f"{one_line(path, 60)!r} is not a path", hint='as in items[0].name, items[].name or ["a b"].c'
            )
        key, index, quoted = match.groups()
        way.append(key if key else _key(quoted) if quoted else int(index) if index else None)
        at = match.end()
    return way


def values(text: str, path: str) -> str:
    """The value at `path`: a string as its text, any other as indented JSON; several values as JSON, one per line.

    Raises: BadInput if the text is not JSON, or there is nothing at the path.
    """
    way = steps(path)
    try:
        raw: msgspec.Raw = msgspec.json.decode(text.encode("utf-8", "surrogatepass"), type=msgspec.Raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BadInput(f"not JSON: {error}", hint="leave out the path, or search with grep") from error
    if None in way:
        return "".join(f"{_json(value, 0)}\n" for value in _walk(raw, way, 0))
    (value,) = _walk(raw, way, 0)
    return _json(value, 1) if not bytes(value).startswith(b'"') else str(msgspec.json.decode(value))


def _walk(raw: msgspec.Raw, way: Sequence[Step], at: int) -> Iterator[msgspec.Raw]:
    if at == len(way):
        yield raw
        return
    step = way[at]
    if isinstance(step, str):
        yield from _walk(_member(raw, step, way[:at]), way, at + 1)
        return
    items = _items(raw, way[:at])
    if step is not None and not -len(items) <= step < len(items):
        raise BadInput(f"{_spelled(way[:at])} has no item {step}", hint=f"it has {len(items)}, counted from 0")
    for item in items if step is None else (items[step],):
        yield from _walk(item, way, at + 1)


def _member(raw: msgspec.Raw, key: str, way: Sequence[Step]) -> msgspec.Raw:
    wrong = f"{_spelled(way)} has no {one_line(key, 60)!r}"
    try:
        members = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError as error:
        raise BadInput(wrong, hint="it is not an object") from error
    if key not in members:
        raise BadInput(wrong, hint=one_line(f"it has {', '.join(map(repr, list(members)[:_NAMED])) or 'no key'}", 200))
    return members[key]


def _items(raw: msgspec.Raw, way: Sequence[Step]) -> list[msgspec.Raw]:
    try:
        return msgspec.json.decode(raw, type=list[msgspec.Raw])
    except msgspec.ValidationError as error:
        raise BadInput(f"{_spelled(way)} is not a list", hint="give the path of a list before [ ]") from error


def _json(value: msgspec.Raw, indent: int) -> str:
    return msgspec.json.format(bytes(value), indent=indent or -1).decode("utf-8", "replace")


def _key(quoted: str) -> str:
    try:
        return msgspec.json.decode(quoted, type=str)
    except msgspec.MsgspecError as error:
        raise BadInput(
            f"{one_line(quoted, 60)} is not a key: {error}", hint="a key in quotes is a JSON string"
        ) from error


def _spelled(way: Sequence[Step]) -> str:
    names = "".join(f"[{'' if step is None else step}]" if not isinstance(step, str) else f".{step}" for step in way)
    return one_line(names.removeprefix("."), 60) or "the text"
