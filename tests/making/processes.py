"""Functions in processes of their own, forked from one that has loaded what they need and no test.

A function is named by its module, which loads no test either.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ctxvc import Session
from ctxvc.store.log.journal import Journal

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload([__name__, "tests.making.preloaded"])

KILLED = -signal.SIGKILL


def ended(act: Callable[..., None], *arguments: object) -> int | None:
    """The exit code of a process that does this, in the environment that there is now."""
    process = _SERVER.Process(target=_in, args=(dict(os.environ), act, *arguments))
    process.start()
    process.join(120)
    return process.exitcode


def _in(environment: dict[str, str], act: Callable[..., None], *arguments: object) -> None:
    os.environ.clear()
    os.environ.update(environment)
    act(*arguments)


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


def dies_once_acknowledged(path: str) -> None:
    session = Session.open(path, "demo")
    session.append({"role": "user", "content": "go"})
    session.append({"role": "assistant", "content": "said"})
    session.note("learned")
    os.kill(os.getpid(), signal.SIGKILL)


def dies_at_a_record(when: str, number: int, *words: str) -> None:
    """`ctxvc` with these words, killed before or after the write of this number to a journal."""
    from ctxvc.cli.main import cli

    append, count = Journal.append, 0

    def counted(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        if (when, count) == ("before", number):
            os.kill(os.getpid(), signal.SIGKILL)
        result = append(*arguments)
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    Journal.append = counted  # type: ignore[method-assign]
    cli(words)
