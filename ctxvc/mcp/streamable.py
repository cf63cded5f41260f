"""The protocol over HTTP: a message a request, an answer a response, no streams.

With the handshake, `initialize` begins a session, which the client names from then on; without it (2026-07-28) every
request is independent and repeats in its headers what a proxy may want to read. This server never sends a request, so a
GET gets 405. `loopback` checks who may connect. Source: modelcontextprotocol.io/specification, Streamable HTTP.
"""

from __future__ import annotations

import base64
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from ctxvc import loopback
from ctxvc.loopback import Request, Response
from ctxvc.mcp.contract import Offer
from ctxvc.mcp.protocol import (
    HANDSHAKES,
    MODERN,
    NO_METHOD,
    NO_REQUEST,
    NO_VERSION,
    NOT_DECODED,
    NOT_JSON,
    VERSION,
    WRONG,
    Connection,
    decoded,
    failure,
    versions,
)

PATH = "/mcp"
#: The most sessions; the least recently used one is dropped, and its client begins anew.
SESSIONS = 256
_SESSION_HEADER, _VERSION_HEADER = "Mcp-Session-Id", "MCP-Protocol-Version"
_JSON = "application/json"
#: A header does not repeat the body's value.
_MISMATCH = -32020
#: The answer to a cancelled request, whose connection still needs one.
_CANCELLED = -32800
#: Methods → the parameter that `Mcp-Name` repeats.
_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_STATUS = dict.fromkeys((NOT_JSON, NO_REQUEST, WRONG, _MISMATCH, NO_VERSION), 400) | {NO_METHOD: 404}


class Endpoint:
    """Answers the requests of any number of clients. `report` is called with unexpected errors."""

    def __init__(self, offer: Offer, report: Callable[[Exception], None]) -> None:
        self._offer = offer
        self._report = report
        self._lock = threading.Lock()
        self._sessions: OrderedDict[str, Connection] = OrderedDict()

    def answer(self, request: Request) -> Response:
        """The response to an authorised request."""
        if request.path.rstrip("/") != PATH:
            return loopback.text(404, f"the Model Context Protocol is at {PATH}")
        match request.method:
            case "POST":
                return self._refused(request) or self._posted(request)
            case "DELETE":
                return self._ended(request)
        return loopback.text(405, "this server sends nothing by itself: use POST", ("Allow", "POST, DELETE"))

    def _refused(self, request: Request) -> Response | None:
        """The response to a message with wrong headers; None if they are right."""
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _JSON:
            return loopback.text(415, f"send a message as {_JSON}")
        accepted = [kind.partition(";")[0].strip().lower() for kind in request.headers.get("accept", "*/*").split(",")]
        if not {_JSON, "application/*", "*/*"}.intersection(accepted):
            return loopback.text(406, f"answers are {_JSON}: accept it")
        version = request.headers.get(_VERSION_HEADER.lower())
        if version is not None and version not in (*HANDSHAKES, *MODERN):
            return _failed(NO_VERSION, "this version of the protocol is not served", versions(version[:100]))
        return None

    def _posted(self, request: Request) -> Response:
        message = decoded(request.body)
        if message is NOT_DECODED:
            return _failed(NOT_JSON, "not JSON")
        if not isinstance(message, dict):
            return _failed(NO_REQUEST, "a body is one message")
        params = message.get("params")
        meta = params.get("_meta") if isinstance(params, dict) else None
        version = meta.get(VERSION) if isinstance(meta, dict) else None
        if version is not None or request.headers.get(_VERSION_HEADER.lower()) in MODERN:
            return self._alone(request, message, version)
        if message.get("method") == "initialize" and "id" in message:
            return self._begun(message)
        name = request.headers.get(_SESSION_HEADER.lower(), "")
        if not name:
            return _failed(NO_REQUEST, f"{_SESSION_HEADER} is missing: begin with initialize")
        with self._lock:
            connection = self._sessions.get(name)
            if connection is None:
                return _failed(NO_REQUEST, "there is no such session: begin anew with initialize", status=404)
            self._sessions.move_to_end(name)
        return _answered(connection, message)

    def _alone(self, request: Request, message: dict[str, Any], version: object) -> Response:
        """The response to a message without a session. Notifications have no effect: closing the connection cancels."""
        if "id" not in message:
            return Response(202)
        if mismatch := _mismatch(request, message, version):
            return _failed(_MISMATCH, mismatch, number=message["id"])
        response = _answered(Connection(self._offer, self._report), message)
        error = decoded(response.body) if response.status == 200 else None
        code = error.get("error", {}).get("code") if isinstance(error, dict) else None
        return response._replace(status=_STATUS.get(code, 200)) if code is not None else response

    def _begun(self, message: dict[str, Any]) -> Response:
        connection = Connection(self._offer, self._report)
        response = _answered(connection, message)
        name = loopback.new_token()
        with self._lock:
            self._sessions[name] = connection
            while len(self._sessions) > SESSIONS:
                self._sessions.popitem(last=False)
        return response._replace(headers=((_SESSION_HEADER, name),))

    def _ended(self, request: Request) -> Response:
        with self._lock:
            ended = self._sessions.pop(request.headers.get(_SESSION_HEADER.lower(), ""), None)
        return Response(204) if ended else loopback.text(404, "there is no such session")


def _answered(connection: Connection, message: dict[str, Any]) -> Response:
    reply = connection.received(message).answer()
    if reply is not None:
        return Response(200, reply, _JSON)
    if "method" in message and "id" in message:
        return _failed(_CANCELLED, "cancelled", number=message["id"], status=200)
    return Response(202)


def _mismatch(request: Request, message: dict[str, Any], version: object) -> str:
    """A text on the header that does not repeat the body's value; empty if all do."""
    method = message.get("method")
    if request.headers.get(_VERSION_HEADER.lower()) != version:
        return f"{_VERSION_HEADER} is not the version in the body"
    if request.headers.get("mcp-method") != method:
        return "Mcp-Method is not the method in the body"
    field = _NAMED.get(str(method), "")
    params = message.get("params")
    name = params.get(field) if isinstance(params, dict) else None
    if name is not None and _header_text(request.headers.get("mcp-name", "")) != name:
        return f"Mcp-Name is not the {field} in the body"
    return ""


def _header_text(value: str) -> str | None:
    """The text of a header, which may be in base64; None if that is invalid."""
    encoded = value.removeprefix("=?base64?").removesuffix("?=")
    if len(value) - len(encoded) != len("=?base64??="):
        return value
    try:
        return base64.b64decode(encoded, validate=True).decode()
    except ValueError:
        return None


def _failed(
    code: int, message: str, data: dict[str, Any] | None = None, *, number: object = None, status: int = 0
) -> Response:
    own = number if isinstance(number, str | int) else None
    return Response(status or _STATUS.get(code, 400), failure(code, message, data, own), _JSON)
