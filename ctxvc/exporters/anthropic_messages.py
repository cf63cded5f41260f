"""A prompt → a request of the Messages API."""

from __future__ import annotations

from collections.abc import Iterator

from ctxvc.core.ledger import wire
from ctxvc.core.prompt import formats
from ctxvc.core.prompt.formats import block_of
from ctxvc.core.prompt.outline import Piece
from ctxvc.exporters.conversation import Conversation
from ctxvc.exporters.exported import Exported
from ctxvc.forms.losses import Loss


def export(conversation: Conversation) -> Exported:
    """The request as we send it, with tags, but without `max_tokens`."""
    content = conversation.prompt(conversation.ledger.meta.render)
    tools = conversation.tools
    losses = [loss for piece in content for loss in _losses(piece)]
    losses += [Loss(f"tools[{number}]") for number, tool in enumerate(tools) if "name" not in tool]
    return Exported(formats.dumps(formats.anthropic(conversation.request(content))), tuple(losses))


def _losses(piece: Piece) -> Iterator[Loss]:
    """The losses of a piece: what only OpenAI's forms have, except empty texts."""
    written = formats.content(piece)
    if not written:
        if piece.body:
            yield Loss(piece.block)
        return
    if piece.kind == "tool_result":
        items, remaining = block_of(piece).get("content", []), written[0].get("content", [])
        lost = len([item for item in items if item != {"type": "text", "text": ""}]) - len(remaining) + bool(piece.tag)
        if lost > 0:
            yield Loss(f"{piece.block}.content")
    elif piece.kind == "tool_use" and piece.body and wire.parsed(piece.body, dict) is None:
        yield Loss(f"{piece.block}.input", "an object with the text under `arguments`")
