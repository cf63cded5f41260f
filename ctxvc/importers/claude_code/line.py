"""One line of a Claude Code transcript.

The format is internal to its program and changes with any release. So a field of an unexpected type is left out
instead of failing its line, and content of an unknown shape is kept verbatim.
"""

from __future__ import annotations

import json
import re
from typing import Any, cast

import msgspec

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Origin, Part, Role
from ctxvc.core.recording.usage import counts
from ctxvc.forms import origins

_NOTHING = msgspec.Raw(b"null")
#: The first release in which plugins compact. By then, every prompt of a person names its source.
_MODS = (2, 1, 287)
_RELEASE = re.compile(r"([0-9]{1,6})\.([0-9]{1,6})\.([0-9]{1,6})")
_CONVERSATION = ("user", "assistant", "system")


class _Lenient(msgspec.Struct, rename="camel"):
    """A JSON object, of which only the fields declared here are decoded."""


class Source(_Lenient):
    kind: str | None = None


class Usage(msgspec.Struct):
    input_tokens: Any = None
    output_tokens: Any = None
    cache_read_input_tokens: Any = None
    cache_creation_input_tokens: Any = None
    cache_creation: Any = None


class ApiMessage(msgspec.Struct):
    role: str | None = None
    id: str | None = None
    model: str | None = None
    content: msgspec.Raw = _NOTHING
    usage: Usage | None = None


class Rendered(_Lenient):
    content: msgspec.Raw = _NOTHING


class Attachment(_Lenient):
    type: str | None = None
    prompt: msgspec.Raw = _NOTHING
    command_mode: str | None = None
    is_meta: bool | None = None
    origin: Source | None = None
    system_prompt: msgspec.Raw = _NOTHING


class Agent(_Lenient):
    agent_id: str | None = None


class Entry(_Lenient):
    """A decoded line. `parent_uuid` is None at a root and UNSET if the line has no such field."""

    type: str | None = None
    subtype: str | None = None
    uuid: str | None = None
    parent_uuid: str | msgspec.UnsetType | None = msgspec.UNSET
    logical_parent_uuid: str | None = None
    is_sidechain: bool | None = None
    is_meta: bool | None = None
    is_compact_summary: bool | None = None
    is_visible_in_transcript_only: bool | None = None
    repeats_compact_summary: bool | None = None
    is_api_error_message: bool | None = None
    agent_id: str | None = None
    session_id: str | None = None
    cwd: str | None = None
    git_branch: str | None = None
    version: str | None = None
    timestamp: str | None = None
    request_id: str | None = None
    request_ref: str | None = None
    prompt_source: str | None = None
    origin: Source | None = None
    message: ApiMessage | None = None
    attachment: Attachment | None = None
    rendered: list[Rendered] | None = None
    rendered_role: str | None = None
    content: msgspec.Raw = _NOTHING
    data: Agent | None = None
    tool_use_result: msgspec.Raw = _NOTHING
    parent_tool_use_id: str | None = msgspec.field(default=None, name="parentToolUseID")
    compact_metadata: dict[str, Any] | None = None
    operation: str | None = None
    ai_title: str | None = None
    custom_title: str | None = None
    summary: str | None = None
    leaf_uuid: str | None = None

    @property
    def synthetic(self) -> bool:
        """Whether the client made this reply instead of the model (an error, "No response requested.")."""
        return bool(self.is_api_error_message) or (self.message is not None and self.message.model == "<synthetic>")


_ENTRY = msgspec.json.Decoder(Entry)
_INNER: dict[str, msgspec.json.Decoder[Any]] = {
    "message": msgspec.json.Decoder(ApiMessage),
    "attachment": msgspec.json.Decoder(Attachment),
}
_AGENT = msgspec.json.Decoder(Agent)
_CONTENT: msgspec.json.Decoder[str | list[msgspec.Raw]] = msgspec.json.Decoder(str | list[msgspec.Raw])
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def read(data: bytes) -> tuple[Entry, tuple[Part, ...]]:
    """The entry of a line, and the parts of its message; none if it is not a message.

    Raises: ValueError if it is not a JSON object.
    """
    try:
        try:
            entry = _ENTRY.decode(data)
        except _UNDECODABLE:
            entry = _salvage(wire.parse(data))
        return entry, _parts(entry)
    except RecursionError as error:
        raise ValueError("JSON is nested too deep") from error


