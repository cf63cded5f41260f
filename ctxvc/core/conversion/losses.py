"""What a conversion could not carry, by the place where it stood."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec


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
        self._path = path

    def at(self, *keys: str | int) -> Place:
        """The place below this one."""
        path = self._path
        for key in keys:
            path += f"[{key}]" if isinstance(key, int) else f".{key}" if path else key
        return Place(self._losses, path)

    def drop(self) -> None:
        """Nothing stands for what is here."""
        self._losses.append(Loss(self._path))

    def change(self, change: str) -> None:
        """Something else stands for what is here."""
        self._losses.append(Loss(self._path, change))

    def drop_except(self, value: Mapping[Any, Any], *carried: str) -> None:
        """Nothing stands for the fields that say something, but for those that were `carried`."""
        for name, field in value.items():
            if name not in carried and name not in _UNSAID and field not in (None, [], {}):
                self.at(str(name)).drop()


#: Marks of a request that say nothing about the conversation: where the provider may keep its cache.
_UNSAID: Collection[str] = frozenset({"cache_control"})
