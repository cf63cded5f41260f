"""Recordings of OpenAI's Responses API: a request, a response, a list of items, or a log with one of these a line.

A reply is several items: reasoning, a message, calls. Consecutive items of the model are one message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ctxvc.core.recording.events import Event
from ctxvc.forms import elements, responses
from ctxvc.forms.responses_edit import is_item
from ctxvc.forms.values import objects, text_of, time_of
from ctxvc.importers.file import Recording
from ctxvc.importers.protocol import Importer, single
from ctxvc.importers.request_log import Log, Turn, opening, records

FORMAT = "openai-responses"

#: Types of items that no other form of a conversation has.
_TELLTALE = frozenset({"reasoning", "function_call", "function_call_output", "custom_tool_call", "local_shell_call"})


def sniff(head: bytes) -> bool:
    """Whether `head` has a request or response of this API, or items that only it has."""
    values = opening(head)
    return any(map(_is_ours, values)) and all(_is_ours(value) or is_item(value) for value in values)


def _is_ours(value: Any) -> bool:
    match value:
        case {"request": dict(request)} if _is_ours(request):
            return True
        case {"response": dict(response)} if _is_ours(response):
            return True
        case {"object": "response", "output": list()}:
            return True
        case {"input": str() | list() as sent, **rest} if "messages" not in rest:
            items = [{"type": "message", "role": "user"}] if isinstance(sent, str) else sent
            return bool({"model", "instructions"} & rest.keys()) and bool(items) and all(map(is_item, items[:-1]))
        case [dict(), *_]:
            return all(map(is_item, value[:-1])) and any(map(_is_telltale, value))
    return _is_telltale(value)


def _is_telltale(item: Any) -> bool:
    if not isinstance(item, dict) or item.get("type") not in _TELLTALE:
        return False
    return isinstance(item.get("call_id") if item["type"] != "reasoning" else item.get("summary"), str | list)


def events(recording: Recording) -> Iterator[Event]:
    """The events of the log. Raises: BadInput if it has no item."""
    return Log(FORMAT, recording.stem, responses.fingerprint, responses.message).events(records(recording), _turns)


IMPORTER = Importer(format=FORMAT, sniff=sniff, conversations=single(events))


def _turns(value: Any) -> Iterator[Turn]:
    if isinstance(value, list) and any(map(is_item, value)):
        yield Turn(messages=responses.grouped(value), is_request=True, missing=("instructions", "tool definitions"))
        return
    for item in value if isinstance(value, list) else [value]:
        yield from _exchange(item) if isinstance(item, dict) else [Turn(messages=[item])]


def _exchange(value: dict[str, Any]) -> Iterator[Turn]:
    """The request and response in an object of a log; any other object counts as an item."""
    request, response = value.get("request", value), value.get("response", value)
    is_exchange = False
    match request:
        case {"input": str() | list() as sent} if "object" not in request:
            is_exchange = True
            items = [{"type": "message", "role": "user", "content": sent}] if isinstance(sent, str) else sent
            continued = bool(request.get("previous_response_id"))
            yield Turn(
                messages=responses.grouped(items),
                is_request=not continued,
                model=text_of(request.get("model")),
                system=text_of(request.get("instructions")),
                tools=[responses.definition(tool) for tool in objects(request.get("tools"))],
                missing=("what the server kept of earlier calls",) if continued else (),
            )
    match response:
        case {"object": "response", "output": list(output)}:
            is_exchange = True
            for at, group in enumerate(groups := responses.grouped(output)):
                newest = at == len(groups) - 1
                yield Turn(
                    messages=[group],
                    model=text_of(response.get("model")),
                    system=text_of(response.get("instructions")),
                    reply=text_of(response.get("id")),
                    usage=elements.responses_usage(response.get("usage")) if newest else {},
                    time=time_of(response.get("created_at")),
                    missing=("what was sent",),
                )
    if not is_exchange:
        yield Turn(messages=[[value]], missing=("instructions", "tool definitions"))
