"""OpenAI's Responses API: items, without loss.

A reply is several items: reasoning, a message, calls. Neighbouring items of the model's are one message of ours. Fields
that only that form has go to `extra["openai"]`: `item` is the type of an item that the part's kind does not imply (it
implies a message, a function call, its output), and the others are the item's own fields.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from itertools import groupby
from typing import Any

import msgspec

from ctxvc.core import display
from ctxvc.core.conversion.responses import stop_reason, usage
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message, Origin, Part, Role
from ctxvc.core.prompt import openai_elements as elements
from ctxvc.errors import BadInput
from ctxvc.forms import form, sse
from ctxvc.forms.origins import is_by_codex
from ctxvc.forms.responses_stream import Assembly
from ctxvc.forms.values import arguments_print, digest, objects, text_of

NAME = "openai-responses"

#: Where a call keeps its arguments, by the item's type; a call without a name of its own is named after its type.
_ARGUMENTS = {
    "function_call": "arguments",
    "custom_tool_call": "input",
    "tool_search_call": "arguments",
    "local_shell_call": "action",
    "shell_call": "action",
    "computer_call": "action",
    "apply_patch_call": "operation",
}
#: Fields that the provider adds to an item, and clients may take along or leave out.
_ADDED = frozenset({"status", "created_by", "internal_chat_message_metadata_passthrough"})


def prompt(body: bytes, path: str = "") -> form.Prompt:  # noqa: ARG001 - a form's
    """Raises: BadInput."""
    request = form.json_object(body, "request")
    items = input_items(request.get("input"))
    if items is None:
        raise BadInput("the request has no input")
    conversation = request.get("conversation")
    if isinstance(conversation, dict):
        conversation = conversation.get("id")
    return form.Prompt(
        model=text_of(request.get("model")),
        system=text_of(request.get("instructions")) or None,
        tools=tuple(map(tool, objects(request.get("tools")))),
        messages=tuple(items),
        prints=tuple(map(fingerprint, items)),
        stream=request.get("stream") is True,
        continues=text_of(request.get("previous_response_id")) or text_of(conversation),
        max_tokens=form.limit(request.get("max_output_tokens")),
    )


def input_items(value: Any) -> list[Any] | None:
    """The items of a request's input, which may be a text; None if it is neither."""
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": value}]
    return value if isinstance(value, list) else None


def reply(answer: bytes, *, stream: bool) -> form.Reply:
    """Raises: BadInput."""
    if not sse.is_stream(answer, stream=stream):
        value = form.json_object(answer, "answer")
        return _reply({"status": "completed", **value}, form.error_text(value))
    assembly, error = Assembly(), ""
    for event in sse.events((answer,)):
        if isinstance(value := event.value(), dict):
            is_error = (value.get("type") or event.name) == "error" and "error" not in value
            error = error or form.error_text({"error": {**value, "type": None}} if is_error else value)
            assembly.add(event.name, value)
    response = assembly.response()
    return _reply(response, error or form.error_text(response))


def _reply(response: dict[str, Any], error: str) -> form.Reply:
    output = response.get("output")
    if not isinstance(output, list) and not error:
        raise BadInput("the answer holds no output")
    items = tuple(output) if isinstance(output, list) else ()
    called = any(text_of(item.get("type")) in _ARGUMENTS for item in objects(output))
    stop = "compaction" if response.get("object") == "response.compaction" else stop_reason(response, called=called)
    return form.Reply(
        messages=items,
        prints=tuple(map(fingerprint, items)),
        id=text_of(response.get("id")),
        model=text_of(response.get("model")),
        usage=usage(response.get("usage")),
        stop="" if error else stop,
        whole=bool(stop) and not error,
        error=error,
    )


def reader() -> form.Reader:
    return form.Reader(message, lambda items: ((len(group), group) for group in grouped(items)))


def grouped(items: Iterable[Any]) -> list[Any]:
    """The items of each message: those of a reply together, every other alone."""
    groups: list[Any] = []
    for by_model, run in groupby(items, _is_by_model):
        together = list(run)
        groups += [together] if by_model else [[item] for item in together]
    return groups


def _is_by_model(item: Any) -> bool:
    if not isinstance(item, dict):
        return False
    kind = text_of(item.get("type", "message"))
    return item.get("role") == "assistant" if kind == "message" else kind == "reasoning" or kind.endswith("_call")


def message(group: Any) -> Message | str:
    """The message of some items as one of ours, or why there is none."""
    items = [item for item in group if is_item(item)] if isinstance(group, list) else []
    if not items:
        return "it is not an item"
    items_read = [converted({"type": "message", **item}) for item in items]
    parts = tuple(part for _, item_parts in items_read for part in item_parts)
    if not parts:
        return "it is empty"
    return Message(role=items_read[0][0], parts=parts)


