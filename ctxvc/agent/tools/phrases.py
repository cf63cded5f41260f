"""An error's message and hint for a model that calls tools."""

from __future__ import annotations

from collections.abc import Collection

from ctxvc.errors import CtxvcError, Phrase, render
from ctxvc.phrases import MODEL, NEEDED_TOOLS


def message(error: CtxvcError) -> str:
    return render(error.reason, MODEL)


def hint(error: CtxvcError, tools: Collection[str] = ()) -> str:
    """The advice for a model with these context tools, or for a person it may ask; empty if there is none."""
    advice = error.advice
    if isinstance(advice, Phrase) and NEEDED_TOOLS.get(advice.key, "") not in ("", *tools):
        return ""
    return render(advice, MODEL)
