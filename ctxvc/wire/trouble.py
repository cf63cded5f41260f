"""Why what passed was not recorded: for a person who asks later. It is not in the store, which may be the reason."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from ctxvc.core.display import one_line
from ctxvc.errors import CtxvcError
from ctxvc.store.trust import identity

_FOLDER = "wire"
_LONGEST = 500


def report(store: Path, reason: str) -> None:
    """Keeps the reason. Never fails: the disk may be full."""
    with suppress(CtxvcError, OSError):
        path = _path(store, make=True)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
            file.write(one_line(reason, _LONGEST))


def reported(store: Path) -> str:
    """The newest reason for a store; empty if there is none."""
    with suppress(CtxvcError, OSError):
        return (identity.read_plain(_path(store), 4 * _LONGEST) or b"").decode("utf-8", "replace")
    return ""


def forget(store: Path) -> None:
    """Forgets the reason: what comes next tells whether it still holds."""
    with suppress(CtxvcError, OSError):
        _path(store).unlink(missing_ok=True)


def _path(store: Path, *, make: bool = False) -> Path:
    name = hashlib.sha256(os.fsencode(store.absolute())).hexdigest()[:32]
    return identity.data_folder(make=make) / _FOLDER / name
