"""Exchanges ──► a store, one after another, in a thread. No client notices a failure here."""

from __future__ import annotations

import os
import queue
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from ctxvc.errors import Refused, reason_of
from ctxvc.store.store import Store, create
from ctxvc.wire import trouble
from ctxvc.wire.exchange import MOST_WAITING, TOO_FAST, Answered, Exchange, Managed, Management, Requested
from ctxvc.wire.frames import Acknowledged, Sent, Settings, Trouble, received, send
from ctxvc.wire.sessions import Sessions

_T = TypeVar("_T")

#: Bytes read ahead of what is recorded: this much is recorded even if the sending process is killed.
_AHEAD = 8 << 20


class _Work(NamedTuple):
    """A task of the recorder; the fields are the arguments of `take`."""

    item: Exchange | Requested | Answered
    acknowledge: Callable[[Managed], None]
    again: bool


class Recorder:
    """Records exchanges into a store, one after another. `on_trouble` gets the first reason why one was not."""

    def __init__(
        self,
        open_store: Callable[[], Store],
        *,
        agent: str = "",
        session: str = "",
        folder: str = "",
        run: str = "",
        management: Management | None = None,
        on_trouble: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`agent` is the program's name, if known, `session` the session for everything, if any, and `run` is the same
        for recorders that replace one another.

        `open_store` is called in the recorder's own thread, when there is something to record.
        """
        self.manages = management is not None
        self._sessions = Sessions(
            open_store, agent=agent, session=session, folder=folder, run=run, management=management
        )
        self._on_trouble = on_trouble
        self._troubled = False
        self._queue: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._waiting = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def record(self, exchange: Exchange) -> None:
        """Puts an exchange into the queue; never waits, never raises."""
        self.take(exchange, lambda _: None)

    def ask(self, item: Requested | Answered) -> Future[Managed]:
        """What goes out instead of a request, or after an answer; an empty `Managed` after a failure."""
        future: Future[Managed] = Future()
        future.set_running_or_notify_cancel()  # so that a waiter cannot cancel it before it is set
        self.take(item, future.set_result)
        return future

    def take(
        self, item: Exchange | Requested | Answered, acknowledge: Callable[[Managed], None], *, again: bool = False
    ) -> None:
        """As `record` and `ask`. `acknowledge` is called in the recorder's thread, for an exchange once it is on disk
        or left out. With `again`, the exchange may already be recorded.
        """
        with self._changed:
            fits = self._waiting + item.size <= MOST_WAITING
            if fits:
                self._waiting += item.size
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="ctxvc-recorder", daemon=True)
                    self._thread.start()
                self._queue.put(_Work(item, acknowledge, again))
        if not fits:
            self._trouble(TOO_FAST)
            acknowledge(Managed())

    def wait(self, limit: int) -> None:
        """Returns once at most `limit` bytes wait."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting <= limit)

    def close(self) -> None:
        """Records what waits, and closes the store."""
        with self._changed:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._queue.put(None)
            thread.join()

    def _run(self) -> None:
        pending: list[_Work] = []  # exchanges that are not on disk yet
        while (work := self._queue.get()) is not None:
            subject = "" if isinstance(work.item, Exchange) else trouble.UNMANAGED
            managed = self._guarded(lambda work=work: self._do(work), subject)  # type: ignore[misc]
            with self._changed:
                self._waiting -= work.item.size
                self._changed.notify_all()
            if isinstance(work.item, Exchange):
                pending = self._settle([*pending, work])
            else:
                work.acknowledge(managed or Managed())
        self._guarded(self._sessions.close)
        self._settle(pending)

    def _do(self, work: _Work) -> Managed:
        match work.item:
            case Requested() as requested:
                return self._sessions.request(requested)
            case Answered() as answered:
                return self._sessions.answer(answered)
            case Exchange() as exchange:
                if not (work.again and self._sessions.has(exchange)):
                    self._sessions.take(exchange)
        return Managed()

    def _settle(self, exchanges: list[_Work]) -> list[_Work]:
        """Acknowledges the exchanges that are on disk; returns the others."""
        unfinished = {id(exchange) for exchange in self._sessions.unfinished()}
        for work in exchanges:
            if id(work.item) not in unfinished:
                work.acknowledge(Managed())
        return [work for work in exchanges if id(work.item) in unfinished]

    def _guarded(self, work: Callable[[], _T], subject: str = "") -> _T | None:
        try:
            return work()
        except Exception as error:  # our own fault must not end the recording of what comes next
            self._trouble(f"{subject}{reason_of(error)}")
        return None

    def _trouble(self, text: str) -> None:
        if not self._troubled:
            self._troubled = True
            self._on_trouble(text)


def open_recorder(
    store_path: Path,
    *,
    agent: str = "",
    session: str = "",
    cwd: Path,
    run: str = "",
    management: Management | None = None,
    on_trouble: Callable[[str], None],
) -> Recorder:
    """A recorder for the store at a path, which is created once there is something to record."""

    def open_store() -> Store:
        if not store_path.exists():
            with suppress(Refused):  # another process was faster
                return create(store_path)
        return Store(store_path)

    return Recorder(
        open_store,
        agent=agent,
        session=session,
        folder=str(cwd),
        run=run,
        management=management,
        on_trouble=on_trouble,
    )


def run(descriptor: int) -> None:
    """Records what comes over a socket until its end. `RecorderProcess` has the other side."""
    with socket.socket(fileno=descriptor) as connection:

        def reply(frame: Acknowledged | Trouble) -> None:
            with suppress(OSError):  # the other process has died; what it sent is recorded anyway
                send(connection, frame)

        def acknowledge(number: int, managed: Managed) -> None:
            reply(Acknowledged(number=number, managed=managed))

        frames = received(connection, Settings | Sent)
        settings = next(frames, None)
        if settings is None:
            return
        recorder = open_recorder(
            Path(os.fsdecode(settings.store)),
            agent=settings.agent,
            session=settings.session,
            cwd=Path(os.fsdecode(settings.folder)),
            run=settings.run,
            management=settings.management,
            on_trouble=lambda text: reply(Trouble(text=text)),
        )
        for sent in frames:
            recorder.take(sent.item, partial(acknowledge, sent.number), again=sent.again)
            del sent  # it may be large
            recorder.wait(_AHEAD)
        recorder.close()
