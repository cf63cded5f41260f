"""A wire tap: a relay of TCP connections on loopback that keeps every byte of both directions, and reads them as HTTP.

It knows nothing of what passes: two of them, before and behind a proxy, show what the proxy changed.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import h11

_HEADERS = Sequence[tuple[str, str]]
_AUTHENTICATING = {"authorization", "x-api-key", "x-goog-api-key", "api-key", "cookie", "proxy-authorization"}


@dataclass
class Passed:
    """A request and its answer, as they went by.

    `answer` is without its transfer encoding; `whole`: it came to its end.
    """

    method: str
    target: str
    headers: _HEADERS
    body: bytes
    status: int = 0
    answer_headers: _HEADERS = ()
    answer: bytes = b""
    whole: bool = False

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    def header(self, name: str) -> str:
        """The value of a header of the request; empty if there is none."""
        return next((value for key, value in self.headers if key == name), "")

    def shown_headers(self) -> dict[str, str]:
        """The request's headers, without what authenticates."""
        return {name: "…" if name in _AUTHENTICATING else value for name, value in self.headers}


@dataclass
class _Connection:
    requests: bytearray = field(default_factory=bytearray)
    answers: bytearray = field(default_factory=bytearray)


@dataclass
class Tap:
    """A tap at work; `url` is where to connect instead of what lies behind."""

    url: str
    _connections: list[_Connection] = field(default_factory=list)

    @property
    def answers(self) -> list[bytes]:
        """All that came back, connection by connection, as it came."""
        return [bytes(connection.answers) for connection in list(self._connections)]

    def passed(self) -> list[Passed]:
        """All requests so far: by connection, and in order on each."""
        return [one for connection in list(self._connections) for one in _read(connection)]


@contextmanager
def tapped(url: str) -> Iterator[Tap]:
    """A tap in front of an HTTP server of this machine, until the end. `url` without a path.

    Its own port in what passes becomes the server's, which may look at who was meant; what is kept is as it came.
    """
    behind = ("127.0.0.1", int(urlsplit(url).port or 0))
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        tap = Tap(f"http://127.0.0.1:{listener.getsockname()[1]}")
        open_sockets: list[socket.socket] = []
        thread = threading.Thread(target=_accept, args=(listener, behind, tap, open_sockets), daemon=True)
        thread.start()
        try:
            yield tap
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            for one in open_sockets:
                one.close()
            thread.join()


def _accept(listener: socket.socket, behind: tuple[str, int], tap: Tap, open_sockets: list[socket.socket]) -> None:
    while True:
        try:
            near, _ = listener.accept()
        except OSError:
            return
        try:
            far = socket.create_connection(behind)
        except OSError:
            near.close()
            continue
        open_sockets += [near, far]
        connection = _Connection()
        tap._connections.append(connection)
        meant = urlsplit(tap.url).netloc.encode(), b"%s:%d" % (behind[0].encode(), behind[1])
        for one in ((near, far, connection.requests, meant), (far, near, connection.answers, None)):
            threading.Thread(target=_relay, args=one, daemon=True).start()


def _relay(source: socket.socket, sink: socket.socket, kept: bytearray, meant: tuple[bytes, bytes] | None) -> None:
    try:
        while part := source.recv(65536):
            kept += part
            sink.sendall(part.replace(*meant) if meant else part)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        # One of the two has gone: so shall the other.
        for one in (source, sink):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue


def _read(connection: _Connection) -> Iterator[Passed]:
    """The exchanges of a connection, as far as it is HTTP."""
    server = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    client = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
    server.receive_data(bytes(connection.requests))
    client.receive_data(bytes(connection.answers))
    while True:
        try:
            request = _next_request(server)
            if request is None:
                return
            _next_answer(client, request)
        except h11.ProtocolError:
            return
        yield request
        if not request.whole or client.their_state is not h11.DONE:
            return
        try:
            client.start_next_cycle()
            server.start_next_cycle()
        except h11.ProtocolError:
            return


def _next_request(server: h11.Connection) -> Passed | None:
    head, body = None, bytearray()
    while not isinstance(event := server.next_event(), h11.EndOfMessage):
        if isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
        else:
            return None
    assert head
    # Only so that it reads on: this goes nowhere.
    server.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
    server.send(h11.EndOfMessage())
    return Passed(head.method.decode(), head.target.decode("latin-1"), _headers(head), bytes(body))


def _next_answer(client: h11.Connection, request: Passed) -> None:
    # A length that the body had, so that no rule of HTTP is in the way of reading the answer.
    client.send(h11.Request(method=request.method, target="/", headers=[("host", "x")]))
    client.send(h11.EndOfMessage())
    answer = bytearray()
    while True:
        event = client.next_event()
        match event:
            case h11.Response():
                request.status, request.answer_headers = event.status_code, _headers(event)
            case h11.Data():
                answer += event.data
            case h11.InformationalResponse():
                continue
            case h11.EndOfMessage():
                request.whole = True
                break
            case _:
                break
    request.answer = bytes(answer)


def _headers(event: h11.Request | h11.Response) -> _HEADERS:
    return [(name.decode(), value.decode("latin-1")) for name, value in event.headers]
