"""The Model Context Protocol on one connection: messages in, answers out, without any stream.

Both of its forms are spoken: with the handshake (`initialize`, up to 2025-11-25), and without (2026-07-28), where each
request carries its version. Source: modelcontextprotocol.io/specification. Why it is our own: decision 42.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

Message = dict[str, Any]

#: Versions with a handshake, newest first, and without.
HANDSHAKES = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
MODERN = ("2026-07-28",)
#: In a request's `_meta`: the version without a handshake that it is written in.
_VERSION = "io.modelcontextprotocol/protocolVersion"
_NOT_JSON, _NO_REQUEST, _NO_METHOD, _WRONG, _INTERNAL = -32700, -32600, -32601, -32602, -32603
_NOT_FOUND, _NO_VERSION = -32002, -32022
#: A result says so itself where there is no handshake; the second says how long it may be kept.
_COMPLETE = {"resultType": "complete"}
_FRESH = {"ttlMs": 0, "cacheScope": "private"}
_CAPABILITIES = {"tools": {"listChanged": False}, "resources": {"listChanged": False, "subscribe": False}}


class Wrong(Exception):
    """What a tool or a resource answers instead: a text for the model or the person."""


class Tool(NamedTuple):
    """A tool: its arguments' type, whose docstring describes it, and its result's.

    `reads`: it changes nothing. `always`: a client that keeps tools back until they are searched for shows it at once.
    """

    name: str
    title: str
    arguments: type[msgspec.Struct]
    result: type[msgspec.Struct]
    reads: bool = False
    always: bool = False


class Resource(NamedTuple):
    """A text by its address; one with `{…}` in it is a template."""

    uri: str
    name: str
    title: str
    description: str


class Offer(Protocol):
    """What is served. `meta` is what the client says about a request. Raises, in place of an answer: Wrong."""

    instructions: str
    version: str
    tools: Sequence[Tool]
    resources: Sequence[Resource]

    def call(self, name: str, arguments: msgspec.Struct, meta: Mapping[str, Any]) -> msgspec.Struct: ...

    def text(self, uri: str, meta: Mapping[str, Any]) -> str: ...


class _Refused(Exception):
    def __init__(self, code: int, message: str, data: Message | None = None) -> None:
        super().__init__(message)
        self.code, self.data = code, data


class Connection:
    """One client's connection. `report` is given what fails unexpectedly."""

    def __init__(self, offer: Offer, report: Callable[[Exception], None]) -> None:
        self._offer = offer
        self._report = report

    def answer(self, line: bytes) -> bytes | None:
        """The answer to one line, without a line's end; None where none is due."""
        try:
            message = msgspec.json.decode(line)
        except (ValueError, RecursionError):
            return _encoded(None, error={"code": _NOT_JSON, "message": "not JSON"})
        if not isinstance(message, dict) or not isinstance(message.get("method"), str):
            return None if _answers(message) else _encoded(None, error={"code": _NO_REQUEST, "message": "no request"})
        if "id" not in message:
            return None  # a notification: none of them changes anything here
        number = message["id"]
        if not isinstance(number, str | int) or isinstance(number, bool):
            return _encoded(None, error={"code": _NO_REQUEST, "message": "the id is neither text nor a number"})
        try:
            return _encoded(number, result=self._result(message["method"], message.get("params", {})))
        except _Refused as refused:
            data = {"data": refused.data} if refused.data else {}
            return _encoded(number, error={"code": refused.code, "message": str(refused), **data})
        # The boundary: the other requests of the client are still served.
        except Exception as error:
            self._report(error)
            return _encoded(number, error={"code": _INTERNAL, "message": f"internal error: {type(error).__name__}"})

    def _result(self, method: str, params: object) -> Message:
        if not isinstance(params, dict):
            raise _Refused(_WRONG, "params is no object")
        meta = params.get("_meta")
        meta = meta if isinstance(meta, dict) else {}
        modern = _VERSION in meta
        if modern and meta[_VERSION] not in MODERN:
            supported = {"supported": [*MODERN, *HANDSHAKES], "requested": meta[_VERSION]}
            raise _Refused(_NO_VERSION, "this version of the protocol is not served", supported)
        result = self._served(method, params, meta)
        if not modern:
            return result
        return {**_COMPLETE, **({} if method == "tools/call" else _FRESH), **result}

    def _served(self, method: str, params: Message, meta: Message) -> Message:
        about = {"capabilities": _CAPABILITIES, "instructions": self._offer.instructions}
        name = {"name": "ctxvc", "title": "ctxvc", "version": self._offer.version}
        match method:
            case "initialize":
                wished = params.get("protocolVersion")
                version = wished if wished in HANDSHAKES else HANDSHAKES[0]
                return {"protocolVersion": version, "serverInfo": name, **about}
            case "server/discover":
                return {"supportedVersions": list(MODERN), "serverInfo": name, **about}
            case "ping":
                return {}
            case "tools/list":
                return {"tools": [_definition(tool) for tool in self._offer.tools]}
            case "tools/call":
                return self._called(params, meta)
            case "resources/list":
                return {"resources": [_described(one, "uri") for one in self._offer.resources if "{" not in one.uri]}
            case "resources/templates/list":
                templates = [_described(one, "uriTemplate") for one in self._offer.resources if "{" in one.uri]
                return {"resourceTemplates": templates}
            case "resources/read":
                return self._contents(params, meta)
        raise _Refused(_NO_METHOD, f"{method[:100]} is not served")

    def _called(self, params: Message, meta: Message) -> Message:
        tool = next((tool for tool in self._offer.tools if tool.name == params.get("name")), None)
        if tool is None:
            raise _Refused(_WRONG, f"there is no tool {str(params.get('name'))[:100]}")
        try:
            result = self._offer.call(tool.name, _arguments(params.get("arguments"), tool.arguments), meta)
        except Wrong as wrong:
            return {"content": [{"type": "text", "text": str(wrong)}], "isError": True}
        values = msgspec.to_builtins(result)
        text = msgspec.json.format(msgspec.json.encode(values), indent=2).decode()
        return {"content": [{"type": "text", "text": text}], "structuredContent": values, "isError": False}

    def _contents(self, params: Message, meta: Message) -> Message:
        uri = params.get("uri")
        if not isinstance(uri, str):
            raise _Refused(_WRONG, "uri is not text")
        try:
            text = self._offer.text(uri, meta)
        except Wrong as wrong:
            raise _Refused(_NOT_FOUND, str(wrong), {"uri": uri[:1000]}) from wrong
        return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": text}]}