def _salvage(value: Any) -> Entry:
    """The entry made of a line's valid fields: each field of an unexpected type is left out."""
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")
    inner = {name: value[name] for name in ("message", "attachment") if isinstance(value.get(name), dict)}
    sound = {name: _sound(inner[name], decoder) for name, decoder in _INNER.items() if name in inner}
    entry = _ENTRY.decode(_strict(_sound({**value, **sound}, _ENTRY)))
    # Content may have any form: `_blocks` also reads JSON that only Python's own parser accepts.
    entry.content = _raw(value.get("content"))
    if entry.message is not None:
        entry.message.content = _raw(inner["message"].get("content"))
    if entry.attachment is not None:
        entry.attachment.prompt = _raw(inner["attachment"].get("prompt"))
    if entry.rendered:
        for item, original in zip(entry.rendered, value["rendered"], strict=True):
            item.content = _raw(original.get("content"))
    return entry


def _sound(value: dict[str, Any], decoder: msgspec.json.Decoder[Any]) -> dict[str, Any]:
    return {name: field for name, field in value.items() if _takes(decoder, {name: field})}


def _takes(decoder: msgspec.json.Decoder[Any], value: dict[str, Any]) -> bool:
    try:
        decoder.decode(_strict(value))
    except _UNDECODABLE:
        return False
    return True


def _strict(value: Any) -> bytes:
    """`value` as JSON in valid UTF-8: half of a surrogate pair becomes `?`."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(wire.compact(value))


def is_message(entry: Entry) -> bool:
    """Whether the line is a message in Messages API form, of whatever line type."""
    if entry.message is None:
        return False
    return entry.type in ("user", "assistant") or (entry.uuid is not None and entry.message.role in _CONVERSATION)


def is_given_back(entry: Entry) -> bool:
    """Whether the line may be a message that a compacting plugin returned, not one just made by anybody else."""
    if entry.is_meta or entry.is_compact_summary or entry.message is None or _release(entry) < _MODS:
        return False
    if entry.type == "assistant":
        return entry.message.model == "<synthetic>" and not entry.is_api_error_message
    return entry.type == "user" and entry.prompt_source is None and bytes(entry.tool_use_result) == bytes(_NOTHING)


def _release(entry: Entry) -> tuple[int, ...]:
    match = _RELEASE.match(entry.version or "")
    return tuple(map(int, match.groups())) if match else ()


def has_no_content(parts: tuple[Part, ...]) -> bool:
    """Whether it is the host's text for a reply of which nothing is left, which it does not send."""
    return [(part.kind, part.body) for part in parts] == [("assistant", b"(no content)")]


def role(entry: Entry) -> Role:
    """The role that this line has in the prompt."""
    recorded = entry.rendered_role if entry.type == "attachment" else entry.message and entry.message.role
    for candidate in (recorded, entry.type if entry.message else None):
        if candidate in _CONVERSATION:
            return cast(Role, candidate)
    return "user"


def usage(entry: Entry) -> dict[str, int]:
    """The provider's token counts on this line; empty for a reply that the client made."""
    if entry.message is None or entry.message.usage is None or entry.synthetic:
        return {}
    return counts(msgspec.structs.asdict(entry.message.usage))


def agent_of(entry: Entry) -> str:
    """The id of the sub-agent that a result starts or ends; empty if there is none."""
    try:
        return _AGENT.decode(entry.tool_use_result).agent_id or ""
    except _UNDECODABLE:
        return ""


def queued(entry: Entry) -> str | None:
    """The text that an attachment brings in from the queue of prompts typed during a turn; None if there is none."""
    attachment = entry.attachment
    return text_of(attachment.prompt) if attachment and attachment.type == "queued_command" else None


def text_of(content: msgspec.Raw) -> str:
    """All text in a message's content; empty if it cannot be read."""
    return "".join(_texts(content))


