"""The line that Claude Code shows below its prompt: the use of the context, and the counts of the recording."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ctxvc.claude_code import spool
from ctxvc.core.display import one_line
from ctxvc.recording import places

#: Percent of the window → the colour from there on.
_COLORS = ((90, "\x1b[31m"), (70, "\x1b[33m"))
_PLAIN = "\x1b[0m"


def line(fields: Mapping[str, Any], store: Path | None, *, color: bool) -> str:
    """The line for the host's input on stdin, without unknown parts."""
    used = _used(fields.get("context_window"))
    parts = [_colored(used, color=color)] if used else []
    transcript = fields.get("transcript_path")
    if store is None or not isinstance(transcript, str):
        return " · ".join([*parts, "not recorded"])
    if (trouble := spool.trouble(transcript)) and Path(trouble.store) == store:
        return " · ".join([*parts, f"NOT RECORDED: {one_line(trouble.reason, 80)}"])
    return " · ".join([*parts, *_recorded(store, transcript)])


def _used(window: object) -> tuple[int, str] | None:
    """The percentage of the window that is used, floored, and its size as text; None if the host does not say."""
    if not isinstance(window, dict):
        return None
    size = _number(window.get("context_window_size"))
    percent = _number(window.get("used_percentage"))
    usage = window.get("current_usage")
    if percent is None and size and isinstance(usage, dict):
        names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        percent = 100 * sum(_number(usage.get(name)) or 0 for name in names) / size
    if percent is None:
        return None
    return int(percent), f" of {_thousands(size)}" if size else ""


def _number(value: object) -> float | None:
    """A number that can be shown; None for anything else."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e12:
        return value
    return None


def _thousands(tokens: float) -> str:
    return f"{tokens / 1e6:g}M" if tokens >= 1e6 else f"{tokens / 1e3:.0f}k"


def _colored(used: tuple[int, str], *, color: bool) -> str:
    percent, size = used
    start = next((code for threshold, code in _COLORS if percent >= threshold), "") if color else ""
    return f"{start}context {percent}%{size}{_PLAIN if start else ''}"


def _recorded(store: Path, transcript: str) -> list[str]:
    try:
        status = json.loads(places.sealed(store, places.status(store, transcript)))
    except (OSError, ValueError, RecursionError):
        return ["recording"]
    if not isinstance(status, dict):
        return ["recording"]
    parts = [one_line(str(status.get("session", "")), 40)]
    parts += [f"{status[name]} {name}" for name in ("steps", "blocks", "notes") if type(status.get(name)) is int]
    if type(status.get("left")) is int and status["left"]:
        parts.append(f"{status['left']} out of the prompt, kept")
    return parts
