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
        if self.command != "HEAD":
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
            keys = [one.text or "" for one in asked.iter() if one.tag.endswith("Key")]
            for key in keys:
                self.server.objects.pop(key, None)
                self.server.changes.append(("DELETE", key))
            deleted = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
            self._send(200, f"<DeleteResult>{deleted}</DeleteResult>".encode())

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        if self._denied():
            return
        if key := self._key():
            self._send_object(self.server.objects.get(key))
            return
        asked = parse_qs(urlsplit(self.path).query)
        prefix, delimiter = asked.get("prefix", [""])[0], asked.get("delimiter", [""])[0]
        objects, folders = [], set()
        for name, data in sorted(self.server.objects.items()):
            rest = name.removeprefix(prefix)
            if not name.startswith(prefix):
                continue
            if delimiter and delimiter in rest:
                folders.add(prefix + rest.partition(delimiter)[0] + delimiter)
            else:
                objects.append(
                    f"<Contents><Key>{escape(name)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
                    f"<ETag>{escape(_tag(data))}</ETag><Size>{len(data)}</Size></Contents>"
                )
        objects += [f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in sorted(folders)]
        listing = f"<ListBucketResult><IsTruncated>false</IsTruncated>{''.join(objects)}</ListBucketResult>"
        self._send(200, listing.encode())

    def _send_object(self, data: bytes | None) -> None:
        if data is None:
            self._send(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        headers = {"ETag": _tag(data), "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        if asked := self.headers["range"]:
            first, _, last = asked.removeprefix("bytes=").partition("-")
            low, high = int(first), min(int(last or len(data) - 1), len(data) - 1)
            self._send(206, data[low : high + 1], **headers, **{"Content-Range": f"bytes {low}-{high}/{len(data)}"})
        else:
            self._send(200, data, **headers)
