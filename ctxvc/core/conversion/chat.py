"""Requests of the Messages API ⇄ requests of OpenAI's Chat Completions, and replies of the latter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ctxvc.core.conversion import fields
from ctxvc.core.conversion.losses import Converted, Loss, Place
from ctxvc.core.prompt import formats
from ctxvc.core.prompt import openai_elements as elements

#: Fields of a message in which servers send a model's reasoning, and take it back.
_REASONING = ("reasoning_content", "reasoning")
_ORDER = {"thinking": 0, "text": 1, "tool_use": 2}
_STOPS = {"length": "max_tokens", "content_filter": "refusal", "tool_calls": "tool_use", "function_call": "tool_use"}


def to_chat(request: Mapping[str, Any]) -> Converted:
    """The arguments of `client.chat.completions.create` for those of `client.messages.create`.

    Results become messages of role `tool`, before what else their message has; pictures in them follow with it, since a
    tool's message takes text only. Reasoning goes back to a server that sent it in a field of its messages.
    Raises: BadInput.
    """
    fields.check(request, "messages")
    losses: list[Loss] = []
    top = Place(losses)
    messages = list(_system(request.get("system"), top.at("system")))
    for number, message in fields.objects(request, "messages", top):
        messages += _messages(message, top.at("messages", number))
    value: dict[str, Any] = {
        **{name: request[name] for name in fields.SAME if request.get(name) is not None},
        "messages": messages,
    }
    functions = []
    for number, tool in fields.objects(request, "tools", top):
        place = top.at("tools", number)
        if (function := elements.function(tool)) is None:
            place.drop()
        else:
            place.drop_except(tool, "name", "description", "strict", "input_schema", "type", "function", "custom")
            functions.append(function)
    if functions:
        value["tools"] = functions
    wish, parallel = fields.tool_choice(request.get("tool_choice"), top.at("tool_choice"))
    if wish:
        value["tool_choice"] = {"type": "function", "function": {"name": wish[1:]}} if wish.startswith("=") else wish
    if not parallel:
        value["parallel_tool_calls"] = False
    if request.get("max_tokens") is not None:
        value["max_completion_tokens"] = request["max_tokens"]
    if stops := fields.stop_sequences(request.get("stop_sequences")):
        value["stop"] = stops
    if effort := fields.effort(request.get("output_config"), top.at("output_config")):
        value["reasoning_effort"] = effort
    top.drop_except(
        request,
        *fields.SAME,
        "system",
        "messages",
        "tools",
        "tool_choice",
        "max_tokens",
        "stop_sequences",
        "output_config",
    )
    return Converted(value, tuple(losses))


def from_chat(request: Mapping[str, Any]) -> Converted:
    """The arguments of `client.messages.create` for those of `client.chat.completions.create`.

    The instructions at the beginning become `system`, neighbours of one role one message. Raises: BadInput.
    """
    fields.check(request, "messages")
    losses: list[Loss] = []
    top = Place(losses)
    messages = [(message, top.at("messages", number)) for number, message in fields.objects(request, "messages", top)]
    count = next((at for at, (message, _) in enumerate(messages) if not _instructs(message)), len(messages))
    system = [block for message, place in messages[:count] for block in _texts(message, place)]
    calls = _Calls()
    converted = [item for message, place in messages[count:] if (item := _message(message, place, calls))]
    value: dict[str, Any] = {name: request[name] for name in fields.SAME if request.get(name) is not None}
    if system:
        value["system"] = system[0]["text"] if len(system) == 1 else system
    value["messages"] = formats.normalise_anthropic(converted)
    tools = []
    for number, function in fields.objects(request, "tools", top):
        tool = elements.tool(function)
        if tool is function:
            top.at("tools", number).drop()
        else:
            tools.append(tool)
    if tools:
        value["tools"] = tools
    if choice := fields.from_choice(
        request.get("tool_choice"), request.get("parallel_tool_calls"), top.at("tool_choice")
    ):
        value["tool_choice"] = choice
    limit = next((request[name] for name in ("max_completion_tokens", "max_tokens") if request.get(name)), None)
    if limit is not None:
        value["max_tokens"] = limit
    if stops := fields.stop_sequences(request.get("stop")):
        value["stop_sequences"] = stops
    if isinstance(effort := request.get("reasoning_effort"), str):
        value["output_config"] = {"effort": effort}
    top.drop_except(
        request,
        *fields.SAME,
        "messages",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "max_completion_tokens",
        "max_tokens",
        "stop",
        "reasoning_effort",
    )
    return Converted(value, tuple(losses))


def chat_reply(completion: Mapping[str, Any], arguments: fields.ReadArguments = fields.read_arguments) -> Converted:
    """The message of the Messages API for a chat completion; `stop_reason` is None where it has no first choice.

    `arguments` reads those of a call, which are text there.
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
    stop = stop_reason(choice.get("finish_reason"), called=called) or None
    return Converted(fields.reply(completion, blocks, stop, usage(completion.get("usage"))), tuple(losses))


