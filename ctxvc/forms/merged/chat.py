"""Chat Completions' answers, merged."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from ctxvc.core.ledger import wire
from ctxvc.forms import merged, sse
from ctxvc.forms.merged import BROKEN, Calls, summed, with_call, with_usage
from ctxvc.forms.values import objects, text_of

_OUTPUTS = ("completion_tokens", "completion_tokens_details")
_TOTALS = {"total_tokens": ("completion_tokens",)}
_CALLED = ("tool_calls", "function_call")
#: A chunk without these only carries text.
_NOTED = re.compile(rb'"tool_calls"|"finish_reason" *: *"|"error"')


@dataclass(eq=False)
class _Call:
    """A call as far as it came. `is_ours` is None until its name decides it; `number` is the client's."""

    id: Any = None
    name: str = ""
    has_arguments: bool = False
    is_ours: bool | None = None
    number: int = 0


@dataclass
class _Choice:
    """The calls of a choice so far. `places` has the newest call of each number; `passed` counts the client's."""

    is_same: bool
    calls: list[_Call] = field(default_factory=list)
    places: dict[object, _Call] = field(default_factory=dict)
    passed: int = 0


class Rules(merged.Rules):
    def __init__(self, ours: Collection[str]) -> None:
        super().__init__(ours)
        self._choices: dict[Any, _Choice] = {}
        self._waiting: list[tuple[sse.Event, list[list[_Call]]]] = []  # from a call on whose name is incomplete
        self._first: dict[str, Any] = {}
        self._usage: list[Any] = [None]
        self._has_calls = False

    def begin(self) -> None:
        super().begin()
        self._choices = {}
        self._usage.append(None)

    def event(self, event: sse.Event) -> bytes:
        if self._first and not self.number and not self._choices and not _NOTED.search(event.data):
            return event.raw
        value = event.value
        calls = self._note(value) if value is not None else []
        self._waiting.append((event, calls))
        return b"" if self._is_unclear() else self.flush()

    def flush(self) -> bytes:
        for choice in self._choices.values():
            self._decide(choice)
        passing, self._waiting = self._waiting, []
        return b"".join(self._passed(event, calls) for event, calls in passing)

    def ended(self, event: sse.Event) -> bytes:
        value = event.value or {}
        ended = {**value, "choices": [self._stopped(choice) for choice in objects(value.get("choices"))]}
        return event.raw if ended == value else event.with_value(ended)

    def error(self) -> bytes:
        return b"data: " + wire.compact(error()) + b"\n\n"

    # --- whose a call is

    def _note(self, value: dict[str, Any]) -> list[list[_Call]]:
        """Records the pieces of calls in a chunk; returns the call of each piece, a list per choice."""
        self._first = self._first or value
        if value.get("usage"):
            self._usage[-1] = value["usage"]
        calls = []
        for choice in objects(value.get("choices")):
            calls.append([self._call(choice, piece) for piece in _pieces(choice)])
            if choice.get("finish_reason") and choice.get("index") in self._choices:
                self._decide(self._choices[choice.get("index")])
        return calls

    def _call(self, choice: dict[str, Any], piece: dict[str, Any]) -> _Call:
        state = self._choices.setdefault(choice.get("index"), _Choice(is_same=not self.number))
        index = piece.get("index")
        newest = state.calls[-1] if state.calls else None
        call = newest if index is None else state.places.get(_key(index))
        if call is None or (piece.get("id") and piece["id"] != (call.id or piece["id"])):
            self._decide(state)
            call = _Call(number=index if type(index) is int else len(state.calls))
            state.calls.append(call)
            state.places[_key(index)] = call
        call.id = call.id or piece.get("id")
        function = piece.get("function") or piece.get("custom")
        if isinstance(function, dict):
            name = text_of(function.get("name"))
            call.name += name if name != call.name else ""
            call.has_arguments = call.has_arguments or bool(function.get("arguments") or function.get("input"))
        if call.is_ours is None and call.name and self._is_clear(call):
            self._set(state, call)
        return call

    def _is_clear(self, call: _Call) -> bool:
        """Whether the name is complete, or begins none of ours."""
        return call.has_arguments or not any(name.startswith(call.name) for name in self.ours)

    def _is_unclear(self) -> bool:
        return any(call.is_ours is None for choice in self._choices.values() for call in choice.calls)

    def _decide(self, choice: _Choice) -> None:
        """Decides whose the calls are, now that their names are complete."""
        for call in choice.calls:
            if call.is_ours is None:
                self._set(choice, call)

    def _set(self, choice: _Choice, call: _Call) -> None:
        call.is_ours = call.name in self.ours
        self.calls = with_call(self.calls, call.is_ours)
        if call.is_ours:
            choice.is_same = False
            return
        self._has_calls = True
        if not choice.is_same:
            call.number = choice.passed
        choice.passed += 1

    # --- what passes

    def _passed(self, event: sse.Event, calls: list[list[_Call]]) -> bytes:
        value = event.value
        if value is None:
            return event.raw
        if value.get("error"):
            self.over = True
            return event.raw
        choices = objects(value.get("choices"))
        is_last = any(choice.get("finish_reason") for choice in choices) or (not choices and bool(self.ending))
        self.over = self.over or (is_last and not self.waits)
        if not self.number and not self.waits and all(_is_same(*both) for both in zip(choices, calls, strict=True)):
            return event.raw
        changed = self._as_first(value)
        changed["choices"] = [self._without(choice, own) for choice, own in zip(choices, calls, strict=True)]
        if is_last and self.waits:
            self.ending.append(event._replace(raw=event.with_value(_bare(changed)), data=wire.compact(_bare(changed))))
            changed = _going_on(changed)
            return event.with_value(changed) if any(map(_says, changed["choices"])) else b""
        if not is_last and changed["choices"] != choices and not any(map(_says, changed["choices"])):
            return b""
        return event.raw if changed == value else event.with_value(changed)

    def _as_first(self, value: dict[str, Any]) -> dict[str, Any]:
        """A chunk with the id, time and usage of the merged answer."""
        changed = dict(value)
        if self.number:
            changed |= {name: self._first[name] for name in ("id", "created") if name in self._first}
            if value.get("usage"):
                changed["usage"] = summed(value["usage"], self._usage[:-1], _OUTPUTS, _TOTALS)
        return changed

    def _without(self, choice: dict[str, Any], calls: list[_Call]) -> dict[str, Any]:
        """A chunk's choice without pieces of our calls, and in a continuation without a role."""
        name = _delta_name(choice)
        delta = choice.get(name)
        if not isinstance(delta, dict):
            return choice
        changed = dict(delta)
        if self.number:
            changed.pop("role", None)
        if calls:
            pieces = zip(objects(delta["tool_calls"]), calls, strict=True)
            changed["tool_calls"] = [
                piece if piece.get("index") is None else {**piece, "index": call.number}
                for piece, call in pieces
                if not call.is_ours
            ]
            if not changed["tool_calls"]:
                del changed["tool_calls"]
        return {**choice, name: changed}

    def _stopped(self, choice: dict[str, Any]) -> dict[str, Any]:
        is_wrong = choice.get("finish_reason") in _CALLED and not self._has_calls
        return {**choice, "finish_reason": "stop"} if is_wrong else choice


