"""Requests of the Messages API ⇄ requests of OpenAI's Responses API, and replies of the latter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ctxvc.core import display
from ctxvc.core.conversion import fields
from ctxvc.core.conversion.losses import Converted, Loss, Place
from ctxvc.core.ledger import wire
from ctxvc.core.prompt import formats
from ctxvc.core.prompt import openai_elements as elements

#: Where a call keeps its arguments, by the type of its item, and the type of its result.
_CALLS = {
    "function_call": ("arguments", "function_call_output"),
    "custom_tool_call": ("input", "custom_tool_call_output"),
}
_OUTPUTS = {output: kind for kind, (_, output) in _CALLS.items()}
_CUT_SHORT = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}


def to_responses(request: Mapping[str, Any]) -> Converted:
    """The arguments of `client.responses.create` for those of `client.messages.create`.

    Reasoning goes back as the item that it came in; that of another provider is lost. Raises: BadInput.
    """
    fields.check(request, "messages")
    losses: list[Loss] = []
    top = Place(losses)
    value: dict[str, Any] = {name: request[name] for name in fields.SAME if request.get(name) is not None}
    system = list(_texts(request.get("system"), top.at("system"), "input_text"))
    if system:
        value["instructions"] = system[0]["text"]
    items = [_message("developer", [part]) for part in system[1:]]
    for number, message in fields.objects(request, "messages", top):
        items += _items(message, top.at("messages", number))
    value["input"] = items
    tools = []
    for number, tool in fields.objects(request, "tools", top):
        place = top.at("tools", number)
        function = elements.function(tool) if "input_schema" in tool else None
        if function is None:
            place.drop()
        else:
            place.drop_except(tool, "name", "description", "strict", "input_schema", "type")
            tools.append({"type": "function", "strict": False, **function["function"]})
    if tools:
        value["tools"] = tools
    wish, parallel = fields.tool_choice(request.get("tool_choice"), top.at("tool_choice"))
    if wish:
        value["tool_choice"] = {"type": "function", "name": wish[1:]} if wish.startswith("=") else wish
    if not parallel:
        value["parallel_tool_calls"] = False
    if request.get("max_tokens") is not None:
        value["max_output_tokens"] = request["max_tokens"]
    if effort := fields.effort(request.get("output_config"), top.at("output_config")):
        value["reasoning"] = {"effort": effort}
    top.drop_except(request, *fields.SAME, "system", "messages", "tools", "tool_choice", "max_tokens", "output_config")
    return Converted(value, tuple(losses))


def from_responses(request: Mapping[str, Any]) -> Converted:
    """The arguments of `client.messages.create` for those of `client.responses.create`.

    What the server keeps of the conversation itself, as for `previous_response_id`, is lost. Raises: BadInput.
    """
    if isinstance(request, Mapping) and isinstance(question := request.get("input"), str):
        request = {**request, "input": [{"type": "message", "role": "user", "content": question}]}
    fields.check(request, "input")
    losses: list[Loss] = []
    top = Place(losses)
    items = [(item, top.at("input", number)) for number, item in fields.objects(request, "input", top)]
    count = next((at for at, (item, _) in enumerate(items) if not _instructs(item)), len(items))
    system = list(_texts(request.get("instructions"), top.at("instructions"), "text"))
    for item, place in items[:count]:
        system += _instructions(item, place)
    value: dict[str, Any] = {name: request[name] for name in fields.SAME if request.get(name) is not None}
    if system:
        value["system"] = system[0]["text"] if len(system) == 1 else system
    value["messages"] = _messages(items[count:])
    tools = []
    for number, tool in fields.objects(request, "tools", top):
        match tool:
            case {"type": "function", "name": str(), **definition}:
                definition = {key: field for key, field in definition.items() if key != "strict" or field}
                tools.append(elements.tool({"type": "function", "function": definition | {"name": tool["name"]}}))
            case _:
                top.at("tools", number).drop()
    if tools:
        value["tools"] = tools
    if choice := fields.from_choice(
        request.get("tool_choice"), request.get("parallel_tool_calls"), top.at("tool_choice")
    ):
        value["tool_choice"] = choice
    if request.get("max_output_tokens") is not None:
        value["max_tokens"] = request["max_output_tokens"]
    if effort := fields.effort(request.get("reasoning"), top.at("reasoning")):
        value["output_config"] = {"effort": effort}
    top.drop_except(
        request,
        *fields.SAME,
        "instructions",
        "input",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "max_output_tokens",
        "reasoning",
    )
    return Converted(value, tuple(losses))


def responses_reply(response: Mapping[str, Any], arguments: fields.ReadArguments = fields.read_arguments) -> Converted:
    """The message of the Messages API for a response; `stop_reason` is None for one that did not come to its end.

    `arguments` reads those of a call, which are text there.
    """
    losses: list[Loss] = []
    top = Place(losses)
    items = ((item, top.at("output", number)) for number, item in fields.objects(response, "output", top))
    content = _messages(items, marks=("id", "status"), arguments=arguments)
    blocks = [block for message in content for block in message["content"]]
    stop = stop_reason(response, called=any(block["type"] == "tool_use" for block in blocks)) or None
    return Converted(fields.reply(response, blocks, stop, usage(response.get("usage"))), tuple(losses))


def stop_reason(response: Mapping[str, Any], *, called: bool) -> str:
    """The Messages API's word for a response's end; empty if it has none. `called` is whether the reply has calls."""
    details = response.get("incomplete_details")
    reason = fields.string(details.get("reason")) if isinstance(details, dict) else ""
    match response.get("status"):
        case "completed":
            return "tool_use" if called else "end_turn"
        case "incomplete":
            return _CUT_SHORT.get(reason, "max_tokens")
    return ""


def usage(reported: Any) -> dict[str, int]:
    """Token counts under the names of the Messages API; empty for none."""
    if not isinstance(reported, dict):
        return {}
    details = reported.get("input_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else 0
    return fields.usage(reported.get("input_tokens"), cached, 0, reported.get("output_tokens"))


# --- Messages → Responses


def _message(role: str, content: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content}


def _texts(content: Any, place: Place, kind: str) -> Iterator[dict[str, Any]]:
    """The texts of instructions, as parts of that type."""
    for block, block_place in fields.blocks(content, place):
        match block:
            case {"type": "text", "text": str(value)}:
                block_place.drop_except(block, "type", "text")
                if value:
                    yield {"type": kind, "text": value}
            case _:
                block_place.drop()


def _items(message: dict[str, Any], place: Place) -> Iterator[dict[str, Any]]:
    place.drop_except(message, "role", "content")
    content = message.get("content")
    match message.get("role"):
        case "user":
            blocks = list(fields.blocks(content, place.at("content")))
            yield from (item for block, at in blocks for item in _output(block, at))
            parts = [part for block, at in blocks if block.get("type") != "tool_result" for part in _parts(block, at)]
            if parts:
                yield _message("user", parts)
        case "assistant":
            yield from _assistant_items(list(fields.blocks(content, place.at("content"))))
        case "system":
            if parts := list(_texts(content, place.at("content"), "input_text")):
                yield _message("developer", parts)
        case _:
            place.drop()


def _output(block: dict[str, Any], place: Place) -> Iterator[dict[str, Any]]:
    """The item of a result; none for any other block."""
    if block.get("type") != "tool_result":
        return
    call = block.get("tool_use_id")
    if not isinstance(call, str):
        place.drop()
        return
    place.drop_except(block, "type", "tool_use_id", "content", "is_error")
    if block.get("is_error"):
        place.at("is_error").drop()
    content = fields.blocks(block.get("content"), place.at("content"))
    parts = [part for item, at in content for part in _parts(item, at)]
    plain = len(parts) == 1 and parts[0]["type"] == "input_text"
    output = parts[0]["text"] if plain else parts or ""
    yield {"type": "function_call_output", "call_id": call, "output": output}


def _parts(block: dict[str, Any], place: Place) -> Iterator[dict[str, Any]]:
    match block:
        case {"type": "text", "text": str(value)}:
            place.drop_except(block, "type", "text")
            if value:
                yield {"type": "input_text", "text": value}
        case {"type": "image", "source": dict(source)} if (url := elements.image_url(source)) is not None:
            place.drop_except(block, "type", "source")
            yield {"type": "input_image", "image_url": url, "detail": "auto"}
        case {"type": "document", "source": {"type": "base64", "media_type": str(), "data": str()} as source}:
            place.drop_except(block, "type", "source", "title")
            name = fields.string(block.get("title")) or fields.FILE_NAME
            yield {"type": "input_file", "filename": name, "file_data": elements.image_url(source)}
        case {"type": "document", "source": {"type": "text", "data": str(value)}} if value:
            place.change("text")
            yield {"type": "input_text", "text": value}
        case _:
            place.drop()


def _assistant_items(blocks: Sequence[tuple[dict[str, Any], Place]]) -> Iterator[dict[str, Any]]:
    texts: list[dict[str, Any]] = []
    for block, place in blocks:
        match block:
            case {"type": "text", "text": str(value)}:
                place.drop_except(block, "type", "text")
                texts += [{"type": "output_text", "text": value}] if value else []
                continue
            case {"type": "tool_use", "id": str(call), "name": str(name)}:
                place.drop_except(block, "type", "id", "name", "input")
                item: dict[str, Any] | None = {
                    "type": "function_call",
                    "call_id": call,
                    "name": name,
                    "arguments": fields.call_arguments(block),
                }
            case {"type": "thinking", "thinking": str(value), "signature": str(signature)}:
                item = reasoning_item(value, signature)
            case _:
                item = None
        if item is None:
            place.drop()
            continue
        if texts:
            yield _message("assistant", texts)
            texts = []
        yield item
    if texts:
        yield _message("assistant", texts)


def reasoning_item(text: str, signature: str) -> dict[str, Any] | None:
    """The item that a block of thinking came in (`_thinking`); None for another's, or one that was changed."""
    written = signature.removeprefix(fields.RESPONSES_SIGNATURE)
    item = wire.parsed(display.encode(written), dict) if written != signature else None
    if item is None or item.get("type") != "reasoning":
        return None
    start = 0
    for name in ("summary", "content"):
        filled = []
        for part in item.get(name) or ():
            size = part.get("text") if isinstance(part, dict) else None
            if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= len(text) - start:
                return None
            filled.append({**part, "text": text[start : start + size]})
            start += size + len(_BETWEEN)
        if name in item:
            item[name] = filled
    return item if start in (0, len(text) + len(_BETWEEN)) else None


