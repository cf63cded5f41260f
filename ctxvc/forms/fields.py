"""The fields of a Messages API request: what the conversions to and from OpenAI's two forms share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ctxvc.core import display
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Role
from ctxvc.core.prompt import formats
from ctxvc.core.prompt.outline import Piece
from ctxvc.errors import BadInput
from ctxvc.forms import elements
from ctxvc.forms.elements import text
from ctxvc.forms.losses import Place
from ctxvc.forms.values import text_in

#: Fields with the same name and meaning in all forms.
SAME = ("model", "temperature", "top_p", "stream")
#: Fields of OpenAI's forms that have a counterpart in the Messages API, and the reverse.
TAKEN_FROM_OPENAI = (*SAME, "tools", "tool_choice", "parallel_tool_calls")
TAKEN = (*SAME, "system", "messages", "tools", "tool_choice", "max_tokens", "output_config")

#: The beginnings of the signature of a thinking block with reasoning from a server of OpenAI's forms. No other provider
#: takes it back.
CHAT_SIGNATURE = "openai.chat:"
RESPONSES_SIGNATURE = "openai.responses:"


def without_foreign(messages: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The messages without reasoning from servers of OpenAI's forms, which the Messages API does not take."""
    return [own for message in messages if (own := _without_foreign(message))["content"]]


def _without_foreign(message: Mapping[str, Any]) -> Mapping[str, Any]:
    content = message["content"]
    if isinstance(content, str) or not any(map(_is_foreign, content)):
        return message
    return {**message, "content": [block for block in content if not _is_foreign(block)]}


def _is_foreign(block: Mapping[str, Any]) -> bool:
    signature = block.get("signature")
    return isinstance(signature, str) and signature.startswith((CHAT_SIGNATURE, RESPONSES_SIGNATURE))


def check(request: object, conversation: str) -> None:
    """Raises: BadInput if this is no request with a list `conversation`."""
    if not isinstance(request, Mapping) or not isinstance(request.get(conversation), list):
        raise BadInput(
            f"not a request: {conversation} is no list", hint="pass the arguments of a call, as the client takes them"
        )


def blocks(content: Any, place: Place) -> Iterator[tuple[dict[str, Any], Place]]:
    """The blocks of a content, each with its place; a string is one text block."""
    if isinstance(content, str):
        yield {"type": "text", "text": content}, place
    elif isinstance(content, list):
        for number, block in enumerate(content):
            if isinstance(block, str):
                yield {"type": "text", "text": block}, place.at(number)
            elif isinstance(block, dict):
                yield block, place.at(number)
            else:
                place.at(number).drop()
    elif content is not None:
        place.drop()


_TEXTS = ("user", "assistant", "system")
#: The kinds of parts that the messages of a role have.
_KINDS: Mapping[Role, Collection[str]] = {
    "user": ("user", "tool_result", "image", "document"),
    "assistant": ("assistant", "thinking", "tool_use"),
    "system": ("system",),
}


def prompt_of(request: Mapping[str, Any], top: Place) -> formats.Prompt:
    """The prompt in a request of the Messages API, without empty texts; the `block` of a piece is its path there.

    A part that a message of its role cannot have is lost.
    """
    system = []
    for block, place in blocks(request.get("system"), top.at("system")):
        match block:
            case {"type": "text", "text": str(value)}:
                place.drop_except(block, "type", "text")
                system += [text(value)] if value else []
            case _:
                place.drop()
    pieces: list[Piece] = []
    for number, message in objects(request, "messages", top):
        place = top.at("messages", number)
        place.drop_except(message, "role", "content")
        match message.get("role"):
            case "user" | "assistant" | "system" as role:
                pieces += _pieces(number, role, message.get("content"), place.at("content"))
            case _:
                place.drop()
    tools = request.get("tools")
    if tools is not None and not isinstance(tools, list):
        top.at("tools").drop()
    definitions = [tool if isinstance(tool, dict) else {} for tool in tools] if isinstance(tools, list) else []
    return formats.Prompt(pieces=pieces, system=system, tools=definitions)


def _pieces(number: int, role: Role, content: Any, place: Place) -> Iterator[Piece]:
    """The pieces of a message, results first."""
    for block, at in sorted(blocks(content, place), key=lambda item: formats.is_no_result(item[0])):
        part = wire.part(block, role, "client")
        if part.kind not in _KINDS[role]:
            at.drop()
        elif not part.body and part.kind in _TEXTS:
            at.drop_except(block, "type", "text")
        else:
            yield Piece(
                message=number,
                role=role,
                kind=part.kind,
                body=part.body,
                ext=part.ext,
                call=part.call,
                tool=part.tool,
                error=part.error,
                extra=part.extra,
                files=dict(part.files),
                block=at.path,
            )


def settings(request: Mapping[str, Any], top: Place, *, limit: str, function: str) -> dict[str, Any]:
    """The settings of a Messages API request in the fields that OpenAI's two forms share.

    `limit` is the form's name for `max_tokens`. `function` names the object around the name of a forced tool; empty for
    none.
    """
    value = {name: request[name] for name in SAME if request.get(name) is not None}
    match choice := request.get("tool_choice"):
        case {"type": "auto" | "none" as wish}:
            value["tool_choice"] = wish
        case {"type": "any"}:
            value["tool_choice"] = "required"
        case {"type": "tool", "name": str(name)}:
            tool = {"name": name}
            value["tool_choice"] = {"type": "function", **({function: tool} if function else tool)}
        case _ if choice is not None:
            top.at("tool_choice").drop()
    if isinstance(choice, dict) and choice.get("disable_parallel_tool_use") is True:
        value["parallel_tool_calls"] = False
    if request.get("max_tokens") is not None:
        value[limit] = request["max_tokens"]
    return value


