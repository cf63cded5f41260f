"""Edits of the Responses API's items, each a message here. An edit's items are the pieces of a message's content, by
number, or any other item as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from ctxvc.forms import elements, splice
from ctxvc.forms.form import Answer, Edit
from ctxvc.forms.items import MESSAGES, converted
from ctxvc.forms.values import text_of

#: Outputs that cannot be text: pictures of a screen, definitions of tools.
_NO_TEXT = frozenset({"computer_call_output", "tool_search_output"})
_TEXTS = frozenset({"input_text", "output_text", "text"})
#: Codex's field for notes on an item, and the entries of ours in those of its notes that list one for each piece.
_NOTES = "internal_chat_message_metadata_passthrough"
_NOTE: dict[str, Any] = {"content_item_kinds": "unknown", "content_item_metadata": {}}


class _Head(msgspec.Struct):
    """The fields of an item that tell whose it is."""

    type: Any = "message"
    role: Any = None


_HEAD = msgspec.json.Decoder(_Head)


def layout(message: Any) -> list[int]:
    if not is_item(message):
        return []
    if _kind(message) not in MESSAGES:
        return [0]
    content = message.get("content")
    return list(range(len(content))) if isinstance(content, list) else [0]


def role(message: Any) -> Literal["user", "assistant", "result", "system"]:
    if _kind(message).endswith("_output"):
        return "result"
    if is_by_model(message):
        return "assistant"
    return "system" if isinstance(message, dict) and message.get("role") in ("developer", "system") else "user"


def edited(message: Any, edit: Edit) -> Any | None:
    """The message with the edit applied, or None; an output that cannot be text is not replaced."""
    if not any(edit) or not layout(message):
        return message
    if _kind(message) in MESSAGES:
        return _edited_message(message, edit)
    if 0 in edit.dropped:
        return None
    text = edit.replaced.get(0)
    if _kind(message).endswith("_output"):
        result = message if text is None else _showing(message, text)
        return _longer(result, edit.appended) if edit.appended else result
    if text is None:
        return message
    _, (part, *_) = converted(message)
    if part.kind in ("tool_use", "thinking"):
        return message
    return _message(part.role, [text])


def own(texts: Sequence[str]) -> Any:
    return _message("user", texts)


def results(message: Any | None, answers: Sequence[Answer]) -> list[Any]:
    ours = [{"type": "function_call_output", "call_id": answer.call, "output": answer.text} for answer in answers]
    return [*ours, *([] if message is None else [message])]


def tool(definition: dict[str, Any]) -> Any:
    function = elements.function(definition)
    return {"type": "function", **function["function"], "strict": False} if function else definition


def spliced(
    body: bytes,
    messages: Sequence[int | Any],
    tools: Sequence[dict[str, Any]],
    *,
    lasting: int = 0,  # noqa: ARG001 - there are no marks
) -> bytes:
    """The body with other messages; reasoning leaves with its item, which is the next one that is not reasoning."""
    request = splice.opened(body)
    if request.begins("input", '"'):
        span = request.members["input"]
        item = b'{"type":"message","role":"user","content":' + body[slice(*span)] + b"}"
        changes = splice.from_one(span, item, list(map(splice.element, messages)))
    else:
        own_places = splice.places(request, "input")
        elements = _consistent([_head(body[slice(*place)]) for place in own_places], messages)
        changes = [splice.with_items(request, "input", own_places, list(map(splice.element, elements)))]
    return splice.changed(body, [*changes, *splice.added(request, "tools", list(map(tool, tools)))])


def is_item(item: Any) -> bool:
    if not isinstance(item, dict):
        return False
    kind = item.get("type", "message")
    return isinstance(kind, str) and (kind != "message" or isinstance(item.get("role"), str))


def is_by_model(item: Any) -> bool:
    return _is_by_model(_head_of(item))


def _is_by_model(head: _Head) -> bool:
    kind = text_of(head.type)
    return head.role == "assistant" if kind == "message" else kind == "reasoning" or kind.endswith("_call")


def _head_of(item: Any) -> _Head:
    return _Head(type=item.get("type", "message"), role=item.get("role")) if isinstance(item, dict) else _Head(type="")


def _head(text: bytes) -> _Head:
    try:
        return _HEAD.decode(text)
    except msgspec.DecodeError:  # no object, or a type that is no text
        return _Head(type="")


def _consistent(own: Sequence[_Head], messages: Sequence[int | Any]) -> list[int | Any]:
    """The messages without reasoning that lost the item after it; reasoning that never had one stays."""
    heads = [own[message] if type(message) is int else _head_of(message) for message in messages]

    def stays(place: int) -> bool:
        message, following = messages[place], _following(heads, place)
        if type(message) is int:
            expected = _following(own, message)
            if expected is None or not _is_by_model(own[expected]):
                return True
            if following is not None and type(messages[following]) is int:
                return bool(messages[following] == expected)
        return following is not None and _is_by_model(heads[following])

    return [message for place, message in enumerate(messages) if heads[place].type != "reasoning" or stays(place)]


def _following(heads: Sequence[_Head], place: int) -> int | None:
    """The index of the next item that is not reasoning."""
    return next((at for at in range(place + 1, len(heads)) if heads[at].type != "reasoning"), None)


def _edited_message(message: Mapping[str, Any], edit: Edit) -> dict[str, Any] | None:
    content = message.get("content")
    if not isinstance(content, list) and not edit.dropped and not edit.appended:
        return {**message, "content": edit.replaced.get(0, content)}
    kind = "output_text" if message.get("role") == "assistant" else "input_text"
    piece = {"type": kind, "text": content} if isinstance(content, str) else content
    pieces = content if isinstance(content, list) else [piece]
    result = [
        _piece_showing(own_piece, edit.replaced[place], kind) if place in edit.replaced else own_piece
        for place, own_piece in enumerate(pieces)
        if place not in edit.dropped
    ]
    result += [{"type": kind, "text": text} for text in edit.appended]
    return _with_notes({**message, "content": result}, len(pieces), edit) if result else None


def _piece_showing(piece: Any, text: str, kind: str) -> dict[str, Any]:
    """A piece of a content with another text."""
    fields = piece if isinstance(piece, dict) else {}
    own_kind = text_of(fields.get("type"))
    result = {"type": own_kind if own_kind in _TEXTS else kind, "text": text}
    return {**result, "annotations": []} if "annotations" in fields else result


def _with_notes(message: dict[str, Any], count: int, edit: Edit) -> dict[str, Any]:
    """The message with Codex's notes, one for each piece of its content, edited alike; `count` pieces were there."""
    notes = message.get(_NOTES)
    if not isinstance(notes, dict):
        return message
    lists = {name: notes[name] for name in _NOTE if isinstance(notes.get(name), list) and len(notes[name]) == count}
    edited_lists = {
        name: [note for place, note in enumerate(own) if place not in edit.dropped] + [_NOTE[name]] * len(edit.appended)
        for name, own in lists.items()
    }
    return {**message, _NOTES: {**notes, **edited_lists}}


def _showing(item: Mapping[str, Any], text: str) -> Mapping[str, Any]:
    """A result with another text, if its output can be text."""
    match item.get("output"):
        case _ if _kind(item) in _NO_TEXT:
            return item
        case {"content": str(), **output}:
            return {**item, "output": {"content": text, **output}}
        case [{"stdout": str(), **first}, *_]:
            return {**item, "output": [{**first, "stdout": text, "stderr": ""}]}
    return {**item, "output": text}


def _longer(item: Mapping[str, Any], texts: Sequence[str]) -> Mapping[str, Any]:
    """A result with more texts after its output, if that can be text."""
    match item.get("output"):
        case str(output):
            return {**item, "output": "\n\n".join([output, *texts])}
        case list(output) if _kind(item) in ("function_call_output", "custom_tool_call_output"):
            return {**item, "output": [*output, *({"type": "input_text", "text": text} for text in texts)]}
    return item


def _message(role: str, texts: Sequence[str]) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text} for text in texts]}


def _kind(item: Any) -> str:
    return text_of(item.get("type", "message")) if isinstance(item, dict) else ""
