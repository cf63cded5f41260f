"""An upstream that sends what it is told, a client that sees every byte, and a proxy between them."""

from __future__ import annotations

import asyncio
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import NamedTuple, TypeVar

from ctxvc.wire import forward
from ctxvc.wire.exchange import Answered, Exchange, Managed, NoRecorder, Recorder, Requested
from ctxvc.wire.managed_proxy import ManagedProxy
from ctxvc.wire.proxy import Port, bound

KEY = "the-key-of-the-tests"
#: Seconds after which a test is stuck.
PATIENCE = 20

#: What an upstream does with a connection whose request it has read: bytes are sent, one piece after the other, and
#: then the connection ends, unless `open`; by `reset` it breaks. A `pause` is a moment, for what comes apart.
Step = bytes | str
OPEN, RESET, PAUSE = "open", "reset", "pause"


class Recording(NoRecorder):
    """A recorder that keeps what it gets. It manages prompts if it is given what to say to requests and to answers."""

    def __init__(
        self,
        requests: Callable[[Requested], Managed] | None = None,
        answers: Callable[[Answered], Managed] = lambda _answered: Managed(),
    ) -> None:
        self.exchanges: list[Exchange] = []
        self.requested: list[Requested] = []
        self.answered: list[Answered] = []
        self.futures: list[Future[Managed]] = []
        self.manages = requests is not None
        self._requests, self._answers = requests, answers

    def ask(self, item: Requested | Answered) -> Future[Managed]:
        if isinstance(item, Requested):
            assert self._requests
            self.requested.append(item)
            self.futures.append(_future(self._requests, item))
        else:
            self.answered.append(item)
            self.futures.append(_future(self._answers, item))
        return self.futures[-1]

    def record(self, exchange: Exchange) -> None:
        self.exchanges.append(exchange)


T = TypeVar("T")


def _future(say: Callable[[T], Managed], value: T) -> Future[Managed]:
    """What is said, or the exception, a moment later, from another thread."""
    future: Future[Managed] = Future()

    def run() -> None:
        time.sleep(0.01)
        try:
            managed = say(value)
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(managed)

    threading.Thread(target=run, daemon=True).start()
    return future


class Seen(NamedTuple):
    """What a client saw of a connection: the bytes, and how it ended."""

    data: bytes
    end: str  # "closed", "reset" or "open"


class Upstream:
    """A server that reads a request and does what `steps` say; what it got is in `requests`, whole, as it came."""

    def __init__(self, *steps: Step) -> None:
        self.steps: list[Step] = list(steps)
        self.answers: Callable[[bytes], list[Step]] = lambda _request: self.steps
        self.requests: list[bytes] = []
        self.connections = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        # To close a socket does not end an `accept` that waits.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.settimeout(PATIENCE)
            data = b""
            while True:
                request, data = read_message(connection, data)
                if not request:
                    return
                self.requests.append(request)
                for step in self.answers(request):
                    if isinstance(step, bytes):
                        connection.sendall(step)
                    elif step == RESET:
                        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        return
                    elif step == PAUSE:
                        time.sleep(0.05)
                    elif step == OPEN:
                        break
                else:
                    return


def read_message(connection: socket.socket, data: bytes = b"") -> tuple[bytes, bytes]:
    """A whole request as it comes, and what came beyond it. As much as there is, if the connection ends before."""
    came = bytearray(data)

    def more() -> bool:
        piece = connection.recv(1 << 20)
        came.extend(piece)
        return bool(piece)

    while (end := came.find(b"\r\n\r\n")) < 0:
        if not more():
            return bytes(came), b""
    head = bytes(came[: end + 4])
    length = re.search(rb"(?i)\r\ncontent-length: *([0-9]+)", head)
    size = len(head) + (int(length[1]) if length else 0)
    if re.search(rb"(?i)\r\ntransfer-encoding: *chunked", head):
        while (end := came.find(b"0\r\n\r\n", len(head))) < 0:
            if not more():
                return bytes(came), b""
        size = end + 5
    while len(came) < size:
        if not more():
            return bytes(came), b""
    return bytes(came[:size]), bytes(came[size:])


class Running(NamedTuple):
    """A proxy that runs."""

    port: int
    ports: dict[str, int]
    recording: Recording
    troubles: list[Exception]

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/{KEY}"


@contextmanager
def running(
    upstreams: Mapping[str, str],
    env: Mapping[str, str] = {},
    keyless: tuple[str, ...] = (),
    recording: Recording | None = None,
    recorder: Recorder | None = None,
) -> Iterator[Running]:
    """A proxy in front of upstreams, name to base URL, which records by `recorder`, or into memory."""
    ports = [Port(bound()), *(Port(bound(), name) for name in keyless)]
    recording = recording or Recording()
    troubles: list[Exception] = []
    routes = forward.upstreams(upstreams, env)
    recorder = recorder or recording
    proxy = ManagedProxy(routes, key=KEY, recorder=recorder, env=env, report=troubles.append)
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    ended = asyncio.Event()

    def serve() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(proxy.serve(ports, ready.set, ended))
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()

    thread = threading.Thread(target=serve)
    thread.start()
    assert ready.wait(PATIENCE)
    try:
        yield Running(ports[0].number, {port.upstream: port.number for port in ports[1:]}, recording, troubles)
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(PATIENCE)
        assert not thread.is_alive()


def ask(port: int, *pieces: bytes, until: Callable[[bytes], bool] = lambda _data: False) -> Seen:
    """What a client sees that sends these pieces and reads to the end, or until it has seen enough."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        data = b""
        try:
            for piece in pieces:
                connection.sendall(piece)
            while not until(data):
                piece = connection.recv(65536)
                if not piece:
                    return Seen(data, "closed")
                data += piece
        except ConnectionError:
            return Seen(data, "reset")
        return Seen(data, "open")


def post(port: int, path: str, body: bytes, *headers: str) -> bytes:
    """A request as clients write it."""
    lines = [f"POST {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", *headers, f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body
