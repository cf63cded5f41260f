"""One client's connection on two streams, with a message a line."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import BinaryIO

from ctxvc.mcp.protocol import Connection, Exchange, decoded

#: The longest message, in bytes.
LONGEST = 16 * 1024 * 1024
#: The number of requests answered at the same time; the store has its own locks.
_AT_ONCE = 4
#: The number of slow requests read ahead; a client that sends more waits.
_WAITING = 64


def serve(connection: Connection, incoming: BinaryIO, outgoing: BinaryIO) -> None:
    """Answers until the client closes its stream. A slow call delays no other request."""
    writing = threading.Lock()
    places = threading.Semaphore(_WAITING)

    def answer(exchange: Exchange) -> None:
        reply = exchange.answer()
        if reply is None:
            return
        with writing:
            try:
                outgoing.write(reply + b"\n")
                outgoing.flush()
            except (OSError, ValueError):
                return  # the client has closed it; the end of its own stream follows

    def answer_later(exchange: Exchange) -> None:
        try:
            answer(exchange)
        finally:
            places.release()

    with ThreadPoolExecutor(_AT_ONCE, "ctxvc-mcp") as workers:
        while line := incoming.readline(LONGEST):
            if not line.endswith(b"\n") and len(line) == LONGEST:
                while (part := incoming.readline(LONGEST)) and not part.endswith(b"\n"):
                    continue
                line = b""  # answered as not JSON
            elif not line.strip():
                continue
            exchange = connection.received(decoded(line))
            if exchange.slow:
                places.acquire()
                workers.submit(answer_later, exchange)
            else:
                answer(exchange)
