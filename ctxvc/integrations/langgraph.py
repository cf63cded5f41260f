"""A checkpointer of LangGraph: the state of a graph in a store, each thread as records in a session of its own.

Source: `BaseCheckpointSaver` of `langgraph.checkpoint.base`, and the suite `langgraph-checkpoint-conformance`.
"""

from __future__ import annotations

import asyncio
import base64
import math
import random
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import ormsgpack
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
)

from ctxvc.integrations.closeable import Closeable
from ctxvc.integrations.conversation import session_name
from ctxvc.integrations.records import Records, opened

_PREFIX = "langgraph-"
#: A value as the serialiser wrote it: the name of its form, and its bytes.
Typed = tuple[str, bytes]
#: Values of which it is remembered what they are without their secrets.
_COMPARED = 10_000
#: Levels of a value that is written as JSON; deeper ones are bytes.
_DEEPEST = 60


class CtxvcSaver(Closeable, BaseCheckpointSaver[str]):
    """`create_agent(…, checkpointer=CtxvcSaver(".ctxvc"))`. Use it in a `with` block, or `close` it.

    What was put is on the disk when `put` returns. A list that grows, as messages do, costs only what is new in it.
    Secrets become marks, except in values that `serde` pickles or encrypts. What is deleted or pruned is gone for
    LangGraph; history keeps it, until a person purges it.
    Each method raises CtxvcError where the store cannot be read or written.
    """

    def __init__(self, path: str | Path = ".ctxvc", *, serde: Any = None) -> None:
        super().__init__(serde=serde)
        self._store = opened(path)
        self._lock = threading.RLock()
        self._threads: dict[str, _Thread] = {}  # by the name of their session

    def close(self) -> None:
        """Commits everything and closes the files."""
        with self._lock:
            for thread in self._threads.values():
                thread.records.close()
            self._threads.clear()
            self._store.close()

    # --- what every checkpointer has

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Mapping[str, Any]) -> Any:
        """As in `BaseCheckpointSaver`."""
        place = config["configurable"]
        space, values = place.get("checkpoint_ns", ""), checkpoint["channel_values"]

        def value(thread: _Thread) -> Mapping[str, Any]:
            return {
                "put": checkpoint["id"],
                "ns": space,
                "parent": get_checkpoint_id(config),
                "checkpoint": self._plain({**checkpoint, "channel_values": {}}),
                "metadata": self._plain(get_checkpoint_metadata(config, metadata)),
                "values": [
                    [channel, version, self._channel(thread, space, channel, values[channel])]
                    for channel, version in new_versions.items()
                    if channel in values
                ],
            }

        self._thread(place["thread_id"]).add(value)
        return _config(place["thread_id"], space, checkpoint["id"])

    def put_writes(self, config: Any, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = "") -> None:
        """As in `BaseCheckpointSaver`."""
        place = config["configurable"]

        def value(_: _Thread) -> Mapping[str, Any]:
            return {
                "writes": [
                    [WRITES_IDX_MAP.get(channel, at), channel, self._plain(written)]
                    for at, (channel, written) in enumerate(writes)
                ],
                "to": place["checkpoint_id"],
                "ns": place.get("checkpoint_ns", ""),
                "task": task_id,
                "path": task_path,
            }

        self._thread(place["thread_id"]).add(value)

    def get_tuple(self, config: Any) -> CheckpointTuple | None:
        """As in `BaseCheckpointSaver`."""
        place = config["configurable"]
        thread, space = self._there(place["thread_id"]), place.get("checkpoint_ns", "")
        if thread is None:
            return None
        with thread.lock:
            points = thread.current().get(space, {})
            return self._tuple(thread, space, get_checkpoint_id(config) or max(points, default=""))

    def list(
        self, config: Any, *, filter: dict[str, Any] | None = None, before: Any = None, limit: int | None = None
    ) -> Iterator[CheckpointTuple]:
        """As in `BaseCheckpointSaver`: newest first."""
        place = config["configurable"] if config else {}
        space, point = place.get("checkpoint_ns"), get_checkpoint_id(config) if config else None
        end = get_checkpoint_id(before) if before else None
        criteria = (filter or {}).items()
        count = 0
        for thread in (self._there(place["thread_id"]),) if config else self._all():
            for name, points in [*thread.current().items()] if thread else ():
                for at in sorted(points, reverse=True) if space in (None, name) else ():
                    if limit is not None and count >= limit:
                        return
                    if thread and point in (None, at) and (end is None or at < end):
                        saved = self._tuple(thread, name, at)
                        if saved and all(saved.metadata.get(key) == value for key, value in criteria):
                            count += 1
                            yield saved

    def delete_thread(self, thread_id: str) -> None:
        """As in `BaseCheckpointSaver`."""
        if thread := self._there(thread_id):
            thread.add(lambda _: {"drop": None})

    # --- what some have

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """As in `BaseCheckpointSaver`."""
        for thread in self._all():
            thread.drop(lambda _, point: self._loaded(point.metadata).get("run_id") in run_ids)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """As in `BaseCheckpointSaver`: all that ever was in the source, so that every value can be rebuilt."""
        if source := self._there(source_thread_id):
            values = [*source.records.newest_first()][::-1]
            self._thread(target_thread_id).add(*[lambda _, value=value: value for value in values])

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """As in `BaseCheckpointSaver`; ancestors of which a kept checkpoint's values are rebuilt stay."""
        for thread in filter(None, map(self._there, thread_ids)):
            with thread.lock:
                needed = self._needed(thread) if strategy == "keep_latest" else set()
                thread.drop(lambda place, _: place not in needed)  # noqa: B023

    # --- the same for asyncio, in a thread

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        return await asyncio.to_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        await asyncio.to_thread(self.put_writes, config, writes, task_id, task_path)

    async def aget_tuple(self, config: Any) -> CheckpointTuple | None:
        return await asyncio.to_thread(self.get_tuple, config)

    async def alist(
        self, config: Any, *, filter: dict[str, Any] | None = None, before: Any = None, limit: int | None = None
    ) -> AsyncIterator[CheckpointTuple]:
        tuples = self.list(config, filter=filter, before=before, limit=limit)
        while (saved := await asyncio.to_thread(next, tuples, None)) is not None:
            yield saved

    async def adelete_thread(self, thread_id: str) -> None:
        await asyncio.to_thread(self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await asyncio.to_thread(self.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await asyncio.to_thread(self.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        await asyncio.to_thread(lambda: self.prune(thread_ids, strategy=strategy))

    def get_next_version(self, current: str | None, channel: Any) -> str:  # noqa: ARG002 - as the base has it
        """A version that follows `current`, and that no other branch of the thread has."""
        number = int(str(current).partition(".")[0]) if current else 0
        return f"{number + 1:032}.{random.random():016}"  # noqa: S311 - it only has to differ

    # --- threads

    def _thread(self, thread_id: str) -> _Thread:
        """The thread, which is made where it is not."""
        return self._opened(session_name(f"{_PREFIX}{thread_id}"), thread_id)

    def _there(self, thread_id: str) -> _Thread | None:
        name = session_name(f"{_PREFIX}{thread_id}")
        return self._opened(name, thread_id) if name in self._threads or self._store.has(name) else None

    def _all(self) -> Sequence[_Thread]:
        return [self._opened(name) for name in self._store.sessions() if name.startswith(_PREFIX)]

    def _opened(self, session: str, thread_id: str = "") -> _Thread:
        with self._lock:
            if session not in self._threads:
                self._threads[session] = _Thread(Records(self._store, session), thread_id)
            return self._threads[session]

    # --- values

    def _plain(self, value: Any) -> Sequence[Any]:
        return _text(self.serde.dumps_typed(value))

    def _channel(self, thread: _Thread, space: str, channel: str, value: Any) -> dict[str, Any]:
        """The value of a channel as it is recorded: a list as what it does not share with the one before."""
        if type(value) is not list:
            return {"value": self._plain(value)}
        items = [thread.without_secrets(self.serde.dumps_typed(item)) for item in value]
        base = thread.newest_list.get((space, channel))
        earlier = thread.values.get((space, channel, base)) if base else None
        pairs = zip(items, earlier if isinstance(earlier, list) else (), strict=False)
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        return {"base": base, "shared": shared, "items": [_text(item) for item in items[shared:]]}

    def _loaded(self, typed: Typed) -> Any:
        return self.serde.loads_typed(typed)

    def _tuple(self, thread: _Thread, space: str, name: str) -> CheckpointTuple | None:
        with thread.lock:
            point = thread.current().get(space, {}).get(name)
            if point is None:
                return None
            checkpoint = self._loaded(point.checkpoint)
            values: dict[str, Any] = {}
            for channel, version in checkpoint["channel_versions"].items():
                stored = thread.values.get((space, channel, version))
                if stored is not None:
                    values[channel] = [*map(self._loaded, stored)] if isinstance(stored, list) else self._loaded(stored)
            writes = sorted(thread.writes.get((space, name), {}).items(), key=lambda item: (item[1].path, *item[0]))
        return CheckpointTuple(
            config=_config(thread.name, space, name),
            checkpoint={**checkpoint, "channel_values": values},
            metadata=self._loaded(point.metadata),
            parent_config=_config(thread.name, space, point.parent) if point.parent else None,
            pending_writes=[(task, write.channel, self._loaded(write.value)) for (task, _), write in writes],
        )

    def _needed(self, thread: _Thread) -> set[tuple[str, str]]:
        """The newest checkpoint of each namespace, and the ancestors that hold what it is rebuilt from."""
        needed = set()
        for space, points in thread.current().items():
            name: str | None = max(points, default=None)
            # Channels that are stored as changes since a snapshot: the walk ends where each has a value.
            open_channels = (
                set(self._loaded(points[name].metadata).get("counters_since_delta_snapshot", ())) if name else set()
            )
            while name in points:
                needed.add((space, name))
                versions = self._loaded(points[name].checkpoint)["channel_versions"]
                open_channels -= {c for c in open_channels if (space, c, versions.get(c)) in thread.values}
                name = points[name].parent if open_channels else None
        return needed


class _Point(NamedTuple):
    """A checkpoint without the values of its channels."""

    checkpoint: Typed
    metadata: Typed
    parent: str | None


class _Write(NamedTuple):
    channel: str
    value: Typed
    path: str


class _Thread:
    """A thread as its records say. `values` has the channels' values by namespace, channel and version."""

    def __init__(self, records: Records, name: str) -> None:
        self.records = records
        self.name = name
        self.lock = threading.RLock()
        self.points: dict[str, dict[str, _Point]] = {}
        self.writes: dict[tuple[str, str], dict[tuple[str, int], _Write]] = {}
        self.values: dict[tuple[str, str, Any], Typed | list[Typed]] = {}
        self.newest_list: dict[tuple[str, str], Any] = {}  # namespace and channel → the version of its newest list
        self._clean: dict[Typed, Typed] = {}  # a value → the same without secrets

    def add(self, *make: Callable[[_Thread], Mapping[str, Any]]) -> None:
        """Records what each of `make` gives, all at once, on the disk when this returns."""

        def values() -> list[Mapping[str, Any]]:
            self.current()
            return [{**one(self), "thread": self.name} for one in make]

        with self.lock:
            self.records.append(values)
            self.current()

    def drop(self, selects: Callable[[tuple[str, str], _Point], bool]) -> None:
        """Takes out the checkpoints that `selects` names, by namespace and id."""
        with self.lock:
            places = [
                (space, name, point) for space, points in self.current().items() for name, point in points.items()
            ]
            dropped = [[space, name] for space, name, point in places if selects((space, name), point)]
            if dropped:
                self.add(lambda _: {"drop": dropped})

    def current(self) -> dict[str, dict[str, _Point]]:
        """The checkpoints by namespace and id, with what others have added."""
        with self.lock:
            for value in self.records.new():
                self._apply(value)
            return self.points

    def without_secrets(self, typed: Typed) -> Typed:
        """The value as it is once it is recorded, to compare it with what was."""
        if typed not in self._clean:
            if len(self._clean) > _COMPARED:
                self._clean.clear()
            self._clean[typed] = _typed(self.records.redacted(_text(typed)))
        return self._clean[typed]

    def _apply(self, value: Mapping[str, Any]) -> None:
        self.name = value["thread"]
        if "put" in value:
            space = value["ns"]
            point = _Point(_typed(value["checkpoint"]), _typed(value["metadata"]), value["parent"])
            self.points.setdefault(space, {})[value["put"]] = point
            for channel, version, recorded in value["values"]:
                self._store_value(space, channel, version, recorded)
        elif "writes" in value:
            writes = self.writes.setdefault((value["ns"], value["to"]), {})
            for at, channel, text in value["writes"]:
                key = (value["task"], at)
                if at < 0 or key not in writes:  # only what is no ordinary write may be written again
                    writes[key] = _Write(channel, _typed(text), value["path"])
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


def _config(thread: str, space: str, point: str) -> Any:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": space, "checkpoint_id": point}}


# --- values as JSON: readable, so that secrets are found in them before they are written, and by a purge later


def _text(typed: Typed) -> Sequence[Any]:
    form, data = typed
    return [form, (_tree(data) if form == "msgpack" else None) or {"bytes": base64.b64encode(data).decode("ascii")}]


def _typed(text: Sequence[Any]) -> Typed:
    return text[0], _bytes(text[1])


def _tree(data: bytes) -> dict[str, Any] | None:
    """MessagePack as JSON; None for what is none, or would not come back byte for byte."""
    try:
        value = ormsgpack.unpackb(data, ext_hook=_Extension, option=ormsgpack.OPT_NON_STR_KEYS)
        tree = {"value": _plain_json(value, 0)}
        return tree if _bytes(tree) == data else None
    except (ValueError, TypeError):  # MessagePack's own errors are values', too
        return None


class _Extension(NamedTuple):
    tag: int
    data: bytes


def _plain_json(value: Any, depth: int) -> Any:
    """Raises: ValueError if it is nested too deep."""
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
    """What `_tree` was made of."""
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
