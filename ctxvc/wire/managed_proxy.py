"""The proxy's connections for managed prompts: the recorder decides what goes out instead of a request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import h11

from ctxvc.forms import form
from ctxvc.wire import forward
from ctxvc.wire.exchange import LARGEST, Copy, Managed, Requested
from ctxvc.wire.forward import Upstream
from ctxvc.wire.managed_answer import ManagedAnswer, come, is_asked, requested
from ctxvc.wire.network import Connection
from ctxvc.wire.passage import Failed, Passage, Unmanageable
from ctxvc.wire.proxy import Client, Disconnected, Incoming, Proxy, abort, let_go, read

T = TypeVar("T")


class _Body(NamedTuple):
    """A body that was read, up to a bound."""

    data: bytes
    is_whole: bool
    trailers: tuple[tuple[bytes, bytes], ...] = ()

    def framed(self, request: h11.Request) -> bytes:
        """The body as it goes out after the request's own head."""
        if b"transfer-encoding" not in dict(request.headers):
            return self.data
        trailers = b"".join(b"%s: %s\r\n" % item for item in self.trailers)
        return (_chunk(self.data) if self.data else b"") + b"0\r\n%s\r\n" % trailers


class ManagedProxy(Proxy):
    """A proxy whose recorder is asked about prompts, as long as it manages them."""

    @property
    def _client_type(self) -> type[Client]:
        return ManagedClient


