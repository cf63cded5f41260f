"""Items of OpenAI's Responses API, as Codex records them, → parts with their origins, without loss.

Fields that only this form has go to `extra["openai"]`: `item` is the item's type, unless the part's kind implies it (a
message, a function call or its output), and the others are the item's own fields.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping
from typing import Any

import msgspec

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Origin, Part, Role
from ctxvc.core.ledger.wire import without
from ctxvc.forms import elements
from ctxvc.forms.values import text_in

#: The beginnings and ends of texts that Codex adds under the role of the user, in lower case; empty for any end.
_CLIENT_MARKS: tuple[tuple[str, str], ...] = (
    ("# agents.md instructions", "</instructions>"),
    ("<user_instructions>", "</user_instructions>"),
    ("<environment_context>", "</environment_context>"),
    ("<permissions instructions>", "</permissions instructions>"),
    ("<collaboration_mode>", "</collaboration_mode>"),
    ("<personality_spec>", "</personality_spec>"),
    ("<model_switch>", "</model_switch>"),
    ("<skills_instructions>", "</skills_instructions>"),
    ("<apps_instructions>", "</apps_instructions>"),
    ("<plugins_instructions>", "</plugins_instructions>"),
    ("<recommended_plugins>", "</recommended_plugins>"),
    ("<skill>", "</skill>"),
    ("<hook_prompt ", "</hook_prompt>"),
    ("<user_shell_command>", "</user_shell_command>"),
    ("<user_action>", "</user_action>"),
    ("<turn_aborted>", "</turn_aborted>"),
    ("<subagent_notification>", "</subagent_notification>"),
    ("<goal_context>", "</goal_context>"),
    ("<codex_internal_context ", "</codex_internal_context>"),
    ("<extension_context>", "</extension_context>"),
    ("<external_", ">"),
    ("<image", ">"),
    ("</image", ">"),
    ("warning: the maximum number of unified exec processes", ""),
    ("warning: apply_patch was requested via ", ""),
    ("warning: your account was flagged for potentially", ""),
    ("another language model started to solve this problem", ""),
)
_CLIENT_STARTS = tuple(start for start, _ in _CLIENT_MARKS)

#: Types of items with a content.
MESSAGES = frozenset({"message", "agent_message", "inter_agent_communication"})
#: The field with a call's arguments, by the item's type. A call without a name is named after its type.
ARGUMENTS = {
    "function_call": "arguments",
    "custom_tool_call": "input",
    "tool_search_call": "arguments",
    "local_shell_call": "action",
    "shell_call": "action",
    "computer_call": "action",
    "apply_patch_call": "operation",
}


def identity(item: Mapping[str, Any]) -> Hashable:
    """A key that an item shares with its repetition, which may lack its metadata."""
    kind = text_in(item, "type")
    if kind != "message":
        return kind, text_in(item, "call_id") or wire.compact(item)
    content = item.get("content")
    if isinstance(content, str):
        return kind, text_in(item, "role"), content
    pieces = content if isinstance(content, list) else [content]
    return kind, text_in(item, "role"), *map(_piece_identity, pieces)


def converted(item: dict[str, Any]) -> tuple[Role, tuple[Part, ...]]:
    """The role and parts of an item; one of an unknown kind or shape is kept verbatim."""
    kind = text_in(item, "type")
    if kind in MESSAGES:
        return _message(item)
    if kind == "reasoning":
        return "assistant", (_reasoning(item),)
    call = text_in(item, "call_id") or text_in(item, "id")
    if kind in ARGUMENTS and call and (arguments := item.get(ARGUMENTS[kind])) is not None:
        return "assistant", (_call(item, kind, call, arguments),)
    if kind.endswith("_output") and call:
        return "user", (_result(item, kind, call),)
    if kind.endswith("_call"):
        return "assistant", (wire.other_part(item, "assistant", "model", openai={"item": kind}),)
    return "user", (wire.other_part(item, "user", "client", openai={"item": kind}),)


def _piece_identity(piece: Any) -> Hashable:
    """A piece's text, or the digest of any other piece, so that no image stays in memory."""
    text = piece.get("text") if isinstance(piece, dict) else None
    return text if isinstance(text, str) else hashlib.sha256(wire.compact(piece)).digest()


