"""The Messages API's answers, merged."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from ctxvc.core.ledger import wire
from ctxvc.forms import merged, sse
from ctxvc.forms.merged import BROKEN, Calls, Numbers, summed, with_call, with_usage
from ctxvc.forms.values import objects, text_of

#: The counts of output, and of tools that the provider ran.
_OUTPUTS = ("output_tokens", "output_tokens_details", "server_tool_use")


class Rules(merged.Rules):
    def __init__(self, ours: Collection[str]) -> None:
        super().__init__(ours)
        self._numbers = Numbers()
        self._is_same = True
        self._has_calls = False
        self._usage: list[dict[str, Any]] = [{}]

    def begin(self) -> None:
        super().begin()
        self._numbers.begin()
        self._is_same = False
        self._usage.append({})

    def event(self, event: sse.Event) -> bytes:
        if self._is_same and event.name == "content_block_delta":
            return event.raw
        value = event.value
        if value is None:
            return event.raw
        match value.get("type") or event.name, value:
            case "message_start", _:
                message = value.get("message")
                self._spend(message.get("usage") if isinstance(message, dict) else None)
                return b"" if self.number else event.raw
            case "content_block_start", {"index": int(index)}:
                self._start(index, value.get("content_block"))
                return self._numbered(event, value, index)
            case _, {"index": int(index)}:
                return self._numbered(event, value, index)
            case "message_delta" | "message_stop" as kind, _:
                self._spend(value.get("usage"))
                if self.waits:
                    self.ending.append(event)
                    return b""
                self.over = kind == "message_stop"
                return self.ended(event)
            case "error", _:
                self.over = True
        return event.raw

    def ended(self, event: sse.Event) -> bytes:
        value = event.value or {}
        delta = value.get("delta")
        if self._is_same or not isinstance(delta, dict):
            return event.raw
        ended = dict(value)
        if delta.get("stop_reason") == "tool_use" and not self._has_calls:
            ended["delta"] = {**delta, "stop_reason": "end_turn"}
        if self.number:
            used = value.get("usage")
            usage = {**self._usage[-1], **(used if isinstance(used, dict) else {})}
            ended["usage"] = summed(usage, self._usage[:-1], _OUTPUTS)
        return event.raw if ended == value else event.with_value(ended)

    def error(self) -> bytes:
        return b"event: error\ndata: " + wire.compact(error()) + b"\n\n"

    def _spend(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self._usage[-1] |= {name: count for name, count in usage.items() if count is not None}

    def _start(self, index: int, block: Any) -> None:
        if _is_call(block):
            is_ours = block.get("name") in self.ours
            self.calls = with_call(self.calls, is_ours)
            if is_ours:
                self._numbers.drop(index)
                self._is_same = False
                return
            self._has_calls = True
        self._numbers.add(index)

    def _numbered(self, event: sse.Event, value: dict[str, Any], index: int) -> bytes:
        number = self._numbers.of(index)
        if number is None:
            return b""
        return event.raw if number == index else event.with_value({**value, "index": number})


def without(value: Any, ours: Collection[str]) -> tuple[Any, Calls] | None:
    if not isinstance(value, dict) or not isinstance(value.get("content"), list):
        return None
    names = [text_of(block.get("name")) for block in objects(value["content"]) if _is_call(block)]
    count = sum(name in ours for name in names)
    content = [block for block in value["content"] if not (_is_call(block) and block.get("name") in ours)]
    return {**value, "content": content}, Calls(count, len(names) - count)


def joined(values: Sequence[Any]) -> Any:
    *earlier, last = values
    content = [block for value in values for block in value["content"]]
    message = {**last, "id": values[0].get("id"), "content": content}
    if message.get("stop_reason") == "tool_use" and not any(map(_is_call, content)):
        message["stop_reason"] = "end_turn"
    return with_usage(message, earlier, _OUTPUTS)


def error() -> Any:
    return {"type": "error", "error": {"type": "overloaded_error", "message": BROKEN}}


def _is_call(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "tool_use"