def stop_reason(finish: Any, *, called: bool) -> str:
    """The Messages API's word for a `finish_reason`; empty for none. `called` is whether the reply has calls."""
    if not isinstance(finish, str):
        return ""
    stop = _STOPS.get(finish, "tool_use" if called else "end_turn")
    return "end_turn" if stop == "tool_use" and not called else stop


def usage(reported: Any) -> dict[str, int]:
    """Token counts under the names of the Messages API, whose `input_tokens` exclude cached input; empty for none."""
    if not isinstance(reported, dict):
        return {}
    details = reported.get("prompt_tokens_details")
    return fields.usage(
        reported.get("prompt_tokens"),
        details.get("cached_tokens") if isinstance(details, dict) else 0,
        reported.get("cache_creation_input_tokens"),
        reported.get("completion_tokens"),
    )


# --- Messages → Chat


def _system(system: Any, place: Place) -> Iterator[dict[str, Any]]:
    texts = []
    for block, block_place in fields.blocks(system, place):
        match block:
            case {"type": "text", "text": str(value)}:
                block_place.drop_except(block, "type", "text")
                texts += [fields.text(value)] if value else []
            case _:
                block_place.drop()
    if texts:
        yield {"role": "system", "content": _shortest(texts)}


def _messages(message: dict[str, Any], place: Place) -> Iterator[dict[str, Any]]:
    place.drop_except(message, "role", "content")
    content = message.get("content")
    match message.get("role"):
        case "user":
            blocks = list(fields.blocks(content, place.at("content")))
            pictures: list[dict[str, Any]] = []
            for block, block_place in blocks:
                if block.get("type") == "tool_result":
                    yield from _tool_message(block, block_place, pictures)
            parts = [
                part
                for block, block_place in blocks
                if block.get("type") != "tool_result"
                for part in _parts(block, block_place)
            ]
            if parts or pictures:
                yield {"role": "user", "content": _shortest([*pictures, *parts])}
        case "assistant":
            yield from _assistant_message(list(fields.blocks(content, place.at("content"))), place)
        case "system":
            yield from _system(content, place.at("content"))
        case _:
            place.drop()


