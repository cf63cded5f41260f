"""Gemini's answers, merged. A whole body may be an array of what a stream has as events."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

from ctxvc.core.ledger import wire
from ctxvc.forms import merged, sse
from ctxvc.forms.merged import BROKEN, Calls, summed
from ctxvc.forms.values import objects, text_of

_OUTPUTS = ("candidatesTokenCount", "thoughtsTokenCount", "candidatesTokensDetails")
_TOTALS = {"totalTokenCount": ("candidatesTokenCount", "thoughtsTokenCount")}
#: A piece without these only carries text.
_NOTED = re.compile(rb'"functionCall"|"finishReason"|"error"')


class Rules(merged.Rules):
    def __init__(self, ours: Collection[str]) -> None:
        super().__init__(ours)
        self._id: dict[str, Any] = {}
        self._usage: list[Any] = [None]

    def begin(self) -> None:
        super().begin()
        self._usage.append(None)

    def event(self, event: sse.Event) -> bytes:
        is_plain = self._id and not self.number and not self.calls.ours
        value = None if is_plain and not _NOTED.search(event.data) else event.value
        if value is None:
            return event.raw
        if value.get("error"):
            self.over = True
            return event.raw
        self._id = self._id or {"responseId": value.get("responseId")}
        self._usage[-1] = value.get("usageMetadata") or self._usage[-1]
        piece, calls = _without(value, self.ours)
        self.calls = Calls(self.calls.ours + calls.ours, self.calls.others + calls.others)
        if self.number:
            piece = _as_first(piece, self._id["responseId"], self._usage[:-1])
        is_last = any(candidate.get("finishReason") for candidate in objects(piece.get("candidates")))
        self.over = self.over or (is_last and not self.waits)
        if is_last and self.waits:
            changed, last = _parted(piece)
            self.ending.append(event._replace(raw=event.with_value(last), data=wire.compact(last)))
            return event.with_value(changed) if _says(changed) else b""
        if calls.ours and not is_last and not _says(piece):
            return b""
        return event.raw if piece == value else event.with_value(piece)

    def ended(self, event: sse.Event) -> bytes:
        return event.raw

    def error(self) -> bytes:
        """The error outside of any event: the API sends its own errors so, and its SDKs look for them there."""
        return wire.compact(error()) + b"\n\n"


def _without(piece: dict[str, Any], ours: Collection[str]) -> tuple[dict[str, Any], Calls]:
    """A piece of an answer without our calls, and the number of its calls."""
    names = [
        name for candidate in objects(piece.get("candidates")) for part in _parts(candidate) if (name := _called(part))
    ]
    calls = Calls(sum(name in ours for name in names), sum(name not in ours for name in names))
    if not calls.ours:
        return piece, calls
    candidates = [
        _with_parts(candidate, [part for part in _parts(candidate) if _called(part) not in ours])
        for candidate in objects(piece["candidates"])
    ]
    return {**piece, "candidates": candidates}, calls


def _as_first(piece: dict[str, Any], first: Any, earlier: Sequence[Any]) -> dict[str, Any]:
    """A continuation's piece with the id `first`, and with the usage of the `earlier` answers added."""
    changed = {**piece, "responseId": first} if "responseId" in piece else dict(piece)
    if "usageMetadata" in piece:
        changed["usageMetadata"] = summed(piece["usageMetadata"], earlier, _OUTPUTS, _TOTALS)
    return changed


def _parted(piece: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A last piece without its end, and only its end."""
    candidates = objects(piece["candidates"])
    says = [{name: value for name, value in item.items() if name != "finishReason"} for item in candidates]
    ends = [_with_parts(candidate, [{"text": ""}]) for candidate in candidates]
    return {**piece, "candidates": says}, {**piece, "candidates": ends}


def _says(piece: dict[str, Any]) -> bool:
    return any(part != {"text": ""} for candidate in objects(piece.get("candidates")) for part in _parts(candidate))


def _parts(candidate: dict[str, Any]) -> list[dict[str, Any]]:
    content = candidate.get("content")
    return objects(content.get("parts")) if isinstance(content, dict) else []


def _with_parts(candidate: dict[str, Any], parts: list[dict[str, Any]]) -> dict[str, Any]:
    content = candidate.get("content")
    return {**candidate, "content": {**(content if isinstance(content, dict) else {"role": "model"}), "parts": parts}}


def _called(part: dict[str, Any]) -> str:
    """The tool that a part calls; empty for none."""
    call = part.get("functionCall")
    return text_of(call.get("name")) if isinstance(call, dict) else ""


# --- whole bodies


def without(value: Any, ours: Collection[str]) -> tuple[Any, Calls] | None:
    pieces = [value] if isinstance(value, dict) else value
    if not isinstance(pieces, list) or not any(isinstance(piece, dict) and "candidates" in piece for piece in pieces):
        return None
    parted = [_without(piece, ours) for piece in objects(pieces)]
    calls = Calls(sum(calls.ours for _, calls in parted), sum(calls.others for _, calls in parted))
    changed = [piece for piece, _ in parted]
    return changed[0] if isinstance(value, dict) else changed, calls


def joined(values: Sequence[Any]) -> Any:
    """One array with the pieces of all, or one piece with the parts of all."""
    answers = [value if isinstance(value, list) else [value] for value in values]
    usages = [_usage(pieces) for pieces in answers]
    first = next((piece["responseId"] for piece in answers[0] if "responseId" in piece), None)
    earlier = [piece for answer in answers[:-1] for piece in answer]
    unended = [_parted(piece)[0] if "candidates" in piece else piece for piece in earlier]
    pieces = [piece for piece in unended if _says(piece)]
    pieces += [_as_first(piece, first, usages[:-1]) if len(answers) > 1 else piece for piece in answers[-1]]
    if isinstance(values[0], list):
        return pieces
    *before, last = pieces
    parts = [part for piece in before for candidate in objects(piece["candidates"])[:1] for part in _parts(candidate)]
    candidates = objects(last.get("candidates"))
    newest = [_with_parts(item, [*parts, *_parts(item)] or [{"text": ""}]) for item in candidates[:1]]
    return {**last, "candidates": [*newest, *candidates[1:]]}


def _usage(pieces: Sequence[dict[str, Any]]) -> Any:
    return next((piece["usageMetadata"] for piece in reversed(pieces) if piece.get("usageMetadata")), None)


def error() -> Any:
    return {"error": {"code": 503, "message": BROKEN, "status": "UNAVAILABLE"}}