def _pieces(choice: dict[str, Any]) -> list[dict[str, Any]]:
    delta = choice.get(_delta_name(choice))
    return objects(delta.get("tool_calls")) if isinstance(delta, dict) else []


def _delta_name(choice: dict[str, Any]) -> str:
    return "delta" if choice.get("delta") or "message" not in choice else "message"


def _key(value: Any) -> object:
    return value if isinstance(value, (int, str)) else repr(value)


def _is_same(choice: dict[str, Any], calls: list[_Call]) -> bool:
    """Whether a choice of the first answer passes unchanged."""
    return all(
        not call.is_ours and piece.get("index") in (None, call.number)
        for piece, call in zip(_pieces(choice), calls, strict=True)
    )


def _says(choice: dict[str, Any]) -> bool:
    """Whether a chunk's choice has more than its end."""
    delta = choice.get(_delta_name(choice))
    return any(delta.values()) if isinstance(delta, dict) else False


def _bare(chunk: dict[str, Any]) -> dict[str, Any]:
    """A chunk with only its end."""
    return {**chunk, "choices": [{**choice, _delta_name(choice): {}} for choice in chunk["choices"]]}


def _going_on(chunk: dict[str, Any]) -> dict[str, Any]:
    """A chunk without the end."""
    choices = [{**choice, "finish_reason": None} for choice in chunk["choices"]]
    return {**{name: value for name, value in chunk.items() if name != "usage"}, "choices": choices}


# --- whole bodies


def without(value: Any, ours: Collection[str]) -> tuple[Any, Calls] | None:
    if not isinstance(value, dict) or not isinstance(value.get("choices"), list):
        return None
    parted = [_choice_without(choice, ours) for choice in objects(value["choices"])]
    calls = Calls(sum(calls.ours for _, calls in parted), sum(calls.others for _, calls in parted))
    return {**value, "choices": [choice for choice, _ in parted]}, calls


def _choice_without(choice: dict[str, Any], ours: Collection[str]) -> tuple[dict[str, Any], Calls]:
    message = choice.get("message")
    if not isinstance(message, dict) or not isinstance(message.get("tool_calls"), list):
        return choice, Calls()
    theirs = [call for call in message["tool_calls"] if _name(call) not in ours]
    calls = Calls(len(message["tool_calls"]) - len(theirs), len(theirs))
    changed = {**message, "tool_calls": theirs}
    if not theirs:
        del changed["tool_calls"]
    return {**choice, "message": changed}, calls


def _name(call: Any) -> str:
    function = (call.get("function") or call.get("custom")) if isinstance(call, dict) else None
    return text_of(function.get("name")) if isinstance(function, dict) else ""


def joined(values: Sequence[Any]) -> Any:
    last = values[-1]
    ids = {name: values[0][name] for name in ("id", "created") if name in values[0]}
    choices = [
        _joined([value["choices"][place] for value in values if place < len(value["choices"])])
        for place in range(len(last["choices"]))
    ]
    return with_usage({**last, **ids, "choices": choices}, values[:-1], _OUTPUTS, _TOTALS)


def _joined(choices: Sequence[dict[str, Any]]) -> dict[str, Any]:
    message: dict[str, Any] = {}
    for choice in choices:
        for name, value in choice["message"].items() if isinstance(choice.get("message"), dict) else ():
            before = message.get(name)
            goes_on = name != "role" and isinstance(value, (str, list)) and type(before) is type(value)
            message[name] = before + value if goes_on else before if value is None else value
    if message.get("content") is None and not message.get("tool_calls"):
        message["content"] = ""
    ended: dict[str, Any] = {**choices[-1], "message": message}
    if ended.get("finish_reason") in _CALLED and not message.get("tool_calls"):
        ended["finish_reason"] = "stop"
    return ended


def error() -> Any:
    return {"error": {"message": BROKEN, "type": "server_error", "param": None, "code": "overloaded"}}