def _tool_message(block: dict[str, Any], place: Place, pictures: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """A result without its pictures, which are added to `pictures`."""
    call = block.get("tool_use_id")
    if not isinstance(call, str):
        place.drop()
        return
    place.drop_except(block, "type", "tool_use_id", "content", "is_error")
    if block.get("is_error"):
        place.at("is_error").drop()
    texts = []
    for item, item_place in fields.blocks(block.get("content"), place.at("content")):
        parts = list(_parts(item, item_place))
        texts += [part for part in parts if part["type"] == "text" and part["text"]]
        if behind_results := [part for part in parts if part["type"] != "text"]:
            item_place.change("it follows in a message of the user")
            pictures += [fields.text(f"[from the result of {call}:]"), *behind_results]
    yield {"role": "tool", "tool_call_id": call, "content": _shortest(texts) if texts else ""}


def _parts(block: dict[str, Any], place: Place) -> Iterator[dict[str, Any]]:
    """The content part that a block of a user's message or of a result becomes, if there is one."""
    match block:
        case {"type": "text", "text": str(value)}:
            place.drop_except(block, "type", "text")
            if value:
                yield fields.text(value)
        case {"type": "image", "source": dict(source)} if (url := elements.image_url(source)) is not None:
            place.drop_except(block, "type", "source")
            yield {"type": "image_url", "image_url": {"url": url}}
        case {"type": "document", "source": {"type": "base64", "media_type": str(), "data": str()} as source}:
            place.drop_except(block, "type", "source", "title")
            title = block.get("title")
            name = title if isinstance(title, str) and title else fields.FILE_NAME
            yield {"type": "file", "file": {"filename": name, "file_data": elements.image_url(source)}}
        case {"type": "document", "source": {"type": "text", "data": str(value)}} if value:
            place.change("text")
            yield fields.text(value)
        case _:
            place.drop()


def _assistant_message(blocks: Sequence[tuple[dict[str, Any], Place]], place: Place) -> Iterator[dict[str, Any]]:
    texts: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    reasoning: dict[str, str] = {}
    order: list[int] = []
    for block, block_place in blocks:
        match block:
            case {"type": "text", "text": str(value)}:
                block_place.drop_except(block, "type", "text")
                texts += [fields.text(value)] if value else []
            case {"type": "tool_use", "id": str(call), "name": str(name)}:
                block_place.drop_except(block, "type", "id", "name", "input")
                function = {"name": name, "arguments": fields.call_arguments(block)}
                calls.append({"id": call, "type": "function", "function": function})
            case {"type": "thinking", "thinking": str(value), "signature": str(signature)} if (
                field := signature.removeprefix(fields.CHAT_SIGNATURE)
            ) in _REASONING and signature != field:
                if field in reasoning:
                    block_place.change("a part of the reasoning before it")
                    value = f"{reasoning[field]}\n\n{value}"
                reasoning[field] = value
            case _:
                block_place.drop()
                continue
        order.append(_ORDER[block["type"]])
    if order != sorted(order):
        place.at("content").change("reasoning, then text, then calls")
    if texts or calls or reasoning:
        content: dict[str, Any] = {"content": _shortest(texts) if texts else None if calls else ""}
        yield {"role": "assistant", **reasoning, **content, **({"tool_calls": calls} if calls else {})}


def _shortest(parts: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Content of one text as that text: not all servers take a list."""
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts


# --- Chat → Messages


class _Calls:
    """How calls are read: their arguments, and ids for those that have none, as in the oldest form."""

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


def _instructs(message: dict[str, Any]) -> bool:
    return message.get("role") in ("system", "developer")


def _message(message: dict[str, Any], place: Place, calls: _Calls) -> dict[str, Any] | None:
    match message.get("role"):
        case "user":
            place.drop_except(message, "role", "content")
            content = fields.blocks(message.get("content"), place.at("content"))
            return {"role": "user", "content": [block for part, at in content for block in _block(part, at)]}
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
    texts = []
    for part, part_place in fields.blocks(message.get("content"), place.at("content")):
        texts += [block for block in _block(part, part_place) if block["type"] == "text"]
    return texts


def _block(part: dict[str, Any], place: Place) -> Iterator[dict[str, Any]]:
    match part:
        case {"type": "text", "text": str(value)}:
            place.drop_except(part, "type", "text")
            if value:
                yield fields.text(value)
        case {"type": "refusal", "refusal": str(value)} if value:
            place.change("text")
            yield fields.text(value)
        case {"type": "image_url", "image_url": {"url": str(url)} as picture}:
            place.drop_except(part, "type", "image_url")
            place.at("image_url").drop_except(picture, "url")
            yield elements.image(url)
        case {"type": "file", "file": {"file_data": str(url)} as file} if document := fields.document(url, file):
            place.at("file").drop_except(file, "file_data", "filename")
            yield document
        case _:
            place.drop()


def _result(message: dict[str, Any], place: Place, role: str, calls: _Calls) -> dict[str, Any]:
    if role == "function":
        place.at("role").change("tool")
        place.drop_except(message, "role", "name", "content")
        call = calls.newest_id()
    else:
        place.drop_except(message, "role", "tool_call_id", "content")
        call = fields.string(message.get("tool_call_id")) or calls.newest_id()
    content = fields.blocks(message.get("content"), place.at("content"))
    blocks = [block for part, at in content for block in _block(part, at)]
    return {"type": "tool_result", "tool_use_id": call, "content": blocks}


def _assistant(message: dict[str, Any], place: Place, calls: _Calls) -> Iterator[dict[str, Any]]:
    place.drop_except(message, "role", "content", "refusal", "tool_calls", "function_call", *_REASONING)
    for field in _REASONING:
        match message.get(field):
            case str(value) if value:
                yield {"type": "thinking", "thinking": value, "signature": fields.CHAT_SIGNATURE + field}
            case None | "":
                pass
            case _:
                place.at(field).drop()
    for part, part_place in fields.blocks(message.get("content"), place.at("content")):
        yield from (block for block in _block(part, part_place) if block["type"] == "text")
    if isinstance(refusal := message.get("refusal"), str) and refusal:
        place.at("refusal").change("text")
        yield fields.text(refusal)
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
    call_id = fields.string(call.get("id"))
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
