"""What a part keeps of one of OpenAI's forms (`extra.openai`), as far as an importer of ours can have written it.

A store from elsewhere may have anything there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ctxvc.core.ledger import wire


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_objects(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_object, value))


def _is_picture(value: Any) -> bool:
    return _is_object(value) and _is_object(value.get("image_url", {}))


def _is_call(value: Any) -> bool:
    return _is_object(value) and (_is_object(value.get("function")) or _is_object(value.get("custom")))


#: Names → what their values are. Other names are fields of an item, with any value.
_NOTES: Mapping[str, Callable[[Any], bool]] = {
    "role": _is_text,
    "field": _is_text,
    "item": _is_text,
    "id": lambda value: value is None or _is_text(value),
    "content": _is_object,
    "message": _is_object,
    "part": _is_picture,
    "call": _is_call,
    "parts": lambda value: isinstance(value, bool) or _is_objects(value),
    "items": lambda value: _is_object(value) and all(map(_is_picture, value.values())),
    "output": lambda value: _is_object(value) or _is_objects(value),
    "parsed": lambda value: isinstance(value, bool),
}


def _is_json(body: bytes) -> bool:
    try:
        wire.parse(body)
    except ValueError:
        return False
    return True


def sound(extra: Mapping[str, Any], body: bytes) -> Mapping[str, Any]:
    """`extra` with those of its notes that have the types which importers give them, and that fit the body."""
    if "openai" not in extra:
        return extra
    notes = extra["openai"] if isinstance(extra["openai"], dict) else {}
    valid = {name: value for name, value in notes.items() if name not in _NOTES or _NOTES[name](value)}
    if valid.get("parsed") and not _is_json(body):
        del valid["parsed"]
    if valid.get("field") == "message" and wire.parsed(body, dict) is None:
        del valid["field"]
    if valid.get("field") in ("content", "tool_calls") and not _is_json(body):
        del valid["field"]
    return extra if valid == extra["openai"] else {**extra, "openai": valid}
