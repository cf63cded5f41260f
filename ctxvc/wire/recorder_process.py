"""A recorder in a process of its own, so that recording takes no time from what passes here.

If that process dies, another takes its place and gets what was not on disk yet. If this one dies, the recorder records
what it has received, and ends.
"""

from __future__ import annotations

import math
import os
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext, suppress
from pathlib import Path

import msgspec

from ctxvc.errors import CtxvcError, reason_of
from ctxvc.store.files import locked
from ctxvc.wire.exchange import MOST_WAITING, TOO_FAST, Answered, Exchange, Managed, Management, Requested
from ctxvc.wire.frames import Acknowledged, Sent, Settings, Trouble, received, send

#: How often in a row a recorder may die without having done anything before its first item is left out; the seconds
#: of life after which it is replaced at once; and the seconds to wait if it died sooner.
_DEATHS, _LIVED, _WAIT = 10, 1.0, 0.2
#: Seconds after which a recorder that owes an answer is killed. An answer takes some hundredths of a second, the first
#: of a long conversation a few seconds.
_PATIENCE = 30.0


class RecorderProcess:
    """Records exchanges into the store at a path, which is created once there is something to record.

    `on_trouble` gets the first reason why an exchange was not recorded. Only `close` waits for the recorder.
    """

    def __init__(
        self,
        store: Path,
        *,
        agent: str = "",
        session: str = "",
        folder: Path = Path(),
        run: str = "",
        management: Management | None = None,
        turn: Path | None = None,
        on_trouble: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`agent` is the program's name, if known, `session` the session for everything, if any, and `run` is the same
        for processes that replace one another.

        `turn` is a file that recorders lock in turn, for when this process replaces a killed one whose recorder may
        still be at work.
        """
        self.manages = management is not None
        self._settings = Settings(
            store=os.fsencode(store),
            agent=agent,
            session=session,
            folder=os.fsencode(folder),
            run=run or uuid.uuid4().hex,
            management=management,
        )
        self._turn = turn
        self._on_trouble = on_trouble
        self._troubled = self._closing = False
        self._number = self._waiting = self._deaths = 0
        self._unsent: deque[Sent] = deque()
        self._sent: dict[int, Sent] = {}  # what the recorder has got and not finished, in order
        self._futures: dict[int, Future[Managed]] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._recorder: _Process | None = None
        self._at_once = self.manages
        if self.manages:
            with self._changed:
                self._begin()

    def record(self, exchange: Exchange) -> None:
        """Puts an exchange into the queue; never waits, never raises."""
        self._put(exchange)

    def close(self) -> None:
        """Returns once everything in the queue is recorded."""
        with self._changed:
            thread, self._closing = self._thread, True
            self._changed.notify_all()
        if thread:
            thread.join()

    def ask(self, item: Requested | Answered) -> Future[Managed]:
        """What goes out instead of a request, or after an answer; an empty `Managed` if the recorder dies or hangs."""
        future: Future[Managed] = Future()
        future.set_running_or_notify_cancel()  # so that a waiter cannot cancel it before it is set
        if not self._put(item, future):
            future.set_result(Managed())
            return future
        patience = threading.Timer(_PATIENCE, self._end_hung, [future])
        patience.daemon = True
        with suppress(RuntimeError):  # the interpreter is ending
            patience.start()
        future.add_done_callback(lambda _: patience.cancel())
        return future

    def _end_hung(self, future: Future[Managed]) -> None:
        """Kills the recorder if it still owes this answer, so that another takes its place."""
        with self._changed:
            recorder = None if future.done() else self._recorder
        if recorder:
            recorder.kill()
            self._trouble(f"the recorder did not answer within {_PATIENCE:.0f} s, so another one was started")

    def _put(self, item: Exchange | Requested | Answered, future: Future[Managed] | None = None) -> bool:
        """Puts an item into the queue; returns whether there was room."""
        with self._changed:
            fits = self._waiting + item.size <= MOST_WAITING and self._begin()
            if fits:
                self._number += 1
                self._waiting += item.size
                self._unsent.append(Sent(number=self._number, item=item))
                if future:
                    self._futures[self._number] = future
                self._changed.notify_all()
        if not fits:
            self._trouble(TOO_FAST)
        return fits

    def _begin(self) -> bool:
        """Starts the thread; returns False if that is not possible, as while the interpreter ends."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="ctxvc-recorder", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return False
            self._thread = thread
        return True

    # --- in the recorder's thread

    def _run(self) -> None:
        while self._goes_on():
            start = time.monotonic()
            try:
                # Locked here and not by the recorder, which may start later than the next one.
                with locked(self._turn, timeout=math.inf) if self._turn else nullcontext() as turn:
                    self._serve(turn)
            except (OSError, CtxvcError) as error:
                self._trouble(f"the recorder cannot be started: {reason_of(error)}")
            self._replace(lived=time.monotonic() - start)

    def _goes_on(self) -> bool:
        """Waits until a recorder is needed; returns False once none will be needed any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._unsent or self._closing or self._at_once)
            self._at_once = False
            if not self._unsent and self._closing:
                self._thread, self._closing = None, False
                return False
            return True

    def _serve(self, turn: int | None) -> None:
        """Starts a recorder and sends it what comes, until it ends or nothing more comes. Raises: OSError."""
        recorder = self._recorder = _Process(turn)
        listening = threading.Thread(target=self._listen, args=[recorder], name="ctxvc-recorder-answers", daemon=True)
        listening.start()
        with suppress(OSError):  # it has died
            send(recorder.connection, self._settings)
            while sent := self._next(recorder):
                send(recorder.connection, sent)
                del sent  # it may be large
            recorder.connection.shutdown(socket.SHUT_WR)
        listening.join()
        self._recorder = None
        recorder.close()

    def _next(self, recorder: _Process) -> Sent | None:
        """The next item to send; None if there is none, or the recorder has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._unsent or self._closing or recorder.ended)
            if recorder.ended or not self._unsent:
                return None
            sent = self._unsent.popleft()
            self._sent[sent.number] = sent
            return sent

    def _listen(self, recorder: _Process) -> None:
        for frame in received(recorder.connection, Acknowledged | Trouble):
            if isinstance(frame, Trouble):
                self._trouble(frame.text)
                continue
            with self._changed:
                self._deaths = 0
                sent = self._sent.pop(frame.number)
            self._settle(sent, frame.managed)
        with self._changed:
            recorder.ended = True
            self._changed.notify_all()

    def _settle(self, sent: Sent, managed: Managed) -> None:
        """Finishes an item: the recorder is done with it, or it was given up."""
        with self._changed:
            self._waiting -= sent.item.size
            future = self._futures.pop(sent.number, None)
        if future:
            future.set_result(managed)

    def _replace(self, lived: float) -> None:
        """Queues a recorder's unfinished exchanges again; gives up one on which several recorders died."""
        with self._changed:
            undone = [*self._sent.values()]
            self._sent.clear()
            given_up = [sent for sent in undone if not isinstance(sent.item, Exchange)]
            again = [msgspec.structs.replace(sent, again=True) for sent in undone if isinstance(sent.item, Exchange)]
            self._unsent.extendleft(reversed(again))
            goes_on = bool(self._unsent)
            self._deaths += goes_on
            if self._deaths == _DEATHS and self._unsent:
                given_up.append(self._unsent.popleft())
                self._deaths = 0
        for sent in given_up:
            self._settle(sent, Managed())
            if isinstance(sent.item, Exchange):
                self._trouble("the recorder ended several times while it recorded a request, which was left out")
        if goes_on and lived < _LIVED:
            time.sleep(_WAIT)

    def _trouble(self, text: str) -> None:
        with self._changed:
            is_first, self._troubled = not self._troubled, True
        if is_first:
            self._on_trouble(text)


class _Process:
    """A running recorder. `connection` leads to it."""

    def __init__(self, lock: int | None) -> None:
        """Starts it; if `lock` is given, the process holds that lock, too. Raises: OSError."""
        self.connection, theirs = socket.socketpair()
        self.ended = False
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", f"from ctxvc.wire.recorder import run; run({theirs.fileno()})"],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    cwd="/",  # so that no other folder's modules are imported
                    pass_fds=[theirs.fileno(), *([] if lock is None else [lock])],
                    start_new_session=True,  # no signal of the terminal reaches it
                )
            except OSError:
                self.connection.close()
                raise

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        """Returns once the recorder has ended."""
        self.connection.close()
        self._process.wait()
