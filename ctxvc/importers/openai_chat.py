"""Recordings of OpenAI chat completions: messages, a request, a log of requests and responses, or a list of runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from ctxvc.core.recording.events import Event, Warned
from ctxvc.forms import chat, elements
from ctxvc.forms.values import has_role, text_of, time_of
from ctxvc.importers.file import Recording
from ctxvc.importers.protocol import Conversations, Importer
from ctxvc.importers.request_log import Log, Record, Turn, opening, records, whole_messages

FORMAT = "openai-chat"

_TELLTALE = frozenset({"tool_calls", "function_call", "tool_call_id", "refusal", "reasoning_content"})


def sniff(head: bytes) -> bool:
    """Whether `head` has messages with something that only this form has."""
    values = opening(head)
    if values and _is_runs(values[0]):
        values = [run["traj"] for run in values[0] if _is_run(run)][:1]
    conversation = _Conversation()
    turns = [turn for value in values for turn in conversation.turns(value)]
    messages = whole_messages(turns)
    if not all(has_role(message) and message["role"] in chat.ROLES and "extra" not in message for message in messages):
        return False  # mini-swe-agent adds `extra`
    return (
        any(turn.system or turn.reply for turn in turns)
        or any(map(_is_ours, messages))
        or any("function" in tool for value in values if isinstance(value, dict) and messages for tool in _tools(value))
    )


def _is_ours(message: dict[str, Any]) -> bool:
    if message["role"] in ("tool", "function", "developer") or not _TELLTALE.isdisjoint(message):
        return True
    content = message.get("content")
    return isinstance(content, list) and any(
        isinstance(item, dict) and item.get("type") in ("image_url", "input_audio", "file") for item in content
    )


def conversations(recording: Recording) -> Conversations:
    """Every conversation of the file, with an ending for its name and id, empty if it is the only one.

    Raises: BadInput, also while the events are read.
    """
    entries = records(recording)
    first = next(entries)
    if isinstance(first, Record) and _is_runs(first.value):
        endings: set[str] = set()
        for number, run in enumerate(first.value, 1):
            ending = _ending(run)
            if not ending or ending in endings:
                ending = f"-run-{number}"
            endings.add(ending)
            traj = run["traj"] if _is_run(run) else run
            yield ending, _events([Record(traj, first.line, first.end)], recording.stem)
    else:
        yield "", _events(chain([first], entries), recording.stem)


IMPORTER = Importer(format=FORMAT, sniff=sniff, conversations=conversations)


def _events(entries: Iterable[Record | Warned], stem: str) -> Iterator[Event]:
    log = Log(FORMAT, stem, chat.fingerprint, chat.reader().message)
    return log.events(entries, _Conversation().turns)


def _is_runs(value: Any) -> bool:
    return isinstance(value, list) and any(map(_is_run, value))


def _is_run(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("traj"), list)


def _ending(run: Any) -> str:
    match run:
        case {"task_id": int(task), "trial": int(trial)}:
            return f"-{task}-{trial}"
    return ""


class _Conversation:
    """Reads the values of one recorded conversation, in order."""

    def __init__(self) -> None:
        self._begun = False

    def turns(self, value: Any) -> Iterator[Turn]:
        if isinstance(value, list) and any(map(has_role, value)):
            yield _request(value, {}, missing=("tool definitions",))
        else:
            for item in value if isinstance(value, list) else [value]:
                yield from self._exchange(item) if isinstance(item, dict) else [Turn(messages=[item])]

    def _exchange(self, value: dict[str, Any]) -> Iterator[Turn]:
        request, response = value.get("request", value), value.get("response", value)
        is_exchange = False
        match request:
            case {"messages": list(messages)} if "trajectory_format" not in request:
                is_exchange = True
                yield _request(messages, request)
        match response:
            case {"choices": [{"message": dict(message)}, *alternatives]}:
                is_exchange = True
                yield Turn(
                    messages=[message],
                    model=text_of(response.get("model")),
                    reply=text_of(response.get("id")),
                    usage=elements.chat_usage(response.get("usage")),
                    time=time_of(response.get("created")),
                    missing=("what was sent",),
                    left_out=f"{len(alternatives)} more choices in the response" if alternatives else "",
                )
        if not is_exchange:
            # With a message a line, only the first can be the system prompt.
            system, rest = (None, [value]) if self._begun else chat.instructions([value])
            yield Turn(messages=rest, system=system, missing=("tool definitions",))
        self._begun = True


def _request(messages: list[Any], request: dict[str, Any], missing: tuple[str, ...] = ()) -> Turn:
    system, rest = chat.instructions(messages)
    return Turn(
        messages=rest,
        is_request=True,
        model=text_of(_option(request, "model")),
        system=system,
        tools=list(map(elements.tool, _tools(request))),
        missing=missing,
        window=window if isinstance(window := _option(request, "context_window"), int) else 0,
    )


def _option(request: dict[str, Any], name: str) -> Any:
    """A field of a request; OpenHands logs keep some under `kwargs`."""
    options = request.get("kwargs")
    return request.get(name) or (options.get(name) if isinstance(options, dict) else None)


def _tools(request: dict[str, Any]) -> list[dict[str, Any]]:
    return chat.tools({name: _option(request, name) for name in ("tools", "functions")})
