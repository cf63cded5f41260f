"""Notes beside a store, for a person and a recorder: why something was not recorded, and whether managing is paused.

They are outside the store, which may itself be the reason.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from ctxvc.core.display import one_line
from ctxvc.errors import CtxvcError
from ctxvc.store.trust import identity

#: The prefix of a reason if a request was recorded but went out as the client sent it.
UNMANAGED = "sent unchanged, ignoring the budget: "
_FOLDER = "wire"
_LONGEST = 500
_PAUSED = ".paused"


def sentence(reason: str) -> str:
    """A sentence on what was not recorded, or not managed, and why."""
    return reason if reason.startswith(UNMANAGED) else f"forwarded but not recorded: {reason}"


def report(store: Path, reason: str) -> None:
    """Saves the reason. Never fails: the disk may be full."""
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
    """Removes the reason; the next exchange shows whether it still applies."""
    with suppress(CtxvcError, OSError):
        _path(store).unlink(missing_ok=True)


def pause(store: Path, *, paused: bool) -> None:
    """Pauses or resumes managing for everything that records into a store. Raises: CtxvcError, OSError."""
    path = _path(store, make=True, suffix=_PAUSED)
    if paused:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.touch(mode=0o600)
    else:
        path.unlink(missing_ok=True)


def is_paused(store: Path) -> bool:
    """Whether requests are sent unchanged for now, whatever the budget."""
    with suppress(CtxvcError, OSError):
        return _path(store, suffix=_PAUSED).exists()
    return False


def _path(store: Path, *, make: bool = False, suffix: str = "") -> Path:
    name = hashlib.sha256(os.fsencode(store.absolute())).hexdigest()[:32]
    return identity.data_folder(make=make) / _FOLDER / f"{name}{suffix}"
