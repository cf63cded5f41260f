"""Content blocks of the Messages API ⇄ parts and bodies, without loss.

A body is what a person wants to read, diff and grep (the text, the arguments of a call, the image itself); `extra` is
the rest of the block. `part` and `block` are inverse up to the two spellings that the API itself treats as equal: a
bare string and a list with one text block.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from ctxvc.core import display
from ctxvc.core.ledger.block import FOREIGN, Kind, Origin, Part, Role

_IMAGE_EXT = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp"}
_EXT = {**_IMAGE_EXT, "application/pdf": "pdf"}
_TEXT_KIND: dict[Role, Kind] = {"user": "user", "assistant": "assistant", "system": "system"}

T = TypeVar("T")

#: How deep lists and objects may be nested. Python versions differ in their reader's own limit, and code that walks a
#: value recursively must terminate.
DEEPEST = 200


def compact(value: Any) -> bytes:
    """`value` as JSON: no spaces, keys in their original order, lone surrogates escaped."""
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, ValueError, msgspec.MsgspecError):
        import json

        return json.dumps(value, separators=(",", ":")).encode("ascii")


def parse(data: bytes | str) -> Any:
    """The value of a JSON text. Accepts lone surrogates and huge numbers, as Python's own reader does.

    Raises: ValueError if it is not JSON, is nested deeper than `DEEPEST`, or has a number of more than 4,300 digits.
    """
    try:
        value = msgspec.json.decode(data)
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error
    except (msgspec.DecodeError, UnicodeError):
        value = _parsed_by_python(data)
    if _is_deep(data, value):
        raise ValueError(_TOO_DEEP)
    return value


_TOO_DEEP = f"JSON is nested deeper than {DEEPEST} levels"


def _parsed_by_python(data: bytes | str) -> Any:
    import json

    try:
        return json.loads(data)
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise
    except ValueError as error:  # Python's message explains how to lift the limit in a program
        raise ValueError("a number in it has more digits than Python reads") from error


def _is_deep(data: bytes | str, value: Any) -> bool:
    """Whether a value that was read from `data` is nested deeper than `DEEPEST`."""
    opened = data.count(b"[") + data.count(b"{") if isinstance(data, bytes) else data.count("[") + data.count("{")
    if opened <= DEEPEST or not isinstance(value, (dict, list)):
        return False
    level = [value]
    for _ in range(DEEPEST + 1):
        # JSON readers return exactly these types.
        level = [
            item
            for element in level
            for item in (element.values() if type(element) is dict else element)
            if type(item) is dict or type(item) is list
        ]
        if not level:
            return False
    return True


def parsed(data: bytes | str, kind: type[T]) -> T | None:
    """The value of a JSON text; None if it is not JSON or of another type."""
    try:
        value = parse(data)
    except ValueError:
        return None
    return value if isinstance(value, kind) else None


def without(record: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The record's fields except `names`."""
    return {name: value for name, value in record.items() if name not in names}


def own_metadata(extra: Mapping[str, Any]) -> Mapping[str, Any]:
    """Our own metadata in the `extra` of a part or row (`extra.ctxvc`); empty if it is not an object."""
    metadata = extra.get("ctxvc")
    return metadata if isinstance(metadata, dict) else {}


def text_part(value: str, role: Role, origin: Origin, *, kind: Kind | None = None, **extra: Any) -> Part:
    """A part of plain text; its kind follows from the role by default."""
    body = display.encode(value)
    return Part(kind=kind or _TEXT_KIND[role], role=role, origin=origin, body=body, ext=text_ext(body), extra=extra)


def text_ext(body: bytes) -> str:
    """`txt` for valid UTF-8 that git can show as text, else `bin`."""
    if b"\0" in body:
        return "bin"
    try:
        body.decode("utf-8")
    except UnicodeDecodeError:
        return "bin"
    return "txt"


