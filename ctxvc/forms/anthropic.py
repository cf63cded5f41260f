"""The Messages API."""

from __future__ import annotations

from typing import Any

from ctxvc.core import display
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message, Origin, Part, Role
from ctxvc.errors import BadInput
from ctxvc.forms import form, sse
from ctxvc.forms.anthropic_stream import Assembly
from ctxvc.forms.origins import is_by_client
from ctxvc.forms.values import annotated, counts, digest, objects, text_of

NAME = "anthropic-messages"

#: Keys of a message or response that have their own place in a `Message`, or do not concern the model's input.
_TAKEN = frozenset(
    {"role", "content", "id", "type", "model", "usage", "stop_reason", "stop_sequence", "stop_details", "container"}
)
#: What makes a block of these types the one that it is; the provider adds more, which not every client repeats.
_MEANING = {
    "text": ("text",),
    "tool_use": ("id", "name", "input"),
    "tool_result": ("tool_use_id", "content", "is_error"),
}
#: Clients leave these out of turns that are over.
_THINKING = frozenset({"thinking", "redacted_thinking"})


def prompt(body: bytes, path: str = "") -> form.Prompt:  # noqa: ARG001 - a form's
    """Raises: BadInput."""
    request = form.json_object(body, "request")
    messages = form.values_at(request, "messages")
    system = request.get("system")
    return form.Prompt(
        model=text_of(request.get("model")),
        system=(system if isinstance(system, str) else objects(system)) or None,
        tools=tuple(objects(request.get("tools"))),
        messages=tuple(messages),
        prints=tuple(map(fingerprint, messages)),
        stream=request.get("stream") is True,
        max_tokens=form.limit(request.get("max_tokens")),
    )


def reply(answer: bytes, *, stream: bool) -> form.Reply:
    """Raises: BadInput."""
    if not sse.is_stream(answer, stream=stream):
        value = form.json_object(answer, "answer")
        return _reply(value, form.error_text(value), ended=True)
    assembly, error = Assembly(), ""
    for event in sse.events((answer,)):
        if isinstance(value := event.value(), dict):
            error = error or form.error_text(value)
            assembly.add(event.name, value)
    return _reply(assembly.message(), error, ended=assembly.ended)


def _reply(message: dict[str, Any], error: str, *, ended: bool) -> form.Reply:
    content = message.get("content")
    if not isinstance(content, str | list) and not error:
        raise BadInput("the answer holds no message")
    messages = ({"role": "assistant", "content": content},) if content else ()
    is_whole = ended and not error
    return form.Reply(
        messages=messages,
        prints=tuple(map(fingerprint, messages)),
        id=text_of(message.get("id")),
        model=text_of(message.get("model")),
        usage=counts(message.get("usage")),
        stop=text_of(message.get("stop_reason")) if is_whole else "",
        whole=is_whole,
        error=error,
    )


def reader() -> form.Reader:
    return form.Reader(message)


def message(value: Any) -> Message | str:
    """The message as one of ours, or the reason why there is none."""
    match value:
        case {"role": "user" | "assistant" | "system" as role, "content": str() | list() as content}:
            blocks = [content] if isinstance(content, str) and content else list(content)
        case _:
            return "it has no known role, or no content"
    if not blocks:
        return "it is empty"
    parts = [_part(block, role) for block in blocks]
    if fields := {name: item for name, item in value.items() if name not in _TAKEN}:
        parts[0] = annotated(parts[0], "ctxvc", {"message": fields})
    return Message(role=role, parts=tuple(parts))


def _part(block: Any, role: Role) -> Part:
    # Arguments that are no JSON, as of a call that was cut off, come as the text that the model wrote.
    written = block.get("input") if isinstance(block, dict) else None
    input_bytes = display.encode(written) if isinstance(written, str) else None
    return wire.part(block, role, origin(block, role), input_bytes=input_bytes)


def origin(block: Any, role: Role) -> Origin:
    """The maker of a content block, by its type, its role and the marks in its text."""
    value = block.get("text") if isinstance(block, dict) else block
    if isinstance(block, dict) and text_of(block.get("type")).endswith("tool_result"):
        return "tool"
    if role == "assistant":
        return "model"
    return "client" if role == "system" or is_by_client(text_of(value)) else "human"


def fingerprint(message: Any) -> bytes:
    """Equal for two spellings of one message: a client may leave out nulls, thinking and what the provider added to a
    block, and set cache marks anew each time."""
    if not isinstance(message, dict):
        return digest(message)
    return digest([message.get("role"), _meaning(message.get("content"))])


def _meaning(content: Any) -> Any:
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if not isinstance(content, list):
        return content
    blocks = [_block_meaning(block) if isinstance(block, dict) else block for block in content]
    return [block for block in blocks if block]


def _block_meaning(block: dict[str, Any]) -> dict[str, Any]:
    """What tells a block from others; empty for thinking and a text without words."""
    kind = text_of(block.get("type"))
    if kind in _THINKING or (kind == "text" and not block.get("text")):
        return {}
    meaning: dict[str, Any] = {}
    for name in _MEANING.get(kind, block):
        value = _meaning(block.get(name)) if name == "content" else block.get(name)
        if (value or value in (0, "")) and value is not False and name != "cache_control":
            meaning[name] = value
    meaning["type"] = kind
    return meaning
