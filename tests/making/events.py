"""What the events of a recording tell."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ctxvc import importers
from ctxvc.core.ledger.block import Message, Part
from ctxvc.core.recording.events import Event, Said
from ctxvc.importers.file import Recording


def messages(events: Iterable[Event]) -> list[Message]:
    return [event.message for event in events if isinstance(event, Said)]


def parts(events: Iterable[Event]) -> list[Part]:
    return [part for message in messages(events) for part in message.parts]


def only(kind: type, events: Iterable[Event]) -> Any:
    """The one event of that kind."""
    (found,) = (event for event in events if isinstance(event, kind))
    return found


def written(path: Path, *values: Any) -> Path:
    """A file with a JSON value a line; bytes stand for themselves."""
    lines = (value if isinstance(value, bytes) else json.dumps(value).encode() for value in values)
    path.write_bytes(b"".join(line.rstrip(b"\n") + b"\n" for line in lines))
    return path


def read(path: Path, format: str = "auto") -> list[Event]:
    """The events of all conversations in a file."""
    recording = Recording(path)
    name = importers.detect(recording) if format == "auto" else format
    return [event for _, events in importers.conversations(recording, name) for event in events]
