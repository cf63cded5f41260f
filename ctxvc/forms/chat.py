"""Chat Completions: requests and replies.

Fields that only this form of a message has go to `extra["openai"]`, so that the exporter can restore the message:

- of any part: `field`, the field it was in, unless it is the usual one; `part` or `call`, its other keys, and `items`,
  those of a result's items by their number; `id`, its own id where ours differs (None: it had none); `parsed`, if it
  was a JSON value instead of a string.
- of the first part of a message: `message`, its other keys; `role`, where ours does not imply it; `parts`, if its
  content was a list.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Kind, Message, Origin, Part, Role
from ctxvc.core.ledger.wire import without
from ctxvc.errors import BadInput
from ctxvc.forms import elements, sse
from ctxvc.forms.chat_edit import SAYING, edited, layout, leading, own, results, role, spliced, tool
from ctxvc.forms.form import Facts, Prompt, Reply, facts, json_object, messages_of
from ctxvc.forms.values import annotated, digest, has_role, objects, text_of

__all__ = ["NAME", "edited", "layout", "own", "prompt", "reader", "reply", "results", "role", "spliced", "tool"]

NAME = "openai-chat"

ROLES: dict[str, tuple[Role, Origin]] = {
    "system": ("system", "client"),
    "developer": ("system", "client"),
    "user": ("user", "human"),
    "assistant": ("assistant", "model"),
    "tool": ("user", "tool"),
    "function": ("user", "tool"),
}
_PLAIN_CALL = {"type": "function", "function": {}}
STOPS = {"length": "max_tokens", "content_filter": "refusal", "tool_calls": "tool_use", "function_call": "tool_use"}
#: The text fields of a chunk's first choice, each with a piece of its text.
_TEXTS = ("content", "reasoning_content", "reasoning", "refusal")


def prompt(body: bytes) -> Prompt:
    """The prompt in a request's body. Raises: BadInput."""
    request = json_object(body, "the request")
    messages = request.get("messages")
    if not isinstance(messages, list):
        raise BadInput("the request has no messages")
    system, conversation = instructions(messages)
    return Prompt(
        model=text_of(request.get("model")),
        system=system,
        tools=tuple(elements.tool(tool) for tool in tools(request)),
        messages=tuple(conversation),
        prints=tuple(map(fingerprint, conversation)),
        stream=request.get("stream") is True,
    )


def reply(answer: bytes, *, stream: bool) -> Reply:
    """The first choice of an answer as the reply. Raises: BadInput."""
    completion, complete, _ = assembled(sse.events(answer)) if stream else (json_object(answer, "the answer"), True, "")
    match completion.get("choices"):
        case [{"message": dict(message), **choice}, *_]:
            repeated = {"role": "assistant", **{name: value for name, value in message.items() if value is not None}}
        case _:
            raise BadInput("the answer has no reply")
    reason = text_of(choice.get("finish_reason"))
    is_empty = not any(message.get(name) for name in (*SAYING, "reasoning"))
    return Reply(
        messages=() if is_empty else (repeated,),
        prints=() if is_empty else (fingerprint(repeated),),
        id=text_of(completion.get("id")),
        model=text_of(completion.get("model")),
        usage=elements.chat_usage(completion.get("usage")),
        stop=STOPS.get(reason, "end_turn" if reason else ""),
        complete=complete,
        error=repr(completion["error"])[:500] if completion.get("error") else "",
    )


def tools(request: dict[str, Any]) -> list[dict[str, Any]]:
    """The tools of a request, also from the older field `functions`."""
    if candidate := objects(request.get("tools")):
        return candidate
    return [{"type": "function", "function": function} for function in objects(request.get("functions"))]


