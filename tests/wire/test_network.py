"""Connections to upstreams: certificates are checked, and the network's proxy is asked as the client would ask it."""

from __future__ import annotations

import ipaddress
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ctxvc.wire.network import excepted
from tests.wire.raw import KEY, PATIENCE, ask, post, read_message, running

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
NAME = "upstream.test"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for `NAME` and 127.0.0.1 that nobody else has signed, with its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    now = datetime.now(timezone.utc)
    names = [x509.DNSName(NAME), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "certificate.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM) + private)
    return path


@contextmanager
def serving(answer: object) -> Iterator[int]:
    """The port of a server that calls `answer` with each connection."""

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(PATIENCE)
                try:
                    answer(connection)  # type: ignore[operator]
                except OSError:
                    pass

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(PATIENCE)


@pytest.fixture
def upstream(certificate: Path) -> Iterator[int]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    def answer(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as secured:
            assert read_message(secured)[0].startswith(b"POST /v1/messages HTTP/1.1\r\n")
            secured.sendall(OK)
            secured.recv(1)

    with serving(answer) as port:
        yield port


def test_an_upstream_whose_certificate_is_known_is_asked(upstream: int, certificate: Path) -> None:
    env = {"NODE_EXTRA_CA_CERTS": str(certificate)}
    with running({"anthropic": f"https://127.0.0.1:{upstream}"}, env) as proxy:
        seen = ask(proxy.port, post(proxy.port, f"/{KEY}/v1/messages", b"{}"), until=lambda data: data == OK)

    assert seen.data == OK


def test_any_other_is_not(upstream: int) -> None:
    with running({"anthropic": f"https://127.0.0.1:{upstream}"}) as proxy:
        seen = ask(proxy.port, post(proxy.port, f"/{KEY}/v1/messages", b"{}"))

    assert seen.data.startswith(b"HTTP/1.1 502 ")
    assert "certificate verify failed" in json.loads(seen.data.partition(b"\r\n\r\n")[2])["error"]["message"]


@pytest.mark.parametrize("agreed", [True, False])
def test_the_networks_proxy_makes_the_connection(agreed: bool, upstream: int, certificate: Path) -> None:
    """To a name that only it knows, with the person's name and password; what it refuses is told."""
    asked = []

    def tunnel(connection: socket.socket) -> None:
        asked.append(read_message(connection)[0])
        if not agreed:
            connection.sendall(b"HTTP/1.1 407 Who are you\r\n\r\n")
            return
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        with socket.create_connection(("127.0.0.1", upstream), PATIENCE) as other:
            for source, target in ((connection, other), (other, connection)):
                threading.Thread(target=pipe, args=(source, target), daemon=True).start()
            pipes.wait(PATIENCE)

    pipes = threading.Event()

    def pipe(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                target.sendall(data)
        except OSError:
            pass
        pipes.set()

    with serving(tunnel) as port:
        env = {"HTTPS_PROXY": f"http://me:p%40ss@127.0.0.1:{port}", "NODE_EXTRA_CA_CERTS": str(certificate)}
        with running({"anthropic": f"https://{NAME}"}, env) as proxy:
            seen = ask(proxy.port, post(proxy.port, f"/{KEY}/v1/messages", b"{}"), until=lambda data: data == OK)

    assert asked[0].startswith(b"CONNECT upstream.test:443 HTTP/1.1\r\n")
    assert b"\r\nProxy-Authorization: Basic bWU6cEBzcw==\r\n" in asked[0]
    assert seen.data == OK if agreed else b"407 Who are you" in seen.data


def test_a_proxy_that_cannot_be_used_is_told(certificate: Path) -> None:
    with running({"anthropic": f"https://{NAME}"}, {"ALL_PROXY": "socks5://user:secret@127.0.0.1:1"}) as proxy:
        seen = ask(proxy.port, post(proxy.port, f"/{KEY}/v1/messages", b"{}"))

    assert b"must begin with http://" in seen.data and b"secret" not in seen.data


@pytest.mark.parametrize(
    ("host", "names", "expected"),
    [
        ("api.example.com", "", False),
        ("api.example.com", "example.com", True),
        ("api.example.com", ".example.com, other", True),
        ("api.example.com", "*.example.com", True),
        ("api.example.com", "api.example.com:443", True),
        ("badexample.com", "example.com", False),
        ("api.example.com", "*", True),
        ("127.0.0.1", "", True),
        ("localhost", "", True),
    ],
)
def test_hosts_are_excepted_as_other_programs_except_them(host: str, names: str, expected: bool) -> None:
    assert excepted(host, names) == expected
