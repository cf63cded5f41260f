"""A prompt as a request of the Messages API, or of OpenAI's chat completions.

What is written is in a normal form, and importing it and writing it again gives the same: each API has several
spellings of one message, and `normalise_anthropic` and `normalise_openai` say which of them we write.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any, TypeVar

import msgspec

from ctxvc.core import display
from ctxvc.core.ledger import wire
from ctxvc.core.prompt import openai_elements as elements
from ctxvc.core.prompt.outline import Piece

T = TypeVar("T")


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """All that a model is given: `pieces` in their order, `system` and `tools` as Messages API values."""

    pieces: Sequence[Piece]
    system: Any = None
    tools: Any = None
    model: str = ""


def dumps(value: Any) -> bytes:
    """`value` as JSON for a file, indented; escaped to ASCII where it has a lone surrogate, which UTF-8 cannot hold."""
    try:
        return msgspec.json.format(wire.compact(value), indent=2) + b"\n"
    except msgspec.DecodeError:
        return json.dumps(value, indent=2).encode("ascii") + b"\n"


def anthropic(prompt: Prompt) -> dict[str, Any]:
    """The body of a Messages API request, less `max_tokens`, its messages in the form of `normalise_anthropic`.

    It is valid where the prompt is, and left out is what only OpenAI's form has: tools that are no functions, content
    parts that the Messages API does not know, and reasoning, which no signature vouches for.
    """
    request = {
        "model": prompt.model,
        "system": _unmarked(prompt.system),
        "tools": [_unmarked(tool) for tool in prompt.tools or [] if "name" in tool],
        "messages": _messages((piece.role, block) for piece in prompt.pieces for block in content(piece)),
    }
    return {name: value for name, value in request.items() if value or name == "messages"}


def normalise_anthropic(messages: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages of the Messages API as `anthropic` writes them. What it changes means the same to the API:

    - Content, also a result's, is a list; a string is a block of text in it.
    - Empty texts are absent, and so is content with nothing in it; text of white space only stays.
    - Neighbours of one role are one message, in which the results come first.
    - `cache_control` is absent, and so is an `is_error` that is not true.
    """
    return _messages(
        (message["role"], block) for message in messages for block in _normal_blocks(_listed(message.get("content")))
    )


def content(piece: Piece) -> list[dict[str, Any]]:
    """The blocks of a message's content that a piece becomes in `anthropic`: one or none, and one more for its tag."""
    blocks = list(_normal_blocks(_blocks(piece)))
    if not piece.tag or not blocks:
        return blocks
    last = blocks[-1]
    if last["type"] != "tool_result":
        return [*blocks, _text(piece.tag)]
    return [*blocks[:-1], {**last, "content": [*last.get("content", ()), _text(piece.tag)]}]


def by_message(content: Iterable[tuple[str, T]], later: Callable[[T], bool]) -> Iterator[tuple[str, list[T]]]:
    """Content by message, where each piece of it comes with its role: neighbours of one role, `later` ones last."""
    for role, group in groupby(content, itemgetter(0)):
        yield role, sorted(map(itemgetter(1), group), key=later)


def _messages(content: Iterable[tuple[str, Any]]) -> list[dict[str, Any]]:
    return [{"role": role, "content": blocks} for role, blocks in by_message(content, is_no_result)]


def _normal_blocks(blocks: Iterable[Any]) -> Iterator[Any]:
    return (block for block in map(_normal_block, blocks) if not _is_empty(block))


def _blocks(piece: Piece) -> Iterator[dict[str, Any]]:
    """The block of a piece, less what only OpenAI's form has; none if that is all of it."""
    if "openai" not in piece.extra:
        yield block_of(piece)
    elif piece.kind == "tool_result":
        block = block_of(piece)
        yield {**block, "content": [item for item in block.get("content", []) if _has_place(item)]}
    elif piece.kind not in ("thinking", "other"):
        yield block_of(piece)


def block_of(piece: Piece) -> dict[str, Any]:
    """The Messages API's content block of a piece."""
    return wire.block(
        kind=piece.kind,
        body=piece.body,
        ext=piece.ext,
        call=piece.call,
        tool=piece.tool,
        error=piece.error,
        extra=piece.extra,
        files=piece.files,
    )


def _listed(content: Any) -> list[Any]:
    if isinstance(content, str):
        return [content]
    return content if isinstance(content, list) else []


