"""Whatever a server sends, a client behind the proxy sees the same bytes and the same end as one that asks directly."""

from __future__ import annotations

import gzip
from collections.abc import Iterator

import pytest
from hypothesis import given, strategies

from tests.wire.raw import KEY, OPEN, PAUSE, RESET, Running, Seen, Step, Upstream, ask, post, running

PATH = "/v1/messages"
BODY = b'{"model": "m", "messages": []}'
EVENT = b'event: ping\ndata: {"type": "ping"}\n\n'
ZIPPED = gzip.compress(b'{"id": "1"}')


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

#: What a server does → its steps, and how often what it says is recorded as whole, and as broken off.
ANSWERS: dict[str, tuple[tuple[Step, ...], bool | None]] = {
    "a body with a length": ((b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", OPEN), True),
    "odd spelling, order and doubles": (
        (b"HTTP/1.1 200 Fine\r\nset-cookie: a\r\nX-ODD:  1 \r\nSet-Cookie: b\r\ncontent-length: 1\r\n\r\n1", OPEN),
        True,
    ),
    "no reason": ((b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", OPEN), True),
    "a stream": ((STREAM + chunk(EVENT), chunk(EVENT), b"0\r\n\r\n", OPEN), True),
    "chunks in pieces": ((STREAM[:20], STREAM[20:] + b"5", b"\r\nab", b"cde\r", b"\n0\r\n", b"\r\n", OPEN), True),
    "chunks with extensions, and trailers": ((STREAM + b"3;a=b\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n", OPEN), True),
    "a stream cut in a chunk": ((STREAM + chunk(EVENT) + b"ff\r\nab",), False),
    "a stream cut between chunks": ((STREAM + chunk(EVENT),), False),
    "a stream that breaks": ((STREAM + chunk(EVENT), RESET), False),
    "a body cut short": ((b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nabc",), False),
    "a body until the end": ((b"HTTP/1.0 200 OK\r\n\r\nabc",), True),
    "a body until the connection breaks": ((b"HTTP/1.0 200 OK\r\n\r\nabc", RESET), False),
    "compressed": (
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s" % (len(ZIPPED), ZIPPED), OPEN),
        True,
    ),
    "too many requests": (
        (b'HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\nContent-Length: 2\r\n\r\n{}', OPEN), True),
    "overloaded": ((b"HTTP/1.1 529 \r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}",), True),
    "a redirect": ((b"HTTP/1.1 307 Elsewhere\r\nLocation: http://127.0.0.1/\r\nContent-Length: 0\r\n\r\n", OPEN), True),
    "no content": ((b"HTTP/1.1 204 No Content\r\n\r\n", OPEN), True),
    "interim answers": (
        (b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", OPEN), True),
    "both lengths": ((STREAM[:-2] + b"Content-Length: 3\r\n\r\n" + chunk(b"ab") + b"0\r\n\r\n", OPEN), True),
    "two lengths": ((b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",), None),
    "an unknown transfer encoding": ((b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nabcd",), None),
    "garbage": ((b"\x00\xff garbage\r\nmore\r\n",), None),
    "garbage in a chunk's size": ((STREAM + b"zz\r\nabc",), False),
    "garbage behind an answer": ((b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/9 what",), True),
    "garbage behind a stream": ((STREAM + chunk(EVENT) + b"0\r\n\r\nHTTP/9 what",), True),
    "a last word between two requests": (
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", PAUSE, b"HTTP/1.1 408 Too late\r\n\r\n"), True),
    "nothing": ((), None),
    "nothing but a break": ((RESET,), None),
    "an upgrade that nobody asked for": ((b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\nabc",), None),
    "a head without an end": ((b"HTTP/1.1 200 OK\r\n" + b"X-A: " + b"a" * 300_000,), None),
}  # fmt: skip


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    server = Upstream()
    yield server
    server.close()


def seen(port: int, path: str, upstream: Upstream, expected: int) -> Seen:
    return ask(port, post(port, path, BODY), until=lambda data: len(data) >= expected and OPEN in upstream.steps)


def both(upstream: Upstream, *steps: Step) -> tuple[Seen, Seen, Running]:
    """What a client sees that asks directly, and one behind a proxy, which has ended."""
    upstream.steps = list(steps)
    size = sum(len(step) for step in steps if isinstance(step, bytes))
    with running({"anthropic": f"http://127.0.0.1:{upstream.port}"}) as proxy:
        behind = seen(proxy.port, f"/{KEY}{PATH}", upstream, size)
    return seen(upstream.port, PATH, upstream, size), behind, proxy


@pytest.mark.parametrize("name", ANSWERS)
def test_a_client_sees_what_it_sees_without_the_proxy(name: str, upstream: Upstream) -> None:
    steps, whole = ANSWERS[name]
    directly, behind, proxy = both(upstream, *steps)

    assert behind == directly
    assert not proxy.troubles
    assert [exchange.whole for exchange in proxy.recording.exchanges] == ([] if whole is None else [whole])


@given(strategies.lists(strategies.binary(max_size=60), max_size=4), strategies.booleans())
def test_bytes_that_mean_nothing_pass_as_they_are(upstream: Upstream, pieces: list[bytes], begins: bool) -> None:
    steps = [STREAM, *pieces] if begins else pieces
    directly, behind, proxy = both(upstream, *filter(None, steps))

    assert behind == directly
    assert not proxy.troubles


def test_what_is_recorded_is_decoded_and_has_its_end(upstream: Upstream) -> None:
    _, _, proxy = both(upstream, *ANSWERS["compressed"][0])
    _, _, streaming = both(upstream, *ANSWERS["a stream cut between chunks"][0])

    (exchange,), (cut,) = proxy.recording.exchanges, streaming.recording.exchanges
    assert (exchange.upstream, exchange.path, exchange.body, exchange.status) == ("anthropic", PATH, BODY, 200)
    assert exchange.answer == gzip.decompress(ZIPPED) and not exchange.stream
    assert exchange.began <= exchange.first <= exchange.ended
    assert (cut.answer, cut.stream, cut.whole) == (EVENT, True, False)
