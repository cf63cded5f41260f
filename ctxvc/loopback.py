"""An HTTP server for programs and pages of this machine: who may ask, how much, and for how long.

    server = Server(("127.0.0.1", 0), token=new_token(), answer=answer, report=traceback.print_exception)
    print(server.url)
    server.serve()                      # until `stop`, from another thread

`answer` is given a `Request` and returns a `Response`, in one of a bounded number of threads. It is asked only if

- `Host` names this server: a page whose name was bound to 127.0.0.1 gets 421 (DNS rebinding);
- `Origin` is this server's own or absent, and `Sec-Fetch-Site` is not another site's: else 403;
- the request carries the token (`bearer` says where; a page may have another place for it): else 401;
- its body has a length, and is at most `largest` bytes: else 411, 413;
- head and body came in time, each as a whole: a slow client is cut off, and more clients than threads get 503.
"""

from __future__ import annotations

import hmac
import io
import ipaddress
import os
import secrets
import socket
import stat
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from ctxvc.errors import BadInput, Refused

#: The most bytes of a body, unless the caller says otherwise, and of a request's head.
LARGEST = 16 * 1024 * 1024
_HEAD = 32 * 1024
#: The most bytes that are still read from a client that was refused, so that it gets to read why.
_REST = 1024 * 1024
#: Connections at once. Once half of them are taken, none is kept open after its answer.
CONNECTIONS = 32
#: Seconds for a head (with the wait for it), for a body, for a whole answer, and for what a refused client still sends.
_HEAD_SECONDS, _BODY_SECONDS, _ANSWER_SECONDS, _REST_SECONDS = 15.0, 30.0, 30.0, 1.0
_HOSTS = ("127.0.0.1", "localhost", "[::1]")
#: Headers of which a second one would be read differently by different programs.
_ONCE = ("host", "origin", "authorization", "content-length", "content-type")
_TOKEN_BYTES = 32
_SHORTEST_TOKEN = 20


class Request(NamedTuple):
    """What was asked. The names of the headers are in lower case; `query` is without its question mark."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes = b""


class Response(NamedTuple):
    """What is answered."""

    status: int
    body: bytes = b""
    content_type: str = ""
    headers: tuple[tuple[str, str], ...] = ()


def text(status: int, message: str, *headers: tuple[str, str]) -> Response:
    """A line for a person."""
    return Response(status, f"{message}\n".encode(), "text/plain; charset=utf-8", headers)


def new_token() -> str:
    """A token that nobody can guess, for headers and addresses."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


def token_of_file(path: Path) -> str:
    """The token in a file that only its owner can read; a new one is written where there is no file.

    Raises: Refused if others can read or replace it, or if it is no plain file; BadInput if it has no token in it.
    """
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        return _token_in(path)
    except OSError as error:
        raise Refused(f"{path} cannot be written: {error.strerror}", hint="name a file in a folder of yours") from error
    with os.fdopen(handle, "w", encoding="ascii") as file:
        token = new_token()
        file.write(token + "\n")
    return token


def _token_in(path: Path) -> str:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}", hint="name another file for the token") from error
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise Refused(f"{path} is not a plain file", hint="name another file for the token")
        if status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise Refused(f"others can read the token in {path}", hint=f"make it yours alone: chmod 600 {path}")
        token = os.read(handle, 1024).decode("ascii", "replace").strip()
    finally:
        os.close(handle)
    if len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise BadInput(
            f"{path} has no token: a line of at least {_SHORTEST_TOKEN} letters and digits", hint="remove the file"
        )
    return token


