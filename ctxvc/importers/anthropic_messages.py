"""Recordings of the Messages API: a list of messages, a request, a response, or a log with one of these a line.

Every request repeats its conversation from the start. So the messages form a tree, which `request_log.Log` reads: new
messages yield an event each, repeated ones none, and a request that leaves the newest branch yields a fork.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ctxvc.core.recording.events import Event
from ctxvc.core.recording.usage import counts
from ctxvc.forms import anthropic
from ctxvc.forms.values import has_role, objects, text_of
from ctxvc.importers.file import Recording
from ctxvc.importers.protocol import Importer, single
from ctxvc.importers.request_log import Log, Turn, opening, records, whole_messages

FORMAT = "anthropic-messages"

_BLOCK_TYPE = re.compile(
    "text|image|document|tool_use|thinking|redacted_thinking|server_tool_use|search_result|container_upload|compaction"
    "|mcp_tool_use|([a-z_]+_)?tool_result"
)


def sniff(head: bytes) -> bool:
    """Whether `head` has only messages, all of them in the form of the Messages API."""
    turns = [turn for value in opening(head) for turn in _turns(value)]
    messages = whole_messages(turns)
    if not messages or not all(map(_is_ours, messages)) or messages[0]["role"] == "system":
        return False
    return not any(isinstance(tool, dict) and "function" in tool for turn in turns for tool in turn.tools or [])


def _is_ours(message: Any) -> bool:
    if not isinstance(message, dict) or message.get("role") not in ("user", "assistant", "system"):
        return False
    if not _is_response(message) and message.keys() - {"role", "content"}:
        return False
    content = message.get("content", "")
    return isinstance(content, str) or (
        isinstance(content, list)
        and all(
            isinstance(block, dict) and _BLOCK_TYPE.fullmatch(text_of(block.get("type", "text"))) for block in content
        )
    )


def events(recording: Recording) -> Iterator[Event]:
    """The events of the log. Raises: BadInput if it has no message."""
    log = Log(FORMAT, recording.stem, anthropic.fingerprint, anthropic.message)
    return log.events(records(recording), _turns)


IMPORTER = Importer(format=FORMAT, sniff=sniff, conversations=single(events))


def _turns(value: Any) -> Iterator[Turn]:
    if isinstance(value, list) and any(has_role(item) and not _is_response(item) for item in value):
        yield Turn(messages=value, is_request=True, missing=("system prompt", "tool definitions"))
    else:
        for item in value if isinstance(value, list) else [value]:
            yield from _exchange(item) if isinstance(item, dict) else [Turn(messages=[item])]


def _exchange(value: dict[str, Any]) -> Iterator[Turn]:
    """The request and response in an object of a log; any other object counts as a message."""
    request, response = value.get("request", value), value.get("response", value)
    is_request = False
    match request:
        case {"messages": list(messages)}:
            is_request = True
            system, tools = request.get("system"), request.get("tools")
            yield Turn(
                messages=messages,
                is_request=True,
                model=text_of(request.get("model")),
                system=system if isinstance(system, str) else objects(system),
                tools=objects(tools),
            )
    if _is_response(response):
        yield Turn(
            messages=[response],
            model=text_of(response.get("model")),
            reply=text_of(response.get("id")),
            usage=counts(response.get("usage")),
            missing=("what was sent",),
        )
    elif not is_request:
        yield Turn(messages=[value], missing=("system prompt", "tool definitions"))


def _is_response(value: Any) -> bool:
    return isinstance(value, dict) and value.get("type") == "message" and value.get("role") == "assistant"
