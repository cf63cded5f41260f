"""A prompt → a request of OpenAI's Chat Completions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

import msgspec

from ctxvc.core.conversion.losses import Loss
from ctxvc.core.ledger import wire
from ctxvc.core.prompt import formats
from ctxvc.core.prompt import openai_elements as elements
from ctxvc.core.prompt.formats import block_of
from ctxvc.core.prompt.outline import Piece
from ctxvc.exporters import request
from ctxvc.exporters.conversation import Conversation
from ctxvc.exporters.exported import Exported

FORMAT = "openai-chat"
_ORDER = {"thinking": 0, "tool_use": 2}
_FOLLOWS = "it follows in a message of the user"
_REORDERED = "reasoning, then text, then calls"


def export(conversation: Conversation) -> Exported:
    """The request. What came in this form is written as it came; reasoning of other providers has no place here.

    A tool's message takes text only: pictures in a result follow in a message of the user.
    """
    source = conversation.ledger.meta.source
    recorded = conversation.prompt()
    if source is None or source.format != FORMAT:
        recorded = list(map(_without_item_id, recorded))
    losses = list(request.leading(recorded))
    content: list[Piece] = []
    for _, group in groupby(recorded, attrgetter("message", "role")):
        content += _message(list(group), losses)
    losses += request.lost_tools(conversation.tools)
    data = formats.dumps(formats.openai_chat(request.of(conversation, content)))
    return Exported(data, tuple(losses))


def _message(group: Sequence[Piece], losses: list[Loss]) -> Iterator[Piece]:
    """The pieces of a message, those of its results that need it in two."""
    behind_results: list[Piece] = []
    for piece in group:
        if "openai" in piece.extra:
            losses += _losses_of_items(piece)
            yield piece
        elif piece.kind == "tool_result":
            losses += _losses_of_result(piece)
            yield from _texts_only(piece, behind_results, losses)
        else:
            losses += _losses(piece)
            yield piece
    yield from behind_results
    order = [_ORDER.get(piece.kind, 1) for piece in group]
    if group[0].role == "assistant" and order != sorted(order):
        at = next(at for at in range(1, len(order)) if order[at] < order[at - 1])
        losses.append(Loss(f"{group[at].block}.order", _REORDERED))


def _without_item_id(piece: Piece) -> Piece:
    """A call or result without the id that its item has in the Responses API, where its call has one of its own."""
    notes = piece.extra.get("openai")
    if not isinstance(notes, dict) or "id" not in notes:
        return piece
    own = {name: value for name, value in notes.items() if name != "id"}
    return msgspec.structs.replace(piece, extra={**piece.extra, "openai": own})


def _losses(piece: Piece) -> Iterator[Loss]:
    match piece.kind, block_of(piece):
        case "thinking" | "other", _:
            yield Loss(piece.block)
        case ("image" | "document") as kind, {"source": dict(source)} if elements.image_url(source) is None or (
            kind == "document" and source.get("type") != "base64"
        ):
            yield Loss(piece.block)
        case (("image" | "document"), _):
            yield from request.lost_fields(piece, request.MEDIA_FIELDS)
        case _:
            yield from request.lost_fields(piece)


def _losses_of_items(piece: Piece) -> Iterator[Loss]:
    """Of what came in one of OpenAI's forms, what only the Responses API has."""
    notes = piece.extra["openai"]
    field = notes.get("field", "")
    if (piece.kind == "thinking" and field != "reasoning_content") or (piece.kind == "other" and not field):
        yield Loss(piece.block)


def _losses_of_result(piece: Piece) -> Iterator[Loss]:
    if piece.error:
        yield Loss(f"{piece.block}.is_error")
    yield from request.lost_fields(piece)


def _texts_only(piece: Piece, behind_results: list[Piece], losses: list[Loss]) -> Iterator[Piece]:
    """A result without its pictures, which are added to `behind_results`."""
    items: list[Any] = block_of(piece).get("content", []) if wire.items(piece.body, piece.extra) is not None else []
    if all(isinstance(item, dict) and item.get("type") == "text" for item in items):
        yield piece
        return
    texts = []
    pictures = []
    for number, item in enumerate(items):
        match item:
            case {"type": "text", "text": str()}:
                texts.append(item)
            case {"type": "image", "source": dict(source)} if elements.image_url(source) is not None:
                losses.append(Loss(f"{piece.block}.content[{number}]", _FOLLOWS))
                pictures.append(item)
            case {"type": "document", "source": {"type": "base64", "media_type": str(), "data": str()}}:
                losses.append(Loss(f"{piece.block}.content[{number}]", _FOLLOWS))
                pictures.append(item)
            case _:
                losses.append(Loss(f"{piece.block}.content[{number}]"))
    yield _result_of(piece, texts)
    if pictures:
        for item in ({"type": "text", "text": f"[from the result of {piece.call}:]"}, *pictures):
            behind_results.append(_piece_of(piece, item))


def _result_of(piece: Piece, texts: list[dict[str, Any]]) -> Piece:
    part = wire.part({"type": "tool_result", "tool_use_id": piece.call, "content": texts}, "user", "tool")
    return msgspec.structs.replace(piece, body=part.body, ext=part.ext, extra=part.extra, files={})


def _piece_of(piece: Piece, block: dict[str, Any]) -> Piece:
    """A block of a user's message, in the message of `piece`."""
    part = wire.part(block, "user", "tool")
    return Piece(
        message=piece.message,
        role="user",
        kind=part.kind,
        body=part.body,
        ext=part.ext,
        extra=part.extra,
        files=dict(part.files),
        block=piece.block,
    )