def bearer(request: Request) -> str:
    """The token in `Authorization: Bearer …`; empty if there is none."""
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def parsed_address(written: str) -> tuple[str, int]:
    """Host and port of `[HOST:]PORT`; the host is 127.0.0.1 by default. Raises: BadInput."""
    host, _, port = written.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise BadInput(f"{written[:80]!r} is not an address", hint="write a port, or HOST:PORT, as in 127.0.0.1:8765")
    return ("127.0.0.1" if host in ("", "localhost") else host), int(port)


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine can reach a host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def names(authority: str, own_host: str, own_port: int) -> bool:
    """Whether `HOST:PORT` in a header is the server at a host and port. Beyond the loopback it may also be any number:
    to bind a name of theirs to our number is what strangers can do, and a number is no name.
    """
    host, _, port = authority.lower().rpartition(":")
    if not host and own_port == 80:
        host, port = authority.lower(), "80"
    if port != str(own_port):
        return False
    if host in _HOSTS or host in (own_host.lower(), f"[{own_host.lower()}]"):
        return True
    if is_loopback(own_host):
        return False
    with suppress(ValueError):
        ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
        return True
    return False


def stranger(headers: Mapping[str, str], is_own: Callable[[str], bool]) -> Response | None:
    """What is answered to a request for another host, or of a page of another origin; None for any other request.

    `is_own` says whether `HOST:PORT` is this server.
    """
    if not is_own(headers.get("host", "")):
        return text(421, "this server is not that host")
    if "origin" in headers:
        scheme, _, authority = headers["origin"].partition("://")
        if scheme != "http" or not is_own(authority):
            return text(403, "pages of another origin are not answered")
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return text(403, "pages of another origin are not answered")
    return None


class Server:
    """An HTTP server at an address, which it is bound to from the start; port 0 takes a free one.

    Raises: Refused if the address cannot be had.
    """

    def __init__(
        self,
        address: tuple[str, int],
        *,
        token: str,
        answer: Callable[[Request], Response],
        report: Callable[[Exception], None],
        credential: Callable[[Request], str] = bearer,
        largest: int = LARGEST,
        connections: int = CONNECTIONS,
    ) -> None:
        self._server = _Listener(address, _Terms(token, answer, report, credential, largest), connections)

    @property
    def port(self) -> int:
        return self._server.server_port

    @property
    def url(self) -> str:
        """The server's address, without a path."""
        host = self._server.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    def serve(self) -> None:
        """Answers until `stop`; what is being answered then is cut off."""
        try:
            self._server.serve_forever(poll_interval=0.2)
        finally:
            self._server.server_close()

    def stop(self) -> None:
        """Ends `serve`, from another thread. Does nothing twice."""
        self._server.shutdown()


class _Terms(NamedTuple):
    token: str
    answer: Callable[[Request], Response]
    report: Callable[[Exception], None]
    credential: Callable[[Request], str]
    largest: int


