"""JSON values whose shape nobody vouches for: what is taken out of them, and checksums of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

import msgspec

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Part


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else ""


def call_input(text: str) -> dict[str, Any] | str:
    """A call's arguments as they were written: an object, else the text."""
    try:
        value = wire.parse(text)
    except ValueError:
        return text
    return value if isinstance(value, dict) else text


def arguments_print(arguments: Any) -> str:
    """A checksum of a call's arguments, which may be a JSON text: of its value, so that spaces do not matter."""
    if isinstance(arguments, str):
        return _text_print(arguments) if len(arguments) <= _SHORT else _text_print.__wrapped__(arguments)
    return digest(arguments).hex()


#: Arguments of so many characters are looked up rather than read again: a log repeats them in each request.
_SHORT = 8_192


@lru_cache(maxsize=1_024)
def _text_print(text: str) -> str:
    return digest(call_input(text)).hex()


def objects(values: Any) -> list[dict[str, Any]]:
    """The JSON objects in a list; none if it is not a list."""
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


def counts(usage: Any) -> dict[str, int]:
    """The plain token counts of a usage object."""
    if not isinstance(usage, Mapping):
        return {}
    return {name: count for name, count in usage.items() if type(count) is int}


def has_role(value: Any) -> bool:
    """Whether `value` may be a message, as both APIs have them."""
    return isinstance(value, dict) and isinstance(value.get("role"), str)


def annotated(part: Part, name: Literal["openai", "gemini", "ctxvc"], notes: dict[str, Any]) -> Part:
    """`part` with more in its `extra` under `name`."""
    return msgspec.structs.replace(part, extra={**part.extra, name: {**part.extra.get(name, {}), **notes}})


def digest(value: Any) -> bytes:
    """A checksum of a JSON value that does not depend on the order of keys."""
    try:
        data = msgspec.json.encode(value, order="deterministic")
    except (UnicodeEncodeError, ValueError, msgspec.MsgspecError):
        data = json.dumps(value, sort_keys=True).encode("ascii")
    return hashlib.sha256(data).digest()
