"""A purge that dies: `purging.py STORE N [TEXT]` is killed right before the N-th thing that it does to the disk.

It purges the text; without one, a person finishes the purge that was decided."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ctxvc.store import files
from ctxvc.store.git import program
from ctxvc.store.purge import apply as purge_apply
from ctxvc.store.purge import purge
from ctxvc.store.store import Store


def main(path: str, number: str, text: str = "") -> None:
    left = int(number)

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            nonlocal left
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
            return function(*arguments, **named)

        return run

    store = Store(Path(path)) if text else None
    files.replace = counted(files.replace)
    program.run = counted(program.run)
    os.replace = counted(os.replace)
    shutil.rmtree = counted(shutil.rmtree)  # type: ignore[assignment]
    Path.unlink = counted(Path.unlink)  # type: ignore[method-assign]
    if store:
        purge.purge(store, purge.PurgeRequest(texts=(text,)))
        store.close()
    else:
        purge_apply.finish(Path(path))


if __name__ == "__main__":
    main(*sys.argv[1:])
