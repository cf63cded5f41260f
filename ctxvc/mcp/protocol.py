"""The Model Context Protocol on one connection: messages in, answers out, without any transport.

Both of its forms are served: with the handshake (`initialize`, up to 2025-11-25), and without (2026-07-28), where each
request has its version. Source: modelcontextprotocol.io/specification. Why it is our own: decision 42.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ctxvc.core.display import one_line
from ctxvc.core.suggestion import meant
from ctxvc.mcp.contract import Offer, Prompt, Resource, Tool, Wrong

Message = dict[str, Any]

#: The versions with a handshake, newest first, and those without.
HANDSHAKES = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
MODERN = ("2026-07-28",)
#: Fields of `_meta`: the version of a request without a handshake; the server that made a result.
VERSION = "io.modelcontextprotocol/protocolVersion"
_SERVER = "io.modelcontextprotocol/serverInfo"
NOT_JSON, NO_REQUEST, NO_METHOD, WRONG, INTERNAL = -32700, -32600, -32601, -32602, -32603
_NOT_FOUND, NO_VERSION = -32002, -32022
#: Fields of results without a handshake: that they are complete, and how long they may be cached.
_COMPLETE = {"resultType": "complete"}
_FRESH = {"ttlMs": 0, "cacheScope": "private"}
_NOT_KEPT = ("tools/call", "prompts/get", "completion/complete")
_CAPABILITIES = {
    "tools": {"listChanged": False},
    "resources": {"listChanged": False, "subscribe": False},
    "prompts": {"listChanged": False},
    "completions": {},
}
#: Methods that only one form of the protocol has.
_HANDSHAKE_ONLY, _MODERN_ONLY = ("initialize", "ping"), ("server/discover",)
#: Methods that need the store, for which no other request should wait.
_SLOW = ("tools/call", "prompts/get", "resources/list", "resources/read", "completion/complete")
#: The most characters of a cursor, and of an argument of a prompt.
_CURSOR, _ARGUMENT = 100, 4_000
#: The most completions of an argument, and the most unknown arguments that are named.
_COMPLETIONS, _UNKNOWN = 100, 5
_TEXT = "text/plain"
#: The value of a message that is not JSON.
NOT_DECODED = object()


class _Refused(Exception):
    def __init__(self, code: int, message: str, data: Message | None = None) -> None:
        super().__init__(message)
        self.code, self.data = code, data


class Exchange(NamedTuple):
    """A received message. `answer` returns the answer, None if none is due; it takes a while if it is `slow`."""

    answer: Callable[[], bytes | None]
    slow: bool = False


class Connection:
    """One client's connection, for several threads. `report` is called with unexpected errors."""

    def __init__(self, offer: Offer, report: Callable[[Exception], None]) -> None:
        self._offer = offer
        self._report = report
        self._lock = threading.Lock()
        self._open: dict[str | int, bool] = {}  # the requests without an answer → whether the client still wants one

    def answer(self, data: bytes) -> bytes | None:
        """The answer to a message, without a line's end; None if none is due."""
        return self.received(decoded(data)).answer()

    def received(self, message: object) -> Exchange:
        """The exchange for a message. From here on a request can be cancelled, until its answer."""
        if message is NOT_DECODED:
            return _answered(None, NOT_JSON, "not JSON")
        if not isinstance(message, dict) or not isinstance(method := message.get("method"), str):
            return Exchange(lambda: None) if _answers(message) else _answered(None, NO_REQUEST, "no request")
        params = message.get("params", {})
        if "id" not in message:
            return Exchange(lambda: self._notified(method, params))
        number = message["id"]
        if not isinstance(number, str | int) or isinstance(number, bool):
            return _answered(None, NO_REQUEST, "the id is neither text nor a number")
        with self._lock:
            self._open[number] = True
        return Exchange(lambda: self._answer(number, method, params), slow=method in _SLOW)

    def _notified(self, method: str, params: object) -> None:
        """Handles a notification: a cancelled request is not begun, or its answer is not sent."""
        number = params.get("requestId") if isinstance(params, dict) else None
        if method == "notifications/cancelled" and isinstance(number, str | int):
            with self._lock:
                if number in self._open:
                    self._open[number] = False

    def _answer(self, number: str | int, method: str, params: object) -> bytes | None:
        try:
            if not self._open.get(number, True):
                return None
            answer = self._answered(number, method, params)
            return answer if self._open.get(number, True) else None
        finally:
            with self._lock:
                self._open.pop(number, None)

    def _answered(self, number: str | int, method: str, params: object) -> bytes:
        try:
            return _encoded(number, result=self._result(method, params))
        except _Refused as refused:
            return failure(refused.code, str(refused), refused.data, number)
        # The boundary: the other requests of the client are still served.
        except Exception as error:
            self._report(error)
            return failure(INTERNAL, f"internal error: {type(error).__name__}", number=number)

    def _result(self, method: str, params: object) -> Message:
        if not isinstance(params, dict):
            raise _Refused(WRONG, "params is not an object")
        meta = params.get("_meta")
        meta = meta if isinstance(meta, dict) else {}
        modern = VERSION in meta
        if modern and meta[VERSION] not in MODERN:
            raise _Refused(NO_VERSION, "this version of the protocol is not served", versions(meta[VERSION]))
        if method in (_HANDSHAKE_ONLY if modern else _MODERN_ONLY):
            raise _Refused(NO_METHOD, f"{method} is not of this version of the protocol")
        result = self._served(method, params, meta, modern=modern)
        if not modern:
            return result
        age = {} if method in _NOT_KEPT else _FRESH
        return {**_COMPLETE, **age, **result, "_meta": {_SERVER: self._name()}}

    def _name(self) -> Message:
        return {"name": "ctxvc", "title": "ctxvc", "version": self._offer.version}

    def _served(self, method: str, params: Message, meta: Message, *, modern: bool) -> Message:
        offer = self._offer
        match method:
            case "initialize":
                wished = params.get("protocolVersion")
                version = wished if wished in HANDSHAKES else HANDSHAKES[0]
                return {"protocolVersion": version, "serverInfo": self._name(), **self._about()}
            case "server/discover":
                return {"supportedVersions": list(MODERN), **self._about()}
            case "ping":
                return {}
            case "tools/list":
                _single_page(params)
                return {"tools": [_definition(tool) for tool in offer.tools]}
            case "tools/call":
                return self._called(params, meta)
            case "resources/list":
                return _resources(offer, _cursor(params), meta)
            case "resources/templates/list":
                _single_page(params)
                return {"resourceTemplates": [_described(one, "uriTemplate") for one in offer.templates]}
            case "resources/read":
                return self._contents(params, meta, WRONG if modern else _NOT_FOUND)
            case "prompts/list":
                _single_page(params)
                return {"prompts": [_prompt(prompt) for prompt in offer.prompts]}
            case "prompts/get":
                return self._prompted(params, meta)
            case "completion/complete":
                return self._completed(params)
        raise _Refused(NO_METHOD, f"{method[:100]} is not served")

    def _about(self) -> Message:
        return {"capabilities": _CAPABILITIES, "instructions": self._offer.instructions}

    def _called(self, params: Message, meta: Message) -> Message:
        tool = next((tool for tool in self._offer.tools if tool.name == params.get("name")), None)
        if tool is None:
            raise _Refused(WRONG, f"there is no tool {str(params.get('name'))[:100]}")
        try:
            result = self._offer.call(tool.name, _arguments(params.get("arguments"), tool.arguments), meta)
        except Wrong as wrong:
            return {"content": [{"type": "text", "text": str(wrong)}], "isError": True}
        values = msgspec.to_builtins(result)
        text = _json(values, indent=2).decode()
        return {"content": [{"type": "text", "text": text}], "structuredContent": values, "isError": False}

    def _contents(self, params: Message, meta: Message, not_found: int) -> Message:
        uri = params.get("uri")
        if not isinstance(uri, str):
            raise _Refused(WRONG, "uri is not text")
        try:
            contents = self._offer.contents(uri, meta)
        except Wrong as wrong:
            raise _Refused(not_found, str(wrong), {"uri": uri[:1000]}) from wrong
        return {"contents": [{"uri": one.uri, "mimeType": _TEXT, "text": one.text} for one in contents]}

    def _prompted(self, params: Message, meta: Message) -> Message:
        prompt = next((prompt for prompt in self._offer.prompts if prompt.name == params.get("name")), None)
        if prompt is None:
            raise _Refused(WRONG, f"there is no prompt {str(params.get('name'))[:100]}")
        try:
            text = self._offer.prompt(prompt.name, _prompt_arguments(params.get("arguments"), prompt), meta)
        except Wrong as wrong:
            raise _Refused(WRONG, str(wrong)) from wrong
        message = {"role": "user", "content": {"type": "text", "text": text}}
        return {"description": prompt.description, "messages": [message]}

    def _completed(self, params: Message) -> Message:
        argument = params.get("argument")
        name, beginning = (argument.get("name"), argument.get("value")) if isinstance(argument, dict) else (None, None)
        if not (isinstance(name, str) and isinstance(beginning, str)):
            raise _Refused(WRONG, "the argument has no name or no value")
        values = self._offer.completions(name, beginning)
        first = list(values[:_COMPLETIONS])
        return {"completion": {"values": first, "total": len(values), "hasMore": len(first) < len(values)}}


