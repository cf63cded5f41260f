"""Whether the files of a project are as they were: their checksums."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

#: Bytes of a file that is read.
_LARGEST = 16 << 20
_DIGITS = 16


def digests(root: Path, paths: Iterable[str]) -> dict[str, str]:
    """Path → the first digits of its SHA-256; empty for what is no plain file below `root`, or larger than 16 MiB."""
    return {path: _digest(root, path) for path in paths}


def _digest(root: Path, path: str) -> str:
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or "\0" in path:
        return ""
    try:
        real = os.path.realpath(root / path)
        if not Path(real).is_relative_to(os.path.realpath(root)):
            return ""
        handle = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return ""
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST:
            return ""
        return hashlib.sha256(file.read(_LARGEST)).hexdigest()[:_DIGITS]
