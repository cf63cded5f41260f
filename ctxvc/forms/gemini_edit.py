"""Edits of Gemini's contents, each a message here. An item is a part, by its number; media after a result, which its
tool read, belong to the result's item.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ctxvc.forms import elements, splice
from ctxvc.forms.form import Answer, Edit

_DECLARATIONS = ("functionDeclarations", "function_declarations")
_SIGNATURE = "thoughtSignature"


def layout(message: Any) -> list[int]:
    values = _values(message)
    places = [place for place, number in enumerate(_numbers(values)) if place == number and _is_part(values[place])]
    if role(message) == "assistant":
        return places
    # The reader gives results first. Each counts as a part, although it may lack the id of its call.
    return sorted(places, key=lambda place: isinstance(values[place], str) or "functionResponse" not in values[place])


def role(message: Any) -> Literal["user", "assistant", "result", "system"]:
    return "assistant" if isinstance(message, dict) and message.get("role") == "model" else "user"


def edited(message: Any, edit: Edit) -> Any | None:
    if not any(edit) or not layout(message):
        return message
    values = _values(message)
    parts: list[Any] = []
    for place, number in enumerate(_numbers(values)):
        if number in edit.dropped:
            continue
        if number not in edit.replaced or _is_call(values[place]) or _is_thought(values[place]):
            parts.append(values[place])
        elif place == number:
            parts.append(_showing(values[place], edit.replaced[number]))
    parts += map(_text, edit.appended)
    return {**message, "parts": parts} if any(_is_part(part) and not _is_thought(part) for part in parts) else None


def own(texts: Sequence[str]) -> Any:
    return {"role": "user", "parts": list(map(_text, texts))}


def results(message: Any | None, answers: Sequence[Answer]) -> list[Any]:
    """Our results before the client's message. Ids that the reader made up are not sent."""
    if not answers:
        return [] if message is None else [message]
    ours = [{"functionResponse": _response(answer)} for answer in answers]
    if isinstance(message, dict) and role(message) == "user":
        return [{**message, "parts": [*ours, *_values(message)]}]
    return [{"role": "user", "parts": ours}, *([] if message is None else [message])]


def tool(definition: dict[str, Any]) -> Any:
    fields = {name: definition[name] for name in ("name", "description") if name in definition}
    return {**fields, "parametersJsonSchema": definition["input_schema"]}


def spliced(
    body: bytes,
    messages: Sequence[int | Any],
    tools: Sequence[dict[str, Any]],
    *,
    lasting: int = 0,  # noqa: ARG001 - there are no marks
) -> bytes:
    """The body with other messages; functions are added to the last list of declarations."""
    request = splice.opened(body)
    elements = list(map(splice.element, messages))
    if request.begins("contents", "{"):
        span = request.members["contents"]
        changes = splice.from_one(span, body[slice(*span)], elements)
    else:
        changes = [splice.with_items(request, "contents", splice.places(request, "contents"), elements)]
    return splice.changed(body, [*changes, *_declared(request, list(map(tool, tools)))])


def items(content: Any) -> list[dict[str, Any]]:
    """The parts of a `content`: a text, a part, or a list of both."""
    values = content if isinstance(content, list) else [content]
    return [{"text": value} if isinstance(value, str) else value for value in values if isinstance(value, (str, dict))]


def media_block(media: Mapping[str, Any]) -> dict[str, Any] | None:
    """The Messages API's block for a picture or a PDF; None for anything else."""
    match media:
        case {"mimeType": str(kind), "data": str(data)} if data and (
            kind.startswith("image/") or kind == "application/pdf"
        ):
            return elements.media(kind, data)
    return None


def _values(message: Any) -> list[Any]:
    """The parts of a message; those in a list unchanged."""
    content = message.get("parts") if isinstance(message, dict) else None
    return content if isinstance(content, list) else items(content)


def _numbers(values: Sequence[Any]) -> list[int]:
    """The number of each part's item."""
    numbers: list[int] = []
    result: int | None = None
    for place, value in enumerate(values):
        number = place
        match value:
            case {"functionResponse": _}:
                result = place
            case {"text": str()}:
                pass
            case {"inlineData": dict(media)} if result is not None and media_block(media):
                number = result
        numbers.append(number)
    return numbers


def _is_part(value: Any) -> bool:
    """Whether the reader makes a part of a value."""
    if not isinstance(value, dict):
        return isinstance(value, str) and bool(value)
    if "functionResponse" in value:
        return isinstance(value["functionResponse"], dict)
    return value.get("text") != "" or _is_call(value)


def _is_call(value: Any) -> bool:
    match value:
        case {"functionCall": {"name": str()}}:
            return True
    return False


def _is_thought(value: Any) -> bool:
    return isinstance(value, dict) and value.get("thought") is True


def _showing(value: Any, text: str) -> dict[str, Any]:
    """The part with another text; it keeps its signature, and whether the call failed."""
    fields = value if isinstance(value, dict) else {}
    match fields:
        case {"functionResponse": dict(result)}:
            response = result.get("response")
            name = "error" if isinstance(response, dict) and "error" in response else "output"
            bare = {field: other for field, other in result.items() if field != "parts"}
            return {**fields, "functionResponse": {**bare, "response": {name: text}}}
        case {"text": str()}:
            return {**fields, "text": text}
    return {**_text(text), **{name: fields[name] for name in (_SIGNATURE,) if name in fields}}


def _text(text: str) -> dict[str, Any]:
    return {"text": text}


def _response(answer: Answer) -> dict[str, Any]:
    is_ours = re.fullmatch(re.escape(answer.tool) + r"-[0-9a-f]{8}(-\d+)?", answer.call)
    own_id = {"id": answer.call} if answer.call and not is_ours else {}
    return {**own_id, "name": answer.tool, "response": {"error" if answer.error else "output": answer.text}}


def _declared(request: splice.Object, functions: Sequence[Any]) -> list[splice.Change]:
    """The changes that add functions to a request's tools."""
    if not functions:
        return []
    for place in reversed(splice.places(request, "tools") if request.begins("tools", "[") else []):
        text = request.text[slice(*place)]
        entry = splice.opened(text) if text.startswith(b"{") else splice.Object(text, {})
        for name in _DECLARATIONS:
            if entry.begins(name, "["):
                return [splice.Change(place, splice.changed(text, splice.added(entry, name, functions)))]
    return splice.added(request, "tools", [{_DECLARATIONS[0]: list(functions)}])
