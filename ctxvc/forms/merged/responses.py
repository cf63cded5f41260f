"""The Responses API's answers, merged."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from ctxvc.core.ledger import wire
from ctxvc.forms import merged, sse
from ctxvc.forms.merged import BROKEN, Calls, Numbers, with_call, with_usage
from ctxvc.forms.values import objects, text_of

_OUTPUTS = ("output_tokens", "output_tokens_details")
_TOTALS = {"total_tokens": ("output_tokens",)}
_BEGINNINGS = ("response.created", "response.queued", "response.in_progress")
_ENDINGS = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")
#: Items that are calls of the client's tools.
_CALLS = ("function_call", "custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call", "computer_call")
_IDS = ("id", "created_at")


class Rules(merged.Rules):
    def __init__(self, ours: Collection[str]) -> None:
        super().__init__(ours)
        self._numbers = Numbers()
        self._started: set[int] = set()
        self._is_same = True
        self._sequence = 0  # the client's next event number, once it differs from the model's
        self._first: dict[str, Any] = {}
        self._responses: list[
            dict[str, Any]
        ] = []  # of earlier answers, each with only the client's items as its output
        self._items: list[Any] = []

    def begin(self) -> None:
        ending = next((event.value for event in self.ending if event.value), None) or {}
        response = ending.get("response")
        self._responses.append({**(response if isinstance(response, dict) else {}), "output": self._output(response)})
        self._items, self._started = [], set()
        self._is_same = False
        self._numbers.begin()
        super().begin()

    def event(self, event: sse.Event) -> bytes:
        if self._is_same and event.name.endswith(".delta"):
            return event.raw
        value = event.value
        if value is None:
            return event.raw
        kind = text_of(value.get("type")) or event.name
        response, item, index = value.get("response"), value.get("item"), value.get("output_index")
        if kind in _BEGINNINGS and isinstance(response, dict):
            if self.number:
                return b""
            self._first = response
        elif kind in _ENDINGS and isinstance(response, dict):
            if self.waits and kind in _ENDINGS[:2]:
                self.ending.append(event)
                return b""
            self.over = True
            return self.ended(event)
        elif type(index) is int:
            if isinstance(item, dict) and index not in self._started:
                self._start(index, item, value)
            number = self._numbers.of(index)
            if number is None:
                return b""
            if isinstance(item, dict) and kind.endswith(".done"):
                self._items.append(item)
            return self._passing(event, {**value, "output_index": number})
        elif kind == "error":
            self.over = True
        return self._passing(event, value)

    def ended(self, event: sse.Event) -> bytes:
        value = event.value or {}
        if self._is_same:
            return event.raw
        response = {**value["response"], "output": self._output(value["response"])}
        joined = _joined([*self._responses, response], self._first)
        return self._passing(event, {**value, "response": joined})

    def error(self) -> bytes:
        failed = {**self._first, "status": "failed", "error": {"code": "server_error", "message": BROKEN}}
        event = {"type": "response.failed", "sequence_number": self._sequence, "response": failed}
        if not self._first:
            event = {"type": "error", "sequence_number": 0, **error()["error"]}
        return b"event: %s\ndata: %s\n\n" % (text_of(event["type"]).encode(), wire.compact(event))

    def _start(self, index: int, item: dict[str, Any], value: dict[str, Any]) -> None:
        self._started.add(index)
        if item.get("type") in _CALLS:
            is_ours = _is_ours(item, self.ours)
            self.calls = with_call(self.calls, is_ours)
            if is_ours:
                self._numbers.drop(index)
                number = value.get("sequence_number")
                if self._is_same and type(number) is int:
                    self._sequence = number
                self._is_same = False
                return
        self._numbers.add(index)

    def _passing(self, event: sse.Event, value: dict[str, Any]) -> bytes:
        """An event with the client's next event number."""
        if type(value.get("sequence_number")) is int:
            if self._is_same:
                self._sequence = value["sequence_number"]
            else:
                value = {**value, "sequence_number": self._sequence}
            self._sequence += 1
        return event.raw if self._is_same or value == event.value else event.with_value(value)

    def _output(self, response: Any) -> list[Any]:
        """The client's items of an answer; some servers send them only in events of their own."""
        output = response.get("output") if isinstance(response, dict) else None
        return [item for item in output if not _is_ours(item, self.ours)] if output else self._items


def _is_ours(item: Any, ours: Collection[str]) -> bool:
    """Whether an item is a call of one of our tools; none of ours is in a namespace."""
    is_call = isinstance(item, dict) and item.get("type") in _CALLS and not item.get("namespace")
    return is_call and item.get("name") in ours


def without(value: Any, ours: Collection[str]) -> tuple[Any, Calls] | None:
    if not isinstance(value, dict) or not isinstance(value.get("output"), list):
        return None
    calls = Calls()
    for item in objects(value["output"]):
        if item.get("type") in _CALLS:
            calls = with_call(calls, _is_ours(item, ours))
    return {**value, "output": [item for item in value["output"] if not _is_ours(item, ours)]}, calls


def joined(values: Sequence[Any]) -> Any:
    return _joined(values, values[0])


def _joined(responses: Sequence[dict[str, Any]], first: dict[str, Any]) -> dict[str, Any]:
    """The newest response with the ids of the first and the items of all."""
    ids = {name: first[name] for name in _IDS if name in first}
    output = [item for response in responses for item in response["output"]]
    return with_usage({**responses[-1], **ids, "output": output}, responses[:-1], _OUTPUTS, _TOTALS)


def error() -> Any:
    return {"error": {"message": BROKEN, "type": "server_error", "param": None, "code": "server_error"}}
