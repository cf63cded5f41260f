"""The members that every format's module or package offers, and those members for formats that need nothing special.

A recording may be a file that grows line by line, a document, or a database. Only its importer knows which: all others
hand it a `Recording` and take events.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from ctxvc.core.recording.events import Event
from ctxvc.errors import BadInput
from ctxvc.importers.file import Recording

#: A recording as its conversations: for each the suffix of its name and id (empty for an only one), and its events.
Conversations = Iterator[tuple[str, Iterator[Event]]]

#: How much of a recording a store has.
State = Literal["whole", "grown", "missing"]

#: Endings of files with one JSON value a line, and of those that may also be a single document.
LINES = (".jsonl", ".jsonl.gz")
JSON = (*LINES, ".json", ".json.gz")

#: Bytes after the newest recorded one in which a message is looked for.
_TAIL = 4_000_000
_MESSAGE = re.compile(rb'"role"\s*:\s*"(?:user|assistant)"')


class Stamp(NamedTuple):
    """Changes whenever a recording does. `written` is when it last did, in nanoseconds since the epoch."""

    size: int
    written: int

    @property
    def age(self) -> float:
        """Seconds since the recording last changed."""
        return time.time() - self.written / 1e9


class Importer(Protocol):
    """A module or package of `ctxvc.importers`, named after its format with `_` for `-`.

    Events carry positions (`end`), from which a store later continues: byte offsets of the unpacked file, or any other
    whole number that grows along the recording, such as a row's number in a database. A recording belongs to another
    program and may be in use: it is opened for reading only.
    """

    FORMAT: str
    ENDINGS: tuple[str, ...]
    """Endings of the names of its files."""
    GROWS: bool
    """Whether its program appends to a recording, so that one can be followed."""

    def sniff(self, head: bytes) -> bool:
        """Whether a file that begins with `head` is of this format."""
        ...

    def conversations(self, recording: Recording) -> Conversations:
        """The conversations of a recording; nearly always one.

        Of a recording that holds conversations of many projects, only those of `recording.projects`, if it names any.
        Raises: BadInput, also while events are taken.
        """
        ...

    def folders(self, project: Path, home: Path, env: Mapping[str, str]) -> list[Path]:
        """The folders in which its program keeps sessions of `project`."""
        ...

    def recordings(self, folder: Path, project: Path) -> Iterable[Path]:
        """The recordings in one of the `folders` that have sessions of `project`, without those `beside` others."""
        ...

    def beside(self, path: Path) -> list[Path]:
        """The recordings of sub-agents that belong to the one at `path`."""
        ...

    def files(self, path: Path) -> Iterable[Path]:
        """All files in which its program keeps the recording at `path`, that one first."""
        ...

    def stamp(self, path: Path) -> Stamp:
        """When and how the recording at `path` last changed. Raises: OSError."""
        ...

    def state(self, path: Path, positions: Mapping[str, int]) -> State:
        """How much of the recording at `path` a store has that took those with these ids up to these positions."""
        ...


# Members for formats of files that lie anywhere, hold one conversation, and have nothing beside them.


def single(events: Callable[[Recording], Iterator[Event]]) -> Callable[[Recording], Conversations]:
    """`conversations` of a format whose files hold one."""

    def conversations(recording: Recording) -> Conversations:
        yield "", events(recording)

    return conversations


def no_folders(project: Path, home: Path, env: Mapping[str, str]) -> list[Path]:  # noqa: ARG001 - an importer's
    """`folders` of a format that no program keeps in a place of its own."""
    return []


def no_recordings(folder: Path, project: Path) -> Iterable[Path]:  # noqa: ARG001 - an importer's
    """`recordings` of a format without `folders`."""
    return ()


def nothing_beside(path: Path) -> list[Path]:  # noqa: ARG001 - an importer's
    """`beside` of a format that keeps sub-agents in the session's own recording, or has none."""
    return []


def only_file(path: Path) -> Iterable[Path]:
    """`files` of a recording that is one file."""
    return (path,)


def file_stamp(path: Path) -> Stamp:
    """`stamp` of a recording that is one file."""
    status = path.stat()
    return Stamp(status.st_size, status.st_mtime_ns)


def file_state(path: Path, positions: Mapping[str, int]) -> State:
    """`state` of a file with JSON messages whose name ends in the recording's id."""
    return lines_state(path, positions, Recording(path).stem, _MESSAGE)


def lines_state(path: Path, positions: Mapping[str, int], name: str, message: re.Pattern[bytes]) -> State:
    """`state` of a file of JSON lines, where `name` ends in the recording's id and `message` is in every message."""
    offset = max((offset for source, offset in positions.items() if name.endswith(source)), default=None)
    if offset is None:
        return "missing"
    if path.suffix == ".gz":
        return "whole"
    with path.open("rb") as file:
        file.seek(offset)
        return "grown" if message.search(file.read(_TAIL)) else "whole"


def of_project(paths: Iterable[Path], project: Path, is_of_project: Callable[[bytes, str], bool]) -> Iterator[Path]:
    """The files of `project` among `paths`, as `is_of_project` judges by their first bytes."""
    for path in paths:
        try:
            if is_of_project(Recording(path).head(), str(project)):
                yield path
        except BadInput:
            continue  # an unreadable file is of no project