def decoded(data: bytes) -> object:
    """The value of a message; `NOT_DECODED` if it is not JSON."""
    try:
        return msgspec.json.decode(data)
    except (ValueError, RecursionError):
        return NOT_DECODED


def versions(requested: object) -> Message:
    """The data of an error about versions."""
    return {"supported": [*MODERN, *HANDSHAKES], "requested": requested}


def failure(code: int, message: str, data: Message | None = None, number: str | int | None = None) -> bytes:
    """The bytes of an error answer; also for a transport that refuses a message."""
    return _encoded(number, error={"code": code, "message": message, **({"data": data} if data else {})})


def _answered(number: str | int | None, code: int, message: str) -> Exchange:
    return Exchange(lambda: failure(code, message, number=number))


def _cursor(params: Message) -> str:
    cursor = params.get("cursor")
    if cursor is None:
        return ""
    if not isinstance(cursor, str) or not 0 < len(cursor) <= _CURSOR:
        raise _Refused(WRONG, "this cursor was never given")
    return cursor


def _single_page(params: Message) -> None:
    """Raises: _Refused for a cursor, since a list of one page gives none."""
    if _cursor(params):
        raise _Refused(WRONG, "this cursor was never given")


def _resources(offer: Offer, cursor: str, meta: Message) -> Message:
    try:
        page = offer.resources(cursor, meta)
    except Wrong as wrong:
        raise _Refused(WRONG, str(wrong)) from wrong
    following = {"nextCursor": page.cursor} if page.cursor else {}
    return {"resources": [_described(resource, "uri") for resource in page.resources], **following}


