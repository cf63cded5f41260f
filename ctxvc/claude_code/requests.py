"""The hooks' requests to the recorder: one small file each, removed once it is served; a partly written one is ignored.

A request that fails is set aside, one for each transcript, and retried with the next about the same transcript, or when
a person asks for it.

A hook first leaves a request, then checks whether a recorder runs; a recorder first releases its lock, then checks for
requests once more. So one of the two always sees the other, and every request is served.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ctxvc.recording import places
from ctxvc.store.trust import contained

FOLDER = "ctxvc/hooks/requests"


class Request(NamedTuple):
    """A request to read a transcript. `event` is a hook's, `detail` the event's trigger, source or reason."""

    event: str
    transcript: str
    detail: str = ""

    @property
    def last(self) -> bool:
        """Whether the transcript ends here for now, so that an open step is recorded as far as it came."""
        return self.event == "SessionEnd"

    @property
    def resumes(self) -> bool:
        """Whether the host has just compacted, and takes a text for the model."""
        return self.event == "SessionStart" and self.detail == "compact"

    @property
    def compacts(self) -> bool:
        """Whether the host is about to drop parts of its prompt, or just did."""
        return self.event == "PreCompact" or self.resumes

    @property
    def urgent(self) -> bool:
        """Whether a person or the host waits for it."""
        return self.last or self.compacts or self.event in ("PreToolUse", "PostCompact")


def post(store: Path, request: Request) -> None:
    """Writes a request under this machine's seal; no others are served. Raises: OSError, Refused."""
    name = f"{time.time_ns():020}-{os.getpid()}-{os.urandom(2).hex()}"  # sorts by time, the order of service
    places.write_sealed(store, _folder(store) / name, encoded(request))


def pending(store: Path) -> list[tuple[Path, Request]]:
    """The requests of this machine that wait, oldest first."""
    return _read(store, (name for name in _names(store) if not name.startswith(places.ASIDE)))


def foreign(store: Path) -> list[Path]:
    """The files among the requests without this machine's seal, which are neither served nor removed."""
    return [_folder(store) / name for name in _names(store) if _sealed(store, name) is None]


def _names(store: Path) -> Iterator[str]:
    return (name for name in contained.names(store, FOLDER) if not name.startswith("."))


def _read(store: Path, names: Iterable[str]) -> list[tuple[Path, Request]]:
    return [(_folder(store) / name, request) for name in names if (request := _sealed(store, name))]


def _sealed(store: Path, name: str) -> Request | None:
    try:
        return decoded(places.sealed(store, _folder(store) / name))
    except FileNotFoundError:  # it was served meanwhile, or is not ours
        return None


def set_aside(store: Path, request: Request) -> None:
    """Keeps a request that failed, of each transcript the newest. Raises: OSError."""
    places.write_sealed(store, places.aside(store, request.transcript), encoded(request))


def aside(store: Path) -> list[tuple[Path, Request]]:
    """The requests that failed."""
    return _read(store, (name for name in contained.names(store, FOLDER) if name.startswith(places.ASIDE)))


def ask_again(store: Path) -> None:
    """Posts the requests again that were set aside. Raises: OSError."""
    for path, request in aside(store):
        post(store, request)
        places.remove(store, path)


def encoded(request: Request) -> bytes:
    return json.dumps(request).encode()


def decoded(data: bytes) -> Request | None:
    """The request in bytes of `encoded`; None for any others."""
    try:
        match json.loads(data):
            case [str(event), str(transcript), str(detail)]:
                return Request(event, transcript, detail)
    except (ValueError, RecursionError):
        pass
    return None


def _folder(store: Path) -> Path:
    return store / FOLDER
