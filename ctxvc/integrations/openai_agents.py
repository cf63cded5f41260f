"""A session for the OpenAI Agents SDK: its items in a store, unchanged.

Source: `Session` of `agents.memory`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agents.memory.session import SessionABC

from ctxvc.integrations.records import Closeable, Records, opened, session_name

_PREFIX = "openai-agents-"


class CtxvcSession(Closeable, SessionABC):
    """`Runner.run(agent, task, session=CtxvcSession("fix-login", ".ctxvc"))`. Use it in a `with` block, or `close` it.

    Items are on disk when `add_items` returns; they come back in this process and the next, even if this one is killed.
    They come back unchanged, except that secrets become marks. What is popped or cleared is gone for the SDK; history
    keeps it until a person purges it.
    All methods raise CtxvcError if the store cannot be read or written.
    """

    session_settings = None

    def __init__(self, session_id: str, path: str | Path = ".ctxvc") -> None:
        self.session_id = session_id
        self._store = opened(path)
        self._records = Records(self._store, session_name(f"{_PREFIX}{session_id}"))
        self._lock = threading.RLock()
        self._items: list[Any] = []

    def close(self) -> None:
        """Commits everything and closes the files."""
        with self._lock:
            self._records.close()
            self._store.close()

    # --- what the SDK calls

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """The items, oldest first; with a `limit`, only the newest ones."""
        items = await asyncio.to_thread(self._current)
        return items if limit is None else items[max(0, len(items) - limit) :]

    async def add_items(self, items: list[Any]) -> None:
        """Adds items after all others."""
        await asyncio.to_thread(self._add, items)

    async def pop_item(self) -> Any:
        """Removes and returns the newest item; None if there is none."""
        return await asyncio.to_thread(self._pop)

    async def clear_session(self) -> None:
        """Removes all items."""
        await asyncio.to_thread(self._change, [{"clear": True}])

    # --- inside

    def _add(self, items: Sequence[Any]) -> None:
        self._change([{"item": _plain(item)} for item in items])

    def _change(self, values: Sequence[Mapping[str, Any]]) -> None:
        with self._lock:
            self._records.append(lambda: values)

    def _pop(self) -> Any:
        popped: list[Any] = []

        def value() -> list[Mapping[str, Any]]:
            popped[:] = self._current()[-1:]
            return [{"pop": True}] if popped else []

        with self._lock:
            self._records.append(value)
        return popped[0] if popped else None

    def _current(self) -> list[Any]:
        """All items, including those that others have added."""
        with self._lock:
            for value in self._records.new():
                if "item" in value:
                    self._items.append(value["item"])
                else:
                    del self._items[0 if "clear" in value else -1 :]
            return list(self._items)


def _plain(item: Any) -> Any:
    """An item as a dictionary."""
    return dict(item) if isinstance(item, Mapping) else item.model_dump(mode="json", exclude_unset=True)
