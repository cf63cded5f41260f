"""A cheap estimate of tokens, the same each time: not what the provider counts, but as even as its counts are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import ceil
from typing import Any

from tests.messages_api.models import Model
from tests.messages_api.pictures import image_size
from tests.messages_api.wire import THINKING, blocks, signature

CHARACTERS_A_TOKEN = 3.5
NEWER = 1.3
#: What stands around a block, around a message, and before the tools if there are any.
BLOCK_FRAME = 4
MESSAGE_FRAME = 4
TOOLS_FRAME = 346
#: What a picture or a document costs of which only the address is known.
UNSEEN_IMAGE = 1_500
UNSEEN_DOCUMENT = 3_000
IMAGE_SIDE = 28


def text_tokens(text: str, model: Model) -> int:
    """Tokens of a text, by its bytes."""
    size = len(text.encode("utf-8", "surrogatepass"))
    return ceil(size / CHARACTERS_A_TOKEN * (NEWER if model.newer else 1))


def json_tokens(value: object, model: Model) -> int:
    """Tokens of a value written as JSON."""
    return text_tokens(json.dumps(value, separators=(",", ":"), ensure_ascii=False), model)


def block_tokens(block: Mapping[str, Any], model: Model, hidden: Mapping[str, int]) -> int:
    """Tokens of one block. `hidden`: a signature → the tokens of the whole thinking behind it."""
    kind = block["type"]
    if kind == "text":
        return text_tokens(block["text"], model)
    if kind in THINKING:
        name = signature(block)
        return hidden[name] if name in hidden else text_tokens(str(block.get("thinking", name)), model)
    if kind == "tool_use":
        return BLOCK_FRAME + text_tokens(block["name"], model) + json_tokens(block["input"], model)
    if kind == "tool_result":
        return BLOCK_FRAME + sum(block_tokens(inner, model, hidden) for inner in blocks(block.get("content")))
    if kind == "image":
        return _image(block, model)
    if kind == "document":
        source = block["source"]
        return text_tokens(source["data"], model) if source["type"] == "text" else UNSEEN_DOCUMENT
    return BLOCK_FRAME + json_tokens({key: value for key, value in block.items() if key != "cache_control"}, model)


def _image(block: Mapping[str, Any], model: Model) -> int:
    size = image_size(block)
    if size is None:
        return UNSEEN_IMAGE
    longest, most = (2576, 4784) if model.newer else (1568, 1600)
    shrink = min(1.0, longest / max(*size, 1))
    wide, high = (ceil(side * shrink / IMAGE_SIDE) for side in size)
    return min(most, wide * high)
