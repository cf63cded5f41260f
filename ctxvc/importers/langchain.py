"""Lists of LangChain messages → events: a JSON document, or a message a line.

A document is the list itself, or an object that has it: a prompt, a history, the state of an agent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ctxvc.core.ledger import names, wire
from ctxvc.core.recording.events import Closed, Event, Opened, Said, Warned
from ctxvc.errors import BadInput
from ctxvc.importers import documents
from ctxvc.importers.documents import Entry
from ctxvc.importers.file import Recording
from ctxvc.importers.langchain_messages import Reader, fields_of, identity, leading_system
from ctxvc.importers.protocol import (
    JSON,
    file_stamp,
    no_folders,
    no_recordings,
    nothing_beside,
    only_file,
    single,
)
from ctxvc.importers.request_log import opening

FORMAT = "langchain"
ENDINGS = JSON
GROWS = True

_MISSING = ("the tool definitions",)


def sniff(head: bytes) -> bool:
    """Whether `head` begins with a message of LangChain, alone or in a list."""
    if b'"type"' not in head:
        return False
    values = opening(head)
    first = values[0] if values else None
    messages = [first] if fields_of(first) else _messages(first)
    return bool(messages) and fields_of(messages[0]) is not None


def _messages(value: Any) -> list[Any]:
    """The messages in a document."""
    match value:
        case list():
            return value
        case {"messages": list(messages)} | {"kwargs": {"messages": list(messages)}}:
            return messages
    return []


def events(recording: Recording) -> Iterator[Event]:
    """The events of the list. Raises: BadInput if the file has no message."""
    entries = _entries(recording)
    first: list[Entry] = []  # as many as tell the system prompt and the recording's id
    warnings: list[Warned] = []
    for entry in entries:
        if isinstance(entry, Warned):
            warnings.append(entry)
            continue
        first.append(entry)
        if (fields_of(entry.value) or {}).get("type") not in ("system", "developer"):
            break
    beginning = [message for entry in first if (message := fields_of(entry.value))]
    if not beginning:
        raise BadInput(f"{recording.path}: no message in the format {FORMAT}")
    system, count = leading_system(beginning)
    yield Opened(
        format=FORMAT,
        source=documents.identity(recording.stem, *map(identity, beginning)),
        name=names.slug(recording.stem),
        agent="LangChain",
        system=system,
        missing=_MISSING if system else ("the system prompt", *_MISSING),
        grows=True,
    )
    yield from warnings
    reader = Reader()
    for entry in (*first[count:], *entries):
        if isinstance(entry, Warned):
            yield entry
            continue
        message = fields_of(entry.value)
        converted = reader.message(message, f"message:{entry.number}") if message else "it is none of LangChain's"
        if isinstance(converted, str):
            yield Warned(text=f"message {entry.number} was skipped: {converted}")
            continue
        yield Said(message=converted, end=entry.end)
        yield Closed(end=entry.end)


conversations = single(events)
folders = no_folders
recordings = no_recordings
beside = nothing_beside
files = only_file
stamp = file_stamp
state = documents.state_by_events(conversations)


def _entries(recording: Recording) -> Iterator[Entry | Warned]:
    """The values in the list, or in the lines. Raises: BadInput."""
    lines = recording.lines()
    first = next(lines, None)
    if first is None:
        raise BadInput(f"{recording.path}: the file is empty")
    try:
        value = wire.parse(first.data)
    except ValueError:
        value = None
    if not fields_of(value):
        document = documents.document(recording)
        yield from document.warnings()
        yield from documents.entries(document.sound(_messages(document.value)))
        return
    yield Entry(1, value, first.end)
    for line in lines:
        try:
            yield Entry(line.number, wire.parse(line.data), line.end)
        except ValueError as error:
            if line.complete:  # else it is being written
                yield Warned(text=f"not JSON: {error}", line=line.number)
