"""What a conversion could not carry, by the place where it stood."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import FOREIGN
from ctxvc.core.prompt.outline import Piece
from ctxvc.forms import elements


class Loss(msgspec.Struct, frozen=True):
    """A part of the source that the other form has no place for.

    `path` is where it stood, as in `messages[3].content[0].title`. `change` says what stands in its place, and is empty
    where nothing does.
    """

    path: str
    change: str = ""


class Converted(msgspec.Struct, frozen=True):
    """A request or reply in another form, and what it lost on the way."""

    value: dict[str, Any]
    losses: tuple[Loss, ...] = ()


class Place:
    """A place in the source of a conversion: what is lost there is noted in the list that all its places share."""

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
        """Nothing stands for what is here."""
        self._losses.append(Loss(self.path))

    def change(self, change: str) -> None:
        """Something else stands for what is here."""
        self._losses.append(Loss(self.path, change))

    def drop_except(self, value: Mapping[Any, Any], *carried: str) -> None:
        """Nothing stands for the fields that say something, but for those that were `carried`."""
        self._losses += _fields(self.path, value, carried)


def lost_fields(piece: Piece, carried: Collection[str] = ()) -> Iterator[Loss]:
    """The fields of a block's own that OpenAI's forms do not have, but for those that were `carried`."""
    is_block = piece.ext == "json" and piece.kind in ("image", "document")
    fields = (wire.parsed(piece.body, dict) or {}) if is_block else piece.extra
    yield from _fields(piece.block, fields, (*carried, *FOREIGN))


def lost_in_item(path: str, item: Mapping[str, Any]) -> Iterator[Loss]:
    """The fields of a text in a result that OpenAI's forms do not have."""
    yield from _fields(path, item, ("type", "text"))


def lost_tools(tools: Any, written: Collection[str] = ()) -> Iterator[Loss]:
    """The tools that are no functions, unless their type is one of `written`, and fields that a function lacks."""
    for number, tool in enumerate(tools or ()):
        if elements.function(tool) is None and tool.get("type") not in written:
            yield Loss(f"tools[{number}]")
        elif "input_schema" in tool:
            fields = {name: value for name, value in tool.items() if value is not False}
            yield from _fields(f"tools[{number}]", fields, _TOOL_FIELDS)


def _fields(path: str, value: Mapping[Any, Any], carried: Collection[str]) -> Iterator[Loss]:
    """The fields that say something, but for those that were `carried` and marks of the provider's cache."""
    for name, field in value.items():
        if name not in carried and name != "cache_control" and field not in (None, [], {}):
            yield Loss(f"{path}.{name}" if path else str(name))


#: What an image or document keeps of its own in every form.
MEDIA_FIELDS = frozenset({"type", "source", "title"})
_TOOL_FIELDS = frozenset({"name", "description", "strict", "input_schema", "type", "function", "custom"})
