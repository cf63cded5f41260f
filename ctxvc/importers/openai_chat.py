"""Recordings of OpenAI chat completions: messages, a request, a log of requests and responses, or a list of runs.

Fields that only this form of a message has go to `extra["openai"]`, so that the exporter can restore the message:

- of any part: `field`, where it stood, unless in its usual place; `part` or `call`, the other keys it had, and `items`,
  those of a result's items by their place; `id`, the one it had where ours differs (None: it had none); `parsed`, where
  a JSON value stood instead of a string.
- of the first part of a message: `message`, its other keys; `role`, where ours does not tell it; `parts`, where its
  content was a list.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import msgspec

from ctxvc.core import display
from ctxvc.core.conversion.chat import usage
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Kind, Message, Origin, Part, Role
from ctxvc.core.prompt import openai_elements as elements
from ctxvc.core.recording.events import Event, Warned
from ctxvc.importers.file import Recording
from ctxvc.importers.protocol import (
    JSON,
    Conversations,
    file_stamp,
    file_state,
    no_folders,
    no_recordings,
    nothing_beside,
    only_file,
)
from ctxvc.importers.request_log import (
    Log,
    Record,
    Turn,
    annotated,
    digest,
    has_role,
    objects,
    opening,
    records,
    text_of,
    time_of,
    whole_messages,
)

FORMAT = "openai-chat"
ENDINGS = JSON
GROWS = False

_ROLES: dict[str, tuple[Role, Origin]] = {
    "system": ("system", "client"),
    "developer": ("system", "client"),
    "user": ("user", "human"),
    "assistant": ("assistant", "model"),
    "tool": ("user", "tool"),
    "function": ("user", "tool"),
}
#: The fields with a message's content; a message with none of them is empty.
_SAYING = ("content", "reasoning_content", "refusal", "tool_calls", "function_call", "audio")
_TELLTALE = frozenset({"tool_calls", "function_call", "tool_call_id", "refusal", "reasoning_content"})
_PLAIN_CALL = {"type": "function", "function": {}}


def sniff(head: bytes) -> bool:
    """Whether `head` holds messages with something that only this form has."""
    values = opening(head)
    if values and _is_runs(values[0]):
        values = [run["traj"] for run in values[0] if _is_run(run)][:1]
    reader = Reader()
    turns = [turn for value in values for turn in reader.turns(value)]
    messages = whole_messages(turns)
    if not all(has_role(message) and message["role"] in _ROLES and "extra" not in message for message in messages):
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


def events(recording: Recording) -> Iterator[Event]:
    """The events of the file's only conversation, or of its first. Raises: BadInput if the file holds no message."""
    streams = conversations(recording)
    _, first = next(streams)
    yield from first
    if more := sum(1 for _ in streams):
        yield Warned(text=f"this is the first of {more + 1} conversations in the file")


