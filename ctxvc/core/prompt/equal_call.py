"""Calls that a prompt shows as calls of an equal tool, of the agent that continues: `extra.ctxvc.as` of their rows.

The body stays as recorded. A row refers to the body's arguments whose values the new arguments share, and repeats only
the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.ledger import Row


class EqualCall(NamedTuple):
    """A call as the prompt shows it, and the arguments that it was recorded with."""

    tool: str
    arguments: Mapping[str, Any]
    original: Mapping[str, Any]


def note(original: Mapping[str, Any], tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The row's note that makes the prompt show a call with the `original` arguments as one of `tool`."""
    sources = {name: _source(value, original) for name, value in arguments.items()}
    return {
        "tool": tool,
        "of": {name: source for name, source in sources.items() if source is not None},
        "arguments": {name: arguments[name] for name, source in sources.items() if source is None},
    }


def _source(value: Any, original: Mapping[str, Any]) -> str | None:
    """The first argument with this value and type, or None."""
    return next((name for name, item in original.items() if type(item) is type(value) and item == value), None)


def tool_of(row: Row) -> str:
    """The tool name under which the prompt shows a call."""
    match _note(row):
        case {"tool": str(tool)}:
            return tool
    return row.tool


def equal_call(row: Row, body: bytes) -> EqualCall | None:
    """The call of another tool that replaces a call; None if its row has no note, or none that fits."""
    own_note = _note(row)
    original = wire.parsed(body, dict) if own_note else None
    match own_note:
        case {"tool": str(tool), "of": dict(sources), "arguments": dict(own)} if original is not None:
            if all(isinstance(source, str) and source in original for source in sources.values()):
                return EqualCall(
                    tool, {**{name: original[source] for name, source in sources.items()}, **own}, original
                )
    return None


def _note(row: Row) -> Any:
    return wire.own_metadata(row.extra).get("as") if row.kind == "tool_use" else None
