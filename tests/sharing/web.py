"""`git http-backend` behind a web server of Python's on loopback, with a password, whose connections can be cut."""

from __future__ import annotations

import base64
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from tests.making.web import Handler, WebServer

USER, PASSWORD = "anna", "open sesame"


_UNKNOWN = b'HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm="git"\r\nContent-Length: 0\r\n\r\n'


class Web:
    """The server. After `cut_after` bytes more, in either direction, the connection breaks; None for never."""

    def __init__(self, root: Path, address: str) -> None:
        self.root = root
        self.address = address
        self.cut_after: int | None = None

    def passed(self, count: int) -> int:
        """How many of the next `count` bytes get through."""
        if self.cut_after is None:
            return count
        passed = min(count, self.cut_after)
        self.cut_after -= passed
        return passed


def handler(web: Web) -> type[BaseHTTPRequestHandler]:
    allowed = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()

    class Git(Handler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            self.close_connection = True
            if self.headers.get("Authorization") != allowed:
                self._send(_UNKNOWN)
                return
            body = self._body()
            if body is None:
                return
            path, _, query = self.path.partition("?")
            env = {
                "PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": str(web.root), "GIT_HTTP_EXPORT_ALL": "1",
                "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "PATH_INFO": path, "QUERY_STRING": query,
                "REQUEST_METHOD": self.command, "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""), "REMOTE_USER": USER, "REMOTE_ADDR": "127.0.0.1",
            }  # fmt: skip
            answer = subprocess.run(["git", "http-backend"], input=body, env=env, capture_output=True, check=False)
            head, _, content = answer.stdout.partition(b"\r\n\r\n")
            fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n") if b": " in line)
            status = fields.pop(b"Status", b"200 OK")
            lines = [b"HTTP/1.1 " + status, *(b": ".join(field) for field in fields.items())]
            lines.append(b"Content-Length: %d" % len(content))
            self._send(b"\r\n".join(lines) + b"\r\n\r\n" + content)

        do_GET = do_POST = _answer  # noqa: N815 - the library's names

        def _body(self) -> bytes | None:
            """The request's body; None if the connection broke in it."""
            if self.headers.get("Transfer-Encoding") == "chunked":
                pieces = []
                while size := int(self.rfile.readline(), 16):
                    pieces.append(self.rfile.read(size))
                    self.rfile.readline()
                self.rfile.readline()
                body = b"".join(pieces)
            else:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            return body if web.passed(len(body)) == len(body) else None

        def _send(self, data: bytes) -> None:
            count = web.passed(len(data))
            self.wfile.write(data[:count])
            self.wfile.flush()

    return Git


@contextmanager
def served(root: Path) -> Iterator[Web]:
    """The server, for repositories below `root`."""
    server = WebServer(BaseHTTPRequestHandler)
    web = Web(root, server.address)
    server.RequestHandlerClass = handler(web)
    with server.running():
        yield web


def remember_password(home: Path, web: Web) -> None:
    """The person's own git has the password, as a credential helper would."""
    helper = f'!f() {{ test "$1" = get && echo username={USER} && echo password="{PASSWORD}"; }}; f'
    subprocess.run(
        ["git", "config", "--file", str(home / ".gitconfig"), f"credential.{web.address}.helper", helper], check=True
    )
