"""An object store on the loopback that speaks as much of S3's protocol as a client needs for one bucket."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from tests.making.web import Handler, WebServer


class Bucket(WebServer):
    """A bucket: its objects, and the methods and keys of the requests that changed it. While it is `refusing`, all
    requests are denied."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.changes: list[tuple[str, str]] = []
        self.refusing = False
        super().__init__(_Handler)


@contextmanager
def bucket() -> Iterator[Bucket]:
    server = Bucket()
    with server.running():
        yield server


def _tag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


class _Handler(Handler, BaseHTTPRequestHandler):
    server: Bucket
    protocol_version = "HTTP/1.1"

    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).lstrip("/").partition("/")[2]

    def _send(self, status: int, data: bytes = b"", **headers: str) -> None:
        self.begin(status, {"content-length": str(len(data)), **headers})
        self.wfile.write(data)

    def _denied(self) -> bool:
        if self.server.refusing:
            self._send(403, b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>")
        return self.server.refusing

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers["content-length"]))
        if not self._denied():
            self.server.objects[self._key()] = data
            self.server.changes.append(("PUT", self._key()))
            self._send(200, ETag=_tag(data))

    def do_POST(self) -> None:
        """Deletes several."""
        asked = ElementTree.fromstring(self.rfile.read(int(self.headers["content-length"])))
        if not self._denied():
            for key in (one.text or "" for one in asked.iter() if one.tag.endswith("Key")):
                self.server.objects.pop(key, None)
                self.server.changes.append(("DELETE", key))
            self._send(200, b"<DeleteResult></DeleteResult>")

    def do_GET(self) -> None:
        if self._denied():
            return
        prefix = parse_qs(urlsplit(self.path).query).get("prefix", [""])[0]
        listed = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>{escape(_tag(data))}</ETag><Size>{len(data)}</Size></Contents>"
            for key, data in sorted(self.server.objects.items())
            if key.startswith(prefix)
        )
        self._send(200, f"<ListBucketResult><IsTruncated>false</IsTruncated>{listed}</ListBucketResult>".encode())
