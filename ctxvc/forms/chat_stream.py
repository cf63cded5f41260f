"""Streams of Chat Completions."""

from __future__ import annotations

from typing import Any

from ctxvc.core.ledger import wire
from ctxvc.forms.values import objects, text_of


class Assembly:
    """The chat completion that chunks make, one after the other; of several choices the first one.

    A call goes on under its number, or under its id where a server gives all calls one number, or none.
    """

    def __init__(self) -> None:
        self.ended = False  # whether the stream came to its end, or its first choice did
        self._completion: dict[str, Any] = {}
        self._choice: dict[str, Any] = {}
        self._message: dict[str, Any] = {}
        self._calls = _Calls()

    def add(self, chunk: dict[str, Any]) -> str:
        """Takes in a chunk; gives the text that it adds to what the model says."""
        self._completion.update({name: chunk[name] for name in ("id", "model", "created", "usage") if chunk.get(name)})
        choices = objects(chunk.get("choices"))
        number = self._choice.get("index", choices[0].get("index") if choices else None)
        choice = next((choice for choice in choices if choice.get("index", number) == number), {})
        self._choice.update(
            {name: choice.get(name) for name in ("index", "finish_reason") if choice.get(name) is not None}
        )
        self.ended = self.ended or isinstance(self._choice.get("finish_reason"), str)
        delta = choice.get("delta") or choice.get("message")
        if not isinstance(delta, dict):
            return ""
        self._calls.add(delta.get("tool_calls"))
        _extend(self._message, {name: piece for name, piece in delta.items() if name != "tool_calls"})
        return text_of(delta.get("content"))

    def completion(self) -> dict[str, Any]:
        """The completion so far, as if it had come at once; empty if there was nothing of one."""
        message, calls = _joined(self._message), self._calls.calls()
        if not (self._completion or message or calls):
            return {}
        choice = {**self._choice, "message": {**message, "tool_calls": calls} if calls else message}
        return {**self._completion, "choices": [choice]}


class _Calls:
    def __init__(self) -> None:
        self._calls: list[dict[str, Any]] = []
        self._places: dict[object, int] = {}  # a call's place by its number in the stream

    def add(self, pieces: object) -> None:
        for piece in objects(pieces):
            _extend(self._call(piece), {name: value for name, value in piece.items() if name != "index"})

    def calls(self) -> list[dict[str, Any]]:
        return [_joined(call) for call in self._calls]

    def _call(self, piece: dict[str, Any]) -> dict[str, Any]:
        """The call that a piece belongs to."""
        number, call_id = piece.get("index"), piece.get("id")
        number = number if isinstance(number, int) else None
        place = self._places.get(number, len(self._calls) - 1 if number is None else len(self._calls))
        is_another = 0 <= place < len(self._calls) and call_id and call_id != self._calls[place].get("id", call_id)
        if is_another or not 0 <= place < len(self._calls):
            place = len(self._calls)
            self._calls.append({})
        self._places[number] = place
        return self._calls[place]


class _Text(list[str]):
    """A text in pieces."""


#: Fields that come whole, though perhaps again and again.
_WHOLE = frozenset({"id", "type", "role", "name", "index", "format"})


def _extend(value: dict[str, Any], pieces: dict[str, Any]) -> None:
    """Adds pieces to the fields of `value`: texts grow, objects are extended, items of a list are told by `index`."""
    for name, piece in pieces.items():
        before = value.get(name)
        if name in _WHOLE:
            value[name] = before or piece
        elif isinstance(piece, str) or (name == "arguments" and isinstance(piece, dict)):
            value[name] = before if isinstance(before, _Text) else _Text()
            value[name].append(piece if isinstance(piece, str) else wire.compact(piece).decode("utf-8", "replace"))
        elif isinstance(piece, dict):
            value[name] = before if isinstance(before, dict) else {}
            _extend(value[name], piece)
        elif isinstance(piece, list):
            value[name] = before if isinstance(before, _Items) else _Items()
            value[name].add(piece)
        elif piece is not None:
            value[name] = piece


class _Items(list[Any]):
    """A list in pieces."""

    def __init__(self) -> None:
        super().__init__()
        self._places: dict[int, int] = {}

    def add(self, items: list[Any]) -> None:
        for item in items:
            if not isinstance(item, dict):
                self.append(item)
                continue
            number = item.get("index")
            place = self._places.get(number, len(self)) if isinstance(number, int) else len(self)
            if place == len(self):
                self.append({})
            if isinstance(number, int):
                self._places[number] = place
            _extend(self[place], item)


def _joined(value: Any) -> Any:
    match value:
        case _Text():
            return "".join(value)
        case dict():
            return {name: _joined(item) for name, item in value.items()}
        case list():
            return [_joined(item) for item in value]
    return value
