"""Lists of LangChain messages → events: a JSON document, or a message a line.

A document is the list, or an object with it: a prompt, a history, the state of an agent.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from ctxvc.core.ledger import name_rules, wire
from ctxvc.core.recording.events import Closed, Event, Opened, Said, Warned
from ctxvc.errors import BadInput
from ctxvc.importers import documents
from ctxvc.importers.documents import Entry
from ctxvc.importers.file import Recording
from ctxvc.importers.langchain_messages import Reader, fields_of, identity, leading_system
from ctxvc.importers.protocol import JSON, single
from ctxvc.importers.request_log import opening

FORMAT = "langchain"

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
    in_lines = fields_of(wire.parsed(recording.first_line().decode("utf-8", "replace"), dict)) is not None
    stream = _lines(recording) if in_lines else _document(recording)
    # The recording's id comes from the first message, and in a document, which is complete, from the second too.
    beginning: list[Entry | Warned] = []
    messages: list[dict[str, Any]] = []
    for item in stream:
        beginning.append(item)
        if isinstance(item, Entry) and (message := fields_of(item.value)):
            messages.append(message)
        if len(messages) == (1 if in_lines else 2):
            break
    if not messages:
        raise BadInput(f"{recording.path}: no message in the format {FORMAT}")
    system, skipped = leading_system(messages[:1])
    yield Opened(
        format=FORMAT,
        source=documents.identity(recording.stem, *map(identity, messages)),
        name=name_rules.slug(recording.stem),
        agent="LangChain",
        system=system,
        missing=_MISSING if system else ("the system prompt", *_MISSING),
        grows=True,
    )
    reader = Reader()
    for item in chain(beginning, stream):
        if isinstance(item, Warned):
            yield item
            continue
        fields = fields_of(item.value)
        if fields and skipped:
            skipped = 0  # it is the system prompt
            continue
        converted = reader.message(fields, f"message:{item.number}") if fields else "it is not one of LangChain's"
        if isinstance(converted, str):
            line = item.number if in_lines else 0
            yield Warned(text=f"message {item.number} was skipped: {converted}", line=line)
            continue
        yield Said(message=converted, end=item.end)
        yield Closed(end=item.end)


IMPORTER = documents.importer(FORMAT, sniff, single(events), JSON)


def _document(recording: Recording) -> Iterator[Entry | Warned]:
    """The messages in a document. Raises: BadInput."""
    document = documents.document(recording)
    yield from document.warnings()
    yield from documents.entries(document.sound(_messages(document.value)))


def _lines(recording: Recording) -> Iterator[Entry | Warned]:
    """The values in the lines of a file. Raises: BadInput."""
    for line in recording.lines():
        try:
            yield Entry(line.number, wire.parse(line.data), line.end)
        except ValueError as error:
            if line.complete:  # else it is being written
                yield Warned(text=f"not JSON: {error}", line=line.number)
