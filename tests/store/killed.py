"""What dies right before the thing of a number that it does to the disk."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ctxvc.store import files
from ctxvc.store.git import program
from ctxvc.store.purge import apply as purge_apply
from ctxvc.store.purge import purge
from ctxvc.store.store import Store
from ctxvc.store.trust import contained
from ctxvc.store.upkeep import retention


def _dying(number: int) -> Callable[[Any], Any]:
    """Wraps functions; the call of this number, of all of them, kills the process instead."""
    left = number

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            nonlocal left
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
            return function(*arguments, **named)

        return run

    return counted


def purge_killed(path: str, number: int, text: str = "") -> None:
    """Purges the text; without one, a person finishes the purge that was decided."""
    store = Store(Path(path)) if text else None
    counted = _dying(number)
    files.replace = counted(files.replace)
    program.run = counted(program.run)
    os.replace = counted(os.replace)
    shutil.rmtree = counted(shutil.rmtree)
    Path.unlink = counted(Path.unlink)  # type: ignore[method-assign]
    if store:
        purge.purge(store, purge.PurgeRequest(texts=(text,)))
        store.close()
    else:
        purge_apply.finish(Path(path))


def removal_killed(path: str, number: int, today: int) -> None:
    """Removes the sessions that nobody has gone on with for 30 days."""
    Store.now = lambda _: today  # type: ignore[method-assign]
    store = Store(Path(path))
    leaving = retention.survey(store, retention.Limits(days=30)).leaving
    counted = _dying(number)
    contained.remove, contained.replace = counted(contained.remove), counted(contained.replace)
    program.run = counted(program.run)
    retention.remove(store, leaving)
