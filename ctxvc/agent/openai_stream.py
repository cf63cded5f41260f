"""Streams of OpenAI's two APIs as servers write them: their events, put together to what would have come at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ctxvc.agent import message as messages
from ctxvc.agent.message import unreadable
from ctxvc.agent.refusal import Fault, Overflow, refusal
from ctxvc.core.ledger import wire
from ctxvc.forms import conversion

_CUT = Fault("cut", "it ended before it was complete", again=True, hint="check the network")

#: What the first choice of a chat completion's chunk has besides calls: pieces of a text each.
_TEXTS = ("content", "reasoning_content", "reasoning", "refusal")


def chat_message(completion: object) -> dict[str, Any] | Overflow | Fault:
    """The message in a whole chat completion, or what came instead."""
    if not isinstance(completion, dict):
        return unreadable("not an object")
    if refused := _error(completion, 200):
        return refused
    if not isinstance(completion.get("choices"), list):
        return unreadable("a message of the Messages API" if "content" in completion else "no choices")
    return messages.sound(conversion.chat_reply(completion, messages.arguments).value)


def responses_message(response: object) -> dict[str, Any] | Overflow | Fault:
    """The message in a whole response, or what came instead."""
    if not isinstance(response, dict):
        return unreadable("not an object")
    if refused := _error(response, 200):
        return refused
    if not isinstance(response.get("output"), list):
        return unreadable("a chat completion" if "choices" in response else "no output")
    message = conversion.responses_reply(response, messages.arguments).value
    return messages.sound(message) if message["stop_reason"] else _CUT


class ChatAssembly:
    """The chat completion that chunks make, one after the other.

    A call goes on under its number, or under its id where a server gives all calls one number, or none.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._completion: dict[str, Any] = {}
        self._texts: dict[str, list[str]] = {}
        self._calls: list[dict[str, Any]] = []
        self._arguments: list[list[str]] = []
        self._places: dict[object, int] = {}  # a call's place by its number in the stream
        self._finish: str | None = None
        self._ended = False

    def add(self, _name: str, data: str) -> Overflow | Fault | None:
        """Takes in an event; gives what the server reported instead of going on, if it did."""
        if data.strip() == "[DONE]":
            self._ended = True
            return None
        chunk = _parsed(data)
        if isinstance(chunk, Fault):
            return chunk
        if refused := _error(chunk, 0):
            return refused
        self._completion.update({name: chunk[name] for name in ("id", "model", "usage") if chunk.get(name)})
        match chunk.get("choices"):
            case [dict(choice), *_]:
                delta = choice.get("delta") or choice.get("message")
                if isinstance(delta, dict):
                    self._extend(delta)
                if isinstance(choice.get("finish_reason"), str):
                    self._finish = choice["finish_reason"]
            case None if chunk.get("type"):
                return unreadable("a stream of another API")
        return None

    def message(self) -> dict[str, Any] | Overflow | Fault:
        """The whole message; a fault if it is not complete."""
        if self._finish is None and not self._ended:
            return _CUT
        calls = []
        for call, pieces in zip(self._calls, self._arguments, strict=True):
            name = call.get("name")
            calls.append({"id": call.get("id"), "function": {"name": name, "arguments": "".join(pieces)}})
            if not isinstance(name, str) or not name:
                return unreadable("a call without a name", again=True)
        message = {
            **{field: "".join(pieces) for field, pieces in self._texts.items()},
            **({"tool_calls": calls} if calls else {}),
        }
        return chat_message({**self._completion, "choices": [{"message": message, "finish_reason": self._finish}]})

    def _extend(self, delta: dict[str, Any]) -> None:
        for field in _TEXTS:
            if isinstance(piece := delta.get(field), str) and piece:
                self._texts.setdefault(field, []).append(piece)
                if field == "content":
                    self._say(piece)
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict):
                self._extend_call(call)

    def _extend_call(self, piece: dict[str, Any]) -> None:
        call_id, function = piece.get("id"), piece.get("function")
        function = function if isinstance(function, dict) else {}
        number = piece.get("index")
        number = number if isinstance(number, int) else None
        place = self._places.get(number, len(self._calls) - 1 if number is None else len(self._calls))
        is_another = place >= 0 and place < len(self._calls) and call_id and call_id != self._calls[place].get("id")
        if is_another or not 0 <= place < len(self._calls):
            place = len(self._calls)
            self._calls.append({"id": call_id})
            self._arguments.append([])
        self._places[number] = place
        if (name := function.get("name")) and "name" not in self._calls[place]:
            self._calls[place]["name"] = name
        match function.get("arguments"):
            case str(text):
                self._arguments[place].append(text)
            case dict() as arguments:
                self._arguments[place].append(wire.compact(arguments).decode())


class ResponsesAssembly:
    """The response that events make: its last state, or else its items as each was done."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._response: dict[str, Any] = {}
        self._items: list[dict[str, Any]] = []

    def add(self, name: str, data: str) -> Overflow | Fault | None:
        """Takes in an event; gives what the server reported instead of going on, if it did."""
        if data.strip() == "[DONE]":
            return None
        event = _parsed(data)
        if isinstance(event, Fault):
            return event
        kind = event.get("type") or name
        if kind == "error":
            return refusal(0, event if event.get("error") else {"error": event})
        if refused := _error(event, 0):
            return refused
        if "choices" in event:
            return unreadable("a stream of chat completions")
        match kind:
            case "response.output_text.delta" | "response.refusal.delta" if isinstance(event.get("delta"), str):
                self._say(event["delta"])
            case "response.output_item.done" if isinstance(event.get("item"), dict):
                self._items.append(event["item"])
            case "response.completed" | "response.incomplete" if isinstance(event.get("response"), dict):
                self._response = event["response"]
            case "response.failed":
                return _error(event.get("response"), 0) or Fault("failed", "the provider failed: no reason given")
        return None

    def message(self) -> dict[str, Any] | Overflow | Fault:
        """The whole message; a fault if it is not complete."""
        if not self._response:
            return _CUT
        output = self._response.get("output") or self._items
        return responses_message({**self._response, "output": output})


def _parsed(data: str) -> dict[str, Any] | Fault:
    try:
        event = wire.parse(data)
    except ValueError:
        return unreadable("an event that is not JSON", again=True)
    return event if isinstance(event, dict) else unreadable("an event that is no object", again=True)


def _error(value: object, status: int) -> Overflow | Fault | None:
    """What a value with an `error` comes to."""
    return refusal(status, value) if isinstance(value, dict) and value.get("error") else None
