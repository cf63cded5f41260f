"""Chunks are read as another library reads them, however they come."""

from __future__ import annotations

from itertools import pairwise

import h11
from hypothesis import given, strategies

from ctxvc.wire.answer import Chunks

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def by_h11(body: bytes) -> tuple[bytes, bool]:
    """Content, and whether the body came to its end. Raises: h11.RemoteProtocolError."""
    reading = h11.Connection(h11.CLIENT)
    reading.send(h11.Request(method="GET", target="/", headers=[("Host", "a")]))
    reading.send(h11.EndOfMessage())
    reading.receive_data(HEAD + body)
    content = b""
    while not isinstance(event := reading.next_event(), h11.EndOfMessage):
        if event is h11.NEED_DATA:
            return content, False
        content += event.data if isinstance(event, h11.Data) else b""
    return content, True


def by_us(body: bytes, cuts: list[int]) -> tuple[bytes, bool]:
    chunks, content = Chunks(), b""
    places = [0, *sorted(cut % (len(body) + 1) for cut in cuts), len(body)]
    for begin, end in pairwise(places):
        content += chunks.content(body[begin:end])
    return content, chunks.over


WHOLE = [b"3\r\nabc\r\n", b"a;x=y\r\n0123456789\r\n", b"0\r\n\r\n", b"0\r\nX: 1\r\n\r\n"]
BROKEN = [b"\r\n", b"5\r\nab", b"2\r\nabc\r\n", b"zz\r\n", b"0A \r\n", b"a"]
PARTS = strategies.sampled_from([*WHOLE, *BROKEN])


@given(strategies.lists(PARTS, max_size=8), strategies.lists(strategies.integers(0, 200), max_size=6))
def test_any_body_is_read_as_h11_reads_it(parts: list[bytes], cuts: list[int]) -> None:
    body = b"".join(parts)
    try:
        expected = by_h11(body)
    except h11.RemoteProtocolError:
        expected = None
    try:
        actual = by_us(body, cuts)
    except ValueError:
        actual = None

    assert actual == expected


def test_a_large_chunk_is_read_in_time_that_grows_with_it() -> None:
    chunks, size = Chunks(), 64 << 20
    pieces = [b"%x\r\n" % size, *[bytes(1 << 16)] * (size >> 16), b"\r\n0\r\n\r\nnext"]

    assert sum(len(chunks.content(piece)) for piece in pieces) == size
    assert chunks.over and chunks.behind == b"next"