def conversations(recording: Recording) -> Conversations:
    """Every conversation of the file with an ending for its name and id, empty if it is the only one.

    Raises: BadInput, also while the events are taken.
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


folders = no_folders
recordings = no_recordings
beside = nothing_beside
files = only_file
stamp = file_stamp
state = file_state


def _events(entries: Iterable[Record | Warned], stem: str) -> Iterator[Event]:
    reader = Reader()
    return Log(FORMAT, stem, fingerprint, reader.message).events(entries, reader.turns)


def _is_runs(value: Any) -> bool:
    return isinstance(value, list) and any(map(_is_run, value))


def _is_run(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("traj"), list)


def _ending(run: Any) -> str:
    match run:
        case {"task_id": int(task), "trial": int(trial)}:
            return f"-{task}-{trial}"
    return ""


class Reader:
    """Reads one conversation's messages, in order: calls get ids that are unique in it, results find their calls."""

    def __init__(self) -> None:
        self._ids = CallIds()
        self._begun = False

    def turns(self, value: Any) -> Iterator[Turn]:
        """The turns in one value of the file."""
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
                    usage=usage(response.get("usage")),
                    time=time_of(response.get("created")),
                    missing=("what was sent",),
                    left_out=f"{len(alternatives)} more choices in the response" if alternatives else "",
                )
        if not is_exchange:
            # One message a line: only the first can still be the system prompt.
            system, rest = (None, [value]) if self._begun else instructions([value])
            yield Turn(messages=rest, system=system, missing=("tool definitions",))
        self._begun = True

    def message(self, value: Any, key: str, turn: Turn) -> Message | str:
        """The message as one of ours, or why there is none."""
        if not has_role(value):
            return "it has no role"
        role, origin = _ROLES.get(value["role"], ("user", "human"))
        fields = _less(value, "role")
        parts: list[Part] = []
        if value["role"] in ("tool", "function"):
            parts = self._result(fields)
        elif value["role"] == "assistant":
            parts = [
                *_field(fields, "reasoning_content", "thinking"),
                *_content(fields, role, origin),
                *_field(fields, "refusal", "assistant"),
                *self._calls(fields),
            ]
        elif value["role"] in _ROLES:
            parts = _content(fields, role, origin)
        if parts:
            parts[0] = _marked(parts[0], value, fields)
        elif origin == "tool" or any(value.get(name) for name in _SAYING):
            parts = [_verbatim(value, role, origin, "message")]
        else:
            return "it is empty"
        return Message(
            role=role,
            parts=tuple(parts),
            key=key,
            reply=turn.reply,
            model="" if turn.is_request else turn.model,
            usage=turn.usage,
            time=turn.time,
        )

    def _result(self, fields: dict[str, Any]) -> list[Part]:
        original_id = fields.pop("tool_call_id", None)
        call, tool = self._ids.answered(original_id, text_of(fields.get("name")))
        if not call:
            return []
        content = fields.pop("content", "")
        notes = {} if original_id == call else {"id": original_id}
        match content:
            case str():
                part = wire.result_part(content, call, tool=tool)
            case None | []:
                fields["content"] = content
                part = wire.result_part("", call, tool=tool)
            case list():
                converted = [_block(item) for item in content]
                blocks = [item if block is None else block for item, (block, _) in zip(content, converted, strict=True)]
                if forms := {str(number): form for number, (_, form) in enumerate(converted) if form}:
                    notes["items"] = forms
                received = {"type": "tool_result", "tool_use_id": call, "content": blocks}
                part = msgspec.structs.replace(wire.part(received, "user", "tool"), tool=tool)
            case _:
                notes["parsed"] = True
                part = wire.result_part(wire.compact(content), call, tool=tool)
        return [annotated(part, "openai", notes) if notes else part]

    def _calls(self, fields: dict[str, Any]) -> list[Part]:
        parts: list[Part] = []
        match fields.get("tool_calls"):
            case [_, *_] as calls:
                del fields["tool_calls"]
                self._ids.begin()
                parts += map(self._call, calls)
        match fields.get("function_call"):
            case {"name": str(name), "arguments": str(arguments), **other} if not other:
                del fields["function_call"]
                self._ids.begin()
                notes = {"field": "function_call", "id": None}
                parts.append(wire.call_part(name, self._ids.call(None, name), display.encode(arguments), openai=notes))
        return parts

    def _call(self, call: Any) -> Part:
        match call:
            case {"function": {"name": str(name), **inner}, **form}:
                arguments, form["function"] = inner.pop("arguments", ""), inner
            case {"custom": {"name": str(name), **inner}, **form}:
                arguments, form["custom"] = inner.pop("input", ""), inner
            case _:
                return _verbatim(call, "assistant", "model", "tool_calls")
        original_id = form.pop("id", None)
        ours = self._ids.call(original_id, name)
        notes: dict[str, Any] = {} if form == _PLAIN_CALL else {"call": form}
        if original_id != ours:
            notes["id"] = original_id
        if not isinstance(arguments, str):
            notes["parsed"] = True
        body = display.encode(arguments) if isinstance(arguments, str) else wire.compact(arguments)
        part = wire.call_part(name, ours, body)
        return annotated(part, "openai", notes) if notes else part


class CallIds:
    """Ids for calls, each used once, and the call that a result answers: one of the latest reply's if possible."""

    def __init__(self) -> None:
        self._tools: dict[str, str] = {}
        self._original_ids: set[str] = set()
        self._uses: dict[str, int] = {}
        self._latest: dict[str, str] = {}
        self._open: dict[str, deque[str]] = {}

    def begin(self) -> None:
        """A new reply calls."""
        self._open = {}

    def call(self, original_id: Any, tool: str) -> str:
        """A unique id for a call of `tool` with the id `original_id`, which may be no string, or empty."""
        name = text_of(original_id)
        stem = name or f"call-{len(self._tools) + 1}"
        ours = stem
        while ours in self._tools or (ours != name and ours in self._original_ids):
            self._uses[stem] = self._uses.get(stem, 1) + 1
            ours = f"{stem}~{self._uses[stem]}"
        self._tools[ours] = tool
        self._original_ids.add(name)
        if name:
            self._latest[name] = ours
        # A result names its call by id; where calls have none, by the tool.
        self._open.setdefault(name or f"\0{tool}", deque()).append(ours)
        return ours

    def answered(self, original_id: Any, tool: str) -> tuple[str, str]:
        """Our id and the tool of the call that a result answers; the id is empty if it cannot be found."""
        name = text_of(original_id)
        self._original_ids.add(name)
        slot = name or f"\0{tool}"
        if slot == "\0":
            slot = next(iter(self._open), slot)
        if slot not in self._open:
            # An id that no call was given is kept, unless it is one that we made up.
            ours = self._latest.get(name, "" if name in self._tools else name)
        else:
            ours = self._open[slot].popleft()
            if not self._open[slot]:
                del self._open[slot]
        return ours, self._tools.get(ours, tool)


