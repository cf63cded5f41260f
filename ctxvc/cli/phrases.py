"""An error's message and hint on the command line."""

from __future__ import annotations

from ctxvc.errors import CtxvcError, render
from ctxvc.phrases import COMMAND_LINE


def message(error: CtxvcError) -> str:
    return render(error.reason, COMMAND_LINE)


def hint(error: CtxvcError) -> str:
    return render(error.advice, COMMAND_LINE)
