"""The whole texts of outputs that a hook truncated, stored in files until they are recorded.

The file names may come from a recording: whatever they say, only files in that folder are read.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from ctxvc.core.prompt.truncation import Truncation
from ctxvc.errors import Refused
from ctxvc.store.trust import contained

FOLDER = Path("ctxvc", "hooks", "outputs")

#: Longer files are not read: no host gives a hook that much.
_LONGEST = 256 * 1024 * 1024


def folder(store: Path) -> Path:
    """The folder with these files."""
    return store / FOLDER


def whole(store: Path, cut: Truncation) -> bytes | None:
    """The text before truncation; None if the store has no file of this name, size and checksum."""
    data = _read(store, cut.file)
    same = data is not None and len(data) == cut.bytes and hashlib.sha256(data).hexdigest().startswith(cut.sha256)
    return data if same else None


def by_address(store: Path, address: str) -> bytes | None:
    """The text that a truncation notice calls `address`, for an output not in a block yet; None if there is none."""
    for name in (address, f"{address}-1.txt"):
        if (
            re.fullmatch(r"[A-Za-z0-9_-]{1,100}-[1-9][0-9]{0,5}\.txt", name)
            and (data := _read(store, name)) is not None
        ):
            return data
    return None


def _read(store: Path, name: str) -> bytes | None:
    """The bytes of a plain file directly in the folder; None if it is missing or a link."""
    if "/" in name:
        return None
    try:
        return contained.read(store, f"{FOLDER.as_posix()}/{name}", _LONGEST)
    except (OSError, ValueError, Refused):
        return None
