"""Streams of the Responses API."""

from __future__ import annotations

from typing import Any, NamedTuple

from ctxvc.forms.values import objects, text_of


class _Target(NamedTuple):
    """Where a delta goes in its item: into a field, or into that field of a piece in one of its lists."""

    item: str  # the type of an item that was not begun
    field: str
    pieces: str = ""  # the list
    number: str = ""  # the event's field with the place in it
    piece: str = ""  # the piece's type


_TARGETS = {
    "output_text": _Target("message", "text", "content", "content_index", "output_text"),
    "refusal": _Target("message", "refusal", "content", "content_index", "refusal"),
    "reasoning_text": _Target("reasoning", "text", "content", "content_index", "reasoning_text"),
    "reasoning_summary_text": _Target("reasoning", "text", "summary", "summary_index", "summary_text"),
    "function_call_arguments": _Target("function_call", "arguments"),
    "mcp_call_arguments": _Target("mcp_call", "arguments"),
    "custom_tool_call_input": _Target("custom_tool_call", "input"),
    "code_interpreter_call_code": _Target("code_interpreter_call", "code"),
}


#: More items than any reply has.
_LAST = 1 << 62


class Assembly:
    """The response that events make: its last state, or else its items as each was done or as far as they came."""

    def __init__(self) -> None:
        self._response: dict[str, Any] = {}
        self._items: dict[object, dict[str, Any]] = {}  # by their place in the output
        self._deltas: dict[object, dict[tuple[_Target, object], list[str]]] = {}  # of the items that are not done

    def add(self, name: str, event: dict[str, Any]) -> str:
        """Takes in an event; gives the text that it adds to what the model says."""
        kind = text_of(event.get("type") or name)
        if isinstance(response := event.get("response"), dict):
            self._response.update({field: value for field, value in response.items() if value is not None})
        number, item = _number(event.get("output_index", event.get("item_id"))), event.get("item")
        if kind == "response.output_item.added" and isinstance(item, dict):
            self._items[number] = item
        elif kind == "response.output_item.done" and isinstance(item, dict):
            self._items[number] = item
            self._deltas.pop(number, None)
        elif kind.endswith(".delta") and isinstance(delta := event.get("delta"), str):
            target = _TARGETS.get(kind.removeprefix("response.").removesuffix(".delta"))
            if target:
                places = self._deltas.setdefault(number, {})
                places.setdefault((target, _number(event.get(target.number))), []).append(delta)
                return delta if target.item == "message" else ""
        return ""

    def response(self) -> dict[str, Any]:
        """The response so far; empty if no event had any of it."""
        numbers = sorted(dict.fromkeys((*self._items, *self._deltas)), key=_order)
        output = self._response.get("output") or [self._item(number) for number in numbers]
        return {**self._response, "output": output} if self._response or output else {}

    def _item(self, number: object) -> dict[str, Any]:
        """An item, with what came of it if it was not done."""
        item = dict(self._items.get(number, {}))
        for (target, place), deltas in self._deltas.get(number, {}).items():
            item.setdefault("type", target.item)
            if target.item == "message":
                item.setdefault("role", "assistant")
            text = "".join(deltas)
            if not target.pieces:
                item[target.field] = text
                continue
            pieces = objects(item.get(target.pieces))
            at = place if isinstance(place, int) and 0 <= place < len(pieces) else len(pieces)
            pieces[at:] = [{"type": target.piece, **dict(*pieces[at : at + 1]), target.field: text}, *pieces[at + 1 :]]
            item[target.pieces] = pieces
        return item


def _order(number: object) -> int:
    """The place of an item by its number; those without one stay as they came, at the end."""
    return number if isinstance(number, int) else _LAST


def _number(place: object) -> object:
    return place if isinstance(place, int | str) else None
