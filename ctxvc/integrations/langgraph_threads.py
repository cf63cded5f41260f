"""Threads of LangGraph, rebuilt from their records, and the form in which values are recorded."""

from __future__ import annotations

import base64
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import ormsgpack

from ctxvc.integrations.records import Records

#: A value as the serialiser wrote it: the name of its form, and its bytes.
Typed = tuple[str, bytes]
#: The most values that are remembered in their form without secrets.
_COMPARED = 10_000
#: The most levels of a value that is written as JSON; a deeper one is written as bytes.
_DEEPEST = 60


class Point(NamedTuple):
    """A checkpoint without the values of its channels."""

    checkpoint: Typed
    metadata: Typed
    parent: str | None


class Write(NamedTuple):
    channel: str
    value: Typed
    path: str


class Thread:
    """A thread, rebuilt from its records. `values` has the channels' values by namespace, channel and version."""

    def __init__(self, records: Records, name: str) -> None:
        self.records = records
        self.name = name
        self.lock = threading.RLock()
        self.points: dict[str, dict[str, Point]] = {}
        self.writes: dict[tuple[str, str], dict[tuple[str, int], Write]] = {}
        self.values: dict[tuple[str, str, Any], Typed | list[Typed]] = {}
        self.newest_list: dict[tuple[str, str], Any] = {}  # namespace and channel → the version of its newest list
        self._clean: dict[Typed, Typed] = {}  # a value → the same without secrets

    def add(self, *make: Callable[[Thread], Mapping[str, Any]]) -> None:
        """Records what each of `make` returns, all at once; on disk when this returns."""

        def values() -> list[Mapping[str, Any]]:
            self.current()
            return [{**one(self), "thread": self.name} for one in make]

        with self.lock:
            self.records.append(values)
            self.current()

    def drop(self, selects: Callable[[tuple[str, str], Point], bool]) -> None:
        """Removes the checkpoints for which `selects`, given (namespace, id) and the checkpoint, is true."""
        with self.lock:
            places = [
                (space, name, point) for space, points in self.current().items() for name, point in points.items()
            ]
            dropped = [[space, name] for space, name, point in places if selects((space, name), point)]
            if dropped:
                self.add(lambda _: {"drop": dropped})

    def current(self) -> dict[str, dict[str, Point]]:
        """The checkpoints by namespace and id, including those that others have added."""
        with self.lock:
            for value in self.records.new():
                self._apply(value)
            return self.points

    def without_secrets(self, typed: Typed) -> Typed:
        """The value as it is once recorded, for comparison with recorded ones."""
        if typed not in self._clean:
            if len(self._clean) > _COMPARED:
                self._clean.clear()
            self._clean[typed] = _typed(self.records.redacted(as_json(typed)))
        return self._clean[typed]

    def _apply(self, value: Mapping[str, Any]) -> None:
        self.name = value["thread"]
        if "put" in value:
            space = value["ns"]
            point = Point(_typed(value["checkpoint"]), _typed(value["metadata"]), value["parent"])
            self.points.setdefault(space, {})[value["put"]] = point
            for channel, version, recorded in value["values"]:
                self._store_value(space, channel, version, recorded)
        elif "writes" in value:
            writes = self.writes.setdefault((value["ns"], value["to"]), {})
            for at, channel, text in value["writes"]:
                key = (value["task"], at)
                if at < 0 or key not in writes:  # only special writes may be overwritten
                    writes[key] = Write(channel, _typed(text), value["path"])
        elif value["drop"] is None:
            for index in (self.points, self.writes, self.values, self.newest_list):
                index.clear()
        else:
            for space, name in value["drop"]:
                self.points.get(space, {}).pop(name, None)
                self.writes.pop((space, name), None)

    def _store_value(self, space: str, channel: str, version: Any, recorded: Mapping[str, Any]) -> None:
        if "value" in recorded:
            self.values[space, channel, version] = _typed(recorded["value"])
            return
        base = self.values.get((space, channel, recorded["base"]), [])
        shared = base[: recorded["shared"]] if isinstance(base, list) else []
        self.values[space, channel, version] = [*shared, *map(_typed, recorded["items"])]
        self.newest_list[space, channel] = version


# --- values as JSON: readable, so that secrets are found in them before they are written, and by a purge later


def as_json(typed: Typed) -> Sequence[Any]:
    form, data = typed
    return [form, (_tree(data) if form == "msgpack" else None) or {"bytes": base64.b64encode(data).decode("ascii")}]


def _typed(text: Sequence[Any]) -> Typed:
    return text[0], _bytes(text[1])


def _tree(data: bytes) -> dict[str, Any] | None:
    """MessagePack as JSON; None if it is not MessagePack, or would not come back byte for byte."""
    try:
        value = ormsgpack.unpackb(data, ext_hook=_Extension, option=ormsgpack.OPT_NON_STR_KEYS)
        tree = {"value": _plain_json(value, 0)}
        return tree if _bytes(tree) == data else None
    except (ValueError, TypeError):  # MessagePack's own errors are ValueErrors, too
        return None


class _Extension(NamedTuple):
    tag: int
    data: bytes


def _plain_json(value: Any, depth: int) -> Any:
    """A value as JSON. Raises: ValueError if it is nested too deep."""
    if depth > _DEEPEST:
        raise ValueError("nested too deep")
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {"float": str(value)}
        case bytes():
            return {"bytes": base64.b64encode(value).decode("ascii")}
        case list():
            return [_plain_json(item, depth + 1) for item in value]
        case _Extension(tag, data):
            return {"extension": tag, **(_tree(data) or {"bytes": base64.b64encode(data).decode("ascii")})}
    pairs = [[_plain_json(key, depth + 1), _plain_json(item, depth + 1)] for key, item in value.items()]
    return {"map": pairs}


def _bytes(tree: Mapping[str, Any]) -> bytes:
    """The bytes that `_tree` was given."""
    if "bytes" in tree:
        return base64.b64decode(tree["bytes"])
    data: bytes = ormsgpack.packb(_unpacked(tree["value"]), option=ormsgpack.OPT_NON_STR_KEYS)
    return data


def _unpacked(value: Any) -> Any:
    match value:
        case {"extension": int(tag)}:
            return ormsgpack.Ext(tag, _bytes(value))
        case {"bytes": str(text)}:
            return base64.b64decode(text)
        case {"float": str(text)}:
            return float(text)
        case {"map": list(pairs)}:
            return {_unpacked(key): _unpacked(item) for key, item in pairs}
        case list():
            return [*map(_unpacked, value)]
    return value
