"""A checkpointer for LangGraph: the state of a graph in a store, each thread as records in a session of its own.

Source: `BaseCheckpointSaver` of `langgraph.checkpoint.base`, and the suite `langgraph-checkpoint-conformance`.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
)

from ctxvc.integrations.langgraph_threads import Thread, Typed, as_json
from ctxvc.integrations.records import Closeable, Records, opened, session_name

_PREFIX = "langgraph-"


class CtxvcSaver(Closeable, BaseCheckpointSaver[str]):
    """`create_agent(…, checkpointer=CtxvcSaver(".ctxvc"))`. Use it in a `with` block, or `close` it.

    A checkpoint is on disk when `put` returns. A list that grows, as messages do, costs only what is new in it. Secrets
    become marks, except in values that `serde` pickles or encrypts. What is deleted or pruned is gone for LangGraph;
    history keeps it until a person purges it.
    All methods raise CtxvcError if the store cannot be read or written.
    """

    def __init__(self, path: str | Path = ".ctxvc", *, serde: Any = None) -> None:
        super().__init__(serde=serde)
        self._store = opened(path)
        self._lock = threading.RLock()
        self._threads: dict[str, Thread] = {}  # by the name of their session

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

        def value(thread: Thread) -> Mapping[str, Any]:
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

        def value(_: Thread) -> Mapping[str, Any]:
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
        """As in `BaseCheckpointSaver`: everything that ever was in the source, so that every value can be rebuilt."""
        if source := self._there(source_thread_id):
            values = [*source.records.newest_first()][::-1]
            self._thread(target_thread_id).add(*[lambda _, value=value: value for value in values])

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """As in `BaseCheckpointSaver`; ancestors needed to rebuild a kept checkpoint's values stay."""
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
        """A version that follows `current` and that no other branch of the thread has."""
        number = int(str(current).partition(".")[0]) if current else 0
        return f"{number + 1:032}.{random.random():016}"  # noqa: S311 - it only has to differ

    # --- threads

    def _thread(self, thread_id: str) -> Thread:
        """The thread, created if missing."""
        return self._opened(session_name(f"{_PREFIX}{thread_id}"), thread_id)

    def _there(self, thread_id: str) -> Thread | None:
        name = session_name(f"{_PREFIX}{thread_id}")
        return self._opened(name, thread_id) if name in self._threads or self._store.has(name) else None

    def _all(self) -> Sequence[Thread]:
        return [self._opened(name) for name in self._store.sessions() if name.startswith(_PREFIX)]

    def _opened(self, session: str, thread_id: str = "") -> Thread:
        with self._lock:
            if session not in self._threads:
                self._threads[session] = Thread(Records(self._store, session), thread_id)
            return self._threads[session]

    # --- values

    def _plain(self, value: Any) -> Sequence[Any]:
        return as_json(self.serde.dumps_typed(value))

    def _channel(self, thread: Thread, space: str, channel: str, value: Any) -> dict[str, Any]:
        """The value of a channel as recorded; of a list, only the items that it does not share with the last one."""
        if type(value) is not list:
            return {"value": self._plain(value)}
        items = [thread.without_secrets(self.serde.dumps_typed(item)) for item in value]
        base = thread.newest_list.get((space, channel))
        earlier = thread.values.get((space, channel, base)) if base else None
        pairs = zip(items, earlier if isinstance(earlier, list) else (), strict=False)
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        return {"base": base, "shared": shared, "items": [as_json(item) for item in items[shared:]]}

    def _loaded(self, typed: Typed) -> Any:
        return self.serde.loads_typed(typed)

    def _tuple(self, thread: Thread, space: str, name: str) -> CheckpointTuple | None:
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

    def _needed(self, thread: Thread) -> set[tuple[str, str]]:
        """The newest checkpoint of each namespace, and the ancestors that it is rebuilt from."""
        needed = set()
        for space, points in thread.current().items():
            name: str | None = max(points, default=None)
            # Some channels are stored as changes since a snapshot: the walk ends where each has a value.
            open_channels = (
                set(self._loaded(points[name].metadata).get("counters_since_delta_snapshot", ())) if name else set()
            )
            while name in points:
                needed.add((space, name))
                versions = self._loaded(points[name].checkpoint)["channel_versions"]
                open_channels -= {c for c in open_channels if (space, c, versions.get(c)) in thread.values}
                name = points[name].parent if open_channels else None
        return needed


def _config(thread: str, space: str, point: str) -> Any:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": space, "checkpoint_id": point}}