def is_item(item: Any) -> bool:
    """Whether a value may be an item, as its type or role says."""
    if not isinstance(item, dict):
        return False
    kind = item.get("type", "message")
    return isinstance(kind, str) and (kind != "message" or isinstance(item.get("role"), str))


def tool(tool: dict[str, Any]) -> dict[str, Any]:
    """A function as a tool of the Messages API; any other kind of tool as it is."""
    match tool:
        case {"type": "function", "name": str(), **definition}:
            fields = {name: value for name, value in definition.items() if name != "strict" or value}
            return elements.tool({"type": "function", "function": fields | {"name": tool["name"]}})
        case {"type": "custom", "name": str(), **definition}:
            return {"type": "custom", "custom": definition | {"name": tool["name"]}}
    return tool


def group_fingerprint(group: Any) -> bytes:
    """That of the items of one message together."""
    meanings = [_meaning(item) for item in group] if isinstance(group, list) else [group]
    return digest([meaning for meaning in meanings if meaning is not None])


def fingerprint(item: Any) -> bytes:
    """Equal for an item and its repetition in a later request, which has not all fields of a response; empty for
    reasoning, which some clients leave out of turns that are over."""
    meaning = _meaning(item)
    return b"" if meaning is None else digest(meaning)


def _meaning(item: Any) -> Any:
    """What tells an item from others; None for reasoning."""
    if not isinstance(item, dict):
        return item
    kind = text_of(item.get("type", "message"))
    if kind == "reasoning":
        return None
    if kind == "message":
        return repr(identity({"type": kind, **item}))
    fields = {name: value for name, value in item.items() if name not in _ADDED and value not in (None, [])}
    if kind != "item_reference":
        fields.pop("id", None)
    if "arguments" in fields:
        fields["arguments"] = arguments_print(fields["arguments"])
    if isinstance(output := fields.get("output"), list):
        pieces = _pieces(output)
        fields["output"] = pieces[0] if len(pieces) == 1 and isinstance(pieces[0], str) else repr(pieces)
    return fields


def identity(item: Mapping[str, Any]) -> Hashable:
    """Equal for an item and its repetition within a session: for a call or its result by the call's id."""
    kind = text_of(item.get("type"))
    if kind != "message":
        return kind, text_of(item.get("call_id")) or wire.compact(item)
    return kind, text_of(item.get("role")), *_pieces(item.get("content"))


def _pieces(content: Any) -> tuple[Hashable, ...]:
    if isinstance(content, str):
        return (content,)
    return tuple(map(_piece_identity, content if isinstance(content, list) else [content]))


def _piece_identity(piece: Any) -> Hashable:
    """A text itself, or the digest of anything else, so that no image stays in memory."""
    if not isinstance(piece, dict):
        return digest(piece)
    if isinstance(text := piece.get("text"), str):
        return text
    return digest({name: value for name, value in piece.items() if value not in (None, [])})


def converted(item: dict[str, Any]) -> tuple[Role, tuple[Part, ...]]:
    """The role and parts of a Responses item; an unknown kind or shape is kept verbatim."""
    kind = text_of(item.get("type"))
    if kind in ("message", "agent_message", "inter_agent_communication"):
        return _message(item)
    if kind == "reasoning":
        return "assistant", (_reasoning(item),)
    call = text_of(item.get("call_id")) or text_of(item.get("id"))
    if kind in _ARGUMENTS and call and (arguments := item.get(_ARGUMENTS[kind])) is not None:
        return "assistant", (_call(item, kind, call, arguments),)
    if kind.endswith("_output") and call:
        return "user", (_result(item, kind, call),)
    if kind.endswith("_call"):
        return "assistant", (_verbatim(item, "assistant", "model", {"item": kind}),)
    return "user", (_verbatim(item, "user", "client", {"item": kind}),)


def _verbatim(value: Any, role: Role, origin: Origin, openai: dict[str, Any]) -> Part:
    return Part(kind="other", role=role, origin=origin, body=wire.compact(value), ext="json", extra={"openai": openai})


def _message(item: dict[str, Any]) -> tuple[Role, tuple[Part, ...]]:
    kind, native, content = item["type"], item.get("role"), item.get("content")
    openai = _without(item, "type", "role", "content")
    role: Role = "user"
    if kind != "message":
        openai["item"] = kind
    elif native == "assistant":
        role = "assistant"
    elif native in ("developer", "system"):
        role = "system"
    role_field = {} if native in ("user", "assistant", None) else {"role": native}
    if not isinstance(content, list):
        # A bare string says the same as a list with one text.
        content = [{"type": _text_type(role), "text": content} if isinstance(content, str) else content]
    parts = []
    for value, origin in zip(content, _origins(item, role, content), strict=True):
        parts.append(_content_part(value, role, origin, {**openai, **role_field}))
        # The item's other fields are noted once, with its first part.
        openai = {}
    return role, tuple(parts)


