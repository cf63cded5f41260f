"""The fields of a request of the Messages API, as a conversion takes them apart and puts them together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ctxvc.core import display
from ctxvc.core.conversion.losses import Place
from ctxvc.core.ledger import wire
from ctxvc.core.prompt import openai_elements as elements
from ctxvc.errors import BadInput

#: Fields that all forms of a request have under this name, and with this meaning.
SAME = ("model", "temperature", "top_p", "stream")

#: Whose reasoning a thinking block has that came from a server of OpenAI's forms: the signature begins with one of
#: these. No other provider takes it back.
CHAT_SIGNATURE = "openai.chat:"
RESPONSES_SIGNATURE = "openai.responses:"


def without_foreign(messages: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Messages of the Messages API without the reasoning of servers of OpenAI's forms, which it cannot take."""
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
    """Raises: BadInput for what is no request with such a conversation."""
    if not isinstance(request, Mapping) or not isinstance(request.get(conversation), list):
        raise BadInput(
            f"not a request: {conversation} is no list", hint="pass the arguments of a call, as the client takes them"
        )


def blocks(content: Any, place: Place) -> Iterator[tuple[dict[str, Any], Place]]:
    """The blocks of a message's or result's content, each with its place; a string is one block of text."""
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


def objects(request: Mapping[str, Any], name: str, place: Place) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects in a list of the request, each with its place in it; what is none is lost."""
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


def call_arguments(block: Mapping[str, Any]) -> str:
    """A call's arguments as the JSON text that OpenAI's forms have."""
    return wire.compact(block.get("input", {})).decode()


def reply(
    source: Mapping[str, Any], content: list[dict[str, Any]], stop: str | None, counts: Mapping[str, int]
) -> dict[str, Any]:
    """A message of the Messages API with this content, under the id and the model that `source` names."""
    return {
        "id": string(source.get("id")),
        "type": "message",
        "role": "assistant",
        "model": string(source.get("model")),
        "content": content,
        "stop_reason": stop,
        "usage": counts,
    }


#: What a call's arguments, as they were written, become in its `input`.
ReadArguments = Callable[[str], Any]


def read_arguments(text: str) -> dict[str, Any]:
    """The object in a call's arguments; what is no JSON object stands under `arguments`."""
    body = display.encode(text)
    return wire.arguments(body, "txt" if wire.parsed(body, dict) is None else "json")


def call(
    name: str, call_id: str, arguments: Any, place: Place, to_input: ReadArguments = read_arguments
) -> dict[str, Any]:
    """The call of the Messages API."""
    text = arguments if isinstance(arguments, str) else wire.compact(arguments).decode()
    if text and wire.parsed(display.encode(text), dict) is None:
        place.change("an object with the text under `arguments`")
    return {"type": "tool_use", "id": call_id, "name": name, "input": to_input(text)}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def stop_sequences(value: Any) -> list[str]:
    sequences = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return [sequence for sequence in sequences if isinstance(sequence, str)]


def effort(config: Any, place: Place) -> str:
    """The word in a request's settings for how hard the model is to think; empty where they do not say."""
    if isinstance(config, dict) and isinstance(word := config.get("effort"), str):
        place.drop_except(config, "effort")
        return word
    if config is not None:
        place.drop()
    return ""


def tool_choice(choice: Any, place: Place) -> tuple[str, bool]:
    """What a request of the Messages API wants called: `auto`, `required`, `none`, or the name of a tool after a `=`;
    and whether several calls in one reply are allowed."""
    if choice is None:
        return "", True
    match choice:
        case {"type": "auto"}:
            wish = "auto"
        case {"type": "any"}:
            wish = "required"
        case {"type": "none"}:
            wish = "none"
        case {"type": "tool", "name": str(name)}:
            wish = f"={name}"
        case _:
            place.drop()
            return "", True
    return wish, choice.get("disable_parallel_tool_use") is not True


def from_choice(choice: Any, parallel: Any, place: Place) -> dict[str, Any]:
    """The `tool_choice` of the Messages API for OpenAI's, and for `parallel_tool_calls`; empty if neither is there."""
    value: dict[str, Any] = {}
    match choice:
        case None:
            pass
        case "auto" | "none":
            value = {"type": choice}
        case "required":
            value = {"type": "any"}
        case {"type": "function", "function": {"name": str(name)}} | {"type": "function", "name": str(name)}:
            value = {"type": "tool", "name": name}
        case _:
            place.drop()
    if parallel is False and value.get("type") != "none":
        value = {"type": "auto", **value, "disable_parallel_tool_use": True}
    return value


#: What a document is called that has no title.
FILE_NAME = "document.pdf"


def document(url: str, file: Mapping[str, Any]) -> dict[str, Any] | None:
    """The document block of the Messages API for a file that a request has within it; None for any other file."""
    source = elements.image(url)["source"]
    if source["type"] != "base64":
        return None
    name = file.get("filename")
    title = {"title": name} if isinstance(name, str) and name not in ("", FILE_NAME) else {}
    return {"type": "document", "source": source, **title}


def string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def cached(details: Any) -> tuple[Any, Any]:
    """What of a prompt came from the cache and what was written into it, by OpenAI's details of the prompt's tokens."""
    return (details.get("cached_tokens"), details.get("cache_write_tokens")) if isinstance(details, dict) else (0, 0)


def usage(prompt: Any, cached: Any, written: Any, output: Any) -> dict[str, int]:
    """Token counts as the Messages API reports them: what was read from the cache is no part of `input_tokens`."""
    counts = [count if isinstance(count, int) and count >= 0 else None for count in (prompt, cached, written, output)]
    if counts[0] is None or counts[3] is None:
        return {}
    cached_count, written_count = counts[1] or 0, counts[2] or 0
    return {
        "input_tokens": max(0, counts[0] - cached_count - written_count),
        "cache_creation_input_tokens": written_count,
        "cache_read_input_tokens": cached_count,
        "output_tokens": counts[3],
    }