class _Listener(HTTPServer):
    def __init__(self, address: tuple[str, int], terms: _Terms, connections: int) -> None:
        self.terms = terms
        self.host = address[0]
        self.crowd = connections // 2
        self._slots = threading.Semaphore(connections)
        self._lock = threading.Lock()
        self.busy = 0
        self.address_family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        try:
            super().__init__(address, _Handler)
        except OSError as error:
            where = f"{address[0]}:{address[1]}"
            raise Refused(f"{where} cannot be served: {error.strerror or error}", hint="choose another port") from error

    def server_bind(self) -> None:
        """As in the base, without asking for the name of the host."""
        if os.name == "posix":
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = self.host, int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._slots.acquire(blocking=False):
            with suppress(OSError):
                request.setblocking(False)
                request.send(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            self.shutdown_request(request)
            return
        with self._lock:
            self.busy += 1
        threading.Thread(target=self._handled, args=(request, client_address), daemon=True).start()

    def _handled(self, request: Any, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except OSError:
            pass  # the client has gone, or was too slow
        except Exception as error:
            self.terms.report(error)
        finally:
            self.shutdown_request(request)
            with self._lock:
                self.busy -= 1
            self._slots.release()

    def names(self, authority: str) -> bool:
        """Whether `HOST:PORT` in a header is this server."""
        return names(authority, self.host, self.server_port)


class _Overlong(Exception):
    """More was sent than allowed."""


class _Incoming(io.RawIOBase):
    """What a client sends, until a deadline and up to a number of bytes. Raises: TimeoutError, _Overlong."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.allow(0, 0)

    def allow(self, seconds: float, size: int) -> None:
        self._until, self._room = time.monotonic() + seconds, size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        seconds = self._until - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        if self._room <= 0:
            raise _Overlong
        self._connection.settimeout(seconds)
        with memoryview(buffer) as view:
            count = self._connection.recv_into(view[: self._room])
        self._room -= count
        return count


class _Handler(BaseHTTPRequestHandler):
    server: _Listener
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self._incoming = _Incoming(self.connection)
        self.rfile = io.BufferedReader(self._incoming)
        self.command, self.request_version = "", self.protocol_version  # until a line was parsed

    def version_string(self) -> str:
        return "ctxvc"

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Nothing: addresses may carry a token."""

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a client's mistakes are its own."""

    def handle_expect_100(self) -> bool:
        """The client is told to go on once its head is accepted."""
        return True

    def handle_one_request(self) -> None:
        self._incoming.allow(_HEAD_SECONDS, _HEAD)
        try:
            self.raw_requestline = self.rfile.readline(_HEAD + 1)
            if not self.raw_requestline or not self.parse_request():
                self.close_connection = True
                return
            response = self._response()
        except _Overlong:
            self.close_connection = True
            response = text(431, "the head of the request is too long")
        self._send(response)
        if self.close_connection:
            self._take_rest()

    def _response(self) -> Response:
        """What is answered to a head that was parsed. A refusal leaves the body unread, and so ends the connection."""
        path, _, query = self.path.partition("?")
        headers = {name.lower(): value.strip() for name, value in self.headers.items()}
        request = Request(self.command, path, query, headers)
        if refusal := self._refusal(request):
            self.close_connection = True
            return refusal
        try:
            request = request._replace(body=self._body(int(headers.get("content-length", "0"))))
        except TimeoutError:
            self.close_connection = True
            return text(408, "the body did not come in time")
        if self.server.busy > self.server.crowd:
            self.close_connection = True
        try:
            return self.server.terms.answer(request)
        # The boundary: other requests are still served.
        except Exception as error:
            self.server.terms.report(error)
            return text(500, f"internal error: {type(error).__name__}")

    def _refusal(self, request: Request) -> Response | None:
        headers, terms = request.headers, self.server.terms
        if double := next((name for name in _ONCE if len(self.headers.get_all(name, [])) > 1), ""):
            return text(400, f"{double} is given twice")
        if refusal := stranger(headers, self.server.names):
            return refusal
        if not hmac.compare_digest(terms.credential(request).encode(), terms.token.encode()):
            return text(401, "the token is missing or wrong", ("WWW-Authenticate", "Bearer"))
        if "transfer-encoding" in headers:
            return text(411, "send a body with its Content-Length")
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()):
            return text(400, "Content-Length is not a number")
        if len(length) > 12 or int(length) > terms.largest:
            return text(413, f"a body has at most {terms.largest:,} bytes")
        return None

    def _body(self, size: int) -> bytes:
        """Raises: TimeoutError, ConnectionError."""
        if not size:
            return b""
        self.connection.settimeout(_ANSWER_SECONDS)
        if self.headers.get("expect", "").lower() == "100-continue":
            self.send_response_only(100)
            self.end_headers()
        self._incoming.allow(_BODY_SECONDS, size)
        body = self.rfile.read(size)
        if len(body) < size:
            raise ConnectionResetError
        return body

    def _send(self, response: Response) -> None:
        self.connection.settimeout(_ANSWER_SECONDS)  # for all of what is sent
        self.send_response(response.status)
        if response.content_type:
            self.send_header("Content-Type", response.content_type)
        for name, value in (("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"), *response.headers):
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(response.body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)

    def _take_rest(self) -> None:
        """Reads on for a moment: a connection that is closed on unread bytes takes its answer with it."""
        with suppress(OSError, _Overlong):
            self.connection.shutdown(socket.SHUT_WR)
            self._incoming.allow(_REST_SECONDS, _REST)
            while self.rfile.read1(65536):
                pass