# --- Responses → Messages

#: Stands between the parts of one item's reasoning.
_BETWEEN = "\n\n"


def _messages(
    items: Iterable[tuple[dict[str, Any], Place]],
    *,
    marks: Sequence[str] = (),
    arguments: fields.ReadArguments = fields.read_arguments,
) -> list[dict[str, Any]]:
    """The messages of the items, in the normal form. `marks` are fields of an item that are not missed."""
    return formats.normalise_anthropic(
        {"role": role, "content": blocks}
        for item, place in items
        for role, blocks in [_converted(item, place, marks, arguments)]
        if role
    )


def _instructs(item: dict[str, Any]) -> bool:
    return item.get("type", "message") == "message" and item.get("role") in ("system", "developer")


def _instructions(item: dict[str, Any], place: Place) -> list[dict[str, Any]]:
    place.drop_except(item, "type", "role", "content")
    return [block for block in _content(item, place) if block["type"] == "text"]


def _converted(
    item: dict[str, Any], place: Place, marks: Sequence[str], arguments: fields.ReadArguments
) -> tuple[str, list[dict[str, Any]]]:
    """The role and blocks of an item; no role for one that has no place."""
    kind = item.get("type", "message")
    match item:
        case {"role": "user" | "assistant" as role} if kind == "message":
            place.drop_except(item, "type", "role", "content", *marks)
            return role, list(_content(item, place))
        case {"role": "system" | "developer"} if kind == "message":
            return "system", _instructions(item, place)
        case {"type": "reasoning"} if block := _thinking(item):
            return "assistant", [block]
        case {"type": "function_call" | "custom_tool_call", "call_id": str(call), "name": str(name)}:
            field, _ = _CALLS[kind]
            place.drop_except(item, "type", "call_id", "name", field, *marks)
            if kind != "function_call":
                place.at("type").change("function_call")
            return "assistant", [fields.call(name, call, item.get(field, ""), place.at(field), arguments)]
        case {"type": "function_call_output" | "custom_tool_call_output", "call_id": str(call)}:
            place.drop_except(item, "type", "call_id", "output", *marks)
            if _OUTPUTS[kind] != "function_call":
                place.at("type").change("function_call_output")
            content = fields.blocks(item.get("output"), place.at("output"))
            blocks = [block for part, at in content for block in _block(part, at)]
            return "user", [{"type": "tool_result", "tool_use_id": call, "content": blocks}]
    place.drop()
    return "", []