def assembled(events: Iterable[tuple[str, dict[str, Any]]]) -> tuple[dict[str, Any], bool, str]:
    """The completion assembled from a stream's chunks, whether it is complete, and the provider's error.

    Pieces of a call are joined by its number or id. Raises: BadInput if the chunks are empty.
    """
    completion: dict[str, Any] = {}
    texts: dict[str, list[str]] = {}
    calls: list[dict[str, Any]] = []
    places: dict[int | None, dict[str, Any]] = {}  # the newest call of a number
    reason = ""
    for _, chunk in events:
        completion |= {name: chunk[name] for name in ("id", "model", "usage", "error") if chunk.get(name)}
        match chunk.get("choices"):
            case [{"index": int(index)}, *_] if index:
                continue
            case [dict(choice), *_]:
                reason = text_of(choice.get("finish_reason")) or reason
                candidate = choice.get("delta") or choice.get("message")
                delta = candidate if isinstance(candidate, dict) else {}
            case _:
                continue
        for name in _TEXTS:
            if isinstance(piece := delta.get(name), str):
                texts.setdefault(name, []).append(piece)
        for piece in objects(delta.get("tool_calls")):
            number = piece.get("index") if isinstance(piece.get("index"), int) else None
            call = places.get(number, calls[-1] if number is None and calls else None)
            if call is None or (piece.get("id") and piece["id"] != call.get("id", piece["id"])):
                call = {"type": "function", "function": {"arguments": []}}
                calls.append(call)
            places[number] = call
            _extend(call, piece)
    message: dict[str, Any] = {name: "".join(pieces) for name, pieces in texts.items()}
    for call in calls:
        call["function"]["arguments"] = "".join(call["function"]["arguments"])
    if calls:
        message["tool_calls"] = calls
    if not completion and not message:
        raise BadInput("the answer has no reply")
    choice = {"message": message, "finish_reason": reason}
    error = repr(completion["error"])[:500] if completion.get("error") else ""
    return {**completion, "choices": [choice]}, bool(reason) and not error, error


def _extend(call: dict[str, Any], piece: dict[str, Any]) -> None:
    call |= {name: piece[name] for name in ("id", "type") if piece.get(name)}
    function = piece.get("function")
    for name, value in function.items() if isinstance(function, dict) else ():
        if name == "arguments" and isinstance(value, str | dict):
            call["function"]["arguments"].append(value if isinstance(value, str) else wire.compact(value).decode())
        elif value and name != "arguments":
            call["function"][name] = value


class Reader:
    """Reads one conversation's messages, in order: calls get ids that are unique in it, results find their calls."""

    def __init__(self) -> None:
        self._ids = CallIds()

    def messages(self, values: Sequence[Any], reply: Reply | None = None) -> list[Message]:
        return messages_of(self.message(value, "", facts(reply)) for value in values)

    def message(self, value: Any, key: str, about: Facts) -> Message | str:
        """The `Message` for a JSON value, or the reason there is none."""
        if not has_role(value):
            return "it has no role"
        role, origin = ROLES.get(value["role"], ("user", "human"))
        fields = without(value, "role")
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
        elif value["role"] in ROLES:
            parts = _content(fields, role, origin)
        if parts:
            parts[0] = _marked(parts[0], value, fields)
        elif origin == "tool" or any(value.get(name) for name in SAYING):
            parts = [wire.other_part(value, role, origin, openai={"field": "message"})]
        else:
            return "it is empty"
        return about.message(role, parts, key)

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
                part = wire.result_part(blocks, call, tool=tool)
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
                parts.append(wire.call_part(name, self._ids.call(None, name), arguments, openai=notes))
        return parts

    def _call(self, call: Any) -> Part:
        match call:
            case {"function": {"name": str(name), **inner}, **form}:
                arguments, form["function"] = inner.pop("arguments", ""), inner
            case {"custom": {"name": str(name), **inner}, **form}:
                arguments, form["custom"] = inner.pop("input", ""), inner
            case _:
                return wire.other_part(call, "assistant", "model", openai={"field": "tool_calls"})
        original_id = form.pop("id", None)
        ours = self._ids.call(original_id, name)
        notes: dict[str, Any] = {} if form == _PLAIN_CALL else {"call": form}
        if original_id != ours:
            notes["id"] = original_id
        if not isinstance(arguments, str):
            notes["parsed"] = True
        part = wire.call_part(name, ours, arguments)
        return annotated(part, "openai", notes) if notes else part


