"""The prompt at the end of a Claude Code transcript, read by our importer, and the offsets at which it can be cut."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.ledger import Ledger, Meta, Row
from ctxvc.core.ledger.numbering import Numbering
from ctxvc.core.prompt import formats
from ctxvc.core.prompt.outline import Bodies, Piece, outline, pieces
from ctxvc.core.prompt.sanitise import valid
from ctxvc.core.recording.events import Compacted, Event, UnitEvent
from ctxvc.core.recording.steps import Compaction, Fork, Gatherer, Step, Unit
from ctxvc.importers.claude_code import events
from ctxvc.importers.file import Recording


class PlacedPiece(NamedTuple):
    """A piece of a prompt, and the byte offset of the transcript from which the prompt has it."""

    piece: Piece
    end: int


class InMemory(Recording):
    """A transcript in memory."""

    ended = True

    def __init__(self, path: Path, data: bytes) -> None:
        super().__init__(path)
        self._data = data

    def _open(self) -> BinaryIO:
        return io.BytesIO(self._data)


class Part(Recording):
    """A transcript up to the byte offset `end`."""

    ended = True

    def __init__(self, path: Path, end: int) -> None:
        super().__init__(path, end=end)


def prompt(recording: Recording) -> list[PlacedPiece]:
    """The prompt at the transcript's end, with recorded texts unchanged. Raises: BadInput."""
    ends: dict[str, int] = {}  # block → the end of the unit that added it
    rows: list[Row] = []
    bodies: dict[tuple[str, str], bytes] = {}
    numbering = Numbering(block=0)
    for message, end in _conversation(events(recording)):
        for entry in numbering.add(message):
            rows += entry.rows
            ends |= {row.id: end for row in entry.rows}
            bodies |= {(block, suffix): data for block, suffix, data in entry.bodies}
    ledger = Ledger(meta=Meta(format=1, session="", scope="", counters=numbering.counters(0))).with_rows(rows)
    reader = Bodies(lambda row: bodies[row.id, ""], lambda row, suffix: bodies[row.id, suffix])
    return [PlacedPiece(piece, ends.get(piece.block, 0)) for piece in valid(pieces(outline(ledger), reader))]


def common(placed: list[PlacedPiece], expected: list[Piece]) -> tuple[int, int]:
    """The longest beginning of a transcript with the same pieces as `expected`: their number, and its length in bytes.

    (0, 0) if there is none. It ends after a step or a compaction.
    """
    count = 0
    for own, theirs in zip(placed, expected, strict=False):
        if own.piece.role != theirs.role or trimmed(formats.content(own.piece)) != trimmed(formats.content(theirs)):
            break
        count += 1
    differs = placed[count].end if count < len(placed) else None
    while count and placed[count - 1].end == differs:
        count -= 1
    end = placed[count - 1].end if count else 0
    return (count, end) if end else (0, 0)


def trimmed(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The blocks with texts stripped of white space, which the host changes as it joins texts, and to which no thinking
    is bound."""
    return [{**block, "text": block["text"].strip()} if block["type"] == "text" else block for block in blocks]


def _conversation(events: Iterable[Event]) -> list[tuple[Message, int]]:
    """The messages in the prompt at the end, without sub-agents', each with the end of the unit that added it.

    A compaction adds all of them anew, since the prompt before its end is a different one.
    """
    current: list[tuple[Message, int]] = []
    reached = {0: (current, 0)}  # after each unit: the messages, and their number
    scopes = {"main"}
    for number, unit in _units(events):
        match unit:
            case Step() if unit.scope in scopes:
                current += ((message, unit.end) for message in unit.messages)
            case Compaction() if unit.scope in scopes:
                messages = _compacted([message for message, _ in current], unit.event)
                current = [(message, unit.end) for message in messages]
            case Fork():
                scopes.add(unit.scope)
                before, count = reached[unit.unit]
                current = before[:count]
        reached[number] = current, len(current)
    return current


def _compacted(messages: list[Message], event: Compacted) -> list[Message]:
    if event.prompt:
        return list(event.prompt)
    retained = [message for message in messages if message.key and message.key in event.kept]
    at = next((at for at, message in enumerate(retained) if message.key == event.before), len(retained))
    return [*retained[:at], *event.summary, *retained[at:]]


def _units(events: Iterable[Event]) -> Iterator[tuple[int, Unit]]:
    gatherer = Gatherer()
    for event in events:
        if isinstance(event, UnitEvent):
            for unit in gatherer.feed(event):
                yield gatherer.number, unit
    for unit in gatherer.finish():
        yield gatherer.number, unit
