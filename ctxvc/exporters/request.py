"""The prompt of a conversation as requests of providers share it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import takewhile
from typing import Any

from ctxvc.core.conversion.losses import Loss
from ctxvc.core.ledger.block import FOREIGN
from ctxvc.core.prompt import formats
from ctxvc.core.prompt import openai_elements as elements
from ctxvc.core.prompt.outline import Piece
from ctxvc.exporters.conversation import Conversation

#: What an image or document keeps of its own in every form.
MEDIA_FIELDS = frozenset({"source", "title"})
_TOOL_FIELDS = frozenset({"name", "description", "strict", "input_schema", "type", "function", "custom"})


def of(conversation: Conversation, content: Sequence[Piece]) -> formats.Prompt:
    """The complete request, with `content` for its messages."""
    return formats.Prompt(
        pieces=content, system=conversation.system, tools=conversation.tools, model=conversation.ledger.meta.model
    )


def lost_fields(piece: Piece, carried: Collection[str] = ()) -> Iterator[Loss]:
    """The fields of a block's own that OpenAI's forms do not have, but for those that were `carried`."""
    for name, value in piece.extra.items():
        if name not in FOREIGN and name not in carried and name != "cache_control" and value not in (None, [], {}):
            yield Loss(f"{piece.block}.{name}")


def leading(content: Sequence[Piece]) -> Iterator[Loss]:
    """The system messages before all others: one with the system prompt where that has no field of its own."""
    for piece in takewhile(lambda piece: piece.role == "system", content):
        yield Loss(f"{piece.block}.role", "a part of the system prompt")


def lost_tools(tools: Any, written: Collection[str] = ()) -> Iterator[Loss]:
    """The tools that are no functions, unless their type is one of `written`, and fields that a function lacks."""
    for number, tool in enumerate(tools or ()):
        if elements.function(tool) is None and tool.get("type") not in written:
            yield Loss(f"tools[{number}]")
        elif "input_schema" in tool:
            yield from (
                Loss(f"tools[{number}].{name}")
                for name, value in tool.items()
                if name not in _TOOL_FIELDS and name != "cache_control" and value not in (None, [], {}, False)
            )
