"""What hooks ask of the recorder: one small file each, gone once it is done. A request that was killed half is none.

What cannot be done is set aside, one request a transcript, and tried again with the next about the same transcript, or
when a person says so.

Whoever leaves one then looks whether a recorder runs; a recorder that ends looks for requests once more after it let go
of its lock. So one of the two always sees the other, and no request waits for nobody.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ctxvc.recording import places
from ctxvc.store import contained

FOLDER = "ctxvc/hooks/requests"


class Request(NamedTuple):
    """Look at a transcript. `event` and `detail` say why: a hook's event, and its trigger, source or reason."""

    event: str
    transcript: str
    detail: str = ""

    @property
    def last(self) -> bool:
        """Whether nothing follows in the transcript for now: what is open is taken as it is."""
        return self.event == "SessionEnd"

    @property
    def resumes(self) -> bool:
        """Whether the host has just compacted, and takes what the model is to be told of it."""
        return self.event == "SessionStart" and self.detail == "compact"

    @property
    def compacts(self) -> bool:
        """Whether the host is about to drop what stands in its prompt, or just has."""
        return self.event == "PreCompact" or self.resumes

    @property
    def urgent(self) -> bool:
        """Whether somebody waits for it."""
        return self.last or self.compacts


def post(store: Path, request: Request) -> None:
    """Leaves a request, sealed: nobody else's is obeyed. Raises: OSError, Refused."""
    places.write_sealed(store, _folder(store) / _name(), encoded(request))


def _name() -> str:
    """A new name, in the order of time: requests are taken as they were made."""
    return f"{time.time_ns():020}-{os.getpid()}-{os.urandom(2).hex()}"


def pending(store: Path) -> list[tuple[Path, Request]]:
    """The requests of this machine that are not done, oldest first."""
    return _read(store, (name for name in _names(store) if not name.startswith(places.ASIDE)))


def foreign(store: Path) -> list[Path]:
    """What lies among the requests and is not under this machine's seal: nothing obeys it, and nothing removes it."""
    return [_folder(store) / name for name in _names(store) if _sealed(store, name) is None]


def _names(store: Path) -> Iterator[str]:
    return (name for name in contained.names(store, FOLDER) if not name.startswith("."))


def _read(store: Path, names: Iterable[str]) -> list[tuple[Path, Request]]:
    return [(_folder(store) / name, request) for name in names if (request := _sealed(store, name))]


def _sealed(store: Path, name: str) -> Request | None:
    try:
        return decoded(places.sealed(store, _folder(store) / name))
    except FileNotFoundError:  # it was done meanwhile, or is somebody else's
        return None


def set_aside(store: Path, request: Request) -> None:
    """Keeps what could not be done; of several about one transcript the newest. Raises: OSError."""
    places.write_sealed(store, places.aside(store, request.transcript), encoded(request))


def aside(store: Path) -> list[tuple[Path, Request]]:
    """The requests that could not be done."""
    return _read(store, (name for name in contained.names(store, FOLDER) if name.startswith(places.ASIDE)))


def ask_again(store: Path) -> None:
    """What was set aside is asked for once more. Raises: OSError."""
    for path, request in aside(store):
        post(store, request)
        places.remove(store, path)


def waiting(store: Path, transcript: str) -> bool:
    """Whether something is still to be done about a transcript."""
    return any(request.transcript == transcript for _, request in pending(store))


def encoded(request: Request) -> bytes:
    return json.dumps(request).encode()


def decoded(data: bytes) -> Request | None:
    """The request that `encoded` gave; None for anything else."""
    try:
        match json.loads(data):
            case [str(event), str(transcript), str(detail)]:
                return Request(event, transcript, detail)
    except (ValueError, RecursionError):
        pass
    return None


def _folder(store: Path) -> Path:
    return store / FOLDER