reader = Reader


class CallIds:
    """Unique ids for calls, and the call that each result answers: one of the latest reply's if possible."""

    def __init__(self) -> None:
        self._tools: dict[str, str] = {}
        self._original_ids: set[str] = set()
        self._uses: dict[str, int] = {}
        self._latest: dict[str, str] = {}
        self._open: dict[str, deque[str]] = {}

    def begin(self) -> None:
        """Starts a new reply: results now answer its calls first."""
        self._open = {}

    def call(self, original_id: Any, tool: str) -> str:
        """A unique id for a call of `tool`; `original_id` may be empty, repeated or no string."""
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
            # An id that no call had is kept, unless we made it up ourselves.
            ours = self._latest.get(name, "" if name in self._tools else name)
        else:
            ours = self._open[slot].popleft()
            if not self._open[slot]:
                del self._open[slot]
        return ours, self._tools.get(ours, tool)


def instructions(messages: list[Any]) -> tuple[Any, list[Any]]:
    """The leading system prompt as a Messages API value, and the other messages."""
    count = leading(messages)
    if count == 1 and isinstance(messages[0]["content"], str):
        return messages[0]["content"], messages[1:]
    blocks: list[Any] = []
    for message in messages[:count]:
        content = message["content"]
        blocks += [{"type": "text", "text": content}] if isinstance(content, str) else content
    return blocks or None, messages[count:]


def _field(fields: dict[str, Any], field: str, kind: Kind) -> list[Part]:
    """The part for one field of an assistant message; removes the field from `fields`."""
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
        return wire.other_part(item, role, origin, openai={"field": "content"})
    part = wire.part(block, role, origin)
    return annotated(part, "openai", {"part": form}) if form else part


def _block(item: Any) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """The Messages API's block for an item of a content list, None if there is none, and the item's other keys."""
    match item:
        case {"type": "text", "text": str(value)}:
            return {"type": "text", "text": value}, without(item, "type", "text")
        case {"type": "image_url", "image_url": {"url": str(url)} as picture}:
            form, inner = without(item, "type", "image_url"), without(picture, "url")
            return elements.image(url), {**form, "image_url": inner} if inner else form
    return None, {}


def _marked(part: Part, message: dict[str, Any], fields: dict[str, Any]) -> Part:
    """`part`, the first of `message`, annotated with the facts about the whole message."""
    marks: dict[str, Any] = {"message": fields} if fields else {}
    if message["role"] in ("developer", "function"):
        marks["role"] = message["role"]
    if message.get("content") and isinstance(message["content"], list) and "content" not in fields:
        marks["parts"] = True
    return annotated(part, "openai", marks) if marks else part


def fingerprint(message: Any) -> bytes:
    """A checksum that a reply shares with its repetition in a later request, which mostly lacks nulls and reasoning."""
    if not isinstance(message, dict):
        return digest(message)
    content, calls = message.get("content"), message.get("tool_calls")
    fields = {name: message.get(name) for name in ("role", "name", "tool_call_id", "function_call", "refusal", "audio")}
    fields["content"] = [{"type": "text", "text": content}] if content and isinstance(content, str) else content
    fields["tool_calls"] = [_call_fields(call) for call in calls] if isinstance(calls, list) else calls
    return digest({name: value for name, value in fields.items() if value})


def _call_fields(call: Any) -> Any:
    """The fields that identify a call; arguments as values, since clients serialise them anew."""
    if not isinstance(call, dict):
        return call
    function = call.get("function")
    if isinstance(function, dict) and isinstance(function.get("arguments"), str):
        arguments = wire.parsed(function["arguments"].encode("utf-8", "surrogatepass"), dict)
        function = function if arguments is None else {**function, "arguments": arguments}
    return {"id": call.get("id"), "function": function, "custom": call.get("custom")}
