"""Answers that go into a file, or into a pipe as they are."""

from __future__ import annotations

import os
from pathlib import Path

from ctxvc.cli.app import App
from ctxvc.cli.output import safe
from ctxvc.core import display
from ctxvc.errors import CtxvcError


def write(app: App, target: Path | None, data: bytes) -> None:
    """Writes `data` to a file, whose old content a failure leaves as it was; to the output where no file is named."""
    if target is None:
        app.output.raw(data)
        return
    path = app.path(target)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        temporary.write_bytes(data)
        temporary.chmod(0o600)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise CtxvcError(f"cannot write {path}: {error.strerror}", hint="check the folder's permissions") from error
    app.output.note(f"wrote {display.human_bytes(len(data))} to {safe(str(path))}")
