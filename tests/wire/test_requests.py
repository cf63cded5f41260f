"""What an upstream gets is what the client sent, but for the host and the key; and what is not forwarded."""

from __future__ import annotations

import gzip
import json
import socket
import zlib
from collections.abc import Iterator
from contextlib import suppress

import brotli
import pytest
from backports import zstd

from ctxvc.wire.exchange import LARGEST
from ctxvc.wire.proxy import bound
from tests.wire.raw import KEY, OPEN, PATIENCE, Running, Upstream, ask, post, running

PATH = "/v1/messages"
BODY = b'{"model": "m"}'
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


def got(data: bytes) -> bool:
    return data.endswith(OK)


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    server = Upstream(OK, OPEN)
    yield server
    server.close()


@pytest.fixture
def proxy(upstream: Upstream) -> Iterator[Running]:
    with running({"anthropic": f"http://127.0.0.1:{upstream.port}"}, keyless=("anthropic",)) as proxy:
        yield proxy


#: Lines of a head behind `Host`, and what of them goes on where that is not all.
HEADS: dict[str, tuple[list[str], list[str] | None]] = {
    "spelling, order and doubles": (["x-A: 1", "X-b: 2", "X-a: 3", "USER-AGENT: me", "Accept: */*"], None),
    "keys": (["Authorization: Bearer sk-1", "x-api-key: sk-2", "Cookie: c=1"], None),
    "one message a connection": (["Connection: close"], None),
    "kept open": (["Connection: Keep-Alive", "Keep-Alive: timeout=5"], None),
    "trailers are taken": (["TE: trailers", "Connection: TE"], None),
    "an upgrade to HTTP/2": (
        ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: A", "X-A: 1"], ["X-A: 1"]),
    "what Connection names": (
        ["Connection: keep-alive, X-Hop", "X-Hop: 1", "X-A: 1"], ["Connection: keep-alive", "X-A: 1"]),
    "what it names in vain": (["Connection: content-length, host", "X-A: 1"], ["X-A: 1"]),
    "what is for a proxy": (["Proxy-Authorization: Basic x", "Proxy-Connection: keep-alive", "X-A: 1"], ["X-A: 1"]),
}  # fmt: skip


@pytest.mark.parametrize("name", HEADS)
def test_a_head_goes_on_with_another_host(name: str, upstream: Upstream, proxy: Running) -> None:
    sent, passed = HEADS[name]
    ask(proxy.port, post(proxy.port, f"/{KEY}{PATH}?beta=%74rue", BODY, *sent), until=got)

    lines = [
        f"POST {PATH}?beta=%74rue HTTP/1.1",
        f"Host: 127.0.0.1:{upstream.port}",
        *(sent if passed is None else passed),
    ]
    assert upstream.requests == ["\r\n".join([*lines, f"Content-Length: {len(BODY)}", "", ""]).encode() + BODY]


def test_a_body_in_chunks_passes_in_chunks(upstream: Upstream, proxy: Running) -> None:
    head = f"POST /{KEY}{PATH} HTTP/1.1\r\nHost: 127.0.0.1:{proxy.port}\r\nTransfer-Encoding: chunked\r\n\r\n"
    ask(proxy.port, head.encode(), b"3;x=y\r\nabc\r\n", b"2\r\nde\r\n0\r\n\r\n", until=got)

    body = upstream.requests[0].partition(b"\r\n\r\n")[2]
    assert body.replace(b"3\r\nabc\r\n2\r\nde\r\n", b"5\r\nabcde\r\n") == b"5\r\nabcde\r\n0\r\n\r\n"
    assert wait(proxy)[0].body == b"abcde"


def test_a_client_that_waits_for_100_gets_the_upstreams(proxy: Running, upstream: Upstream) -> None:
    """It sends no body before, and the upstream says so without having seen one."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        with running({"anthropic": f"http://127.0.0.1:{listening.getsockname()[1]}"}) as waiting:
            request = post(waiting.port, f"/{KEY}{PATH}", BODY, "Expect: 100-continue")
            with socket.create_connection(("127.0.0.1", waiting.port), PATIENCE) as client:
                client.sendall(request.removesuffix(BODY))
                connection, _ = listening.accept()
                with connection:
                    assert b"Expect: 100-continue" in connection.recv(65536)
                    connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
                    assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
                    client.sendall(BODY)
                    assert connection.recv(100) == BODY
                    connection.sendall(OK)
                    assert client.recv(100) == OK


def test_requests_on_one_connection_are_answered_in_order_over_one_connection(
    upstream: Upstream, proxy: Running
) -> None:
    bodies = [b"[%d]" % number for number in range(3)]
    requests = [post(proxy.port, f"/{KEY}{PATH}", body) for body in bodies]

    seen = ask(proxy.port, requests[0], b"".join(requests[1:]), until=lambda data: data == OK * 3)

    assert seen.data == OK * 3
    assert [request.partition(b"\r\n\r\n")[2] for request in upstream.requests] == bodies
    assert upstream.connections == 1


def test_an_upstream_that_ends_a_connection_ends_the_clients(upstream: Upstream, proxy: Running) -> None:
    upstream.steps = [OK]

    assert ask(proxy.port, post(proxy.port, f"/{KEY}{PATH}", BODY)) == (OK, "closed")


def test_a_path_of_the_upstreams_own_stays_in_front(upstream: Upstream) -> None:
    with running({"anthropic": f"http://127.0.0.1:{upstream.port}/gateway/x/"}) as proxy:
        ask(proxy.port, post(proxy.port, f"/{KEY}{PATH}?a=1", BODY), until=got)

    assert upstream.requests[0].startswith(b"POST /gateway/x/v1/messages?a=1 HTTP/1.1\r\n")


def test_a_port_without_a_key_is_for_one_upstream(upstream: Upstream, proxy: Running) -> None:
    port = proxy.ports["anthropic"]
    ask(port, post(port, PATH, BODY), until=got)

    assert upstream.requests[0].startswith(b"POST /v1/messages HTTP/1.1\r\n")
    assert wait(proxy)[0].path == PATH


ENCODINGS = {
    "gzip": gzip.compress(BODY),
    "gzip, gzip": gzip.compress(gzip.compress(BODY)),
    "deflate": zlib.compress(BODY),
    "identity, deflate": zlib.compress(BODY)[2:-4],
    "br": brotli.compress(BODY),
    "zstd": zstd.compress(BODY) + zstd.compress(b""),
    "identity": BODY,
}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_compressed_body_passes_as_it_is_and_is_recorded_as_what_it_says(
    encoding: str, upstream: Upstream, proxy: Running
) -> None:
    body = ENCODINGS[encoding]
    ask(proxy.port, post(proxy.port, f"/{KEY}{PATH}", body, f"Content-Encoding: {encoding}"), until=got)

    assert upstream.requests[0].endswith(b"\r\n\r\n" + body)
    assert wait(proxy)[0].body == BODY


def test_a_body_that_cannot_be_decoded_passes_and_is_reported(upstream: Upstream, proxy: Running) -> None:
    for encoding in ("gzip", "br", "zstd", "novel"):
        ask(proxy.port, post(proxy.port, f"/{KEY}{PATH}", BODY, f"Content-Encoding: {encoding}"), until=got)

    assert len(upstream.requests) == 4
    while len(proxy.troubles) < 4:
        pass
    assert {type(trouble) for trouble in proxy.troubles} == {ValueError}


def test_what_is_no_call_of_a_model_passes_and_is_not_recorded(upstream: Upstream) -> None:
    with running({"anthropic": f"http://127.0.0.1:{upstream.port}"}) as proxy:
        for path in ("/anthropic/v1/files", "/v1/messages/batches"):
            ask(proxy.port, post(proxy.port, f"/{KEY}{path}", BODY), until=got)
        ask(proxy.port, f"GET /{KEY}{PATH} HTTP/1.1\r\nHost: 127.0.0.1:{proxy.port}\r\n\r\n".encode(), until=got)

    assert len(upstream.requests) == 3
    assert not proxy.recording.exchanges


def test_a_body_that_is_too_large_passes_and_is_not_recorded(upstream: Upstream) -> None:
    body = bytes(LARGEST + 1)
    with running({"anthropic": f"http://127.0.0.1:{upstream.port}"}) as proxy:
        ask(proxy.port, post(proxy.port, f"/{KEY}{PATH}", body), until=got)

    assert upstream.requests[0].partition(b"\r\n\r\n")[2] == body
    assert not proxy.recording.exchanges


def test_a_client_that_goes_away_ends_the_upstreams_request() -> None:
    for sent in (len(BODY) - 3, len(BODY)):
        with socket.create_server(("127.0.0.1", 0)) as listening:
            with running({"anthropic": f"http://127.0.0.1:{listening.getsockname()[1]}"}) as proxy:
                with socket.create_connection(("127.0.0.1", proxy.port), PATIENCE) as client:
                    client.sendall(post(proxy.port, f"/{KEY}{PATH}", BODY).removesuffix(BODY) + BODY[:sent])
                    connection, _ = listening.accept()
                    connection.settimeout(PATIENCE)
                    seen = b""
                    while not seen.endswith(BODY[:sent]):
                        seen += connection.recv(65536)
                with connection, suppress(ConnectionResetError):
                    assert connection.recv(100) == b""


def test_an_answer_that_the_client_did_not_wait_for_is_recorded_as_broken_off() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        with running({"anthropic": f"http://127.0.0.1:{listening.getsockname()[1]}"}) as proxy:
            with socket.create_connection(("127.0.0.1", proxy.port), PATIENCE) as client:
                client.sendall(post(proxy.port, f"/{KEY}{PATH}", BODY))
                connection, _ = listening.accept()
                with connection:
                    connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
                    while b"abc" not in client.recv(100):
                        pass
                    connection.sendall(b"2\r\nde\r\n")
                    assert b"de" in client.recv(100)

    assert [(one.answer, one.whole) for one in proxy.recording.exchanges] == [(b"abcde", False)]


def test_an_upstream_that_is_not_there_is_said() -> None:
    with bound() as nobody:
        port = nobody.getsockname()[1]
    with running({"anthropic": f"http://127.0.0.1:{port}"}) as proxy:
        seen = ask(proxy.port, post(proxy.port, f"/{KEY}{PATH}", BODY))

    head, _, body = seen.data.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
    assert f"http://127.0.0.1:{port} cannot be reached" in json.loads(body)["error"]["message"]
    assert not proxy.recording.exchanges


def test_a_recorder_that_fails_stops_nothing(upstream: Upstream) -> None:
    def failing(_exchange: object) -> None:
        raise OSError("no space left on device")

    with running({"anthropic": f"http://127.0.0.1:{upstream.port}"}) as proxy:
        proxy.recording.record = failing  # type: ignore[method-assign, assignment]
        requests = [post(proxy.port, f"/{KEY}{PATH}", BODY)] * 2
        seen = ask(proxy.port, *requests, until=lambda data: data == OK * 2)

    assert seen.data == OK * 2
    assert [str(trouble) for trouble in proxy.troubles] == ["no space left on device"] * 2


TO = f"POST /{KEY}{PATH} HTTP/1.1"
HERE = "Host: 127.0.0.1:{port}"
#: The lines of requests that nobody forwards → the status that they get. `{port}` is the proxy's.
REFUSED: dict[str, tuple[int, list[str]]] = {
    "no key": (404, ["POST /v1/messages HTTP/1.1", HERE]),
    "another key": (404, ["POST /the-key-of-the-testS/v1/messages HTTP/1.1", HERE]),
    "a key in a query": (404, [f"POST /?{KEY} HTTP/1.1", HERE]),
    "another host": (421, [TO, "Host: evil.example:{port}"]),
    "another port": (421, [TO, "Host: 127.0.0.1:1"]),
    "a page elsewhere": (403, [TO, HERE, "Origin: https://evil.example"]),
    "a page on another port": (403, [TO, HERE, "Origin: http://127.0.0.1:1"]),
    "another site": (403, [TO, "Host: localhost:{port}", "Sec-Fetch-Site: cross-site"]),
    "a web socket": (
        426, [f"GET /{KEY}/v1/responses HTTP/1.1", HERE, "Connection: Upgrade", "Upgrade: websocket"]),
    "a tunnel": (400, ["CONNECT evil.example:443 HTTP/1.1", HERE]),
    "a whole URL": (400, [f"POST http://evil.example/{KEY} HTTP/1.1", HERE]),
    "no host": (400, [TO, "X: 1"]),
    "two hosts": (400, [TO, HERE, HERE]),
    "both lengths": (400, [TO, HERE, "Content-Length: 3", "Transfer-Encoding: chunked"]),
    "two lengths": (400, [TO, HERE, "Content-Length: 3", "Content-Length: 4"]),
    "a signed length": (400, [TO, HERE, "Content-Length: +3"]),
    "another transfer encoding": (501, [TO, HERE, "Transfer-Encoding: gzip"]),
    "a hidden transfer encoding": (400, [TO, HERE, "Transfer-Encoding : chunked"]),
    "a space before a name": (400, [TO, " " + HERE]),
    "no request": (400, ["hello"]),
    "a head that is too long": (431, [TO, HERE, "X: " + "a" * 900_000]),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_forwarded(name: str, upstream: Upstream, proxy: Running) -> None:
    status, lines = REFUSED[name]
    head = "\r\n".join([*lines, "", ""]).replace("{port}", str(proxy.port))

    seen = ask(proxy.port, head.encode())

    assert seen.data.startswith(b"HTTP/1.1 %d " % status) and seen.end == "closed"
    assert not upstream.requests


def test_a_request_behind_another_needs_the_key_too(upstream: Upstream, proxy: Running) -> None:
    hidden = f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1:{proxy.port}\r\nContent-Length: 0\r\n\r\n".encode()

    seen = ask(proxy.port, post(proxy.port, f"/{KEY}{PATH}", b"") + hidden)

    assert seen.data.startswith(OK + b"HTTP/1.1 404 ")
    assert len(upstream.requests) == 1


def wait(proxy: Running) -> list:  # type: ignore[type-arg]
    """The exchanges, once there is one."""
    while not proxy.recording.exchanges:
        assert not proxy.troubles
    return proxy.recording.exchanges
