"""The HTTP server for this machine, asked by raw sockets: who is answered, and what a bad client can do."""

from __future__ import annotations

import http.client
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxvc import loopback
from ctxvc.errors import BadInput, Refused
from ctxvc.loopback import Request, Response, Server
from tests.making.loopback import TOKEN, serving


def echo(request: Request) -> Response:
    if request.path == "/bug":
        raise ZeroDivisionError("secret")
    return Response(200, request.method.encode() + b" " + request.body, "text/plain")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(answer=echo, largest=1000) as running:
        yield running


def raw(server: Server, data: bytes) -> bytes:
    """All that is answered to these bytes, after which the client sends nothing more."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        parts = []
        while part := client.recv(65536):
            parts.append(part)
        return b"".join(parts)


def head(
    server: Server, *lines: str, method: str = "POST", path: str = "/", host: str = "", token: str = TOKEN
) -> bytes:
    """A request's head with what a good one has, but for what is given."""
    own = [f"Host: {host or f'127.0.0.1:{server.port}'}", *([f"Authorization: Bearer {token}"] if token else [])]
    return "\r\n".join([f"{method} {path} HTTP/1.1", *own, *lines, "", ""]).encode("latin-1")


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def test_a_request_with_the_token_is_answered(server: Server) -> None:
    client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    for body in (b"one", b"two"):  # on one connection
        client.request("PUT", "/", body, {"Authorization": f"bearer {TOKEN}"})
        answer = client.getresponse()
        assert (answer.status, answer.read()) == (200, b"PUT " + body)
    assert (answer.headers["Cache-Control"], answer.headers["Server"]) == ("no-store", "ctxvc")
    client.close()


@pytest.mark.parametrize("token", ["", "wrong", TOKEN + "x", TOKEN[:-1], "é" * 20])
def test_without_the_token_nobody_is_answered(server: Server, token: str) -> None:
    answer = raw(server, head(server, token=token))
    assert status(answer) == 401 and b"WWW-Authenticate: Bearer\r\n" in answer


@pytest.mark.parametrize(
    ("host", "code"),
    [
        ("evil.example", 421), ("evil.example:{port}", 421), ("127.0.0.1", 421), ("127.0.0.1:1", 421),
        ("10.0.0.1:{port}", 421), ("127.0.0.1.evil.example:{port}", 421), ("[::2]:{port}", 421), (":{port}", 421),
        ("localhost:{port}", 200), ("LOCALHOST:{port}", 200), ("[::1]:{port}", 200),
    ],
)  # fmt: skip
def test_a_name_that_was_bound_to_this_machine_is_not_answered(server: Server, host: str, code: int) -> None:
    assert status(raw(server, head(server, "Connection: close", host=host.format(port=server.port)))) == code


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("Origin: http://evil.example", 403), ("Origin: null", 403), ("Origin: http://localhost:1", 403),
        ("Origin: https://localhost:{port}", 403), ("Origin:", 403), ("Sec-Fetch-Site: same-site", 403),
        ("Sec-Fetch-Site: cross-site", 403), ("Origin: http://localhost:{port}", 200),
        ("Sec-Fetch-Site: same-origin", 200), ("Host: 127.0.0.1:{port}", 400), ("Authorization: Bearer x", 400),
    ],
)  # fmt: skip
def test_pages_of_other_origins_are_not_answered(server: Server, line: str, code: int) -> None:
    assert status(raw(server, head(server, line.format(port=server.port)))) == code


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("Transfer-Encoding: chunked", 411), ("Content-Length: -1", 400), ("Content-Length: x", 400),
        ("Content-Length: 1001", 413), ("Content-Length: " + "9" * 5000, 413),
        ("Content-Length: 1\r\nContent-Length: 2", 400), ("Content-Length: 1\r\nTransfer-Encoding: chunked", 411),
        ("X: " + "x" * 40_000, 431), ("\r\n".join(f"X-{n}: y" for n in range(200)), 431),
    ],
)  # fmt: skip
def test_what_is_too_much_or_ambiguous_is_refused(server: Server, line: str, code: int) -> None:
    answer = raw(server, head(server, line) + b"0\r\n\r\n")
    assert status(answer) == code
    assert answer.count(b"HTTP/1.1 ") == 1, "what follows a refused head was taken for a request"