def _answers(message: object) -> bool:
    """Whether the message is an answer, although this server sends no requests."""
    return isinstance(message, dict) and ("result" in message or "error" in message)


def _arguments(values: object, kind: type[msgspec.Struct]) -> msgspec.Struct:
    """The arguments as their type. Raises: Wrong, with the arguments that the tool takes."""
    fields = msgspec.structs.fields(kind)
    takes = ", ".join(field.name if field.required else f"{field.name} (optional)" for field in fields)
    if isinstance(values, dict):
        if unknown := _unknown(values, [field.name for field in fields]):
            raise Wrong(f"{unknown}; it takes {takes}")
        values = {name: value for name, value in values.items() if value is not None}
    try:
        return msgspec.convert({} if values is None else values, kind)
    except msgspec.ValidationError as error:
        raise Wrong(f"{error}; it takes {takes}") from error


def _unknown(values: Mapping[str, object], names: Sequence[str]) -> str:
    """A text on unknown argument names; empty if all are known."""
    unknown = [name for name in values if name not in names]
    return "; ".join(f"unknown argument {one_line(name, 40)}{meant(name, names)}" for name in unknown[:_UNKNOWN])


def _prompt_arguments(values: object, prompt: Prompt) -> dict[str, str]:
    """The checked arguments of a prompt. Raises: _Refused, with those that it takes."""
    names = [argument.name for argument in prompt.arguments]
    takes = ", ".join(names)
    values = {} if values is None else values
    if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
        raise _Refused(WRONG, f"arguments are an object of texts; {prompt.name} takes {takes}")
    if unknown := _unknown(values, names):
        raise _Refused(WRONG, f"{unknown}; {prompt.name} takes {takes}")
    if absent := [one.name for one in prompt.arguments if one.required and not values.get(one.name, "").strip()]:
        raise _Refused(WRONG, f"{prompt.name} needs {', '.join(absent)}")
    if long := next((name for name, value in values.items() if len(value) > _ARGUMENT), ""):
        raise _Refused(WRONG, f"{long} has more than {_ARGUMENT:,} characters")
    return values


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
    """The JSON schema of a struct, with the types that it uses under `$defs`: clients require an object at the root."""
    _, components = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    own = components.pop(kind.__name__)
    own.pop("title", None)
    own.setdefault("properties", {})
    return {**own, "$defs": components} if components else own


def _described(resource: Resource, address: str) -> Message:
    described = {
        address: resource.uri,
        "name": resource.name,
        "title": resource.title,
        "description": resource.description,
        "mimeType": _TEXT,
    }
    return {**described, "size": resource.size} if resource.size else described


def _prompt(prompt: Prompt) -> Message:
    arguments = [argument._asdict() for argument in prompt.arguments]
    return {"name": prompt.name, "title": prompt.title, "description": prompt.description, "arguments": arguments}


def _encoded(number: str | int | None, **answer: Message) -> bytes:
    return _json({"jsonrpc": "2.0", "id": number, **answer})


def _json(value: object, indent: int = 0) -> bytes:
    """A value as JSON. Recorded text may have lone surrogates, which JSON can escape and UTF-8 cannot encode."""
    try:
        data = msgspec.json.encode(value)
    except UnicodeEncodeError:
        import json

        return json.dumps(value, indent=indent or None).encode()
    return msgspec.json.format(data, indent=indent) if indent else data
