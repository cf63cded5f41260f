"""Runs that kill themselves at a point of their choice, each in a process that is forked from one that has loaded all.

`driven.py STORE FOLDER STEPS POINT COUNT …`, where each two words more are one run more. Prints `up` where one begins
its work, and `killed` or `finished` where it ends.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ctxvc.agent import run
from ctxvc.agent.limits import Limits
from ctxvc.agent.model import Scripted
from ctxvc.agent.workspace import Workspace
from ctxvc.session.session import Session
from ctxvc.store import files
from ctxvc.store.git.fast_import import PackWriter
from ctxvc.store.log import stored_session as writer_module
from ctxvc.store.log.journal import Journal
from ctxvc.store.store import Store
from ctxvc.tokens.count import count as tokens_of
from tests.making.watcher import Silent

#: Where a run kills itself: each is inside a step, or in the flush behind one.
POINTS = (
    "before a command",
    "after a command",
    "in half a record",
    "behind a record",
    "before the flush",
    "while git writes",
    "with the refs moved",
    "behind the flush",
)


def driven(place: str, folder: str, steps: str, point: str, count: str) -> None:
    """What is run and killed: a run that goes on with its session, one flush for each step."""
    if point in POINTS:
        _die_at(point, int(count))
    writer_module.FLUSH_STEPS, writer_module.FLUSH_SECONDS = 1, 1e9
    with Session.open(place, "run-1") as session:
        print("up", flush=True)
        model = Scripted(replies_from(session, int(steps)))
        hands = Workspace(Path(folder), env={"PATH": os.environ["PATH"]})
        setup = run.Setup(model=model, hands=hands, watcher=Silent(), limits=Limits(steps=10_000))
        print(run.go(session, setup).text, flush=True)


def _die_at(point: str, count: int) -> None:
    """From now on the process ends without a word when it comes by this point for the `count`-th time."""
    left = iter(range(count - 1, -1, -1))

    def passed(*_: object) -> None:
        if next(left) == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def half(handle: int, data: bytes) -> None:
        os.write(handle, data[: len(data) // 2])
        passed()
        os.write(handle, data[len(data) // 2 :])

    match point:
        case "before a command":
            _around(Workspace, "run", before=passed)
        case "after a command":
            _around(Workspace, "run", after=passed)
        case "in half a record":
            _around(Journal, "append", before=lambda *_: setattr(files, "write_all", half))
        case "behind a record":
            _around(Journal, "append", after=passed)
        case "before the flush":
            _around(writer_module, "flush", before=passed)
        case "while git writes":
            _around(PackWriter, "__exit__", before=passed)
        case "with the refs moved":
            _around(Store, "write", after=passed)
        case _:
            _around(writer_module, "flush", after=passed)


def _around(
    holder: Any,
    name: str,
    *,
    before: Callable[..., object] = lambda *_: None,
    after: Callable[..., object] = lambda *_: None,
) -> None:
    inner = getattr(holder, name)

    def wrapped(*given: Any) -> Any:
        before(*given)
        made = inner(*given)
        after(*given)
        return made

    setattr(holder, name, wrapped)


def replies_from(session: Session, steps: int) -> list[dict[str, Any]]:
    """The replies of a model that looks at what it has done: two commands a step, each told by its number."""
    done = len({row.msg for row in session.ledger().rows() if row.role == "assistant"})
    made: list[dict[str, Any]] = []
    for number in range(done, steps):
        commands = {f"toolu_{number}{part}": f"echo {number}.{part} >> log; echo did {number}.{part}" for part in "ab"}
        asked = [
            {"type": "tool_use", "id": name, "name": "bash", "input": {"command": command}}
            for name, command in commands.items()
        ]
        made.append({"content": asked})
    return [*made, {"content": "finished"}]


if __name__ == "__main__":
    place, folder, steps, *points = sys.argv[1:]
    tokens_of("x")  # loads the tokenizer, once for all
    for point, number in zip(points[::2], points[1::2], strict=True):
        if (process := os.fork()) == 0:
            driven(place, folder, steps, point, number)
            sys.exit()
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        print({0: "", -signal.SIGKILL: "killed"}.get(status, f"exit code {status}"), flush=True)
