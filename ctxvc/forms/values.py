"""JSON values of other programs: what is read of them, whatever they are."""

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
    """Whether `value` may be a message, as both APIs have them."""
    return isinstance(value, dict) and isinstance(value.get("role"), str)


def annotated(part: Part, name: Literal["openai", "ctxvc"], notes: dict[str, Any]) -> Part:
    """`part` with more in its `extra` under `name`."""
    return msgspec.structs.replace(part, extra={**part.extra, name: {**part.extra.get(name, {}), **notes}})


def taken_over(parts: Iterable[Part], note: Any) -> tuple[Part, ...]:
    """The parts, with what each call was in the agent that the session was taken over from in `extra.ctxvc.original`.

    `note` is what an export wrote beside them: call → `tool` and `arguments`; anything else says nothing.
    """
    calls = note if isinstance(note, dict) else {}
    return tuple(
        annotated(part, "ctxvc", {"original": calls[part.call]})
        if part.kind == "tool_use" and isinstance(calls.get(part.call), dict)
        else part
        for part in parts
    )


def objects(values: Any) -> list[dict[str, Any]]:
    """The JSON objects in a list; none if it is not a list."""
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else ""


def text_in(record: Mapping[str, Any], name: str) -> str:
    """The text in a field; empty if there is none."""
    return text_of(record.get(name))


def time_of(seconds: Any) -> str:
    """ISO 8601 for seconds since 1970; empty for what is no such number."""
    if type(seconds) in (int, float) and 0 <= seconds < _YEAR_10000:
        return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).isoformat().replace("+00:00", "Z")
    return ""


def digest(value: Any) -> bytes:
    """A checksum of a JSON value that does not depend on the order of keys."""
    try:
        data = msgspec.json.encode(value, order="deterministic")
    except (UnicodeEncodeError, ValueError, msgspec.MsgspecError):
        data = json.dumps(value, sort_keys=True).encode("ascii")
    return hashlib.sha256(data).digest()
