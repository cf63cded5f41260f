"""Work in parallel processes. Those of `spawn` share nothing with this one, so threads and open files are no danger."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import connection
from typing import TypeVar

_Unit = TypeVar("_Unit")
_Done = TypeVar("_Done")


def outcomes(
    work: Callable[[_Unit], _Done], units: Sequence[_Unit], processes: int, wait: Callable[[], None] = lambda: None
) -> Iterator[_Done]:
    """What `work`, which another process must be able to import, makes of each unit, as it is done, in no order.

    `wait` is called each second meanwhile. Processes end with this generator. Raises: BrokenProcessPool if one dies.
    """
    context = multiprocessing.get_context("spawn")
    with (
        # Processes that are ended leave their temporary files behind: here, until all of them are gone.
        tempfile.TemporaryDirectory(prefix="ctxvc-", ignore_cleanup_errors=True) as folder,
        ProcessPoolExecutor(min(processes, len(units)), context, _begin_process, (folder,)) as executor,
    ):
        try:
            running = {executor.submit(work, unit) for unit in units}
            while running:
                finished, running = futures.wait(running, 1.0, futures.FIRST_COMPLETED)
                yield from (future.result() for future in finished)
                wait()
        except BaseException:
            executor.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def _begin_process(folder: str) -> None:
    """In a process for units: temporary files go into `folder`, an interrupt is its parent's to handle, and without its
    parent it ends."""
    tempfile.tempdir = folder
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