def _content(item: dict[str, Any], place: Place) -> Iterator[dict[str, Any]]:
    for part, part_place in fields.blocks(item.get("content"), place.at("content")):
        yield from _block(part, part_place)


def _block(part: dict[str, Any], place: Place) -> Iterator[dict[str, Any]]:
    match part:
        case {"type": "input_text" | "output_text" | "text", "text": str(value)}:
            place.drop_except(part, "type", "text")
            if value:
                yield fields.text(value)
        case {"type": "refusal", "refusal": str(value)} if value:
            place.change("text")
            yield fields.text(value)
        case {"type": "input_image", "image_url": str(url)}:
            detail = () if part.get("detail") != "auto" else ("detail",)
            place.drop_except(part, "type", "image_url", *detail)
            yield elements.image(url)
        case {"type": "input_file", "file_data": str(url)} if document := fields.document(url, part):
            place.drop_except(part, "type", "file_data", "filename")
            yield document
        case _:
            place.drop()


def _thinking(item: dict[str, Any]) -> dict[str, Any] | None:
    """Reasoning as thinking, whose signature is the item with the size of each text in its place."""
    texts: list[str] = []
    unfilled = dict(item)
    for name in ("summary", "content"):
        if name not in item or item[name] is None:
            continue
        if not isinstance(item[name], list):
            return None
        parts = []
        for part in item[name]:
            if not isinstance(part, dict) or not isinstance(part.get("text"), str):
                return None
            texts.append(part["text"])
            parts.append({**part, "text": len(part["text"])})
        unfilled[name] = parts
    signature = fields.RESPONSES_SIGNATURE + wire.compact(unfilled).decode()
    return {"type": "thinking", "thinking": _BETWEEN.join(texts), "signature": signature}
