"""A JSON object as text, changed only where its members change: everything else keeps its bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

_SPACE = re.compile(r"[ \t\r\n\ufeff]*")
_DECODER = json.JSONDecoder()


class _Member(NamedTuple):
    """Where a member stands: from its name on, and its value."""

    start: int
    value: int
    end: int


def edited(text: str, wanted: Mapping[str, Any]) -> str:
    """`text`, an object, with the members of `wanted` and no others. Members that are equal keep their text.

    New ones come last. Raises: ValueError where `text` is no object.
    """
    held = json.loads(text.removeprefix("\ufeff"))
    members = _members(text)
    if not members or not (wanted.keys() & members.keys()):
        return _printed(wanted, "", _indent(text), text) + ("\n" if text.endswith("\n") else "")
    step = _indent(text)
    new = text
    # From the end on, so that the places before stay where they are.
    last = max(member.end for member in members.values())
    added = [(name, value) for name, value in wanted.items() if name not in members]
    lead = _lead(text, min(member.start for member in members.values()))
    more = "".join(
        f",{lead}{json.dumps(name, ensure_ascii=False)}: {_printed(value, lead, step, text)}" for name, value in added
    )
    new = new[:last] + more + new[last:]
    ordered = sorted(members.items(), key=lambda item: item[1].start, reverse=True)
    for at, (name, member) in enumerate(ordered):
        if name not in wanted:
            before = ordered[at + 1][1].end if at + 1 < len(ordered) else None
            after = ordered[at - 1][1].start if at else None
            if before is not None:
                new = new[:before] + new[member.end :]
            elif after is not None:
                new = new[: member.start] + new[after:]
        elif wanted[name] != held[name]:
            new = new[: member.value] + _printed(wanted[name], lead, step, text) + new[member.end :]
    return new


def _members(text: str) -> dict[str, _Member]:
    """The members of the object that `text` is, by name. Raises: ValueError."""
    found: dict[str, _Member] = {}
    at = _skip(text, 0) + 1  # behind the brace
    while text[at := _skip(text, at)] != "}":
        start = at
        name, at = _DECODER.raw_decode(text, at)
        value = _skip(text, _skip(text, at) + 1)  # behind the colon
        _, end = _DECODER.raw_decode(text, value)
        if name in found:
            raise ValueError(f"{name!r} stands in it twice")
        found[name] = _Member(start, value, end)
        at = _skip(text, end)
        if text[at] == ",":
            at += 1
    return found


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()


def _lead(text: str, start: int) -> str:
    """What stands before a member: a line's end and its indentation, or nothing but a space."""
    before = text[:start]
    line = before.rpartition("\n")[2]
    if "\n" not in before or line.strip():
        return " "
    return ("\r\n" if before.endswith(f"\r\n{line}") else "\n") + line


def _indent(text: str) -> str | None:
    """The indentation of the first member; None where all stands in one line."""
    if not text.strip():
        return "  "
    match = re.search(r"\n([ \t]+)\S", text)
    return match[1] if match else ("  " if text.strip() == "{}" else None)


def _printed(value: Any, lead: str, step: str | None, text: str) -> str:
    """`value` as JSON behind a member's indentation, in the style of `text`."""
    words = json.dumps(value, indent=step, ensure_ascii=False)
    margin = lead.rpartition("\n")[2] if "\n" in lead else ""
    words = words.replace("\n", f"\n{margin}") if step else words
    return words.replace("\n", "\r\n") if "\r\n" in text else words
