"""Answers of the Gemini API: to `generateContent`, and in the pieces of `streamGenerateContent`."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Any

_VERSION = "scripted-model"


def answer(blocks: Sequence[dict[str, Any]], number: int, size: int) -> dict[str, Any]:
    """The whole answer to a request, from blocks of the Messages API."""
    return _piece([_part(block, number) for block in blocks], number, size, last=True)


def chunks(blocks: Sequence[dict[str, Any]], number: int, size: int) -> Iterator[dict[str, Any]]:
    """The same in pieces: texts by the half, a call as a whole."""
    for block in blocks:
        if block["type"] == "text":
            text = block["text"]
            halves = [piece for piece in (text[: len(text) // 2], text[len(text) // 2 :]) if piece]
            yield from (_piece([{"text": piece}], number, size, last=False) for piece in halves)
        else:
            yield _piece([_part(block, number)], number, size, last=False)
    yield _piece([{"text": ""}], number, size, last=True)


def _part(block: dict[str, Any], number: int) -> dict[str, Any]:
    match block["type"]:
        case "text":
            return {"text": block["text"]}
        case "thinking":
            return {"text": block["thinking"], "thought": True}
    signed = base64.b64encode(f"signature {number}".encode()).decode()
    return {"functionCall": {"name": block["name"], "args": block["input"]}, "thoughtSignature": signed}


def _piece(parts: list[dict[str, Any]], number: int, size: int, *, last: bool) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}, "index": 0}
    usage = {"promptTokenCount": size, "totalTokenCount": size}
    if last:
        candidate["finishReason"] = "STOP"
        usage |= {"candidatesTokenCount": 20, "totalTokenCount": size + 20}
    return {
        "candidates": [candidate],
        "usageMetadata": usage,
        "modelVersion": _VERSION,
        "responseId": f"response-{number}",
    }