def from_settings(
    request: Mapping[str, Any],
    top: Place,
    *limits: str,
    system: Sequence[dict[str, Any]],
    tool: Callable[[dict[str, Any]], dict[str, Any]],
) -> dict[str, Any]:
    """The settings, `system` and tools for the Messages API from a request in either of OpenAI's forms.

    `limits` are the form's names for `max_tokens`: the first one set counts. `tool` converts a definition.
    """
    value = {name: request[name] for name in SAME if request.get(name) is not None}
    choice: dict[str, Any] = {}
    match request.get("tool_choice"):
        case None:
            pass
        case "auto" | "none" as wish:
            choice = {"type": wish}
        case "required":
            choice = {"type": "any"}
        case {"type": "function", "function": {"name": str(name)}} | {"type": "function", "name": str(name)}:
            choice = {"type": "tool", "name": name}
        case _:
            top.at("tool_choice").drop()
    if request.get("parallel_tool_calls") is False and choice.get("type") != "none":
        choice = {"type": "auto", **choice, "disable_parallel_tool_use": True}
    if choice:
        value["tool_choice"] = choice
    if limit := next((request[name] for name in limits if request.get(name)), None):
        value["max_tokens"] = limit
    if system:
        value["system"] = system[0]["text"] if len(system) == 1 else system
    for number, definition in objects(request, "tools", top):
        if "input_schema" in definition or "input_schema" not in (converted := tool(definition)):
            top.at("tools", number).drop()
        else:
            value.setdefault("tools", []).append(converted)
    return value


def objects(request: Mapping[str, Any], name: str, place: Place) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects in a list of the request, each with its index; other values are lost."""
    values = request.get(name)
    if not isinstance(values, list):
        if values is not None:
            place.at(name).drop()
        return
    for number, value in enumerate(values):
        if isinstance(value, dict):
            yield number, value
        else:
            place.at(name, number).drop()


def reply(
    source: Mapping[str, Any], content: list[dict[str, Any]], stop: str | None, counts: Mapping[str, int]
) -> dict[str, Any]:
    """A message of the Messages API with this content, and with the id and model of `source`."""
    return {
        "id": text_in(source, "id"),
        "type": "message",
        "role": "assistant",
        "model": text_in(source, "model"),
        "content": content,
        "stop_reason": stop,
        "usage": counts,
    }


#: Makes a call's `input` from the text of its arguments.
ReadArguments = Callable[[str], Any]


def read_arguments(text: str) -> dict[str, Any]:
    """The JSON object in a call's arguments; any other text as an object with it under `arguments`."""
    body = display.encode(text)
    return wire.arguments(body, "txt" if wire.parsed(body, dict) is None else "json")


def call(
    name: str, call_id: str, arguments: Any, place: Place, to_input: ReadArguments = read_arguments
) -> dict[str, Any]:
    """The Messages API's `tool_use` block."""
    text = arguments if isinstance(arguments, str) else wire.compact(arguments).decode()
    if text and wire.parsed(display.encode(text), dict) is None:
        place.change("an object with the text under `arguments`")
    return {"type": "tool_use", "id": call_id, "name": name, "input": to_input(text)}


def stop_sequences(value: Any) -> list[str]:
    sequences = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return [sequence for sequence in sequences if isinstance(sequence, str)]


def effort(config: Any, place: Place) -> str:
    """The reasoning effort in a request's settings; empty if they name none."""
    if isinstance(config, dict) and isinstance(word := config.get("effort"), str):
        place.drop_except(config, "effort")
        return word
    if config is not None:
        place.drop()
    return ""


#: The name of a document without a title.
FILE_NAME = "document.pdf"


def content_blocks(content: Any, place: Place) -> Iterator[dict[str, Any]]:
    """The Messages API's blocks for the content of a message or result in either of OpenAI's forms."""
    for part, at in blocks(content, place):
        yield from _content_block(part, at)


def texts(content: Any, place: Place) -> Iterator[dict[str, Any]]:
    """The texts among the `content_blocks`."""
    return (block for block in content_blocks(content, place) if block["type"] == "text")


def _content_block(part: dict[str, Any], place: Place) -> Iterator[dict[str, Any]]:
    match part:
        case {"type": "text" | "input_text" | "output_text", "text": str(value)}:
            place.drop_except(part, "type", "text")
            yield from [text(value)] if value else []
        case {"type": "refusal", "refusal": str(value)} if value:
            place.change("text")
            yield text(value)
        case {"type": "image_url", "image_url": {"url": str(url)} as picture}:
            place.drop_except(part, "type", "image_url")
            place.at("image_url").drop_except(picture, "url")
            yield elements.image(url)
        case {"type": "input_image", "image_url": str(url)}:
            place.drop_except(part, "type", "image_url", *(["detail"] if part.get("detail") == "auto" else []))
            yield elements.image(url)
        case {"type": "file", "file": {"file_data": str(url)} as file} if document := _document(url, file):
            place.at("file").drop_except(file, "file_data", "filename")
            yield document
        case {"type": "input_file", "file_data": str(url)} if document := _document(url, part):
            place.drop_except(part, "type", "file_data", "filename")
            yield document
        case _:
            place.drop()


def _document(url: str, file: Mapping[str, Any]) -> dict[str, Any] | None:
    """The Messages API's document block for a file given in base64; None for any other file."""
    source = elements.image(url)["source"]
    if source["type"] != "base64":
        return None
    name = file.get("filename")
    title = {"title": name} if isinstance(name, str) and name not in ("", FILE_NAME) else {}
    return {"type": "document", "source": source, **title}
