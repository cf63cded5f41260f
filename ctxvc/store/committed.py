"""Code commits that a hook has told of and that are no links yet: a small file each, made with next to nothing loaded.

They wait in the store until somebody makes links of them (`links.take`), mostly a moment later.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from pathlib import Path
from typing import NamedTuple

from ctxvc.store import durable

#: The id of a commit, of either object format of git.
COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class Told(NamedTuple):
    """A commit of the project. `folder` is where it was made, `time` when, in ISO 8601.

    `host` and `recording` are the program that ran it and that program's name for its session, empty where none says
    so. `head` is the ref of the scope that was current.
    """

    commit: str
    folder: str
    time: str
    host: str = ""
    recording: str = ""
    head: str = ""


def post(store: Path, told: Told) -> None:
    """Leaves a commit for `links.take`; it is on the disk when this returns. Raises: OSError."""
    folder = _folder(store)
    folder.mkdir(mode=0o700, exist_ok=True)
    # Names in the order of time.
    durable.replace(folder / f"{time.time_ns():020}-{secrets.token_hex(4)}", json.dumps(told).encode())


def pending(store: Path) -> list[tuple[Path, Told | None]]:
    """What waits, oldest first; None for a file that is none of ours. Raises: OSError."""
    try:
        names = sorted(name for name in os.listdir(_folder(store)) if not name.startswith("."))
    except FileNotFoundError:
        return []
    return [(path, _decoded(path)) for path in (_folder(store) / name for name in names)]


def head(store: Path) -> str:
    """The ref of the current scope; empty where there is none."""
    try:
        words = (store / "HEAD").read_text("utf-8", "replace")
    except OSError:
        return ""
    return words.removeprefix("ref: ").strip() if words.startswith("ref: ") else ""


def _decoded(path: Path) -> Told | None:
    try:
        words = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if (
        not isinstance(words, list)
        or len(words) != len(Told._fields)
        or not all(isinstance(each, str) for each in words)
    ):
        return None
    told = Told(*words)
    return told if COMMIT.fullmatch(told.commit) else None


def _folder(store: Path) -> Path:
    return store / "ctxvc" / "committed"
