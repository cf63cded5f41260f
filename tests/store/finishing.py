"""A person's finishing of a purge dies: `finishing.py STORE N` is killed before the N-th thing it does to the disk."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ctxvc.store import files, purge_apply
from ctxvc.store.git import program


def main(path: str, number: str) -> None:
    left = int(number)

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            nonlocal left
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
            return function(*arguments, **named)

        return run

    files.replace = counted(files.replace)
    program.run = counted(program.run)
    os.replace = counted(os.replace)
    shutil.rmtree = counted(shutil.rmtree)  # type: ignore[assignment]
    Path.unlink = counted(Path.unlink)  # type: ignore[method-assign]
    purge_apply.finish(Path(path))


if __name__ == "__main__":
    main(*sys.argv[1:])
