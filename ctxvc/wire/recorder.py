"""Exchanges ──► a store: beside the path, in a thread of its own. What fails here, no client notices."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from ctxvc.errors import CtxvcError
from ctxvc.store.store import Store, create
from ctxvc.wire.exchange import Answered, Exchange, Managed, Requested
from ctxvc.wire.sessions import Sessions

#: Bytes of exchanges that wait at most; what comes beyond is not recorded.
_MOST_WAITING = 256 << 20


class Recorder:
    """Records exchanges into a store, one after another. `on_trouble` gets, once, what kept one from being recorded."""

    manages = False

    def __init__(
        self,
        open_store: Callable[[], Store],
        *,
        agent: str = "",
        session: str = "",
        folder: str = "",
        on_trouble: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`agent` is the program's name where it is known, `session` the one that all of it belongs to, if any.

        `open_store` is called in the recorder's own thread, when there is something to record.
        """
        self._sessions = Sessions(open_store, agent=agent, session=session, folder=folder)
        self._on_trouble = on_trouble
        self._troubled = False
        self._queue: queue.SimpleQueue[Exchange | None] = queue.SimpleQueue()
        self._waiting = 0
        self._mutex = threading.Lock()
        self._thread: threading.Thread | None = None

    def request(self, _requested: Requested) -> Future[Managed]:
        return _nothing()

    def answer(self, _answered: Answered) -> Future[Managed]:
        return _nothing()

    def record(self, exchange: Exchange) -> None:
        """Takes an exchange; never waits, never raises."""
        size = len(exchange.body) + len(exchange.answer)
        with self._mutex:
            if self._waiting + size > _MOST_WAITING:
                self._trouble("requests come faster than they can be recorded; one was left out")
                return
            self._waiting += size
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="ctxvc-recorder", daemon=True)
                self._thread.start()
            self._queue.put(exchange)

    def close(self) -> None:
        """Records what waits, and closes the store."""
        with self._mutex:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._queue.put(None)
            thread.join()

    def _run(self) -> None:
        while (exchange := self._queue.get()) is not None:
            self._guarded(lambda exchange=exchange: self._sessions.take(exchange))  # type: ignore[misc]
            with self._mutex:
                self._waiting -= len(exchange.body) + len(exchange.answer)
        self._guarded(self._sessions.close)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except CtxvcError as error:
            self._trouble(str(error))
        except Exception as error:  # a fault of ours must not end the recording of what comes next
            self._trouble(f"{type(error).__name__}: {error}")

    def _trouble(self, text: str) -> None:
        if not self._troubled:
            self._troubled = True
            self._on_trouble(text)


def _nothing() -> Future[Managed]:
    future: Future[Managed] = Future()
    future.set_result(Managed())
    return future


def open_recorder(
    store_path: Path, *, agent: str, session: str = "", cwd: Path, on_trouble: Callable[[str], None]
) -> Recorder:
    """A recorder into the store at that path, which is created once there is something to record."""

    def open_store() -> Store:
        return Store(store_path) if store_path.exists() else create(store_path)

    return Recorder(open_store, agent=agent, session=session, folder=str(cwd), on_trouble=on_trouble)
