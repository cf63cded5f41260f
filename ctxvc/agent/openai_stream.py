"""Streams of OpenAI's two APIs as servers write them: their events, put together to what would have come at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ctxvc.agent import message as messages
from ctxvc.agent.message import unreadable
from ctxvc.agent.refusal import Fault, Overflow, refusal
from ctxvc.core import conversion
from ctxvc.core.ledger import wire
from ctxvc.forms import chat_stream, responses_stream
from ctxvc.forms.values import call_input

_CUT = Fault("cut", "it ended before it was complete", again=True, hint="check the network")


def chat_message(completion: object) -> dict[str, Any] | Overflow | Fault:
    """The message in a whole chat completion, or what came instead."""
    if not isinstance(completion, dict):
        return unreadable("not an object")
    if refused := _error(completion, 200):
        return refused
    if not isinstance(completion.get("choices"), list):
        return unreadable("a message of the Messages API" if "content" in completion else "no choices")
    return messages.sound(conversion.chat_reply(completion, call_input).value)


def responses_message(response: object) -> dict[str, Any] | Overflow | Fault:
    """The message in a whole response, or what came instead."""
    if not isinstance(response, dict):
        return unreadable("not an object")
    if refused := _error(response, 200):
        return refused
    if not isinstance(response.get("output"), list):
        return unreadable("a chat completion" if "choices" in response else "no output")
    message = conversion.responses_reply(response, call_input).value
    return messages.sound(message) if message["stop_reason"] else _CUT


class ChatAssembly:
    """The chat completion that chunks make, one after the other."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._assembly = chat_stream.Assembly()

    def add(self, _name: str, data: str) -> Overflow | Fault | None:
        """Takes in an event; gives what the server reported instead of going on, if it did."""
        if data.strip() == "[DONE]":
            self._assembly.ended = True
            return None
        chunk = _parsed(data)
        if isinstance(chunk, Fault):
            return chunk
        if refused := _error(chunk, 0):
            return refused
        if chunk.get("choices") is None and chunk.get("type"):
            return unreadable("a stream of another API")
        if text := self._assembly.add(chunk):
            self._say(text)
        return None

    def message(self) -> dict[str, Any] | Overflow | Fault:
        """The whole message; a fault if it is not complete."""
        if not self._assembly.ended:
            return _CUT
        completion = self._assembly.completion()
        calls = completion["choices"][0]["message"].get("tool_calls", ()) if completion else ()
        if not all(_has_name(call.get("function")) for call in calls):
            return unreadable("a call without a name", again=True)
        return chat_message(completion or {"choices": []})


def _has_name(function: object) -> bool:
    return isinstance(function, dict) and isinstance(function.get("name"), str) and bool(function["name"])


class ResponsesAssembly:
    """The response that events make: its last state, or else its items as each was done."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._assembly = responses_stream.Assembly()

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
        if kind == "response.failed":
            return _error(event.get("response"), 0) or Fault("failed", "the provider failed: no reason given")
        if text := self._assembly.add(name, event):
            self._say(text)
        return None

    def message(self) -> dict[str, Any] | Overflow | Fault:
        """The whole message; a fault if it is not complete."""
        response = self._assembly.response()
        return responses_message(response) if response.get("status") in ("completed", "incomplete") else _CUT


def _parsed(data: str) -> dict[str, Any] | Fault:
    try:
        event = wire.parse(data)
    except ValueError:
        return unreadable("an event that is not JSON", again=True)
    return event if isinstance(event, dict) else unreadable("an event that is no object", again=True)


def _error(value: object, status: int) -> Overflow | Fault | None:
    """What a value with an `error` comes to."""
    return refusal(status, value) if isinstance(value, dict) and value.get("error") else None
