"""A web server of the standard library on this machine's loopback, while it is needed; what it says is others'."""

from __future__ import annotations

import itertools
import json
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class WebServer(ThreadingHTTPServer):
    """A server on a free port, or of a socket that listens already, as one of another network namespace.

    `faults`: what went wrong in it, which is raised when it ends. `numbers`: the next request's, for its id.
    """

    daemon_threads = False

    def __init__(self, handler: type[BaseHTTPRequestHandler], listener: socket.socket | None = None) -> None:
        self.faults: list[BaseException] = []
        self.lock = threading.Lock()
        self.closing = threading.Event()
        self.numbers = itertools.count(1)
        self._connections: set[socket.socket] = set()
        listener = listener or socket.create_server(("127.0.0.1", 0))
        # Not bound here: the base would ask for the name of the host.
        super().__init__(listener.getsockname(), handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.server_name, self.server_port = "127.0.0.1", int(self.server_address[1])
        self.address = f"http://127.0.0.1:{self.server_port}"

    @contextmanager
    def running(self) -> Iterator[None]:
        """The server answers, until this is left; raises the first of its faults then."""
        thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield
        finally:
            self._close()
            thread.join()
        if self.faults:
            raise self.faults[0]

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        if isinstance(request, socket.socket):
            self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket | tuple[bytes, socket.socket]) -> None:
        if isinstance(request, socket.socket):
            self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002
        """A fault is kept for who runs the server; a client that has gone is none."""
        fault = sys.exc_info()[1]
        if fault is not None and not isinstance(fault, ConnectionError):
            self.faults.append(fault)

    def _close(self) -> None:
        """Stop, and let go of clients that keep their connection."""
        self.closing.set()
        self.shutdown()
        for connection in list(self._connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                # The client was faster.
                continue
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    """What handlers of these servers share."""

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: what was asked is kept."""

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """An answer's status and headers; its body follows."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def send_json(self, status: int, answer: object, headers: Mapping[str, str] | None = None) -> None:
        data = json.dumps(answer).encode()
        self.begin(status, {"content-type": "application/json", "content-length": str(len(data)), **(headers or {})})
        if self.command != "HEAD":
            self.wfile.write(data)
