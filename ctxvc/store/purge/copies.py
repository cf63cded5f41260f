"""Copies outside a store of the content that a purge erases: other programs' files, which are searched, never
changed."""

from __future__ import annotations

import gzip
import os
import stat
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Literal

import msgspec

from ctxvc.store.purge.scrub import Scrub

#: The time for all files together, in seconds.
SECONDS = 10.0
_PIECE = 1 << 22
#: Each piece is searched together with the end of the one before it, so that nothing is missed between them.
_OVERLAP = 1 << 16


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    """A place outside the store and whether it has some of the content; `why` explains an unknown state."""

    kind: Literal["transcript", "exports"]
    place: str = ""
    state: Literal["has", "clean", "unknown"]
    why: str = ""


#: An export is an ordinary file, written to wherever a person chose.
EXPORTS = Copy(kind="exports", state="unknown", why="the places of exports are not recorded")


def copies(
    scrub: Scrub, transcripts: Iterable[Path], *, seconds: float = SECONDS, clock: Callable[[], float] = time.monotonic
) -> Iterator[Copy]:
    """The state of each file, then the places that cannot be searched."""
    until = clock() + seconds
    for path in transcripts:
        state, why = _state(scrub, path, lambda: clock() > until)
        yield Copy(kind="transcript", place=str(path), state=state, why=why)
    yield EXPORTS


def _state(scrub: Scrub, path: Path, late: Callable[[], bool]) -> tuple[Literal["has", "clean", "unknown"], str]:
    try:
        # A named pipe would block, and a link may lead anywhere.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return "unknown", "it is not a regular file"
            if path.suffix != ".gz":
                return _searched(scrub, file, late)
            with gzip.open(file) as unpacked:
                return _searched(scrub, unpacked, late)
    except (OSError, EOFError, zlib.error) as error:
        return "unknown", getattr(error, "strerror", None) or str(error)


def _searched(
    scrub: Scrub, file: IO[bytes] | gzip.GzipFile, late: Callable[[], bool]
) -> tuple[Literal["has", "clean", "unknown"], str]:
    behind = b""
    while not late():
        piece = file.read(_PIECE)
        if not piece:
            return "clean", ""
        if scrub.has(behind + piece):
            return "has", ""
        behind = (behind + piece)[-_OVERLAP:]
    return "unknown", "the search ran out of time"
