"""The versions of a file in the project's git history. Nothing in the project is run or changed."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from itertools import pairwise, takewhile
from pathlib import Path
from typing import NamedTuple

from ctxvc.store.git.program import git_says, objects, of_project

#: The most versions of a file that are read, and the most bytes of one; a larger one counts as empty.
MOST_VERSIONS = 1_000
LARGEST = 4_000_000
#: Changed files with longer paths are left out.
_LONGEST = 1_000


class FileVersion(NamedTuple):
    """A file at a commit; `commit` is empty for the file in the folder. Times are in seconds since 1970.

    `authored` survives an amend or a rebase, `committed` is the time of the last one. `name` is the path from the
    project's root; `text` is empty if the commit does not have the file.
    """

    commit: str
    authored: int
    committed: int
    name: str
    text: str


def name_in_project(path: Path) -> str:
    """A file's path from the root of its project; empty if it is in none."""
    prefix = git_says(path.parent, "rev-parse", "--show-prefix", "--is-inside-work-tree").split("\n")
    return f"{prefix[0]}{path.name}" if "true" in prefix[1:] else ""


#: The versions of a file without their texts, newest first, each with whether its commit has the file.
History = list[tuple[FileVersion, bool]]


def versions(folder: Path, history: History, since: int) -> list[FileVersion]:
    """The versions of a `history` with their texts, oldest first; `folder` is any folder in the project.

    Of the versions committed before `since`, only the last is returned.
    """
    recent = list(takewhile(lambda entry: entry[0].committed >= since, history))
    chosen = history[: len(recent) + 1][::-1]
    texts = _texts(folder, [f"{version.commit}:{version.name}" for version, exists in chosen if exists])
    return [version._replace(text=next(texts, "") if exists else "") for version, exists in chosen]


def former_names(history: History) -> dict[str, int]:
    """The paths that a file had before it was renamed → the time of the commit that renamed it."""
    renames = [
        (before.name, after.committed) for (after, _), (before, _) in pairwise(history) if before.name != after.name
    ]
    return dict(reversed(renames))


def history(folder: Path, name: str, revision: str) -> History:
    """A file's versions along first parents and renames; empty if git does not have the file at `revision`."""
    top = git_says(folder, "rev-parse", "--show-toplevel").rstrip("\n")
    output = of_project(
        Path(top or folder), "log", "--first-parent", "--diff-merges=first-parent", "--follow", "-z",
        f"--max-count={MOST_VERSIONS}", "--format=%x01%H%x20%at%x20%ct", "--name-status", revision, "--",
        f":(literal){name}",
    )  # fmt: skip
    entries = []
    for part in (output or b"").split(b"\x01")[1:]:
        head, *statuses = os.fsdecode(part).split("\0")
        fields = head.split()
        if len(fields) != 3 or len(statuses) < 2:
            continue
        commit, authored, committed = fields
        paths = [path for path in statuses[1:] if path]
        at = FileVersion(commit, _seconds(authored), _seconds(committed), paths[-1] if paths else name, "")
        entries.append((at, not statuses[0].strip().startswith("D")))
    return entries


def _seconds(text: str) -> int:
    return int(text) if text.removeprefix("-").isdigit() else 0


def _texts(folder: Path, names: Sequence[str]) -> Iterator[str]:
    """The text of each of these objects; empty if it is missing, too large or not text."""
    names = [name if "\n" not in name else "HEAD:" for name in names]
    output = of_project(folder, "cat-file", "--batch", data="".join(f"{name}\n" for name in names).encode(
        "utf-8", "surrogateescape"
    )) if names else b""  # fmt: skip
    for kind, data in objects(io.BytesIO(output or b"")):
        is_text = kind == "blob" and len(data) <= LARGEST and b"\0" not in data[:8_000]
        yield data.decode("utf-8", "replace") if is_text else ""


def changed(folder: Path, commit: str) -> list[str]:
    """The files that a commit changed relative to its first parent, as paths in the project."""
    if not folder.is_dir():
        return []
    arguments = ("-r", "-z", "--root", "--no-commit-id", "--name-only", "--diff-merges=first-parent", commit)
    output = of_project(folder, "diff-tree", *arguments) or b""
    paths = (os.fsdecode(path).encode("utf-8", "replace").decode() for path in output.split(b"\0") if path)
    return [path for path in paths if len(path) <= _LONGEST]


def patch_id(folder: Path, commit: str) -> str:
    """git's id of a commit's patch, which survives a rebase; empty if it changes nothing or has several parents."""
    if not folder.is_dir():
        return ""
    patch = of_project(folder, "diff-tree", "-p", "--root", "--no-color", commit)
    fields = (of_project(folder, "patch-id", "--stable", data=patch) or b"").split() if patch else []
    return os.fsdecode(fields[0]) if fields else ""
