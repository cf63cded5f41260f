"""A server on this machine that forwards requests to models unchanged, and has what passed recorded.

Each client connection has one to the upstream, which ends when it ends: so whatever is true of the one (kept open,
framing, interim answers, a connection that breaks) is true of the other. The head of a request is rewritten, with
another host and without the key; the body passes. The answer passes byte for byte, including head and framing, and a
copy is read along with it: what cannot be read passes all the same.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple

import h11

from ctxvc import loopback
from ctxvc.errors import Refused
from ctxvc.forms import form
from ctxvc.wire import forward
from ctxvc.wire.answer import HEAD, Answer
from ctxvc.wire.exchange import Copy, Recorder, decoded
from ctxvc.wire.forward import Route, Upstream
from ctxvc.wire.managed_answer import ManagedAnswer
from ctxvc.wire.network import CHUNK, Connection, Network

#: The most seconds and bytes for what a refused client still sends: closing a connection with unread bytes would lose
#: the answer.
_REST_SECONDS, _REST = 1.0, 1 << 20
_WEBSOCKET = re.compile(r"\bwebsocket\b", re.I)


class Port(NamedTuple):
    """A listening socket. Requests to it go to `upstream` without a key; if that is empty, they need the key."""

    socket: socket.socket
    upstream: str = ""

    @property
    def number(self) -> int:
        number: int = self.socket.getsockname()[1]
        return number


def bound(*, port: int = 0, fd: int = -1) -> socket.socket:
    """A socket bound on this machine: to a port (0 takes a free one), or the one of a descriptor.

    Raises: Refused if the port is not available.
    """
    if fd >= 0:
        return socket.socket(fileno=fd)
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", port))
    except OSError as error:
        listening.close()
        raise Refused(f"cannot listen on port {port}: {error.strerror}", hint="choose another port") from error
    return listening


class Proxy:
    """Forwards requests to models. `report` gets failures of recording, which stop nothing."""

    @property
    def _client_type(self) -> type[Client]:
        return Client

    def __init__(
        self,
        upstreams: Mapping[str, Upstream],
        *,
        key: str,
        recorder: Recorder,
        env: Mapping[str, str],
        report: Callable[[Exception], None],
    ) -> None:
        self.upstreams, self.key, self.report = upstreams, key, report
        self.network = Network(env)
        self.recorder = recorder
        self._decoding = ThreadPoolExecutor(1, "decoding")
        self._clients: set[asyncio.Task[None]] = set()

    async def serve(self, ports: list[Port], ready: Callable[[], None], ended: asyncio.Event) -> None:
        """Calls `ready`, then forwards from `ports` until `ended`. What is passing then is recorded as broken off."""
        servers = [
            await asyncio.start_server(self._accepted(port), sock=port.socket, limit=CHUNK, backlog=128)
            for port in ports
        ]
        ready()
        if any(upstream.tls for upstream in self.upstreams.values()):
            asyncio.get_running_loop().run_in_executor(None, getattr, self.network, "tls")
        await ended.wait()
        for server in servers:
            server.close()
        for client in self._clients:
            client.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        self._decoding.shutdown()

    def copy(self, upstream: str, path: str, headers: Mapping[str, str]) -> Copy:
        """A copy for an exchange that begins."""
        return Copy(upstream, path, headers.items(), record=self.recorder.record, report=self.report)

    def end(self, copy: Copy, answer: Answer | ManagedAnswer) -> None:
        """Hands on a copy; decoding it keeps no other client waiting."""
        end = copy.end if answer.whole else copy.leave
        if copy.encoded:
            self._decoding.submit(end)
        else:
            end()

    async def decoded(self, data: bytes, encoding: str) -> bytes:
        """The content of a body. Raises: ValueError."""
        if not encoding:
            return data
        return await asyncio.get_running_loop().run_in_executor(self._decoding, decoded, data, encoding)

    def _accepted(self, port: Port) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.transport.set_write_buffer_limits(0)  # so that `drain` waits until everything is sent
            task = asyncio.ensure_future(self._client_type(self, port, Connection(reader, writer)).serve())
            self._clients.add(task)
            task.add_done_callback(self._clients.discard)

        return accept


class Incoming(NamedTuple):
    """A request whose head has come. `path` and `copy` are set for calls of a model, else empty and None."""

    request: h11.Request
    headers: Mapping[str, str]
    route: Route
    path: str
    copy: Copy | None

    def head(self, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
        """The request's head for the upstream, with these headers."""
        method, version = self.request.method, self.request.http_version
        return forward.head(method, self.route.target, version, headers, self.route.upstream)