def _answers(message: object) -> bool:
    """Whether it is an answer, although nothing was asked."""
    return isinstance(message, dict) and ("result" in message or "error" in message)


def _arguments(values: object, kind: type[msgspec.Struct]) -> msgspec.Struct:
    """Raises: Wrong, with the arguments that the tool takes."""
    if isinstance(values, dict):
        values = {name: value for name, value in values.items() if value is not None}
    try:
        return msgspec.convert({} if values is None else values, kind)
    except msgspec.ValidationError as error:
        fields = msgspec.structs.fields(kind)
        takes = ", ".join(field.name if field.required else f"{field.name} (optional)" for field in fields)
        raise Wrong(f"{error}; it takes {takes}") from error


def _definition(tool: Tool) -> Message:
    arguments = _schema(tool.arguments)
    annotations = {
        "title": tool.title,
        "readOnlyHint": tool.reads,
        "destructiveHint": False,
        "idempotentHint": tool.reads,
        "openWorldHint": False,
    }
    definition = {
        "name": tool.name,
        "title": tool.title,
        "description": " ".join(arguments.pop("description", "").split()),
        "inputSchema": arguments,
        "outputSchema": _schema(tool.result),
        "annotations": annotations,
    }
    # Source: code.claude.com/docs/en/mcp, on tools that are found by a search.
    return {**definition, "_meta": {"anthropic/alwaysLoad": True}} if tool.always else definition


def _schema(kind: type[msgspec.Struct]) -> Message:
    """The schema of an object; types that it uses are beside it, as clients want the root to be one."""
    _, components = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    own = components.pop(kind.__name__)
    own.pop("title", None)
    own.setdefault("properties", {})
    return {**own, "$defs": components} if components else own


def _described(resource: Resource, address: str) -> Message:
    return {
        address: resource.uri,
        "name": resource.name,
        "title": resource.title,
        "description": resource.description,
        "mimeType": "text/plain",
    }


def _encoded(number: str | int | None, **answer: Message) -> bytes:
    # Text of a recording may have halves of a character, which JSON can carry and UTF-8 cannot.
    message = {"jsonrpc": "2.0", "id": number, **answer}
    try:
        return msgspec.json.encode(message)
    except UnicodeEncodeError:
        import json

        return json.dumps(message).encode()
