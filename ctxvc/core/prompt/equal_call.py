"""Calls that a prompt shows as calls of an equal tool, that of the agent which goes on: `extra.ctxvc.as` of their rows.

The body stays what was recorded. A row names the arguments by those of the body whose values they have, and repeats
only the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.ledger import Row


class Shown(NamedTuple):
    """A call as the prompt shows it, and the call that was made."""

    tool: str
    arguments: Mapping[str, Any]
    made: Mapping[str, Any]


def note(made: Mapping[str, Any], tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What the row of a call that was made with these arguments notes, to be shown as `tool` with others."""
    names = {name: _named(value, made) for name, value in arguments.items()}
    own = {name: arguments[name] for name, key in names.items() if key is None}
    return {"tool": tool, "of": {name: key for name, key in names.items() if key is not None}, "arguments": own}


def _named(value: Any, made: Mapping[str, Any]) -> str | None:
    """The first argument with this value, of this type."""
    return next((key for key, other in made.items() if type(other) is type(value) and other == value), None)


def tool_of(row: Row) -> str:
    """The tool by whose name the prompt shows a call."""
    match _noted(row):
        case {"tool": str(tool)}:
            return tool
    return row.tool


def shown(row: Row, body: bytes) -> Shown | None:
    """The call of another tool that stands in a call's place; None where its row says nothing, or nothing that fits."""
    noted = _noted(row)
    made = wire.parsed(body, dict) if noted else None
    match noted:
        case {"tool": str(tool), "of": dict(names), "arguments": dict(own)} if made is not None:
            if all(isinstance(key, str) and key in made for key in names.values()):
                return Shown(tool, {**{name: made[key] for name, key in names.items()}, **own}, made)
    return None


def _noted(row: Row) -> Any:
    return wire.own_metadata(row.extra).get("as") if row.kind == "tool_use" else None