@pytest.mark.parametrize("data", [b"", b"\r\n", b"\x00" * 100, b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET /\r\n",
                                  b"x" * 40_000, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"])  # fmt: skip
def test_what_is_no_request_ends_the_connection(server: Server, data: bytes) -> None:
    answer = raw(server, data)
    assert b" 200 " not in answer.partition(b"\r\n")[0]
    assert status(raw(server, head(server))) == 200


def test_the_body_is_asked_for_once_the_head_is_accepted(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
        client.sendall(head(server, "Expect: 100-continue", "Content-Length: 3", "Connection: close"))
        assert client.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(b"abc")
        assert b"".join(iter(lambda: client.recv(65536), b"")).endswith(b"POST abc")
    assert status(raw(server, head(server, "Expect: 100-continue", "Content-Length: 1001"))) == 413


def test_a_bug_is_reported_and_not_told() -> None:
    faults: list[Exception] = []
    with serving(answer=echo, report=faults.append) as server:
        answer = raw(server, head(server, path="/bug"))
    assert status(answer) == 500 and b"secret" not in answer
    assert [type(fault) for fault in faults] == [ZeroDivisionError]


def drip(server: Server, data: bytes) -> int:
    """How many bytes the server puts up with, if they come one at a time."""
    sent = 0
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
        try:
            for sent in range(len(data)):
                client.sendall(data[sent : sent + 1])
                client.settimeout(0.05)
                try:
                    if not client.recv(65536):
                        break
                except TimeoutError:
                    client.settimeout(20)
        except ConnectionError:
            pass
    return sent


def test_a_client_that_sends_byte_by_byte_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loopback, "_HEAD_SECONDS", 0.2)
    monkeypatch.setattr(loopback, "_BODY_SECONDS", 0.2)
    with serving(answer=echo) as server:
        assert drip(server, head(server, "X: " + "y" * 200)) < 100
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
            client.sendall(head(server, "Content-Length: 100") + b"x")
            assert status(client.recv(65536)) == 408


def test_a_client_that_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loopback, "_ANSWER_SECONDS", 0.2)
    large = Response(200, b"x" * (64 << 20))
    with serving(answer=lambda _: large, connections=1) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
            client.sendall(head(server))
            time.sleep(0.6)
            again = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
            again.request("GET", "/", headers={"Authorization": f"Bearer {TOKEN}"})
            assert again.getresponse().status == 200  # its place is free again
            again.close()


def test_more_clients_than_threads_are_turned_away() -> None:
    with serving(answer=echo, connections=2) as server:
        waiting = [socket.create_connection(("127.0.0.1", server.port), timeout=20) for _ in range(2)]
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as third:
            assert third.recv(65536).startswith(b"HTTP/1.1 503 ")
        for one in waiting:
            one.close()
        until = time.monotonic() + 20
        while time.monotonic() < until:
            try:
                answer = raw(server, head(server))
            except OSError:  # turned away, perhaps in the middle  # it was turned away before it had asked
                continue
            if answer and status(answer) == 200:
                return
        raise AssertionError("no place was given back")


def test_a_port_that_is_taken_is_refused(server: Server) -> None:
    with pytest.raises(Refused, match="cannot be served"):
        Server(("127.0.0.1", server.port), token=TOKEN, answer=echo, report=print)


@pytest.mark.parametrize("host", ["127.0.0.2", "::1"])
def test_an_address_of_this_machine_is_its_own_name(host: str) -> None:
    try:
        socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError:
        pytest.skip(f"this machine has no {host}")
    with serving(host, answer=echo) as server:
        client = http.client.HTTPConnection(host, server.port, timeout=20)
        client.request("GET", "/", headers={"Authorization": f"Bearer {TOKEN}", "Host": server.url.partition("//")[2]})
        assert client.getresponse().status == 200
        client.close()


def test_beyond_this_machine_a_number_is_no_name_of_a_stranger() -> None:
    with serving("0.0.0.0", answer=echo) as server:
        hosts = [f"{host}:{server.port}" for host in ("192.168.7.7", "[fe80::1]", "localhost", "evil.example")]
        statuses = [status(raw(server, head(server, "Connection: close", host=host))) for host in hosts]
    assert statuses == [200, 200, 200, 421]


@pytest.mark.parametrize(
    ("written", "address"),
    [("8765", ("127.0.0.1", 8765)), (":1", ("127.0.0.1", 1)), ("localhost:0", ("127.0.0.1", 0)),
     ("[::1]:80", ("::1", 80)), ("10.0.0.7:80", ("10.0.0.7", 80))],
)  # fmt: skip
def test_an_address_is_a_port_with_or_without_a_host(written: str, address: tuple[str, int]) -> None:
    assert loopback.parsed_address(written) == address


@pytest.mark.parametrize("written", ["", "x", "1:x", "65536", "-1", "²", "127.0.0.1"])
def test_what_is_no_address_is_refused(written: str) -> None:
    with pytest.raises(BadInput, match="not an address"):
        loopback.parsed_address(written)


def test_a_token_is_kept_in_a_file_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "token"
    token = loopback.token_of_file(file)
    assert len(token) > 40 and file.stat().st_mode & 0o777 == 0o600
    assert loopback.token_of_file(file) == token != loopback.new_token()
    file.chmod(0o640)
    with pytest.raises(Refused, match="others can read"):
        loopback.token_of_file(file)
    file.chmod(0o600)
    file.write_text("\n")
    with pytest.raises(BadInput, match="no token"):
        loopback.token_of_file(file)
    (tmp_path / "link").symlink_to(file)
    os.mkfifo(tmp_path / "pipe", 0o600)
    for other in ("link", "pipe", "no/such"):
        with pytest.raises(Refused):
            loopback.token_of_file(tmp_path / other)
