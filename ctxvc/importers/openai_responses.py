"""Recordings of OpenAI's Responses API: a request, a response, a list of items, or a log with one of these a line.

A reply is several items: reasoning, a message, calls. Neighbouring items of the model's are one message here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from ctxvc.core.conversion.responses import usage
from ctxvc.core.ledger.block import Message
from ctxvc.core.prompt import openai_elements as elements
from ctxvc.core.recording.events import Event
from ctxvc.importers.codex import responses
from ctxvc.importers.file import Recording
from ctxvc.importers.protocol import (
    JSON,
    file_stamp,
    file_state,
    no_folders,
    no_recordings,
    nothing_beside,
    only_file,
    single,
)
from ctxvc.importers.request_log import Log, Turn, digest, objects, opening, records, text_of, time_of

FORMAT = "openai-responses"
ENDINGS = JSON
GROWS = False

#: Types of items that no other form of a conversation has.
_TELLTALE = frozenset({"reasoning", "function_call", "function_call_output", "custom_tool_call", "local_shell_call"})


def sniff(head: bytes) -> bool:
    """Whether `head` holds a request or response of this API, or items that only it has."""
    values = opening(head)
    return any(map(_is_ours, values)) and all(_is_ours(value) or _is_item(value) for value in values)


def _is_ours(value: Any) -> bool:
    match value:
        case {"request": dict(request)} if _is_ours(request):
            return True
        case {"response": dict(response)} if _is_ours(response):
            return True
        case {"object": "response", "output": list()}:
            return True
        case {"input": str() | list() as given, **rest} if "messages" not in rest:
            items = [{"type": "message", "role": "user"}] if isinstance(given, str) else given
            return bool({"model", "instructions"} & rest.keys()) and bool(items) and all(map(_is_item, items[:-1]))
        case [dict(), *_]:
            return all(map(_is_item, value[:-1])) and any(map(_is_telltale, value))
    return _is_telltale(value)


def _is_item(item: Any) -> bool:
    if not isinstance(item, dict):
        return False
    kind = item.get("type", "message")
    return isinstance(kind, str) and (kind != "message" or isinstance(item.get("role"), str))


def _is_telltale(item: Any) -> bool:
    if not isinstance(item, dict) or item.get("type") not in _TELLTALE:
        return False
    return isinstance(item.get("call_id") if item["type"] != "reasoning" else item.get("summary"), str | list)


def events(recording: Recording) -> Iterator[Event]:
    """Raises: BadInput if the file holds no item."""
    return Log(FORMAT, recording.stem, _fingerprint, _message).events(records(recording), _turns)


conversations = single(events)
folders = no_folders
recordings = no_recordings
beside = nothing_beside
files = only_file
stamp = file_stamp
state = file_state


def _turns(value: Any) -> Iterator[Turn]:
    if isinstance(value, list) and any(map(_is_item, value)):
        yield Turn(messages=_grouped(value), is_request=True, missing=("instructions", "tool definitions"))
        return
    for item in value if isinstance(value, list) else [value]:
        yield from _exchange(item) if isinstance(item, dict) else [Turn(messages=[item])]


def _exchange(value: dict[str, Any]) -> Iterator[Turn]:
    """The request and the response in one object of a log; an object that is neither counts as an item."""
    request, response = value.get("request", value), value.get("response", value)
    is_exchange = False
    match request:
        case {"input": str() | list() as given} if "object" not in request:
            is_exchange = True
            items = [{"type": "message", "role": "user", "content": given}] if isinstance(given, str) else given
            continued = bool(request.get("previous_response_id"))
            yield Turn(
                messages=_grouped(items),
                is_request=not continued,
                model=text_of(request.get("model")),
                system=text_of(request.get("instructions")),
                tools=[_tool(tool) for tool in objects(request.get("tools"))],
                missing=("what the server kept of earlier calls",) if continued else (),
            )
    match response:
        case {"object": "response", "output": list(output)}:
            is_exchange = True
            for at, group in enumerate(groups := _grouped(output)):
                newest = at == len(groups) - 1
                yield Turn(
                    messages=[group],
                    model=text_of(response.get("model")),
                    system=text_of(response.get("instructions")),
                    reply=text_of(response.get("id")),
                    usage=usage(response.get("usage")) if newest else {},
                    time=time_of(response.get("created_at")),
                    missing=("what was sent",),
                )
    if not is_exchange:
        yield Turn(messages=[[value]], missing=("instructions", "tool definitions"))


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    """A function as a tool of the Messages API; any other kind of tool as it is."""
    match tool:
        case {"type": "function", "name": str(), **definition}:
            fields = {name: value for name, value in definition.items() if name != "strict" or value}
            return elements.tool({"type": "function", "function": fields | {"name": tool["name"]}})
        case {"type": "custom", "name": str(), **definition}:
            return {"type": "custom", "custom": definition | {"name": tool["name"]}}
    return tool


def _grouped(items: Iterable[Any]) -> list[Any]:
    """The items of each message: those of a reply together, every other alone."""
    groups: list[Any] = []
    for by_model, run in groupby(items, _is_by_model):
        together = list(run)
        groups += [together] if by_model else [[item] for item in together]
    return groups


def _is_by_model(item: Any) -> bool:
    if not isinstance(item, dict):
        return False
    kind = text_of(item.get("type", "message"))
    return item.get("role") == "assistant" if kind == "message" else kind == "reasoning" or kind.endswith("_call")


def _message(group: Any, key: str, turn: Turn) -> Message | str:
    """The message of some items as one of ours, or why there is none."""
    items = [item for item in group if _is_item(item)] if isinstance(group, list) else []
    if not items:
        return "it is not an item"
    converted = [responses.converted({"type": "message", **item}) for item in items]
    parts = tuple(part for _, item_parts in converted for part in item_parts)
    if not parts:
        return "it is empty"
    return Message(
        role=converted[0][0],
        parts=parts,
        key=key,
        reply=turn.reply,
        model="" if turn.is_request else turn.model,
        usage=turn.usage,
        time=turn.time,
    )


def _fingerprint(group: Any) -> bytes:
    """Equal for items and their repetition in a later request, which has not all fields of a response."""
    if not isinstance(group, list):
        return digest(group)
    return digest(
        [repr(responses.identity({"type": "message", **item})) if isinstance(item, dict) else item for item in group]
    )