def _normal_block(block: Any) -> Any:
    if isinstance(block, str):
        return {"type": "text", "text": block}
    block = _unmarked(block)
    match block:
        case {"type": "tool_result", **rest} if isinstance(rest.get("content"), str | list | None):
            content = [item for item in map(_normal_block, _listed(rest.pop("content", None))) if not _is_empty(item)]
            error = rest.pop("is_error", False)
            block = {"type": "tool_result", **rest}
            if content:
                block["content"] = content
            if error:
                block["is_error"] = True
    return block


def _is_empty(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "text" and block.get("text") == ""


def is_no_result(block: dict[str, Any]) -> bool:
    """Whether the block comes behind the results of calls, which lead their message."""
    return block.get("type") != "tool_result"


def _unmarked(value: Any) -> Any:
    """`value`, or each item of it, without its cache mark: marks belong to a request, not to what it says."""
    if isinstance(value, list):
        return [_unmarked(item) for item in value]
    if isinstance(value, dict):
        return {name: item for name, item in value.items() if name != "cache_control"}
    return value


def openai_chat(prompt: Prompt) -> dict[str, Any]:
    """The body of a chat completions request, its messages in the form of `normalise_openai`.

    Results become messages of the role `tool`, images data URLs, and the arguments of a call are its body as it is.
    Left out is what this form has no place for: thinking that did not come as `reasoning_content`, whether a result
    is an error, tools that the provider runs, and blocks of the Messages API other than text, images, PDF documents,
    calls and results.
    """
    messages: list[dict[str, Any]] = []
    match prompt.system:
        case str(content):
            messages.append({"role": "system", "content": content})
        case list(blocks):
            messages.append(
                {"role": "system", "content": [_text(block["text"]) for block in blocks if "text" in block]}
            )
    calls = {piece.call: piece for piece in prompt.pieces if piece.kind == "tool_use"}
    for (_, role), group in groupby(prompt.pieces, attrgetter("message", "role")):
        pieces = list(group)
        messages += [
            _tool_message(piece, calls.get(piece.call, piece)) for piece in pieces if piece.kind == "tool_result"
        ]
        if others := [piece for piece in pieces if piece.kind != "tool_result"]:
            messages.append(_chat_message(role, others))
    request = {
        "model": prompt.model,
        "messages": normalise_openai(messages),
        "tools": [tool for tool in map(elements.function, prompt.tools or []) if tool],
    }
    return {name: value for name, value in request.items() if value or name == "messages"}


def normalise_openai(messages: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages of a chat completions request as `openai_chat` writes them. What it changes means the same to the API:

    - The system and developer messages at the start that have only text are one system message; its content is a
      string where it is one text.
    - A message that says nothing is absent, but for a result; a result without content has an empty one.
    - A call without arguments has empty ones; an id that is null is absent.
    - `cache_control`, which some gateways take, is absent from messages and their parts.
    """
    kept_messages = [message for message in map(_normal_message, messages) if _says_something(message)]
    texts: list[str] = []
    count = 0
    while count < len(kept_messages) and (instructions := _instructions(kept_messages[count])):
        texts += instructions
        count += 1
    if not count:
        return kept_messages
    content = texts[0] if len(texts) == 1 else [_text(value) for value in texts]
    return [{"role": "system", "content": content}, *kept_messages[count:]]


def _normal_message(message: dict[str, Any]) -> dict[str, Any]:
    message = _unmarked(message)
    if isinstance(message.get("content"), list):
        message["content"] = _unmarked(message["content"])
    if isinstance(message.get("tool_calls"), list):
        message["tool_calls"] = [_normal_call(call) for call in message["tool_calls"]]
    if message.get("role") in ("tool", "function"):
        message.setdefault("content", "")
        if message.get("tool_call_id", "") is None:
            del message["tool_call_id"]
    return message


def _normal_call(call: Any) -> Any:
    match call:
        case {"function": {"name": str()} as inner}:
            call = {**call, "function": {"arguments": "", **inner}}
        case {"custom": {"name": str()} as inner}:
            call = {**call, "custom": {"input": "", **inner}}
        case _:
            return call
    return {name: value for name, value in call.items() if name != "id" or value is not None}


def _says_something(message: dict[str, Any]) -> bool:
    fields = ("content", "reasoning_content", "refusal", "tool_calls", "function_call", "audio")
    return message.get("role") in ("tool", "function") or any(message.get(name) for name in fields)


def _instructions(message: dict[str, Any]) -> list[str]:
    """The texts of a message that is nothing but instructions; else none."""
    match message:
        case {"role": "system" | "developer", "content": str(content), **rest} if not rest:
            return [content]
        case {"role": "system" | "developer", "content": list(parts), **rest} if not rest:
            texts = [part["text"] for part in parts if _is_plain(part)]
            return texts if len(texts) == len(parts) and all(texts) else []
    return []


def _tool_message(piece: Piece, call: Piece) -> dict[str, Any]:
    """The message that a result becomes; it answers `call` by the id that the call is written with."""
    notes, call_notes = piece.extra.get("openai", {}), call.extra.get("openai", {})
    content: Any = display.decode(piece.body)
    if notes.get("parsed"):
        content = wire.parse(piece.body)
    elif notes.get("parts"):
        forms = notes.get("items", {})
        items = block_of(piece).get("content") or [_text("")]
        content = [_result_item(item, forms.get(str(number), {})) for number, item in enumerate(items)]
    elif wire.own_metadata(piece.extra).get("parts"):
        content = [_result_item(item, {}) for item in block_of(piece).get("content", ()) if _has_place(item)]
    own_id = notes.get("id", piece.call)
    answered = {"role": notes.get("role", "tool"), "tool_call_id": own_id and call_notes.get("id", piece.call)}
    if call_notes.get("field") == "function_call":
        answered = {"role": "function", "name": call.tool}
    return {**answered, "content": content, **notes.get("message", {})}


def _result_item(item: Any, form: dict[str, Any]) -> Any:
    match item:
        case {"type": "image", "source": dict(source)} if (url := elements.image_url(source)) is not None:
            return _image_part(url, form)
        case {"type": "text"}:
            return {**item, **form}
    return item


def _has_place(item: Any) -> bool:
    """Whether an item of a result of the Messages API can be written here."""
    match item:
        case {"type": "image", "source": dict(source)}:
            return elements.image_url(source) is not None
        case {"type": "text", "text": str()}:
            return True
    return False


def _chat_message(role: str, pieces: list[Piece]) -> dict[str, Any]:
    marks = pieces[0].extra.get("openai", {})
    content: list[Any] = []
    calls: list[Any] = []
    fields: dict[str, Any] = {}
    for piece in pieces:
        match piece.kind, piece.extra.get("openai", {}).get("field", ""):
            case "other", "message":
                message: dict[str, Any] = wire.parse(piece.body)
                return message
            case "other", "content":
                content.append(wire.parse(piece.body))
            case "other", "tool_calls":
                calls.append(wire.parse(piece.body))
            case "tool_use", "function_call":
                fields["function_call"] = {"name": piece.tool, "arguments": display.decode(piece.body)}
            case "tool_use", _:
                calls.append(_call(piece))
            case (("thinking" | "assistant"), ("reasoning_content" | "refusal") as field):
                fields[field] = display.decode(piece.body)
            case _:
                content += _content_part(piece)
    if len(content) == 1 and _is_plain(content[0]) and not marks.get("parts"):
        fields["content"] = content[0]["text"]
    elif content:
        fields["content"] = content
    if calls:
        fields["tool_calls"] = calls
    return {"role": marks.get("role", role), **fields, **marks.get("message", {})}


def _content_part(piece: Piece) -> Iterator[dict[str, Any]]:
    """The part of a message's content that a piece becomes; none for what has no place here."""
    form = piece.extra.get("openai", {}).get("part", {})
    if piece.kind not in ("image", "document", "other", "thinking"):
        yield {**_text(display.decode(piece.body)), **form}
        return
    match block_of(piece):
        case {"type": "image", "source": dict(source)} if (url := elements.image_url(source)) is not None:
            yield _image_part(url, form)
        case {"type": "document", "source": {"type": "base64"} as source, **rest}:
            file_data = elements.image_url(source)
            yield {"type": "file", "file": {"filename": rest.get("title") or "document.pdf", "file_data": file_data}}


def _image_part(url: str, form: dict[str, Any]) -> dict[str, Any]:
    return {"type": "image_url", **form, "image_url": {"url": url, **form.get("image_url", {})}}


def _call(piece: Piece) -> dict[str, Any]:
    notes = piece.extra.get("openai", {})
    form = notes.get("call", {"type": "function", "function": {}})
    kind, field = ("function", "arguments") if isinstance(form.get("function"), dict) else ("custom", "input")
    arguments = wire.parse(piece.body) if notes.get("parsed") else display.decode(piece.body)
    return {"id": notes.get("id", piece.call), **form, kind: {"name": piece.tool, field: arguments, **form[kind]}}


def _text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def _is_plain(part: Any) -> bool:
    match part:
        case {"type": "text", "text": str(), **other}:
            return not other
    return False