class ManagedClient(Client):
    """A client's connection, whose requests the recorder is asked about."""

    async def _forward(self, reading: h11.Connection, incoming: Incoming, upstream: Connection) -> bool:
        is_managed = self._proxy.recorder.manages and incoming.copy and is_asked(incoming.path)
        if not is_managed or _size(incoming.request) > LARGEST:
            return await super()._forward(reading, incoming, upstream)
        assert incoming.copy
        body = await self._read_body(reading)
        incoming.copy.sent(body.data)
        if not body.is_whole:
            return await self._pass(
                incoming, incoming.copy, lambda upstream: self._send_more(body, reading, upstream, incoming.copy)
            )
        question = await self._question(incoming, incoming.copy, body.data)
        managed = await self._there(self._managed(question)) if question else Managed()
        if question and managed.body and managed.tools and form.of(incoming.path):
            return await self._merged(incoming, incoming.copy, body, question, managed)
        if managed.body:
            headers = forward.with_body(incoming.request.headers.raw_items(), len(managed.body))
            return await self._pass(incoming, incoming.copy, lambda upstream: _write(upstream, managed.body), headers)
        return await self._pass_own(incoming, incoming.copy, body)

    # --- the request

    async def _read_body(self, reading: h11.Connection) -> _Body:
        """The body of a request, whole if it is not too large. Raises: Disconnected."""
        if reading.they_are_waiting_for_100_continue:
            self._client.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        data = bytearray()
        while len(data) <= LARGEST:
            try:
                event = reading.next_event()
            except h11.RemoteProtocolError as error:
                raise Disconnected from error
            if isinstance(event, h11.Data):
                data += event.data
            elif event is h11.NEED_DATA:
                reading.receive_data(await read(self._client.reader))
            elif isinstance(event, h11.EndOfMessage):
                self._ahead = reading.trailing_data[0]
                return _Body(bytes(data), True, tuple(event.headers.raw_items()))
            else:
                raise Disconnected
        return _Body(bytes(data), False)

    async def _send_more(self, body: _Body, reading: h11.Connection, upstream: Connection, copy: Copy | None) -> None:
        """Passes a body that was partly read."""
        await _write(upstream, _chunk(body.data))
        await self._send_chunks(reading, upstream, copy)

    async def _question(self, incoming: Incoming, copy: Copy, data: bytes) -> Requested | None:
        """The question to the recorder about a request; None if the body cannot be read, which its copy reports."""
        try:
            body = await self._proxy.decoded(data, incoming.headers.get("content-encoding", ""))
        except ValueError:
            return None
        return requested(copy, incoming.route.upstream.name, incoming.path, incoming.headers, body)

    async def _managed(self, question: Requested) -> Managed:
        """What goes out instead of a request; an empty one after a failure, which is reported."""
        try:
            return await come(self._proxy.recorder.ask(question))
        except Exception as error:
            self._proxy.report(error)
            return Managed()

    # --- what goes out

    async def _pass_own(self, incoming: Incoming, copy: Copy, body: _Body) -> bool:
        """Passes the client's own request and its answer."""
        return await self._pass(incoming, copy, lambda upstream: _write(upstream, body.framed(incoming.request)))

    async def _pass(
        self,
        incoming: Incoming,
        copy: Copy,
        body: Callable[[Connection], Coroutine[Any, Any, None]],
        headers: Sequence[tuple[bytes, bytes]] | None = None,
    ) -> bool:
        """Passes a request with that body, and its answer unchanged. Raises: Disconnected, OSError."""
        try:
            upstream = await self._there(self._again(incoming.route.upstream))
        except OSError as error:
            return await self._unreachable(incoming.route.upstream, error)
        upstream.writer.write(incoming.head(headers or _unexpecting(incoming.request.headers.raw_items())))
        return await self._passed(body(upstream), upstream, copy, incoming.request)

    async def _merged(self, incoming: Incoming, copy: Copy, body: _Body, question: Requested, managed: Managed) -> bool:
        """Passes the model's answers as one. Raises: Disconnected, OSError."""
        answer = ManagedAnswer(question, managed, recorder=self._proxy.recorder, copy=copy)

        async def ask(data: bytes) -> Connection:
            upstream = await self._again(incoming.route.upstream)
            headers = forward.with_body(incoming.request.headers.raw_items(), len(data), plain=True)
            with suppress(OSError):  # the missing answer shows it
                await _write(upstream, incoming.head(headers) + data)
            return upstream

        passage = Passage(self._client, incoming.request, answer, ask, self._close_upstream)
        try:
            await self._there(self._again(incoming.route.upstream))
        except OSError as error:
            return await self._unreachable(incoming.route.upstream, error)
        try:
            return await self._there(passage.passed())
        except Unmanageable as unmanageable:
            return await self._pass_on(unmanageable, copy)
        except (OSError, Disconnected):
            raise
        except Exception as error:
            cause = error.__cause__ if isinstance(error, Failed) else None
            self._proxy.report(cause if isinstance(cause, Exception) else error)
            if passage.is_begun:
                await passage.fail()
                return False
            self._close_upstream()
            return await self._pass_own(incoming, copy, body)
        finally:
            answer.settle()
            self._proxy.end(copy, answer)

    async def _pass_on(self, first: Unmanageable, copy: Copy) -> bool:
        """Passes an answer unchanged after its head has been read. Raises: Disconnected, OSError."""
        assert self._upstream is not None
        answer = first.reading
        if first.content.status:
            copy.answered(first.content.status, first.content.headers)
            copy.received(first.content.newest())
        answer.taker = copy
        self._client.writer.write(first.raw)
        try:
            return await self._there(self._answer(self._upstream, answer))
        finally:
            answer.look()
            self._proxy.end(copy, answer)

    # --- connections

    async def _again(self, upstream: Upstream) -> Connection:
        """The connection to the upstream; a new one if the old one has ended. Raises: OSError."""
        if self._upstream and not self._upstream.reader.at_eof():
            return self._upstream
        self._close_upstream()
        connecting = asyncio.ensure_future(self._proxy.network.connect(upstream))
        try:
            self._upstream = await asyncio.shield(connecting)
        except asyncio.CancelledError:
            connecting.add_done_callback(abort)  # cancelling it halfway would leave a socket behind
            raise
        return self._upstream

    async def _there(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of the work, as long as the client is there. Raises: Disconnected if the client goes away."""
        working, watching = asyncio.ensure_future(work), asyncio.ensure_future(self._watch())
        try:
            await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise Disconnected
            return working.result()
        finally:
            await let_go(working, watching)


def _size(request: h11.Request) -> int:
    """The length of the request's body; 0 if its head does not say."""
    return int(dict(request.headers).get(b"content-length", b"0"))


def _unexpecting(headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers without `Expect`, which has been met."""
    return [(name, value) for name, value in headers if name.lower() != b"expect"]


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def _write(upstream: Connection, data: bytes) -> None:
    upstream.writer.write(data)
    await upstream.writer.drain()
