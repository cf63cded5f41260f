"""Code commits reported by a hook and without a link yet: one small file each, written with hardly any imports.

They stay in the store until `links.take` makes links of them, usually a moment later.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from pathlib import Path
from typing import NamedTuple

from ctxvc.errors import Refused
from ctxvc.store.trust import contained, seals

FOLDER = "ctxvc/committed"
#: The most bytes of a file here, and of HEAD.
_MOST = 65536

#: A commit id, of either of git's object formats.
COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class CodeCommit(NamedTuple):
    """A commit of the project. `folder` is where it was made, `time` its time in ISO 8601.

    `host` and `recording` are the program that made it and that program's name for its session, empty if unknown.
    `head` is the ref of the current scope then. `replaces` are the ids, separated by spaces, of the commits that an
    amend or a rebase turned into it.
    """

    commit: str
    folder: str
    time: str
    host: str = ""
    recording: str = ""
    head: str = ""
    replaces: str = ""


def post(store: Path, commit: CodeCommit) -> None:
    """Leaves a commit for `links.take`, on the disk on return. Raises: OSError."""
    contained.make_folder(store, FOLDER)
    name = f"{FOLDER}/{time.time_ns():020}-{secrets.token_hex(4)}"  # sorts by time
    contained.replace(store, name, json.dumps([*_fields(commit), seals.seal(store, _sealed(commit))]).encode())


def pending(store: Path) -> list[tuple[Path, CodeCommit | None]]:
    """The posted commits, oldest first; None for a file that this machine did not leave. Raises: OSError, Refused."""
    names = [name for name in contained.names(store, FOLDER) if not name.startswith(".")]
    return [(store / FOLDER / name, _decoded(store, name)) for name in names]


def head(store: Path) -> str:
    """The ref that HEAD names; empty if there is none."""
    try:
        text = contained.read(store, "HEAD", _MOST).decode("utf-8", "replace")
    except (OSError, Refused):
        return ""
    return text.removeprefix("ref: ").strip() if text.startswith("ref: ") else ""


def _decoded(store: Path, name: str) -> CodeCommit | None:
    try:
        fields_read = json.loads(contained.read(store, f"{FOLDER}/{name}", _MOST))
    except (OSError, ValueError, RecursionError, Refused):
        return None
    if (
        not isinstance(fields_read, list)
        or len(fields_read) - 1 not in (len(CodeCommit._fields) - 1, len(CodeCommit._fields))
        or not all(isinstance(field, str) for field in fields_read)
    ):
        return None
    *fields, seal = fields_read
    commit = CodeCommit(*fields)
    # git is run in the folder that the entry names, so a foreign store's entry must not count.
    return commit if COMMIT.fullmatch(commit.commit) and seals.is_sealed_here(store, _sealed(commit), seal) else None


def _sealed(commit: CodeCommit) -> bytes:
    return b"committed\n" + json.dumps(_fields(commit)).encode()


def _fields(commit: CodeCommit) -> list[str]:
    """The fields as stored; commits that replace none have one field less."""
    return [*commit] if commit.replaces else [*commit[:-1]]
