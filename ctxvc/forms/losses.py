"""What a conversion loses, by its path in the source."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import FOREIGN
from ctxvc.core.prompt.outline import Piece
from ctxvc.forms import elements


class Loss(msgspec.Struct, frozen=True):
    """A value of the source that the other form has no place for.

    `path` is its path in the source, such as `messages[3].content[0].title`. `change` says what replaces it; empty if
    nothing does.
    """

    path: str
    change: str = ""


class Converted(msgspec.Struct, frozen=True):
    """A request or reply in another form, and its losses."""

    value: dict[str, Any]
    losses: tuple[Loss, ...] = ()


class Place:
    """A place in the source of a conversion. All places of a source collect its losses in one list."""

    def __init__(self, losses: list[Loss], path: str = "") -> None:
        self._losses = losses
        self.path = path

    def at(self, *keys: str | int) -> Place:
        """The place below this one."""
        path = self.path
        for key in keys:
            path += f"[{key}]" if isinstance(key, int) else f".{key}" if path else key
        return Place(self._losses, path)

    def drop(self) -> None:
        """Notes that this value is lost."""
        self._losses.append(Loss(self.path))

    def change(self, change: str) -> None:
        """Notes that something else replaces this value."""
        self._losses.append(Loss(self.path, change))

    def drop_except(self, value: Mapping[Any, Any], *carried: str) -> None:
        """Notes that the non-empty fields of this object are lost, except those `carried`."""
        self._losses += _fields(self.path, value, carried)


def lost_fields(piece: Piece, carried: Collection[str] = ()) -> Iterator[Loss]:
    """The fields of a block that OpenAI's forms do not have, except those `carried`."""
    is_block = piece.ext == "json" and piece.kind in ("image", "document")
    fields = (wire.parsed(piece.body, dict) or {}) if is_block else piece.extra
    yield from _fields(piece.block, fields, (*carried, *FOREIGN))


def lost_in_item(path: str, item: Mapping[str, Any]) -> Iterator[Loss]:
    """The fields of a text in a result that OpenAI's forms do not have."""
    yield from _fields(path, item, ("type", "text"))


def lost_tools(tools: Any, written: Collection[str] = ()) -> Iterator[Loss]:
    """The tools that are no functions and of no type in `written`, and the fields that a function lacks."""
    for number, tool in enumerate(tools or ()):
        if elements.function(tool) is None and tool.get("type") not in written:
            yield Loss(f"tools[{number}]")
        elif "input_schema" in tool:
            fields = {name: value for name, value in tool.items() if value is not False}
            yield from _fields(f"tools[{number}]", fields, _TOOL_FIELDS)


def _fields(path: str, value: Mapping[Any, Any], carried: Collection[str]) -> Iterator[Loss]:
    """The non-empty fields, except those `carried` and marks of the provider's cache."""
    for name, field in value.items():
        if name not in carried and name != "cache_control" and field not in (None, [], {}):
            yield Loss(f"{path}.{name}" if path else str(name))


#: Fields of an image or document that every form carries.
MEDIA_FIELDS = frozenset({"type", "source", "title"})
_TOOL_FIELDS = frozenset({"name", "description", "strict", "input_schema", "type", "function", "custom"})
