"""Streams of the Messages API."""

from __future__ import annotations

from typing import Any

from ctxvc.forms.values import call_input, text_of


class Assembly:
    """The message that the events of a stream make, one after the other.

    An event is what its data says, since not every server names it. A block that has no beginning is begun by its
    first piece; one that begins under a number in use is another block. What a delta of an unknown type brings is added
    to the block's field of that name.
    """

    def __init__(self) -> None:
        self._message: dict[str, Any] = {}
        self._usage: dict[str, Any] = {}
        self._blocks: list[dict[str, Any]] = []
        self._pieces: dict[tuple[int, str], list[str]] = {}  # of a block's field, by its place
        self._places: dict[object, int] = {}  # a block's place by its number in the stream
        self._citations: dict[int, list[Any]] = {}  # of a block, by its place
        self._stopped = False

    @property
    def ended(self) -> bool:
        """Whether the message is complete."""
        return self._stopped or bool(self._message.get("stop_reason"))

    def add(self, name: str, event: dict[str, Any]) -> str:
        """Takes in an event; gives the text that it adds to what the model says."""
        match event.get("type") or name:
            case "message_start":
                return self._begin(event.get("message"))
            case "content_block_start":
                return self._start(event.get("index"), event.get("content_block"))
            case "content_block_delta":
                return self._extend(event.get("index"), event.get("delta"))
            case "message_delta":
                self._end(event)
            case "message_stop":
                self._stopped = True
        return ""

    def message(self) -> dict[str, Any]:
        """The message so far; empty if no event had any of it."""
        if not self._message and not self._blocks:
            return {}
        blocks = [dict(block) for block in self._blocks]
        for (place, field), pieces in self._pieces.items():
            text, before = "".join(pieces), blocks[place].get(field)
            if field == "input":
                blocks[place][field] = call_input(text) if text.strip() else before
            else:
                blocks[place][field] = text_of(before) + text
        return {**self._message, "content": blocks, "usage": self._usage}

    def _begin(self, message: object) -> str:
        if not isinstance(message, dict):
            return ""
        self._message.update(message)
        self._count(message.get("usage"))
        content = message.get("content")
        return "".join(self._start(None, block) for block in (content if isinstance(content, list) else ()))

    def _end(self, event: dict[str, Any]) -> None:
        delta = event.get("delta")
        if isinstance(delta, dict):
            self._message.update({name: value for name, value in delta.items() if value is not None})
        self._count(event.get("usage"))

    def _count(self, usage: object) -> None:
        """The end tells what was counted since the beginning; what it leaves out, or calls null, was told there."""
        if isinstance(usage, dict):
            self._usage.update({name: count for name, count in usage.items() if count is not None})

    def _start(self, index: object, block: object) -> str:
        self._places[_number(index)] = len(self._blocks)
        self._blocks.append(dict(block) if isinstance(block, dict) else {})
        return text_of(self._blocks[-1].get("text"))

    def _extend(self, index: object, delta: object) -> str:
        if not isinstance(delta, dict):
            return ""
        kind = text_of(delta.get("type")).removesuffix("_delta")
        if _number(index) not in self._places:
            self._start(index, {"type": _BLOCK_TYPES.get(kind, kind)})
        place = self._places[_number(index)]
        block = self._blocks[place]
        fields: dict[str, Any] = delta
        for name, piece in fields.items():
            target = _TARGETS.get(name, name)
            if target == "citations":
                before = block.get("citations")
                block["citations"] = self._citations.setdefault(place, [*before] if isinstance(before, list) else [])
                block["citations"].append(piece)
            elif name != "type" and isinstance(piece, str):
                self._pieces.setdefault((place, target), []).append(piece)
            elif name != "type" and piece is not None and name not in _TEXTS:
                block[target] = piece
        return text_of(delta.get("text"))


#: The block's type of a delta without a block, where they differ.
_BLOCK_TYPES = {"input_json": "tool_use", "signature": "thinking", "citations": "text"}
#: The block's field that a delta's field goes to, where they differ.
_TARGETS = {"partial_json": "input", "citation": "citations"}
#: Fields of a delta that are texts.
_TEXTS = frozenset({"text", "partial_json", "thinking", "signature"})


def _number(index: object) -> object:
    return index if isinstance(index, int | str) else None
