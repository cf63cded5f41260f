"""Writers in processes of their own, forked from one that has loaded what they need and no test."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable
from pathlib import Path

from ctxvc import Session

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload([__name__, "ctxvc.session.session"])


def side_by_side(write: Callable[..., None], path: Path, arguments: Iterable[tuple[object, ...]]) -> None:
    """Runs `write` at once with each of the arguments on the store at `path`; all end well."""
    processes = [_SERVER.Process(target=write, args=(str(path), *argument)) for argument in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * len(processes)


def archives(path: str, block: str) -> None:
    with Session.open(path, "demo") as session:
        session.archive(block, f"by {block}")
        session.note(f"noted {block}")
