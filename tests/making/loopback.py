"""A server of ours on a free port of this machine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ctxvc.loopback import Server

TOKEN = "a-token-of-some-length"


@contextmanager
def serving(host: str = "127.0.0.1", **terms: Any) -> Iterator[Server]:
    """The server, while it runs. What fails in it unexpectedly is raised on leaving, unless `report` has it."""
    faults: list[Exception] = []
    server = Server((host, 0), **{"token": TOKEN, "report": faults.append, **terms})
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()
    if faults:
        raise faults[0]
