"""Connections to upstreams, as the person's own clients would make them: TLS, and the network's proxy."""

from __future__ import annotations

import asyncio
import base64
import re
import socket
import ssl
from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

from ctxvc.wire.forward import Upstream

#: Bytes that are read from a connection at once, and that wait in its buffer at most.
CHUNK = 1 << 18
#: Seconds before the next of a host's addresses is tried beside the one before.
_NEXT_ADDRESS = 0.25
#: Seconds until an idle connection is looked after, and between two looks: routers forget the silent ones.
_KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPALIVE": 60, "TCP_KEEPINTVL": 60, "TCP_KEEPCNT": 5}
_PROXY = re.compile(r"(?:http://)?(?:([^@/]*)@)?(?:\[([0-9a-f:.]+)\]|([^:/@]+))(?::([0-9]{1,5}))?/?", re.I | re.A)
_ANSWERED = re.compile(rb"HTTP/1\.[01] (2[0-9][0-9])[ \r]")
_LARGEST_HEAD = 1 << 16


class Connection(NamedTuple):
    """Both directions of a connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def abort(self) -> None:
        """Ends it as a connection that broke, where the other side would else take its end for that of an answer."""
        raw = self.writer.get_extra_info("socket")
        if raw is not None and raw.fileno() >= 0:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.writer.transport.abort()


class Network:
    """Makes connections under an environment's settings: `HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`, and
    `NODE_EXTRA_CA_CERTS` beside the system's certificates. Upstreams without TLS are asked directly.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env

    async def connect(self, upstream: Upstream) -> Connection:
        """Raises: OSError."""
        proxy = self._proxy(upstream.host) if upstream.tls else None
        if proxy:
            connection = await self._tunnel(proxy, upstream)
        else:
            connection = await _opened(upstream.host, upstream.port)
        if upstream.tls:
            await connection.writer.start_tls(self.tls, server_hostname=upstream.host)
        return connection

    @cached_property
    def tls(self) -> ssl.SSLContext:
        """What servers are checked against. Takes some 50 ms the first time."""
        import httpcore2

        context = httpcore2.default_ssl_context()
        context.set_alpn_protocols(["http/1.1"])
        if extra := self._env.get("NODE_EXTRA_CA_CERTS"):
            context.load_verify_locations(cafile=extra)
        return context

    def _proxy(self, host: str) -> str | None:
        named = (self._env.get(name) for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"))
        proxy = next(filter(None, named), "")
        return (
            proxy if proxy and not excepted(host, self._env.get("no_proxy") or self._env.get("NO_PROXY", "")) else None
        )

    async def _tunnel(self, proxy: str, upstream: Upstream) -> Connection:
        match = _PROXY.fullmatch(proxy)
        if not match:
            raise OSError(f"the network's proxy is not one of http://, which is all that can be used: {proxy[:80]}")
        connection = await _opened(match[2] or match[3], int(match[4] or 80))
        where = f"{upstream.host if ':' not in upstream.host else f'[{upstream.host}]'}:{upstream.port}"
        lines = [f"CONNECT {where} HTTP/1.1", f"Host: {where}"]
        if match[1]:
            lines.append(f"Proxy-Authorization: Basic {base64.b64encode(_unquoted(match[1])).decode()}")
        connection.writer.write("\r\n".join([*lines, "", ""]).encode())
        try:
            head = await connection.reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            head = b""
        if not _ANSWERED.match(head):
            connection.writer.close()
            raise OSError(f"the network's proxy refused: {head[:80].decode('latin-1')!r}")
        return connection


def excepted(host: str, names: str) -> bool:
    """Whether `NO_PROXY` names a host, or a domain that it is in."""
    if host in ("localhost", "127.0.0.1", "::1"):
        return True
    entries = [entry.strip().lower().partition(":")[0].lstrip("*.") or entry.strip() for entry in names.split(",")]
    return any(entry and (entry in ("*", host) or host.endswith(f".{entry}")) for entry in entries)


def _unquoted(text: str) -> bytes:
    return re.sub(rb"%([0-9A-Fa-f]{2})", lambda match: bytes([int(match[1], 16)]), text.encode())


async def _opened(host: str, port: int) -> Connection:
    reader, writer = await asyncio.open_connection(host, port, limit=CHUNK, happy_eyeballs_delay=_NEXT_ADDRESS)
    raw = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            raw.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return Connection(reader, writer)
