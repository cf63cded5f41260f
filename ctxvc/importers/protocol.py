"""The interface of every format: an `Importer`, and helpers for writing one.

A recording may be a file that grows line by line, a document, or a database. Only its importer knows which; everybody
else hands it a `Recording` and receives events.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from ctxvc.core.ledger import wire
from ctxvc.core.recording.events import Event, Warned
from ctxvc.errors import BadInput
from ctxvc.forms.values import text_in
from ctxvc.importers.file import Line, Recording, object_in

#: The conversations of a recording: the suffix of the name and id of each (empty if it is the only one), its events.
Conversations = Iterator[tuple[str, Iterator[Event]]]

#: How much of a recording a store has.
State = Literal["whole", "grown", "missing"]

#: The endings of files with a JSON value a line, and of files that may also be one document.
LINES = (".jsonl", ".jsonl.gz")
JSON = (*LINES, ".json", ".json.gz")

#: The bytes after the newest recorded position that are searched for a message.
_TAIL = 4_000_000
_CWD = re.compile(rb'"cwd":\s*("(?:[^"\\]|\\.)*")')
_MESSAGE = re.compile(rb'"role"\s*:\s*"(?:user|assistant)"')


class WarnedOnce:
    """Yields a warning about a line, once for each reason."""

    def __init__(self) -> None:
        self._reasons: set[str] = set()

    def __call__(self, reason: str, line: Line) -> Iterator[Warned]:
        if reason not in self._reasons:
            self._reasons.add(reason)
            yield Warned(text=reason, line=line.number)


class Stamp(NamedTuple):
    """Differs whenever a recording changed. `written` is its last change, in nanoseconds since 1970."""

    size: int
    written: int

    @property
    def age(self) -> float:
        """Seconds since the recording last changed."""
        return time.time() - self.written / 1e9


def single(events: Callable[[Recording], Iterator[Event]]) -> Callable[[Recording], Conversations]:
    """`Importer.conversations` of a format with one conversation a file."""

    def conversations(recording: Recording) -> Conversations:
        yield "", events(recording)

    return conversations


def file_stamp(path: Path) -> Stamp:
    """`Importer.stamp` of a recording that is one file."""
    status = path.stat()
    return Stamp(status.st_size, status.st_mtime_ns)


def file_state(
    path: Path, positions: Mapping[str, int], name: str = "", message: re.Pattern[bytes] = _MESSAGE
) -> State:
    """`Importer.state` of a file of JSON lines, whose messages match `message`.

    The recording's id is the end of `name`, by default the file's.
    """
    name = name or Recording(path).stem
    offset = max((offset for source, offset in positions.items() if name.endswith(source)), default=None)
    if offset is None:
        return "missing"
    if path.suffix == ".gz":
        return "whole"
    with path.open("rb") as file:
        file.seek(offset)
        return "grown" if message.search(file.read(_TAIL)) else "whole"


class Importer(msgspec.Struct, frozen=True, kw_only=True):
    """The `IMPORTER` of a module or package of `ctxvc.importers`, which is named after its format with `_` for `-`.

    The defaults are for files that may be anywhere, are not followed, and have nothing beside them. Events have a
    position (`end`), from which a store later continues: a byte offset in the unpacked file, or any other integer that
    grows along the recording, such as a row's number in a database. A recording belongs to another program and may be
    in use: it is opened for reading only.
    """

    format: str
    sniff: Callable[[bytes], bool]
    """Whether a file that begins with these bytes is of this format."""
    conversations: Callable[[Recording], Conversations]
    """The conversations of a recording; nearly always one (`single`).

    In a recording of many projects, only those of `recording.projects`, if it names any.
    Raises: BadInput, also while events are taken.
    """
    endings: tuple[str, ...] = JSON
    """The endings of its files' names."""
    grows: bool = False
    """Whether its program appends to a recording, so that it can be followed."""
    folders: Callable[[Path, Path, Mapping[str, str]], list[Path]] = lambda *_: []
    """The folders with its program's sessions, by the project, the person's home and the environment."""
    recordings: Callable[[Path, Path], Iterable[Path]] = lambda *_: ()
    """The recordings of a project in one of the `folders`, without those `beside` others."""
    beside: Callable[[Path], list[Path]] = lambda _: []
    """The recordings of sub-agents that belong to the one at a path."""
    more_files: Callable[[Path], Iterable[Path]] | None = None
    """The other files of the recording at a path; None if these are those `beside` it."""
    stamp: Callable[[Path], Stamp] = file_stamp
    """The stamp of the recording at a path. Raises: OSError."""
    state: Callable[[Path, Mapping[str, int]], State] = file_state
    """How much of the recording at a path a store has, by the position up to which it has each id."""

    def files(self, path: Path) -> Iterator[Path]:
        """All files of the recording at a path, that path first."""
        yield path
        yield from (self.more_files or self.beside)(path)


def folder_of(head: bytes) -> str:
    """The folder in the first JSON field `cwd`; empty if there is none."""
    match = _CWD.search(head)
    try:
        return str(wire.parse(match[1])) if match else ""
    except ValueError:
        return ""


def starting_call(path: Path) -> str:
    """The id of the call that started the sub-agent with this file, from the host's note beside it; else empty."""
    return text_in(object_in(path.with_suffix(".meta.json")), "toolUseId")


def is_within(folder: str, project: str) -> bool:
    """Whether a recorded path of any operating system is the folder `project` or below it."""
    root = project.rstrip("/\\")
    return folder != "" and (folder.rstrip("/\\") == root or folder.startswith((root + "/", root + "\\")))


def names_project(head: bytes, project: str) -> bool:
    """Whether the first `cwd` in `head` is the folder `project` or below it."""
    return is_within(folder_of(head), project)


def of_project(
    paths: Iterable[Path], project: Path, is_of_project: Callable[[bytes, str], bool] = names_project
) -> Iterator[Path]:
    """The files among `paths` that `is_of_project` accepts for `project` by their first bytes."""
    for path in paths:
        try:
            if is_of_project(Recording(path).head(), str(project)):
                yield path
        except BadInput:
            continue  # an unreadable file is of no project
