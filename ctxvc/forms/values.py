"""Reads JSON values of other programs, whatever their types are."""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from ctxvc.core.ledger.block import Part

_YEAR_10000 = 253402300800


def has_role(value: Any) -> bool:
    """Whether `value` has a role, as a message has."""
    return isinstance(value, dict) and isinstance(value.get("role"), str)


def annotated(part: Part, name: Literal["openai", "ctxvc"], notes: dict[str, Any]) -> Part:
    """`part` with more notes in its `extra[name]`."""
    return msgspec.structs.replace(part, extra={**part.extra, name: {**part.extra.get(name, {}), **notes}})


def taken_over(parts: Iterable[Part], note: Any) -> tuple[Part, ...]:
    """The parts of an exported session; `extra.ctxvc.original` has each call as the agent before had made it.

    `note` is the export's note on them: call → `tool` and `arguments`. Any other value is ignored.
    """
    calls = note if isinstance(note, dict) else {}
    return tuple(
        annotated(part, "ctxvc", {"original": calls[part.call]})
        if part.kind == "tool_use" and isinstance(calls.get(part.call), dict)
        else part
        for part in parts
    )


def objects(values: Any) -> list[dict[str, Any]]:
    """The JSON objects in a list; empty for any other value."""
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else ""


def text_in(record: Mapping[str, Any], name: str) -> str:
    """The text in a field; empty for any other value."""
    return text_of(record.get(name))


def time_of(seconds: Any) -> str:
    """ISO 8601 for seconds since 1970; empty for any other value."""
    if type(seconds) in (int, float) and 0 <= seconds < _YEAR_10000:
        return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).isoformat().replace("+00:00", "Z")
    return ""


def digest(value: Any) -> bytes:
    """The SHA-256 of a JSON value, whatever the order of its keys."""
    try:
        data = msgspec.json.encode(value, order="deterministic")
    except (UnicodeEncodeError, ValueError, msgspec.MsgspecError):
        data = json.dumps(value, sort_keys=True).encode("ascii")
    return hashlib.sha256(data).digest()
