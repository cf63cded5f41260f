"""A prompt as a request of the Messages API.

The output is in a normal form, so that importing it and writing it again gives the same: the API has several spellings
of one message, and `normalise_anthropic` defines the one we write.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeVar

import msgspec

from ctxvc.core.ledger import wire
from ctxvc.core.prompt.outline import Piece

T = TypeVar("T")


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a model is sent: `pieces` in order, `system` and `tools` as Messages API values."""

    pieces: Sequence[Piece]
    system: Any = None
    tools: Any = None
    model: str = ""


def dumps(value: Any) -> bytes:
    """`value` as JSON for a file, indented; escaped to ASCII if it has a lone surrogate, which UTF-8 cannot encode."""
    try:
        return msgspec.json.format(wire.compact(value), indent=2) + b"\n"
    except msgspec.DecodeError:
        return json.dumps(value, indent=2).encode("ascii") + b"\n"


def anthropic(prompt: Prompt) -> dict[str, Any]:
    """The body of a Messages API request without `max_tokens`, its messages in the form of `normalise_anthropic`.

    It is valid if the prompt is. It omits what only OpenAI's form has: tools that are not functions, content parts that
    the Messages API does not know, and reasoning, which no signature vouches for.
    """
    request = {
        "model": prompt.model,
        "system": unmarked(prompt.system),
        "tools": [unmarked(tool) for tool in prompt.tools or [] if "name" in tool],
        "messages": _messages((piece.role, block) for piece in prompt.pieces for block in content(piece)),
    }
    return {name: value for name, value in request.items() if value or name == "messages"}


def normalise_anthropic(messages: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages of the Messages API as `anthropic` writes them. The changes mean the same to the API:

    - Content, including a result's, is a list; a string becomes a block of text in it.
    - Empty texts are removed, and so is empty content; text of white space only stays.
    - Neighbours of one role are merged into one message, in which the results come first.
    - `cache_control` is removed, and so is an `is_error` that is not true.
    """
    return _messages(
        (message["role"], block) for message in messages for block in _normal_blocks(_listed(message.get("content")))
    )


def content(piece: Piece) -> list[dict[str, Any]]:
    """The content blocks of a piece in `anthropic`: one or none, and one more for its tag."""
    blocks = list(_normal_blocks(_blocks(piece)))
    if not piece.tag or not blocks:
        return blocks
    last = blocks[-1]
    if last["type"] != "tool_result":
        return [*blocks, _text(piece.tag)]
    return [*blocks[:-1], {**last, "content": [*last.get("content", ()), _text(piece.tag)]}]


def by_message(content: Iterable[tuple[str, T]], later: Callable[[T], bool]) -> Iterator[tuple[str, list[T]]]:
    """Content grouped by message: neighbours of one role, with `later` pieces last. Each piece comes with its role."""
    for role, group in groupby(content, itemgetter(0)):
        yield role, sorted(map(itemgetter(1), group), key=later)


def _messages(content: Iterable[tuple[str, Any]]) -> list[dict[str, Any]]:
    return [{"role": role, "content": blocks} for role, blocks in by_message(content, is_no_result)]


def _normal_blocks(blocks: Iterable[Any]) -> Iterator[Any]:
    return (block for block in map(_normal_block, blocks) if not _is_empty(block))


def _blocks(piece: Piece) -> Iterator[dict[str, Any]]:
    """The block of a piece without what only OpenAI's form has; none if that is all of it."""
    if "openai" not in piece.extra:
        yield block_of(piece)
    elif piece.kind == "tool_result":
        block = block_of(piece)
        yield {**block, "content": [item for item in block.get("content", []) if has_place(item)]}
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
    block = unmarked(block)
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
    """Whether the block follows the results of calls, which come first in their message."""
    return block.get("type") != "tool_result"


def unmarked(value: Any) -> Any:
    """`value`, or each item of it, without its cache mark: marks belong to a request, not to its content."""
    if isinstance(value, list):
        return [unmarked(item) for item in value]
    if isinstance(value, dict):
        return {name: item for name, item in value.items() if name != "cache_control"}
    return value


def has_place(item: Any) -> bool:
    """Whether an item of a result exists in every form: a text, or an image that is not a file at the provider's."""
    match item:
        case {"type": "image", "source": {"type": "base64", "media_type": str(), "data": str()}}:
            return True
        case {"type": "image", "source": {"type": "url", "url": str()}} | {"type": "text", "text": str()}:
            return True
    return False


def _text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}