def _origins(item: dict[str, Any], role: Role, content: list[Any]) -> list[Origin]:
    if role == "assistant":
        return ["model"] * len(content)
    if role == "system" or item["type"] != "message":
        return ["client"] * len(content)
    metadata = item.get("internal_chat_message_metadata_passthrough")
    kinds = metadata.get("content_item_kinds") if isinstance(metadata, dict) else None
    if not isinstance(kinds, list) or len(kinds) != len(content):
        kinds = [""] * len(content)
    return [_origin(value, kind) for value, kind in zip(content, kinds, strict=True)]


def _origin(value: Any, kind: object) -> Origin:
    """The maker of a piece of user content: by its `kind` in newer rollouts, by its marks in older ones."""
    if isinstance(kind, str) and kind not in ("", "unknown"):
        return "human" if kind.startswith("user.") else "client"
    text = value.get("text") if isinstance(value, dict) else None
    if not isinstance(text, str):
        return "human"
    return "client" if is_by_codex(text) else "human"


def _content_part(value: Any, role: Role, origin: Origin, openai: dict[str, Any]) -> Part:
    """A part for a piece of content; `openai` has the other fields of its item."""
    match value:
        case {"type": "input_text" | "output_text" | "text" as kind, "text": str(text)}:
            fields = _without(value, "text") if kind != _text_type(role) else _without(value, "type", "text")
            openai = {**openai, "content": fields} if fields else openai
            return wire.text_part(text, role, origin, **_extra(openai))
        case {"type": "input_image", "image_url": str(url)}:
            part = wire.part(elements.image(url), role, origin)
            fields = _without(value, "type", "image_url")
            openai = {**openai, "content": fields} if fields else openai
            return msgspec.structs.replace(part, extra={**part.extra, "openai": openai}) if openai else part
    return _verbatim(value, role, origin, openai)


def _extra(openai: dict[str, Any]) -> dict[str, Any]:
    return {"openai": openai} if openai else {}


def _text_type(role: Role) -> str:
    return "output_text" if role == "assistant" else "input_text"


def _reasoning(item: dict[str, Any]) -> Part:
    """Readable reasoning as text; encrypted or empty reasoning as the whole item."""
    openai = {"item": "reasoning", **_without(item, "type", "summary", "content")}
    pieces = [*_list(item, "content"), *_list(item, "summary")]
    texts = [piece["text"] for piece in pieces if isinstance(piece, dict) and isinstance(piece.get("text"), str)]
    if texts and len(texts) == len(pieces) and not item.get("encrypted_content"):
        openai["parts"] = [_without(piece, "text") for piece in pieces]
        return wire.text_part("\n\n".join(texts), "assistant", "model", kind="thinking", openai=openai)
    return Part(
        kind="thinking",
        role="assistant",
        origin="model",
        body=wire.compact(item),
        ext="json",
        extra={"openai": {"item": "reasoning"}},
    )


def _call(item: dict[str, Any], kind: str, call: str, arguments: Any) -> Part:
    openai = _without(item, "type", "call_id", "name", _ARGUMENTS[kind])
    if kind != "function_call":
        openai["item"] = kind
    body = display.encode(arguments) if isinstance(arguments, str) else wire.compact(arguments)
    name = text_of(item.get("name")) or kind.removesuffix("_call")
    return wire.call_part(name, call, body, **_extra(openai))


def _result(item: dict[str, Any], kind: str, call: str) -> Part:
    output = item.get("output", item.get("tools"))
    openai = _without(item, "type", "call_id", "output", "tools")
    if kind != "function_call_output":
        openai["item"] = kind
    error = False
    if isinstance(output, dict) and isinstance(output.get("content"), str):
        error = output.get("success") is False
        openai["output"] = _without(output, "content")
        output = output["content"]
    if isinstance(output, str):
        return wire.result_part(output, call, error=error, **_extra(openai))
    if isinstance(output, list) and (blocks := _blocks(output)) is not None:
        openai["output"] = [_without(value, "text", "image_url") for value in output]
        block = {"type": "tool_result", "tool_use_id": call, "content": blocks, "openai": openai}
        return wire.part(block, "user", "tool")
    return wire.result_part(b"" if output is None else wire.compact(output), call, **_extra(openai))


def _blocks(output: list[Any]) -> list[dict[str, Any]] | None:
    """Content blocks of the Messages API for the pieces of an output; None if one of them is unknown."""
    blocks: list[dict[str, Any]] = []
    for value in output:
        match value:
            case {"type": "input_text" | "output_text" | "text", "text": str(text)}:
                blocks.append({"type": "text", "text": text})
            case {"type": "input_image", "image_url": str(url)}:
                blocks.append(elements.image(url))
            case _:
                return None
    return blocks


def _list(item: Mapping[str, Any], key: str) -> list[Any]:
    value = item.get(key)
    return value if isinstance(value, list) else []


def _without(value: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in value.items() if key not in keys}
