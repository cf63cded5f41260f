"""A process that dies at the end of a flush: `dying.py STORE before|after`.

It appends a step, stops its git child before or after that has been told that the stream is done, prints the child's
process id, and is killed. Whoever started it sets the child free again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.wire import text_part
from ctxvc.store.git import fast_import
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store


class Stream:
    """A child's input whose writer dies when it comes to the end."""

    def __init__(self, stream: Any, child: int, when: str) -> None:
        self._stream, self._child, self._when = stream, child, when

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, data: bytes) -> int:
        if data != b"done\n":
            return int(self._stream.write(data))
        os.kill(self._child, signal.SIGSTOP)
        if self._when == "after":
            self._stream.write(data)
        self._stream.flush()
        os.write(1, f"{self._child}\n".encode())
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")


def main(path: str, when: str) -> None:
    class Watched(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, command: Any, *rest: Any, **named: Any) -> None:
            super().__init__(command, *rest, **named)
            if "fast-import" in command:
                self.stdin = Stream(self.stdin, self.pid, when)  # type: ignore[assignment]

    fast_import.subprocess.Popen = Watched  # type: ignore[misc]
    with Store(Path(path)) as store, StoredSession.open(store, "demo") as session:
        session.append(Message(role="user", parts=(text_part("question", "user", "human"),)))
        session.append(Message(role="assistant", parts=(text_part("answer", "assistant", "model"),)))


if __name__ == "__main__":
    main(*sys.argv[1:])
