"""Requests of the Messages API ⇄ requests of OpenAI's Chat Completions, and replies of the latter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ctxvc.core.prompt import formats
from ctxvc.forms import chat_writer, elements, fields
from ctxvc.forms.chat import STOPS
from ctxvc.forms.losses import Converted, Loss, Place
from ctxvc.forms.values import text_in

_TAKEN = ("messages", "max_completion_tokens", "max_tokens", "stop", "reasoning_effort")


def to_chat(request: Mapping[str, Any]) -> Converted:
    """The arguments of `client.chat.completions.create` for those of `client.messages.create` (`chat_writer.written`).

    Raises: BadInput.
    """
    fields.check(request, "messages")
    losses: list[Loss] = []
    top = Place(losses)
    written = chat_writer.written(fields.prompt_of(request, top))
    losses += written.losses
    value = {
        **fields.settings(request, top, limit="max_completion_tokens", function="function"),
        **written.value,
        "messages": list(map(_with_content, written.value["messages"])),
    }
    if stops := fields.stop_sequences(request.get("stop_sequences")):
        value["stop"] = stops
    if effort := fields.effort(request.get("output_config"), top.at("output_config")):
        value["reasoning_effort"] = effort
    top.drop_except(request, *fields.TAKEN, "stop_sequences")
    return Converted(value, tuple(losses))


def _with_content(message: dict[str, Any]) -> dict[str, Any]:
    """The message with a `content` field, which some servers require even if it is empty."""
    empty = None if "tool_calls" in message else ""
    return message if "content" in message else {"role": message["role"], "content": empty, **message}


def from_chat(request: Mapping[str, Any]) -> Converted:
    """The arguments of `client.messages.create` for those of `client.chat.completions.create`.

    Leading instructions become `system`; consecutive messages of one role become one. Raises: BadInput.
    """
    fields.check(request, "messages")
    losses: list[Loss] = []
    top = Place(losses)
    messages = [(message, top.at("messages", number)) for number, message in fields.objects(request, "messages", top)]
    roles = (message.get("role") for message, _ in messages)
    count = next((at for at, role in enumerate(roles) if role not in ("system", "developer")), len(messages))
    system = [block for message, place in messages[:count] for block in _texts(message, place)]
    calls = _Calls()
    converted = [item for message, place in messages[count:] if (item := _message(message, place, calls))]
    limits = ("max_completion_tokens", "max_tokens")
    value = fields.from_settings(request, top, *limits, system=system, tool=elements.tool)
    value["messages"] = formats.normalise_anthropic(converted)
    if stops := fields.stop_sequences(request.get("stop")):
        value["stop_sequences"] = stops
    if isinstance(effort := request.get("reasoning_effort"), str):
        value["output_config"] = {"effort": effort}
    top.drop_except(request, *fields.TAKEN_FROM_OPENAI, *_TAKEN)
    return Converted(value, tuple(losses))


def chat_reply(completion: Mapping[str, Any], arguments: fields.ReadArguments = fields.read_arguments) -> Converted:
    """The Messages API's message for a chat completion; `stop_reason` is None if it has no first choice.

    `arguments` makes a call's `input` from its arguments, which are text here.
    """
    losses: list[Loss] = []
    top = Place(losses)
    match completion.get("choices"):
        case [{"message": dict(message)} as choice, *more]:
            place = top.at("choices", 0)
            for number in range(1, len(more) + 1):
                top.at("choices", number).drop()
        case _:
            message, choice, place = {}, {}, top
    content = formats.normalise_anthropic(
        [{"role": "assistant", "content": list(_assistant(message, place.at("message"), _Calls(arguments)))}]
    )
    blocks = content[0]["content"] if content else []
    called = any(block["type"] == "tool_use" for block in blocks)
    finish = choice.get("finish_reason")
    stop = STOPS.get(finish, "tool_use" if called else "end_turn") if isinstance(finish, str) else None
    if stop == "tool_use" and not called:
        stop = "end_turn"
    return Converted(
        fields.reply(completion, blocks, stop, elements.chat_usage(completion.get("usage"))), tuple(losses)
    )


# --- Chat → Messages


class _Calls:
    """Reads the arguments of calls, and makes ids for calls without one, as the oldest form has them."""

    def __init__(self, arguments: fields.ReadArguments = fields.read_arguments) -> None:
        self.arguments = arguments
        self._made = 0

    def new_id(self) -> str:
        """The id of a call that has none."""
        self._made += 1
        return self.newest_id()

    def newest_id(self) -> str:
        """The id that a result without one answers."""
        return f"call-{self._made}"


def _message(message: dict[str, Any], place: Place, calls: _Calls) -> dict[str, Any] | None:
    match message.get("role"):
        case "user":
            place.drop_except(message, "role", "content")
            return {"role": "user", "content": list(fields.content_blocks(message.get("content"), place.at("content")))}
        case "assistant":
            return {"role": "assistant", "content": list(_assistant(message, place, calls))}
        case "tool" | "function" as role:
            return {"role": "user", "content": [_result(message, place, role, calls)]}
        case "system" | "developer":
            return {"role": "system", "content": _texts(message, place)}
    place.drop()
    return None


def _texts(message: dict[str, Any], place: Place) -> list[dict[str, Any]]:
    """The texts of instructions."""
    place.drop_except(message, "role", "content")
    if message.get("role") == "developer":
        place.at("role").change("system")
    return list(fields.texts(message.get("content"), place.at("content")))


def _result(message: dict[str, Any], place: Place, role: str, calls: _Calls) -> dict[str, Any]:
    if role == "function":
        place.at("role").change("tool")
        place.drop_except(message, "role", "name", "content")
        call = calls.newest_id()
    else:
        place.drop_except(message, "role", "tool_call_id", "content")
        call = text_in(message, "tool_call_id") or calls.newest_id()
    blocks = list(fields.content_blocks(message.get("content"), place.at("content")))
    return {"type": "tool_result", "tool_use_id": call, "content": blocks}


def _assistant(message: dict[str, Any], place: Place, calls: _Calls) -> Iterator[dict[str, Any]]:
    place.drop_except(message, "role", "content", "refusal", "tool_calls", "function_call", *chat_writer.REASONING)
    for field in chat_writer.REASONING:
        match message.get(field):
            case str(value) if value:
                yield {"type": "thinking", "thinking": value, "signature": fields.CHAT_SIGNATURE + field}
            case None | "":
                pass
            case _:
                place.at(field).drop()
    yield from fields.texts(message.get("content"), place.at("content"))
    if isinstance(refusal := message.get("refusal"), str) and refusal:
        place.at("refusal").change("text")
        yield elements.text(refusal)
    for number, call in fields.objects(message, "tool_calls", place):
        yield from _call(call, place.at("tool_calls", number), calls)
    match message.get("function_call"):
        case {"name": str(name), **inner}:
            place.at("function_call").change("a call with an id")
            arguments, at = inner.get("arguments", ""), place.at("function_call", "arguments")
            yield fields.call(name, calls.new_id(), arguments, at, calls.arguments)
        case None:
            pass
        case _:
            place.at("function_call").drop()


def _call(call: dict[str, Any], place: Place, calls: _Calls) -> Iterator[dict[str, Any]]:
    call_id = text_in(call, "id")
    match call:
        case {"function": {"name": str(name), **inner}}:
            place.drop_except(call, "id", "type", "function")
            place.at("function").drop_except(inner, "arguments")
            arguments, at = inner.get("arguments", ""), place.at("function", "arguments")
        case {"custom": {"name": str(name), **inner}}:
            place.change("a function's call")
            arguments, at = inner.get("input", ""), place.at("custom", "input")
        case _:
            place.drop()
            return
    if not call_id:
        place.at("id").change("an id of ours")
    yield fields.call(name, call_id or calls.new_id(), arguments, at, calls.arguments)
