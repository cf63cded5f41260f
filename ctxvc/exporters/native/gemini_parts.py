"""The parts of Gemini's messages, which Gemini CLI and Qwen Code keep, for the pieces of a turn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ctxvc.core.prompt.outline import Piece
from ctxvc.exporters.native.content import Media, arguments, texts_and_media
from ctxvc.forms.losses import Loss

_TAKES = ("image/", "application/pdf", "audio/", "video/")


def content(pieces: Iterable[Piece], losses: list[Loss]) -> list[dict[str, Any]]:
    """The parts of a reply's texts, or of what the user said."""
    return [part for piece in pieces if piece.kind != "tool_use" for part in _content(piece, losses)]


def _content(piece: Piece, losses: list[Loss]) -> Iterator[dict[str, Any]]:
    if piece.kind == "thinking" or (piece.role == "assistant" and piece.kind != "assistant"):
        losses.append(Loss(piece.block))
        return
    for one in texts_and_media(piece, losses, _TAKES):
        yield _inline(one) if isinstance(one, Media) else {"text": one}


def call(piece: Piece) -> dict[str, Any]:
    """A call's id, name and arguments."""
    return {"id": piece.call, "name": piece.tool, "args": arguments(piece)}


def result(piece: Piece, tools: Mapping[str, str], losses: list[Loss]) -> list[dict[str, Any]]:
    """A result, with its pictures behind it. `tools` are those of the calls, by their ids."""
    content = texts_and_media(piece, losses, _TAKES)
    text = "\n".join(one for one in content if isinstance(one, str))
    response = {"error" if piece.error else "output": text}
    answer = {"id": piece.call, "name": tools.get(piece.call, piece.tool), "response": response}
    return [{"functionResponse": answer}, *(_inline(one) for one in content if isinstance(one, Media))]


def _inline(media: Media) -> dict[str, Any]:
    return {"inlineData": {"mimeType": media.type, "data": media.data}}