def part(block: Mapping[str, Any] | str, role: Role, origin: Origin, *, input_bytes: bytes | None = None) -> Part:
    """The part that a content block of the Messages API becomes.

    `input_bytes` are the bytes of a call's arguments as received, if still available. An unknown type, or a known one
    in an unknown shape, is kept verbatim as kind `other`.
    """
    if isinstance(block, str):
        return text_part(block, role, origin)
    match block:
        case {"type": "text", "text": str(value)}:
            return _with(text_part(value, role, origin), _rest(block, "type", "text"))
        case {"type": "thinking", "thinking": str(value)}:
            return _with(text_part(value, role, origin, kind="thinking"), _rest(block, "type", "thinking"))
        case {"type": "redacted_thinking"}:
            return Part(kind="thinking", role=role, origin=origin, body=compact(block), ext="json")
        case {"type": "tool_use", "id": str(call), "name": str(name), "input": arguments}:
            received = input_bytes if input_bytes is not None else compact(arguments)
            return _with(call_part(name, call, received, origin=origin), _rest(block, "type", "id", "name", "input"))
        case {"type": "tool_result", "tool_use_id": str(call)}:
            return _result_part(block, call, origin)
        case {
            "type": "image" | "document" as kind,
            "source": {"type": "base64", "media_type": str(media), "data": str(data)},
        }:
            return _media_part(block, kind, media, data, role, origin)
        case {"type": "image" | "document" as kind}:
            return Part(kind=kind, role=role, origin=origin, body=compact(block), ext="json")
        case _:
            return other_part(block, role, origin)


def other_part(value: Any, role: Role, origin: Origin, **extra: Any) -> Part:
    """A part of unknown kind or shape, kept verbatim."""
    return Part(kind="other", role=role, origin=origin, body=compact(value), ext="json", extra=extra)


def call_part(name: str, call: str, arguments: Any, *, origin: Origin = "model", **extra: Any) -> Part:
    """A tool call. Bytes and text are kept verbatim: JSON, or what a model wrote instead; other values become JSON."""
    if not isinstance(arguments, bytes):
        arguments = display.encode(arguments) if isinstance(arguments, str) else compact(arguments)
    ext = "json" if parsed(arguments, dict) is not None else text_ext(arguments)
    return Part(
        kind="tool_use", role="assistant", origin=origin, body=arguments, ext=ext, call=call, tool=name, extra=extra
    )


def result_part(
    content: str | bytes | list[Any], call: str, *, tool: str = "", error: bool = False, **extra: Any
) -> Part:
    """The result of a call: text, a tool's bytes (UTF-8 or not), or blocks of the Messages API."""
    if isinstance(content, list):
        block = {"type": "tool_result", "tool_use_id": call, "content": content, "is_error": error, **extra}
        return msgspec.structs.replace(part(block, "user", "tool"), tool=tool)
    body = display.encode(content) if isinstance(content, str) else content
    return Part(
        kind="tool_result",
        role="user",
        origin="tool",
        body=body,
        ext=text_ext(body),
        call=call,
        tool=tool,
        error=error,
        extra=extra,
    )


def _result_part(block: Mapping[str, Any], call: str, origin: Origin) -> Part:
    extra = _rest(block, "type", "tool_use_id", "content", "is_error")
    content = block.get("content")
    files: tuple[tuple[str, bytes], ...] = ()
    ext = ""
    match content:
        case None | []:
            body = b""
        case str():
            body = display.encode(content)
        case [{"type": "text", "text": str(only), **others}] if not others:
            body = display.encode(only)
        case list() if not any(map(_names_a_file, content)):
            body, files = _mixed(content)
            ext = "json"
            # A result whose text is itself a JSON document must not be taken for a list of parts.
            extra["ctxvc"] = {"parts": True}
        case _:
            return other_part(block, "user", origin)
    return Part(
        kind="tool_result",
        role="user",
        origin=origin,
        body=body,
        ext=ext or text_ext(body),
        call=call,
        error=bool(block.get("is_error")),
        files=files,
        extra=extra,
    )


def _mixed(content: list[Any]) -> tuple[bytes, tuple[tuple[str, bytes], ...]]:
    """A result of several parts as a JSON list in which each image's data is replaced by the name of a sibling file."""
    listed: list[Any] = []
    files: list[tuple[str, bytes]] = []
    for item in content:
        match item:
            case {
                "type": "image" | "document",
                "source": {"type": "base64", "media_type": str(media), "data": str(data)},
            }:
                raw = _unbase64(data)
                if raw is not None:
                    name = f"{len(files) + 1}.{_EXT.get(media, 'bin')}"
                    digest = hashlib.sha256(raw).hexdigest()
                    source = {**item["source"], "data": {"file": name, "bytes": len(raw), "sha256": digest}}
                    listed.append({**item, "source": source})
                    files.append((name, raw))
                    continue
        listed.append(item)
    return compact(listed), tuple(files)


