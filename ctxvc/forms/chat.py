"""OpenAI's Chat Completions.
Fields that only this form of a message has go to `extra["openai"]`, so that the exporter can restore the message:

- of any part: `field`, where it stood, unless in its usual place; `part` or `call`, the other keys it had, and `items`,
  those of a result's items by their place; `id`, the one it had where ours differs (None: it had none); `parsed`, where
  a JSON value stood instead of a string.
- of the first part of a message: `message`, its other keys; `role`, where ours does not tell it; `parts`, where its
  content was a list.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ctxvc.core import display
from ctxvc.core.conversion.chat import stop_reason, usage
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Kind, Message, Origin, Part, Role
from ctxvc.core.prompt import openai_elements as elements
from ctxvc.errors import BadInput
from ctxvc.forms import form, sse
from ctxvc.forms.calls import CallIds
from ctxvc.forms.chat_stream import Assembly
from ctxvc.forms.values import annotated, arguments_print, digest, has_role, objects, text_of

NAME = "openai-chat"

#: Role of a message → ours, and its maker.
ROLES: dict[str, tuple[Role, Origin]] = {
    "system": ("system", "client"),
    "developer": ("system", "client"),
    "user": ("user", "human"),
    "assistant": ("assistant", "model"),
    "tool": ("user", "tool"),
    "function": ("user", "tool"),
}
#: The fields with a message's content; a message with none of them is empty.
_SAYING = ("content", "reasoning_content", "refusal", "tool_calls", "function_call", "audio")
_PLAIN_CALL = {"type": "function", "function": {}}


def prompt(body: bytes, path: str = "") -> form.Prompt:  # noqa: ARG001 - a form's
    """Raises: BadInput."""
    request = form.json_object(body, "request")
    system, messages = instructions(form.values_at(request, "messages"))
    return form.Prompt(
        model=text_of(request.get("model")),
        system=system,
        tools=tuple(map(elements.tool, functions(request.get("tools"), request.get("functions")))),
        messages=tuple(messages),
        prints=tuple(map(fingerprint, messages)),
        stream=request.get("stream") is True,
        max_tokens=form.limit(request.get("max_completion_tokens"), request.get("max_tokens")),
    )


def functions(tools: Any, oldest: Any) -> list[dict[str, Any]]:
    """The tools of a request, or what its oldest form has in their place."""
    return objects(tools) or [{"type": "function", "function": function} for function in objects(oldest)]


def reply(answer: bytes, *, stream: bool) -> form.Reply:
    """Raises: BadInput."""
    if not sse.is_stream(answer, stream=stream):
        value = form.json_object(answer, "answer")
        return _reply(value, form.error_text(value), ended=True)
    assembly, error = Assembly(), ""
    for event in sse.events((answer,)):
        assembly.ended = assembly.ended or event.data.strip() == "[DONE]"
        if isinstance(value := event.value(), dict):
            error = error or form.error_text(value)
            assembly.add(value)
    return _reply(assembly.completion(), error, ended=assembly.ended)


def _reply(completion: dict[str, Any], error: str, *, ended: bool) -> form.Reply:
    match completion.get("choices"):
        case [{"message": dict(message)} as choice, *_]:
            messages = [{**message, "role": text_of(message.get("role")) or "assistant"}]
        case _ if error:
            messages, choice = [], {}
        case _:
            raise BadInput("the answer holds no completion")
    called = any(message.get("tool_calls") or message.get("function_call") for message in messages)
    finish = choice.get("finish_reason") or ("stop" if ended else None)
    stop = "" if error else stop_reason(finish, called=called)
    messages = [message for message in messages if any(message.get(name) for name in _SAYING)]
    return form.Reply(
        messages=tuple(messages),
        prints=tuple(map(fingerprint, messages)),
        id=text_of(completion.get("id")),
        model=text_of(completion.get("model")),
        usage=usage(completion.get("usage")),
        stop=stop,
        whole=bool(stop),
        error=error,
    )


def reader() -> form.Reader:
    return form.Reader(Messages().message)


class Messages:
    """Reads one conversation's messages, in order: calls get ids that are unique in it, results find their calls."""

    def __init__(self) -> None:
        self._ids = CallIds()

    def message(self, value: Any) -> Message | str:
        """The message as one of ours, or why there is none."""
        if not has_role(value):
            return "it has no role"
        role, origin = ROLES.get(value["role"], ("user", "human"))
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
        elif value["role"] in ROLES:
            parts = _content(fields, role, origin)
        if parts:
            parts[0] = _marked(parts[0], value, fields)
        elif origin == "tool" or any(value.get(name) for name in _SAYING):
            parts = [_verbatim(value, role, origin, "message")]
        else:
            return "it is empty"
        return Message(role=role, parts=tuple(parts))

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
    """Equal for a reply and the same as a later request repeats it: mostly without nulls and reasoning, its calls'
    arguments written anew, and with other cache marks."""
    if not isinstance(message, dict):
        return digest(message)
    content, calls, audio = message.get("content"), message.get("tool_calls"), message.get("audio")
    fields = {name: message.get(name) for name in ("role", "name", "tool_call_id", "refusal")}
    fields["content"] = [{"type": "text", "text": content}] if content and isinstance(content, str) else content
    if isinstance(content, list):
        fields["content"] = [_item_meaning(item) for item in content]
    fields["tool_calls"] = [_call_meaning(call) for call in calls] if isinstance(calls, list) else calls
    fields["function_call"] = _with_arguments(message.get("function_call"))
    fields["audio"] = audio.get("id") if isinstance(audio, dict) else audio
    return digest({name: value for name, value in fields.items() if value})


def _item_meaning(item: Any) -> Any:
    if not isinstance(item, dict):
        return item
    return {name: value for name, value in item.items() if value is not None and name != "cache_control"}


def _call_meaning(call: Any) -> Any:
    if not isinstance(call, dict):
        return call
    return {"id": call.get("id"), "function": _with_arguments(call.get("function")), "custom": call.get("custom")}


def _with_arguments(function: Any) -> Any:
    """A call with its arguments by their value: clients write them anew, spaced in their own way."""
    if not isinstance(function, dict):
        return function
    return {**function, "arguments": arguments_print(function.get("arguments") or {})}
