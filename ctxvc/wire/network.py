"""Connections to upstreams, as the person's own clients would make them: TLS, and the network's proxy."""

from __future__ import annotations

import asyncio
import base64
import re
import socket
import ssl
from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

from ctxvc.wire.forward import Upstream

#: The most bytes read from a connection at once, and the limit of its buffer.
CHUNK = 1 << 18
#: Seconds before the next of a host's addresses is tried in parallel.
_NEXT_ADDRESS = 0.25
#: Seconds before the first probe of an idle connection, and between probes: routers forget silent connections.
_KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPALIVE": 60, "TCP_KEEPINTVL": 60, "TCP_KEEPCNT": 5}
_PROXY = re.compile(r"(?:http://)?(?:([^@/]*)@)?(?:\[([0-9a-f:.]+)\]|([^:/@]+))(?::([0-9]{1,5}))?/?", re.I | re.A)
_ANSWERED = re.compile(rb"HTTP/1\.[01] (2[0-9][0-9])[ \r]")
_LARGEST_HEAD = 1 << 16


class Reader(asyncio.StreamReader):
    """A stream that returns what came before its connection broke, and only then raises the error."""

    broken: Exception | None = None

    def set_exception(self, exc: Exception) -> None:
        self.broken = exc
        self.feed_eof()

    async def read(self, n: int = -1) -> bytes:
        """The next bytes; empty at the end. Raises: OSError if the connection broke."""
        data = await super().read(n)
        if not data and self.broken:
            raise self.broken
        return data


class Connection(NamedTuple):
    """Both directions of a connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def abort(self) -> None:
        """Ends the connection with a reset, so that the other side does not take its end for that of an answer."""
        raw = self.writer.get_extra_info("socket")
        if raw is not None and raw.fileno() >= 0:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.writer.transport.abort()


class Network:
    """Makes connections with an environment's settings: `HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`, and
    `NODE_EXTRA_CA_CERTS` in addition to the system's certificates. Upstreams without TLS are connected directly.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env

    async def connect(self, upstream: Upstream) -> Connection:
        """A new connection to the upstream. Raises: OSError."""
        if not upstream.tls:
            return await _connection(host=upstream.host, port=upstream.port, happy_eyeballs_delay=_NEXT_ADDRESS)
        if proxy := self._proxy(upstream.host):
            tunnel = await _tunnel(proxy, upstream)
            return await _connection(sock=tunnel, ssl=self.tls, server_hostname=upstream.host)
        return await _connection(
            host=upstream.host, port=upstream.port, happy_eyeballs_delay=_NEXT_ADDRESS, ssl=self.tls
        )

    @cached_property
    def tls(self) -> ssl.SSLContext:
        """The TLS settings that servers are checked against. Takes about 50 ms the first time."""
        import httpcore2

        context = httpcore2.default_ssl_context()
        context.set_alpn_protocols(["http/1.1"])
        if extra := self._env.get("NODE_EXTRA_CA_CERTS"):
            context.load_verify_locations(cafile=extra)
        return context

    def _proxy(self, host: str) -> str | None:
        proxies = (self._env.get(name) for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"))
        proxy = next(filter(None, proxies), "")
        return (
            proxy if proxy and not excepted(host, self._env.get("no_proxy") or self._env.get("NO_PROXY", "")) else None
        )


def excepted(host: str, names: str) -> bool:
    """Whether `NO_PROXY`, as `names`, has a host or a domain that it is in. This machine is always excepted."""
    if host in ("localhost", "127.0.0.1", "::1"):
        return True
    entries = [entry.strip().lower().partition(":")[0].lstrip("*.") or entry.strip() for entry in names.split(",")]
    return any(entry and (entry in ("*", host) or host.endswith(f".{entry}")) for entry in entries)


def _unquoted(text: str) -> bytes:
    return re.sub(rb"%([0-9A-Fa-f]{2})", lambda match: bytes([int(match[1], 16)]), text.encode())


async def _connection(**where: Any) -> Connection:
    """A connection, with the arguments of `create_connection`. Raises: OSError."""
    loop = asyncio.get_running_loop()
    reader = Reader(limit=CHUNK, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await loop.create_connection(lambda: protocol, **where)
    raw = transport.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            raw.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return Connection(reader, asyncio.StreamWriter(transport, protocol, reader, loop))


async def _tunnel(proxy: str, upstream: Upstream) -> socket.socket:
    """A connection to the upstream through the network's proxy. Raises: OSError."""
    match = _PROXY.fullmatch(proxy)
    if not match:
        raise OSError("the address of the network's proxy cannot be used: it must begin with http://")
    host = f"[{upstream.host}]" if ":" in upstream.host else upstream.host
    lines = [f"CONNECT {host}:{upstream.port} HTTP/1.1", f"Host: {host}:{upstream.port}"]
    if match[1]:
        lines.append(f"Proxy-Authorization: Basic {base64.b64encode(_unquoted(match[1])).decode()}")
    tunnel = await _connected(match[2] or match[3], int(match[4] or 80))
    try:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(tunnel, "\r\n".join([*lines, "", ""]).encode())
        head = b""
        while b"\r\n\r\n" not in head and len(head) < _LARGEST_HEAD:
            piece = await loop.sock_recv(tunnel, 4096)
            if not piece:
                break
            head += piece
        if not _ANSWERED.match(head):
            raise OSError(f"the network's proxy refused: {head[:80].decode('latin-1')!r}")
    except BaseException:
        tunnel.close()
        raise
    return tunnel


async def _connected(host: str, port: int) -> socket.socket:
    """A socket connected to the first of a host's addresses that answers. Raises: OSError."""
    loop = asyncio.get_running_loop()
    failure = OSError(f"{host} cannot be found")
    for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        connecting = socket.socket(family, kind, protocol)
        connecting.setblocking(False)
        try:
            await loop.sock_connect(connecting, address)
        except OSError as error:
            connecting.close()
            failure = error
        except BaseException:
            connecting.close()
            raise
        else:
            return connecting
    raise failure