def _message(item: dict[str, Any]) -> tuple[Role, tuple[Part, ...]]:
    kind, native, content = item["type"], item.get("role"), item.get("content")
    openai = without(item, "type", "role", "content")
    role: Role = "user"
    if kind != "message":
        openai["item"] = kind
    elif native == "assistant":
        role = "assistant"
    elif native in ("developer", "system"):
        role = "system"
    role_field = {} if native in ("user", "assistant", None) else {"role": native}
    if not isinstance(content, list):
        # A bare string means the same as a list with one text.
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
    """Who made a piece of user content: by its `kind` in newer rollouts, by its marks in older ones."""
    if isinstance(kind, str) and kind not in ("", "unknown"):
        return "human" if kind.startswith("user.") else "client"
    text = value.get("text") if isinstance(value, dict) else None
    return "client" if isinstance(text, str) and is_clients(text) else "human"


def is_clients(text: str) -> bool:
    """Whether a text has the marks of one that Codex added."""
    start, end = text[:200].lstrip().lower(), text[-200:].rstrip().lower()
    if not start.startswith(_CLIENT_STARTS):
        return False
    return any(start.startswith(opening) and end.endswith(closing) for opening, closing in _CLIENT_MARKS)


def _content_part(value: Any, role: Role, origin: Origin, openai: dict[str, Any]) -> Part:
    """The part for a piece of content; `openai` has the other fields of its item."""
    match value:
        case {"type": "input_text" | "output_text" | "text" as kind, "text": str(text)}:
            fields = without(value, "text") if kind != _text_type(role) else without(value, "type", "text")
            openai = {**openai, "content": fields} if fields else openai
            return wire.text_part(text, role, origin, **_extra(openai))
        case {"type": "input_image", "image_url": str(url)}:
            part = wire.part(elements.image(url), role, origin)
            fields = without(value, "type", "image_url")
            openai = {**openai, "content": fields} if fields else openai
            return msgspec.structs.replace(part, extra={**part.extra, "openai": openai}) if openai else part
    return wire.other_part(value, role, origin, openai=openai)


def _extra(openai: dict[str, Any]) -> dict[str, Any]:
    return {"openai": openai} if openai else {}


def _text_type(role: Role) -> str:
    return "output_text" if role == "assistant" else "input_text"


def _reasoning(item: dict[str, Any]) -> Part:
    """Readable reasoning as text; encrypted or empty reasoning as the whole item."""
    openai = {"item": "reasoning", **without(item, "type", "summary", "content")}
    pieces = [*_list(item, "content"), *_list(item, "summary")]
    texts = [piece["text"] for piece in pieces if isinstance(piece, dict) and isinstance(piece.get("text"), str)]
    if texts and len(texts) == len(pieces) and not item.get("encrypted_content"):
        openai["parts"] = [without(piece, "text") for piece in pieces]
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
    openai = without(item, "type", "call_id", "name", ARGUMENTS[kind])
    if kind != "function_call":
        openai["item"] = kind
    name = text_in(item, "name") or kind.removesuffix("_call")
    return wire.call_part(name, call, arguments, **_extra(openai))


def _result(item: dict[str, Any], kind: str, call: str) -> Part:
    output = item.get("output", item.get("tools"))
    openai = without(item, "type", "call_id", "output", "tools")
    if kind != "function_call_output":
        openai["item"] = kind
    error = False
    if isinstance(output, dict) and isinstance(output.get("content"), str):
        error = output.get("success") is False
        openai["output"] = without(output, "content")
        output = output["content"]
    if isinstance(output, str):
        return wire.result_part(output, call, error=error, **_extra(openai))
    if isinstance(output, list) and (blocks := _blocks(output)) is not None:
        openai["output"] = [without(value, "text", "image_url") for value in output]
        block = {"type": "tool_result", "tool_use_id": call, "content": blocks, "openai": openai}
        return wire.part(block, "user", "tool")
    return wire.result_part(b"" if output is None else wire.compact(output), call, **_extra(openai))


def _blocks(output: list[Any]) -> list[dict[str, Any]] | None:
    """The Messages API's blocks for the pieces of an output; None if a piece is of an unknown type."""
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