def _request(messages: list[Any], request: dict[str, Any], missing: tuple[str, ...] = ()) -> Turn:
    system, rest = instructions(messages)
    return Turn(
        messages=rest,
        is_request=True,
        model=text_of(_option(request, "model")),
        system=system,
        tools=[elements.tool(tool) for tool in _tools(request)],
        missing=missing,
        window=window if isinstance(window := _option(request, "context_window"), int) else 0,
    )


def _option(request: dict[str, Any], name: str) -> Any:
    """A field of a request; OpenHands logs keep some under `kwargs`."""
    options = request.get("kwargs")
    return request.get(name) or (options.get(name) if isinstance(options, dict) else None)


def _tools(request: dict[str, Any]) -> list[dict[str, Any]]:
    if tools := objects(_option(request, "tools")):
        return tools
    return [{"type": "function", "function": function} for function in objects(_option(request, "functions"))]


def instructions(messages: list[Any]) -> tuple[Any, list[Any]]:
    """The leading system prompt as a Messages API value, and the other messages."""
    blocks: list[Any] = []
    count = 0
    for message in messages:
        match message:
            # A message with a `name` is not an instruction but a line of an example.
            case {"role": "system" | "developer", "content": str(content), **other} if content and not other:
                blocks.append({"type": "text", "text": content})
            case {"role": "system" | "developer", "content": [_, *_] as parts, **other} if not other and all(
                map(_is_text, parts)
            ):
                blocks += parts
            case _:
                break
        count += 1
    if count == 1 and isinstance(messages[0]["content"], str):
        return messages[0]["content"], messages[1:]
    return blocks or None, messages[count:]


def _is_text(part: Any) -> bool:
    match part:
        case {"type": "text", "text": str(value), **other}:
            return bool(value) and other.keys() <= {"cache_control"}
    return False


def _field(fields: dict[str, Any], field: str, kind: Kind) -> list[Part]:
    """The part in one field of an assistant message; removes the field from `fields`."""
    match fields.get(field):
        case str(value) if value:
            del fields[field]
            return [wire.text_part(value, "assistant", "model", kind=kind, openai={"field": field})]
    return []


def _content(fields: dict[str, Any], role: Role, origin: Origin) -> list[Part]:
    """The parts of a message's content; removes it from `fields` if it could be taken apart."""
    match fields.get("content"):
        case str(value) if value:
            del fields["content"]
            return [wire.text_part(value, role, origin)]
        case [_, *_] as items:
            del fields["content"]
            return [_part(item, role, origin) for item in items]
    return []


def _part(item: Any, role: Role, origin: Origin) -> Part:
    block, form = _block(item)
    if block is None:
        return _verbatim(item, role, origin, "content")
    part = wire.part(block, role, origin)
    return annotated(part, "openai", {"part": form}) if form else part


def _block(item: Any) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """The Messages API's block for an item of a content list, None if it has none, and the keys it has besides."""
    match item:
        case {"type": "text", "text": str(value)}:
            return {"type": "text", "text": value}, _less(item, "type", "text")
        case {"type": "image_url", "image_url": {"url": str(url)} as picture}:
            form, inner = _less(item, "type", "image_url"), _less(picture, "url")
            return elements.image(url), {**form, "image_url": inner} if inner else form
    return None, {}


def _less(value: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: item for name, item in value.items() if name not in names}


def _verbatim(value: Any, role: Role, origin: Origin, field: str) -> Part:
    body = wire.compact(value)
    return Part(kind="other", role=role, origin=origin, body=body, ext="json", extra={"openai": {"field": field}})


def _marked(part: Part, message: dict[str, Any], fields: dict[str, Any]) -> Part:
    """`part`, the first of `message`, annotated with the facts about the whole message."""
    marks: dict[str, Any] = {"message": fields} if fields else {}
    if message["role"] in ("developer", "function"):
        marks["role"] = message["role"]
    if message.get("content") and isinstance(message["content"], list) and "content" not in fields:
        marks["parts"] = True
    return annotated(part, "openai", marks) if marks else part


def fingerprint(message: Any) -> bytes:
    """Equal for a reply and the same as a later request repeats it, mostly without nulls and reasoning."""
    if not isinstance(message, dict):
        return digest(message)
    content, calls = message.get("content"), message.get("tool_calls")
    fields = {name: message.get(name) for name in ("role", "name", "tool_call_id", "function_call", "refusal", "audio")}
    fields["content"] = [{"type": "text", "text": content}] if content and isinstance(content, str) else content
    fields["tool_calls"] = [_call_fields(call) for call in calls] if isinstance(calls, list) else calls
    return digest({name: value for name, value in fields.items() if value})


def _call_fields(call: Any) -> Any:
    return {name: call.get(name) for name in ("id", "function", "custom")} if isinstance(call, dict) else call
