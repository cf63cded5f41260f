"""A log of errors in processes without a terminal: a bounded file in the store, which `ctxvc doctor` shows."""

from __future__ import annotations

import os
import time
from pathlib import Path

from ctxvc.core.display import one_line
from ctxvc.errors import CtxvcError, Refused, render
from ctxvc.phrases import PYTHON
from ctxvc.store.trust import contained

#: Bytes after which a new log is begun; the previous one is kept.
LONGEST = 128 * 1024
_WIDTH = 1000
_FILE = "ctxvc/hooks/log"


def note(store: Path, event: str, text: str) -> None:
    """Adds a line with the time, the event and the error's text. Never fails."""
    line = f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {one_line(event, 40)}: {one_line(text, _WIDTH)}\n"
    try:
        contained.make_folder(store, "ctxvc/hooks")
        contained.detach(store, _FILE)
        handle = contained.opened(store, _FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        if os.fstat(handle).st_size > LONGEST:
            os.close(handle)
            contained.move(store, _FILE, f"{_FILE}.1")
            handle = contained.opened(store, _FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.write(handle, line.encode("utf-8", "replace"))
        finally:
            os.close(handle)
    except (OSError, Refused):
        return


def describe(error: Exception, phrases: dict[str, str] = PYTHON) -> str:
    """An error's text and hint, with the table of phrases; for an unexpected error, where it came from."""
    if isinstance(error, CtxvcError):
        reason, hint = render(error.reason, phrases), render(error.advice, phrases)
        return f"{reason} (hint: {hint})" if hint else reason
    import traceback

    frames = traceback.extract_tb(error.__traceback__)[-3:]
    where = ", ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames)
    return f"{type(error).__name__}: {error} ({where})"


def entries(store: Path, limit: int = 5) -> list[str]:
    """The newest lines, oldest first."""
    try:
        return contained.read(store, _FILE).decode("utf-8", "replace").splitlines()[-limit:]
    except (OSError, Refused):
        return []


def file(store: Path) -> Path:
    return store / _FILE