def system_prompt(entry: Entry) -> list[dict[str, Any]]:
    """The system prompt as text blocks, if the line is an attachment with a copy of it; else empty."""
    if entry.attachment is None or entry.attachment.type != "prompt_snapshot":
        return []
    return [{"type": "text", "text": text} for text in _texts(entry.attachment.system_prompt)]


def _texts(content: msgspec.Raw) -> list[str]:
    try:
        return [text for block, _ in _blocks(content) if (text := _text(block))]
    except ValueError:
        return []


def _parts(entry: Entry) -> tuple[Part, ...]:
    if entry.type == "attachment":
        return _attached(entry)
    if entry.type == "system" and entry.subtype == "local_command":
        # Newer versions write a slash command and its output this way; the model is shown both as user text.
        return _content(entry.content, "user", None)
    if not is_message(entry) or entry.message is None:
        return ()
    side = role(entry)
    return _content(entry.message.content, side, _origin(entry, side))


def _attached(entry: Entry) -> tuple[Part, ...]:
    """The parts that an attachment added to the prompt, as far as they were recorded."""
    attachment = entry.attachment or Attachment()
    typed = (
        attachment.type == "queued_command"
        and not attachment.is_meta
        and attachment.command_mode in (None, "prompt")
        and not _not_a_person(attachment.origin)
    )
    origin: Origin = "human" if typed else "client"
    rendered = tuple(part for item in entry.rendered or () for part in _content(item.content, role(entry), origin))
    # Older versions did not record its form in the prompt, and a person's words must not be lost.
    return rendered or (_content(attachment.prompt, "user", origin) if typed else ())


def _origin(entry: Entry, side: Role) -> Origin | None:
    """Who made all texts of a message; None if each has to be judged by its marks."""
    if side == "assistant":
        return "client" if entry.synthetic else "model"
    if side == "system" or entry.is_meta or entry.is_compact_summary or entry.repeats_compact_summary:
        return "client"
    if (
        entry.is_visible_in_transcript_only
        or _not_a_person(entry.origin)
        or entry.prompt_source in origins.NOT_A_PERSON
    ):
        return "client"
    if entry.is_sidechain and entry.parent_uuid is None:
        return "model"  # a sub-agent's task is the text of the call that started it
    return "human" if entry.origin is not None and entry.origin.kind == "human" else None


def _not_a_person(source: Source | None) -> bool:
    return source is not None and source.kind in origins.NOT_A_PERSON


def _content(content: msgspec.Raw, side: Role, origin: Origin | None) -> tuple[Part, ...]:
    return tuple(
        _part(block, input_bytes, side, origin) for block, input_bytes in _blocks(content) if block not in ("", None)
    )


def _part(block: Any, input_bytes: bytes | None, side: Role, origin: Origin | None) -> Part:
    kind = block.get("type") if isinstance(block, dict) else None
    if isinstance(kind, str) and kind.endswith("tool_result"):
        return wire.part(block, side, "tool")
    if origin is None:
        text = _text(block)
        origin = "client" if text is not None and origins.is_by_client(text) else "human"
    return wire.part(block, side, origin, input_bytes=input_bytes)


def _text(block: Any) -> str | None:
    text = block.get("text") if isinstance(block, dict) else block
    return text if isinstance(text, str) else None


def _blocks(content: msgspec.Raw) -> list[tuple[Any, bytes | None]]:
    """The content blocks of a message, each with the bytes of its arguments as received if it is a call.

    A bare string comes as one block; so does a value that is neither string nor list.
    """
    try:
        decoded = _CONTENT.decode(content)
    except _UNDECODABLE:
        value = wire.parse(bytes(content))
        return [(block, None) for block in value] if isinstance(value, list) else [(value, None)]
    return [(decoded, None)] if isinstance(decoded, str) else [_block(bytes(block)) for block in decoded]


def _block(data: bytes) -> tuple[Any, bytes | None]:
    if data.startswith(b"{") and b'"tool_use"' in data:
        block = _FIELDS.decode(data)
        match {name: wire.parse(bytes(field)) for name, field in block.items() if name != "input"}:
            case {"type": "tool_use", "id": str(), "name": str()} as call if "input" in block:
                return {**call, "input": None}, bytes(block["input"])
    return wire.parse(data), None
