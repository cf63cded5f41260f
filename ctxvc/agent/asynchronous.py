"""The adapter for `asyncio`: the same methods, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ctxvc.agent.adapter import Adapter
from ctxvc.agent.call import Reply
from ctxvc.core.ledger.block import Message, Origin
from ctxvc.session.session import Session

_T = TypeVar("_T")


class AsyncAdapter:
    """An `Adapter` whose methods are awaited: for loops on `AsyncAnthropic`.

    Most of its work takes milliseconds, but a record waits for the disk, a flush for git, and a search reads all there
    is: so it runs in a thread, one call at a time. What a cancelled task had begun is finished all the same.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self._adapter = Adapter(session)
        self._turn = asyncio.Lock()  # those who wait for their turn take no thread

    async def append(self, *messages: Mapping[str, Any] | Message, origin: Origin = "human") -> list[str]:
        """As `Adapter.append`."""
        return await self._run(lambda: self._adapter.append(*messages, origin=origin))

    async def request(self, **more: Any) -> dict[str, Any]:
        """As `Adapter.request`, for `AsyncAnthropic`."""
        return await self._run(lambda: self._adapter.request(**more))

    async def record(self, response: object) -> Reply:
        """As `Adapter.record`."""
        return await self._run(lambda: self._adapter.record(response))

    async def handle(self, call: object) -> dict[str, Any] | None:
        """As `Adapter.handle`."""
        return await self._run(lambda: self._adapter.handle(call))

    async def results(self, results: Sequence[Mapping[str, Any]], *, shown: Mapping[str, str] = {}) -> list[str]:
        """As `Adapter.results`."""
        return await self._run(lambda: self._adapter.results(results, shown=shown))

    async def relieve(self) -> int:
        """As `Adapter.relieve`."""
        return await self._run(self._adapter.relieve)

    async def _run(self, work: Callable[[], _T]) -> _T:
        async with self._turn:
            return await asyncio.to_thread(work)