class Disconnected(Exception):
    """The connection is over: no answer can be sent."""


class Client:
    """A client's connection, and the one to the upstream that goes with it."""

    def __init__(self, proxy: Proxy, port: Port, client: Connection) -> None:
        self._proxy, self._port, self._client = proxy, port, client
        self._upstream: Connection | None = None
        self._connected: Upstream | None = None
        self._ahead = b""  # what the client sent beyond a request

    async def serve(self) -> None:
        try:
            while await self._exchange():
                pass
        except (Disconnected, OSError, asyncio.CancelledError):
            pass
        except Exception as error:
            self._proxy.report(error)
        finally:
            if self._upstream:
                self._upstream.writer.transport.abort()
            with suppress(OSError):
                self._client.writer.close()

    async def _exchange(self) -> bool:
        """Passes one request and its answer; returns whether another may come. Raises: Disconnected, OSError."""
        reading = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD)
        try:
            request = await self._request(reading)
        except h11.RemoteProtocolError as error:
            return await self._refuse(error.error_status_hint, f"this is no HTTP/1.1 request: {error}")
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers}
        target = request.target.decode("latin-1")
        if refusal := _refusal(request, headers, self._port):
            return await self._refuse(*refusal)
        if not self._port.upstream:
            key, _, below = target[1:].partition("/")
            if not hmac.compare_digest(key.encode("latin-1"), self._proxy.key.encode()):
                return await self._refuse(404, "not found")
            target = f"/{below}"
        route = forward.route(self._proxy.upstreams, target, headers, self._port.upstream)
        try:
            upstream = await self._connect(route.upstream, reading)
        except OSError as error:
            return await self._unreachable(route.upstream, error)
        call = form.call(route.path) if request.method == b"POST" else None
        path = call.path if call else ""
        copy = self._proxy.copy(route.upstream.name, path, headers) if path else None
        return await self._forward(reading, Incoming(request, headers, route, path, copy), upstream)

    async def _forward(self, reading: h11.Connection, incoming: Incoming, upstream: Connection) -> bool:
        """Passes a request unchanged, and its answer; returns as `_exchange`. Raises: Disconnected, OSError."""
        upstream.writer.write(incoming.head(incoming.request.headers.raw_items()))
        body = self._body(reading, incoming.request, upstream, incoming.copy)
        return await self._passed(body, upstream, incoming.copy, incoming.request)

    # --- the request

    async def _request(self, reading: h11.Connection) -> h11.Request:
        """The head of the next request. Raises: Disconnected, OSError, h11.RemoteProtocolError."""
        if self._ahead:
            reading.receive_data(self._ahead)
            self._ahead = b""
        while True:
            event = reading.next_event()
            if isinstance(event, h11.Request):
                return event
            if event is not h11.NEED_DATA:
                raise Disconnected
            reading.receive_data(await self._read_idle())

    async def _read_idle(self) -> bytes:
        """The next bytes from the client. Between requests, anything from the upstream passes and ends the connection.

        Raises: Disconnected, OSError.
        """
        if not self._upstream:
            return await read(self._client.reader)
        client = asyncio.ensure_future(read(self._client.reader))
        upstream = asyncio.ensure_future(self._upstream.reader.read(CHUNK))
        ready = await _first(client, upstream)
        await let_go(client, upstream)
        if upstream in ready:
            self._close_upstream()
            if client not in ready:
                with suppress(OSError):
                    self._client.writer.write(upstream.result())
                raise Disconnected
        return client.result()

    async def _connect(self, upstream: Upstream, reading: h11.Connection) -> Connection:
        """The connection to the upstream. Raises: OSError if it cannot be made; Disconnected if the client goes."""
        if self._upstream and self._connected == upstream and not self._upstream.reader.at_eof():
            return self._upstream
        self._close_upstream()
        connecting = asyncio.ensure_future(self._proxy.network.connect(upstream))
        client = asyncio.ensure_future(read(self._client.reader))
        if client in await _first(connecting, client):
            try:
                reading.receive_data(client.result())
            except Disconnected:
                connecting.add_done_callback(abort)  # cancelling it halfway would leave a socket behind
                raise
        await let_go(client)
        self._upstream, self._connected = await connecting, upstream
        return self._upstream

    def _close_upstream(self) -> None:
        if self._upstream:
            self._upstream.writer.transport.abort()
            self._upstream = None

    async def _send(self, data: bytes, length: int, upstream: Connection, copy: Copy | None) -> None:
        """Passes the body of a request, which begins with `data`.

        Raises: Disconnected if the client goes away; OSError if the upstream does.
        """
        while True:
            piece = data[:length]
            if copy:
                copy.sent(piece)
            upstream.writer.write(piece)
            await upstream.writer.drain()
            length -= len(piece)
            if not length:
                self._ahead = data[len(piece) :]
                return
            data = await read(self._client.reader)

    async def _send_chunks(self, reading: h11.Connection, upstream: Connection, copy: Copy | None) -> None:
        """As `_send`, for a body in chunks, each of which passes as it comes."""
        while True:
            try:
                event = reading.next_event()
            except h11.RemoteProtocolError as error:
                raise Disconnected from error
            if isinstance(event, h11.Data):
                data = bytes(event.data)
                if copy:
                    copy.sent(data)
                upstream.writer.write(b"%x\r\n%s\r\n" % (len(data), data))
                await upstream.writer.drain()
            elif event is h11.NEED_DATA:
                reading.receive_data(await read(self._client.reader))
            elif isinstance(event, h11.EndOfMessage):
                trailers = (b"%s: %s\r\n" % item for item in event.headers.raw_items())
                upstream.writer.write(b"0\r\n%s\r\n" % b"".join(trailers))
                self._ahead = reading.trailing_data[0]
                return
            else:
                raise Disconnected

    async def _watch(self, answer: Answer | None = None) -> None:
        """Returns when the client has gone. What it sends ahead is kept, up to a bound."""
        while len(self._ahead) < HEAD:
            try:
                data = await self._client.reader.read(CHUNK)
            except OSError:
                return
            if not data:
                return
            self._ahead += data
            if answer is None:
                continue
            answer.look()
            if answer.over:  # the client has seen the end, after which more than an answer came
                return
        await asyncio.Event().wait()

    # --- the answer

    def _body(
        self, reading: h11.Connection, request: h11.Request, upstream: Connection, copy: Copy | None
    ) -> Coroutine[Any, Any, None]:
        """Passes the body of a request as it comes."""
        headers = dict(request.headers)
        if b"transfer-encoding" in headers:
            return self._send_chunks(reading, upstream, copy)
        return self._send(reading.trailing_data[0], int(headers.get(b"content-length", b"0")), upstream, copy)

    async def _passed(
        self, body: Coroutine[Any, Any, None], upstream: Connection, copy: Copy | None, request: h11.Request
    ) -> bool:
        """Passes the body of a request and its answer at the same time; returns as `_exchange`.

        Raises: Disconnected, OSError.
        """
        answer = Answer(request, copy)
        sending: asyncio.Future[Any] = asyncio.ensure_future(body)
        answering: asyncio.Future[Any] = asyncio.ensure_future(self._answer(upstream, answer))
        watching: asyncio.Future[Any] | None = None
        try:
            await asyncio.wait({sending, answering}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done() and isinstance(sending.exception(), Disconnected):
                raise Disconnected
            if not answering.done() and not sending.exception():
                watching = asyncio.ensure_future(self._watch(answer))
                await asyncio.wait({watching, answering}, return_when=asyncio.FIRST_COMPLETED)
                if not answering.done():
                    raise Disconnected
            goes_on: bool = await answering
            if goes_on and not sending.done():  # answered early: the rest of the request is still due
                await asyncio.wait({sending})
            if sending.done() and not sending.exception():
                return goes_on
            await let_go(sending)
            await self._discard()
            return False
        finally:
            tasks = [sending, answering, *([watching] if watching else [])]
            for task in tasks:
                task.cancel()
            if copy:  # before any await, since this may be cancelled, too
                answer.look()
                self._proxy.end(copy, answer)
            await let_go(*tasks)

    async def _answer(self, upstream: Connection, answer: Answer) -> bool:
        """Passes an answer; returns whether both connections can be reused. Raises: OSError if the client's breaks."""
        client = self._client
        while not answer.over:
            try:
                data = await upstream.reader.read(CHUNK)
            except OSError:
                client.abort()
                return False
            if data:
                client.writer.write(data)
                await client.writer.drain()
            answer.received(data)  # after the client has it: looking for the end takes a while
            if not data:
                return False
        return not answer.unreadable

    async def _unreachable(self, upstream: Upstream, error: OSError) -> bool:
        return await self._refuse(502, f"{upstream.url} cannot be reached: {error.strerror or error}")

    async def _refuse(self, status: int, message: str) -> bool:
        body = json.dumps({"type": "error", "error": {"type": "proxy_error", "message": f"ctxvc: {message}"}}).encode()
        head = (
            f"HTTP/1.1 {status} {_REASONS.get(status, 'Refused')}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self._client.writer.write(head.encode() + body)
        await self._client.writer.drain()
        await self._discard()
        return False

    async def _discard(self) -> None:
        """Ends an answer before the whole request was read: to close on unread bytes would lose the answer."""
        self._client.writer.write_eof()
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._read_rest(), _REST_SECONDS)

    async def _read_rest(self) -> None:
        size = 0
        while size < _REST and (data := await self._client.reader.read(CHUNK)):
            size += len(data)


_REASONS = {
    400: "Bad Request", 403: "Forbidden", 404: "Not Found", 421: "Misdirected Request", 426: "Upgrade Required",
    431: "Request Header Fields Too Large", 501: "Not Implemented", 502: "Bad Gateway",
}  # fmt: skip


async def read(reader: asyncio.StreamReader) -> bytes:
    """The next bytes. Raises: Disconnected at the end, and if the connection broke."""
    try:
        data = await reader.read(CHUNK)
    except OSError as error:
        raise Disconnected from error
    if not data:
        raise Disconnected
    return data


async def _first(*tasks: asyncio.Future[Any]) -> set[asyncio.Future[Any]]:
    """The tasks that are done once one is. If this is cancelled, all of them are."""
    try:
        return (await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED))[0]
    except asyncio.CancelledError:
        await let_go(*tasks)
        raise


async def let_go(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def abort(connecting: asyncio.Future[Connection]) -> None:
    if not connecting.cancelled() and not connecting.exception():
        connecting.result().abort()


def _refusal(request: h11.Request, headers: Mapping[str, str], port: Port) -> tuple[int, str] | None:
    """The status and message for a request that must not be forwarded, whatever its path; None for any other."""
    if refusal := loopback.stranger(headers, lambda authority: loopback.names(authority, "127.0.0.1", port.number)):
        return refusal.status, refusal.body.decode().strip()
    if not request.target.startswith(b"/"):
        return 400, "this is no proxy for other hosts"
    if "transfer-encoding" in headers and "content-length" in headers:
        return 400, "a body has one length"
    if _WEBSOCKET.search(headers.get("upgrade", "")):
        return 426, "only HTTP is forwarded: send the request without an upgrade"
    return None
