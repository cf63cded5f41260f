"""Passes the model's answers to a managed request to the client, as one answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

import h11

from ctxvc.wire.answer import Answer
from ctxvc.wire.managed_answer import BROKEN, ManagedAnswer, come, passing
from ctxvc.wire.network import CHUNK, Connection

_JSON = (b"Content-Type", b"application/json")


class Content:
    """Takes the content of an answer, in place of a copy."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: list[tuple[str, str]] = []
        self._pieces: list[bytes] = []

    def answered(self, status: int, headers: Iterable[tuple[str, str]]) -> None:
        self.status, self.headers = status, list(headers)

    def received(self, data: bytes) -> None:
        self._pieces.append(data)

    def newest(self) -> bytes:
        """The content that has come since the last time."""
        data, self._pieces = b"".join(self._pieces), []
        return data


class _Beginning(NamedTuple):
    """What has come of an answer, and what has read that far."""

    raw: bytes
    reading: Answer
    content: Content


class Unmanageable(Exception):
    """The first answer cannot be merged: `raw` is what has come of it, and `reading` has read that far."""

    def __init__(self, raw: bytes, reading: Answer, content: Content) -> None:
        super().__init__()
        self.raw, self.reading, self.content = raw, reading, content


class Failed(Exception):
    """Something of ours failed, which is the cause: what comes after an answer is unknown."""


class Passage:
    """Asks the model and passes on its answer, and asks again as long as the model only calls our tools."""

    def __init__(
        self,
        client: Connection,
        request: h11.Request,
        answer: ManagedAnswer,
        ask: Callable[[bytes], Awaitable[Connection]],
        release: Callable[[], None],
    ) -> None:
        """`ask` sends the model a body; `release` is called if its connection cannot be used again."""
        self._client, self._request, self._answer = client, request, answer
        self._ask, self._release = ask, release
        self._is_chunked = request.http_version >= b"1.1"
        self._head: tuple[bytes, list[tuple[bytes, bytes]]] = (b"", [])
        self._is_begun = False
        self._ends = not self._is_chunked or _closes(request.headers)

    @property
    def is_begun(self) -> bool:
        """Whether the client has got anything yet."""
        return self._is_begun

    async def passed(self) -> bool:
        """Passes everything; returns whether the client's connection can be used again. Raises: Unmanageable, Failed;
        OSError if a connection breaks."""
        upstream = await self._ask(self._answer.body)
        goes_on = await self._model(upstream, await self._beginning(upstream), is_first=True)
        while goes_on:
            try:
                upstream, beginning = await self._again(upstream)
            except OSError:
                self._answer.broke()
                break
            goes_on = await self._model(upstream, beginning, is_first=False)
        return await self._finish()

    async def fail(self) -> None:
        """Tells the client, which has got the beginning, that the answer broke off."""
        self._answer.broke()
        await self._finish()

    async def _again(self, previous: Connection) -> tuple[Connection, _Beginning]:
        """Asks again, and reads the beginning of the answer. A connection that was kept open may have ended meanwhile:
        then another takes its place. Raises: OSError.
        """
        upstream = await self._ask(self._answer.body)
        beginning = await self._beginning(upstream)
        if upstream is previous and not beginning.raw:
            self._release()
            upstream = await self._ask(self._answer.body)
            beginning = await self._beginning(upstream)
        return upstream, beginning

    async def _beginning(self, upstream: Connection) -> _Beginning:
        """An answer up to the end of its head, or of the connection."""
        content = Content()
        reading = Answer(self._request, content)
        raw = b""
        while not content.status and not reading.over and not reading.unreadable:
            data = await _read(upstream)
            raw += data
            reading.received(data)
            if not data:
                break
        return _Beginning(raw, reading, content)

    async def _model(self, upstream: Connection, beginning: _Beginning, *, is_first: bool) -> bool:
        """Passes an answer of the model; returns whether it is asked again. Raises: Unmanageable, Failed."""
        _, reading, content = beginning
        if not content.status or not self._answer.begin(content.status, content.headers):
            if is_first:
                raise Unmanageable(*beginning)
            self._release()
            self._answer.broke()
            return False
        if is_first and reading.head:
            self._head = (bytes(reading.head.reason), passing(reading.head.headers.raw_items()))
        if is_first and self._answer.stream:
            await self._begin([(b"Transfer-Encoding", b"chunked")])
        await self._content(upstream, reading, content)
        if not _is_kept_open(reading, upstream):
            self._release()
            self._ends = self._ends or is_first
        return await self._goes_on(complete=reading.whole)

    async def _goes_on(self, *, complete: bool) -> bool:
        """Whether the recorder has a continuation. Raises: Failed."""
        try:
            future = self._answer.ended(complete=complete)
            return future is not None and self._answer.goes_on(await come(future))
        except Exception as error:  # even one that looks like a connection's
            raise Failed from error

    async def _content(self, upstream: Connection, reading: Answer, content: Content) -> None:
        """Passes the content of an answer until its end, or the connection's."""
        while True:
            reading.look()
            await self._send(self._answer.received(content.newest()))
            if reading.over or reading.unreadable:
                return
            data = await _read(upstream)
            reading.received(data)
            if not data and not reading.over:
                reading.look(at_end=True)
                return

    # --- to the client

    async def _begin(self, framing: list[tuple[bytes, bytes]]) -> None:
        reason, headers = self._head
        if self._answer.status == BROKEN:
            reason, headers = b"Bad Gateway", [_JSON]
        if not self._is_chunked:
            framing = [(b"Connection", b"close")]
        lines = [
            b"HTTP/1.1 %d %s" % (self._answer.status, reason),
            *(b"%s: %s" % item for item in [*headers, *framing]),
        ]
        self._is_begun = True
        self._client.writer.write(b"\r\n".join(lines) + b"\r\n\r\n")
        await self._client.writer.drain()

    async def _send(self, data: bytes) -> None:
        if data and self._answer.stream:
            self._client.writer.write(b"%x\r\n%s\r\n" % (len(data), data) if self._is_chunked else data)
            await self._client.writer.drain()

    async def _finish(self) -> bool:
        if self._answer.is_cut:
            return False  # without an end, like the model's
        data = self._answer.last()
        if self._answer.stream:
            await self._send(data)
            self._client.writer.write(b"0\r\n\r\n" if self._is_chunked else b"")
        else:
            await self._begin([(b"Content-Length", b"%d" % len(data))])
            self._client.writer.write(data)
        await self._client.writer.drain()
        return not self._ends


def _is_kept_open(reading: Answer, upstream: Connection) -> bool:
    is_over = reading.over and not reading.unreadable and not upstream.reader.at_eof()
    head = reading.head
    return is_over and head is not None and head.http_version >= b"1.1" and not _closes(head.headers)


def _closes(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    return any(name == b"connection" and b"close" in value.lower() for name, value in headers)


async def _read(upstream: Connection) -> bytes:
    """The next bytes; empty at the end, and if the connection broke: the next read says so again."""
    try:
        return await upstream.reader.read(CHUNK)
    except OSError:
        return b""
