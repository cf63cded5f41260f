"""Edits of Chat Completions' messages. The items of a message are its thinking, its content or the parts of it, its
refusal and its calls, numbered in this order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import takewhile
from typing import Any, Literal, NamedTuple

from ctxvc.core.ledger import wire
from ctxvc.errors import BadInput
from ctxvc.forms import elements, splice
from ctxvc.forms.form import Answer, Edit
from ctxvc.forms.values import has_role

#: The fields with a message's content; a message with none of them is empty.
SAYING = ("content", "reasoning_content", "refusal", "tool_calls", "function_call", "audio")
#: The fields in which servers send a reply's thinking, in forms of their own; only the first is read.
_THINKING = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks")
_RESULTS = ("tool", "function")
_SYSTEM = ("system", "developer")


class _Slot(NamedTuple):
    """The place of an item: a field, and the index in its list. `field` is empty for the message as a whole."""

    field: str
    place: int = 0


def layout(message: Any) -> list[int]:
    return list(range(len(_slots(message))))


def role(message: Any) -> Literal["user", "assistant", "result", "system"]:
    own = message["role"] if has_role(message) else ""
    return (
        "assistant" if own == "assistant" else "result" if own in _RESULTS else "system" if own in _SYSTEM else "user"
    )


def edited(message: Any, edit: Edit) -> Any | None:
    slots = _slots(message)
    if not any(edit) or not slots:
        return message
    dropped = {slot for number, slot in enumerate(slots) if number in edit.dropped}
    texts = {slots[number]: text for number, text in edit.replaced.items() if 0 <= number < len(slots)}
    if slots == [_Slot("")]:
        return _as_whole(message, dropped, texts, edit.appended)
    content = message.get("content")
    if message["role"] in _RESULTS:
        return None if dropped else _with_content(message, texts.get(slots[0], content), edit.appended)
    result = _with_content(message, _content(content, dropped, texts), edit.appended)
    _edit_fields(result, dropped, texts)
    fields = SAYING if message["role"] == "assistant" else ("content",)
    return result if any(result.get(name) for name in fields if name not in _THINKING) else None


def own(texts: Sequence[str]) -> Any:
    return {"role": "user", "content": texts[0] if len(texts) == 1 else list(map(elements.text, texts))}


def results(message: Any | None, answers: Sequence[Answer]) -> list[Any]:
    ours = [{"role": "tool", "tool_call_id": answer.call, "content": answer.text} for answer in answers]
    return [*ours, *([] if message is None else [message])]


def tool(definition: dict[str, Any]) -> Any:
    return elements.function(definition)


def spliced(
    body: bytes,
    messages: Sequence[int | Any],
    tools: Sequence[dict[str, Any]],
    *,
    lasting: int = 0,  # noqa: ARG001 - there are no marks
) -> bytes:
    request = splice.opened(body)
    if tools and "functions" in request.members and "tools" not in request.members:
        raise BadInput("the request has functions, beside which no tools may be")
    own_places = splice.places(request, "messages")
    count = leading(wire.parsed(body[slice(*span)], dict) for span in own_places)
    conversation = [count + message if type(message) is int else splice.element(message) for message in messages]
    change = splice.with_items(request, "messages", own_places, [*range(count), *conversation])
    return splice.changed(body, [change, *splice.added(request, "tools", list(map(tool, tools)))])


def leading(messages: Iterable[Any]) -> int:
    """The number of leading messages that are instructions, and so no part of the conversation."""
    return sum(1 for _ in takewhile(_instructs, messages))


def _instructs(message: Any) -> bool:
    match message:
        # A message with a `name` is not an instruction but a line of an example.
        case {"role": "system" | "developer", "content": str(content), **other} if not other:
            return bool(content)
        case {"role": "system" | "developer", "content": [_, *_] as parts, **other} if not other:
            return all(map(_is_text, parts))
    return False


def _is_text(part: Any) -> bool:
    match part:
        case {"type": "text", "text": str(value), **other}:
            return bool(value) and other.keys() <= {"cache_control"}
    return False


def _slots(message: Any) -> list[_Slot]:
    """The items of a message, in the order in which the reader makes parts of them."""
    if not has_role(message):
        return []
    if message["role"] in _RESULTS:
        return [_Slot("content")]
    slots: list[_Slot] = []
    if message["role"] == "assistant":
        slots = [
            *_of_text(message, "reasoning_content"),
            *_of_content(message),
            *_of_text(message, "refusal"),
            *_of_calls(message),
        ]
    elif message["role"] in ("user", *_SYSTEM):
        slots = list(_of_content(message))
    return slots or ([_Slot("")] if any(message.get(name) for name in SAYING) else [])


def _of_text(message: Mapping[str, Any], field: str) -> Iterator[_Slot]:
    if isinstance(value := message.get(field), str) and value:
        yield _Slot(field)


def _of_content(message: Mapping[str, Any]) -> Iterator[_Slot]:
    content = message.get("content")
    if isinstance(content, list):
        yield from (_Slot("content", place) for place in range(len(content)))
    else:
        yield from _of_text(message, "content")


def _of_calls(message: Mapping[str, Any]) -> Iterator[_Slot]:
    if isinstance(calls := message.get("tool_calls"), list):
        yield from (_Slot("tool_calls", place) for place in range(len(calls)))
    match message.get("function_call"):
        case {"name": str(), "arguments": str(), **other} if not other:
            yield _Slot("function_call")


def _as_whole(
    message: Mapping[str, Any], dropped: Set[_Slot], texts: Mapping[_Slot, str], appended: Sequence[str]
) -> Any | None:
    """The edit of a message of an unknown shape, which is one item."""
    if dropped:
        return None
    if not texts:
        return _with_content(message, message.get("content"), appended)
    bare = {name: value for name, value in message.items() if name not in (*SAYING, *_THINKING)}
    return _with_content(bare, texts[_Slot("")], appended)


def _content(content: Any, dropped: Set[_Slot], texts: Mapping[_Slot, str]) -> Any:
    """The content without the dropped items; None if nothing is left."""
    if not isinstance(content, list):
        slot = _Slot("content")
        return None if slot in dropped else texts.get(slot, content)
    slots = [_Slot("content", place) for place in range(len(content))]
    items = [
        _showing(item, texts[slot]) if slot in texts else item
        for slot, item in zip(slots, content, strict=True)
        if slot not in dropped
    ]
    return items or None


def _with_content(message: Mapping[str, Any], content: Any, appended: Sequence[str]) -> dict[str, Any]:
    """The message with this content and more texts after it: as parts if it is a list or a user's, else joined into one
    text, since not every server takes a list there."""
    if appended and isinstance(content, str | None) and message["role"] != "user":
        content = "\n\n".join(text for text in (content, *appended) if text)
    elif appended:
        piece = elements.text(content) if isinstance(content, str) else content
        before = content if isinstance(content, list) else [piece]
        content = [*(before if content else []), *map(elements.text, appended)]
    return {**message, "content": content} if content is not None or "content" in message else dict(message)


def _edit_fields(message: dict[str, Any], dropped: Set[_Slot], texts: Mapping[_Slot, str]) -> None:
    """Removes dropped items from the fields other than the content, and replaces the text of a refusal."""
    if _Slot(_THINKING[0]) in dropped:
        for name in _THINKING:
            message.pop(name, None)
    for slot in dropped & {_Slot("refusal"), _Slot("function_call")}:
        del message[slot.field]
    if (refusal := _Slot("refusal")) in texts and refusal not in dropped:
        message["refusal"] = texts[refusal]
    if any(slot.field == "tool_calls" for slot in dropped):
        calls = [call for at, call in enumerate(message.pop("tool_calls")) if _Slot("tool_calls", at) not in dropped]
        if calls:
            message["tool_calls"] = calls


def _showing(item: Any, text: str) -> dict[str, Any]:
    """An item of a content with another text; it keeps its cache mark."""
    fields = item if isinstance(item, dict) else {}
    return {**elements.text(text), **{name: fields[name] for name in ("cache_control",) if name in fields}}
