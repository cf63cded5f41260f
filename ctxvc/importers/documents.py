"""Helpers for importers of runs in one JSON document, which their program rewrites as they grow.

Byte offsets mean nothing once such a file is rewritten. The position of a message is instead the size of all messages
up to it, each as JSON without spaces: it grows along the run, and differs if an earlier message was edited.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ctxvc.core.ledger import wire
from ctxvc.core.recording.events import Event, Opened, Said, Warned
from ctxvc.errors import BadInput
from ctxvc.forms.values import digest, text_of
from ctxvc.importers.file import Recording
from ctxvc.importers.protocol import Conversations, Importer, State
from ctxvc.importers.request_log import opening

#: The endings of names of files with one document.
DOCUMENT = (".json", ".json.gz")


class Entry(NamedTuple):
    """A message of a document. `number` counts from 1; `end` as in events."""

    number: int
    value: Any
    end: int


def entries(messages: Sequence[Any]) -> Iterator[Entry]:
    """The messages with their numbers and positions."""
    end = 0
    for number, value in enumerate(messages, 1):
        end += len(wire.compact(value))
        yield Entry(number, value, end)


class Document(NamedTuple):
    """The value of a file, up to its damage if it has some: the last message before that may be incomplete."""

    value: Any
    damage: str = ""

    def sound(self, messages: Sequence[Any]) -> Sequence[Any]:
        """The messages without a last one that may be incomplete."""
        return messages[:-1] if self.damage else messages

    def warnings(self) -> Iterator[Warned]:
        if self.damage:
            yield Warned(text=f"{self.damage}: the messages before it are imported")


def document(recording: Recording) -> Document:
    """The JSON document in a file, or its beginning if it is cut off or damaged. Raises: BadInput."""
    data = recording.document()
    try:
        return Document(wire.parse(data))
    except json.JSONDecodeError as error:
        # Its program may be writing it right now, or a disk was full.
        values = opening(data.decode("utf-8")[: error.pos].encode())
        if values and isinstance(values[0], (dict, list)):
            return Document(values[0], f"the JSON is cut or damaged at character {error.pos + 1}")
        raise BadInput(f"{recording.path}: not a JSON document: {error}") from error
    except ValueError as error:
        raise BadInput(f"{recording.path}: {error}") from error


def identity(stem: str, *beginning: Any) -> str:
    """An id for a recording without one: its file's name, and a checksum of its beginning."""
    return f"{stem}-{digest(beginning).hex()[:12]}"


def mapping(value: Any, *path: str) -> dict[str, Any]:
    """The object at `path` within `value`; an empty one if there is none."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def text_at(value: Any, *path: str) -> str:
    """The text at `path` within `value`; empty if there is none."""
    return text_of(mapping(value, *path[:-1]).get(path[-1]))


def importer(
    format: str,
    sniff: Callable[[bytes], bool],
    conversations: Callable[[Recording], Conversations],
    endings: tuple[str, ...] = DOCUMENT,
) -> Importer:
    """The importer of a format whose recordings grow, and are read whole to find their position."""

    def state(path: Path, positions: Mapping[str, int]) -> State:
        ends = dict(_end(suffix, events) for suffix, events in conversations(Recording(path)))
        if not ends.keys() & positions.keys():
            return "missing"
        return "grown" if any(end > positions.get(source, 0) for source, end in ends.items()) else "whole"

    return Importer(format=format, sniff=sniff, conversations=conversations, endings=endings, grows=True, state=state)


def _end(suffix: str, events: Iterator[Event]) -> tuple[str, int]:
    source, end = "", 0
    for event in events:
        if isinstance(event, Opened):
            source = source or event.source
        elif isinstance(event, Said):
            end = event.end
    return f"{source}{suffix}", end