def _names_a_file(item: Any) -> bool:
    """Whether an item of a result looks like those that `_mixed` makes, so that it would be mistaken for one."""
    match item:
        case {"source": {"data": {"file": _}}}:
            return True
    return False


def _media_part(block: Mapping[str, Any], kind: Kind, media: str, data: str, role: Role, origin: Origin) -> Part:
    raw = _unbase64(data)
    if raw is None:
        return Part(kind=kind, role=role, origin=origin, body=compact(block), ext="json")
    source = {key: value for key, value in block["source"].items() if key not in ("type", "data")}
    extra = {**_rest(block, "type", "source"), "source": source}
    return Part(kind=kind, role=role, origin=origin, body=raw, ext=_EXT.get(media, "bin"), extra=extra)


def _unbase64(data: str) -> bytes | None:
    """The decoded bytes if encoding them again gives exactly `data`, else None."""
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None
    return raw if _base64(raw) == data else None


def _with(part: Part, extra: dict[str, Any]) -> Part:
    return msgspec.structs.replace(part, extra=extra) if extra else part


def _rest(block: Mapping[str, Any], *own_keys: str) -> dict[str, Any]:
    # Received keys with our names mean nothing: a recording cannot mark its own blocks.
    return {key: value for key, value in block.items() if key not in own_keys and key not in FOREIGN}


def arguments(body: bytes, ext: str) -> dict[str, Any]:
    """A call's arguments as the object that the Messages API requires; anything else goes under `arguments`."""
    value = parsed(body, dict) if ext == "json" else None
    if value is None:
        return {"arguments": display.decode(body)} if body else {}
    return value


def items(body: bytes, extra: Mapping[str, Any]) -> list[Any] | None:
    """The items of a result of several parts, images by file name; None if the body is its text."""
    return parsed(body, list) if own_metadata(extra).get("parts") is True else None


def block(
    *,
    kind: str,
    body: bytes,
    ext: str = "txt",
    call: str = "",
    tool: str = "",
    error: bool = False,
    extra: Mapping[str, Any] = {},
    files: Mapping[str, bytes] = {},
) -> dict[str, Any]:
    """The content block of the Messages API that a body stands for: the inverse of `part`."""
    rest = {key: value for key, value in extra.items() if key not in FOREIGN}
    if kind == "tool_use":
        return {"type": "tool_use", "id": call, "name": tool, "input": arguments(body, ext), **rest}
    if kind == "tool_result":
        return _result_block(body, call, error, extra, rest, files)
    if kind == "thinking" and ext != "json":
        return {"type": "thinking", "thinking": display.decode(body), **rest}
    if kind in ("image", "document") and ext != "json":
        source_fields = rest.pop("source", None)
        source = {"type": "base64", **(source_fields if isinstance(source_fields, dict) else {}), "data": _base64(body)}
        return {"type": kind, "source": source, **rest}
    if kind in ("thinking", "image", "document", "other"):
        value = parsed(body, dict)
        return {"type": "text", "text": display.decode(body)} if value is None else value
    return {"type": "text", "text": display.decode(body), **rest}


def _result_block(
    body: bytes, call: str, error: bool, extra: Mapping[str, Any], rest: dict[str, Any], files: Mapping[str, bytes]
) -> dict[str, Any]:
    result: dict[str, Any] = {"type": "tool_result", "tool_use_id": call}
    if (several := items(body, extra)) is not None:
        result["content"] = [_fill(item, files) for item in several]
    elif body:
        result["content"] = [{"type": "text", "text": display.decode(body)}]
    if error:
        result["is_error"] = True
    return {**result, **rest}


def _fill(item: Any, files: Mapping[str, bytes]) -> Any:
    match item:
        case {"source": {"data": {"file": str(name)}}} if name in files:
            return {**item, "source": {**item["source"], "data": _base64(files[name])}}
    return item


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
