"""Edits of the Messages API's messages. An item is a content block, by its number; a text is one block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from ctxvc.forms import cache_marks, elements, splice
from ctxvc.forms.cache_marks import MARK, blocks
from ctxvc.forms.form import Answer, Edit
from ctxvc.forms.values import text_of

_THINKING = frozenset({"thinking", "redacted_thinking"})
_FIXED = _THINKING | {"tool_use"}


def layout(message: Any) -> list[int]:
    """The item of each block. A call that the provider runs and its result are one: neither may be sent alone."""
    match message:
        case {"role": "user" | "assistant" | "system", "content": str() | list()}:
            return _numbers(blocks(message))
    return []


def role(message: Any) -> Literal["user", "assistant", "result", "system"]:
    own = message.get("role") if isinstance(message, dict) else ""
    return "assistant" if own == "assistant" else "system" if own == "system" else "user"


def edited(message: Any, edit: Edit) -> Any | None:
    if not any(edit) or not layout(message):
        return message
    content = blocks(message)
    result: list[Any] = []
    homeless: list[tuple[int, Any]] = []  # marks, each with the number of blocks before it
    replaced = set[int]()
    for number, block in zip(_numbers(content), content, strict=True):
        shows_text = number in edit.replaced and _kind(block) not in _FIXED
        own_marks = cache_marks.marks(block)
        if number in edit.dropped or (shows_text and number in replaced):
            homeless += [(len(result), mark) for mark in own_marks]
        elif shows_text:
            homeless += [(len(result), mark) for mark in own_marks[:-1]]
            replaced.add(number)
            result.append(_showing(block, edit.replaced[number], own_marks[-1:]))
        else:
            result.append(block)
    for end, mark in homeless:
        cache_marks.moved(result, end, mark)
    result += map(elements.text, edit.appended)
    if all(_kind(block) in _THINKING for block in result):
        return None
    if isinstance(message["content"], str) and len(result) == 1:
        return {**message, "content": result[0]["text"]}
    return {**message, "content": result}


def own(texts: Sequence[str]) -> Any:
    return {"role": "user", "content": list(map(elements.text, texts))}


def results(message: Any | None, answers: Sequence[Answer]) -> list[Any]:
    if not answers:
        return [] if message is None else [message]
    ours = [
        {"type": "tool_result", "tool_use_id": answer.call, "content": answer.text}
        | ({"is_error": True} if answer.error else {})
        for answer in answers
    ]
    if isinstance(message, dict) and message.get("role") == "user":
        return [{**message, "content": [*ours, *blocks(message)]}]
    return [{"role": "user", "content": ours}, *([] if message is None else [message])]


def tool(definition: dict[str, Any]) -> Any:
    return definition


def spliced(body: bytes, messages: Sequence[int | Any], tools: Sequence[dict[str, Any]], *, lasting: int = 0) -> bytes:
    request = splice.opened(body)
    own_places = splice.places(request, "messages")
    elements = cache_marks.elements(body, own_places, messages, lasting)
    change = splice.with_items(request, "messages", own_places, elements)
    return splice.changed(body, [change, *splice.added(request, "tools", list(map(tool, tools)))])


def _numbers(content: Sequence[Any]) -> list[int]:
    """The number of each block's item."""
    calls: dict[str, int] = {}
    numbers = []
    for place, block in enumerate(content):
        number = place
        match block:
            case {"type": str(kind), "id": str(call)} if kind.endswith("_tool_use"):
                calls[call] = place
            case {"tool_use_id": str(call)}:
                number = calls.get(call, place)
        numbers.append(number)
    return numbers


def _showing(block: Any, text: str, mark: Sequence[Any]) -> dict[str, Any]:
    """The block with another text, and with the mark if there is one."""
    result = {**block, "content": text} if _kind(block) == "tool_result" else elements.text(text)
    return {**result, MARK: mark[0]} if mark else result


def _kind(block: Any) -> str:
    return text_of(block.get("type")) if isinstance(block, dict) else ""
