"""A Claude Code transcript, judged by what it comes to: the prompt at its end, and where it can be cut.

It is read by our own importer, as a file that was just written or as the one that a session was recorded from.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.ledger import Ledger, Meta, Row
from ctxvc.core.ledger.numbering import Numbering
from ctxvc.core.prompt import formats
from ctxvc.core.prompt.outline import Bodies, Piece, outline, pieces
from ctxvc.core.prompt.sanitise import valid
from ctxvc.core.recording.events import Closed, Compacted, Event, Forked, Said
from ctxvc.core.recording.steps import Compaction, Fork, Gatherer, Step, Unit
from ctxvc.importers.claude_code.read import own_events
from ctxvc.importers.file import Line, Recording


class Standing(NamedTuple):
    """A piece of a prompt, and the byte offset of the transcript from which on it stands in it like this."""

    piece: Piece
    end: int


class Held(Recording):
    """A transcript in memory."""

    def __init__(self, path: Path, data: bytes) -> None:
        super().__init__(path)
        self._data = data

    def _open(self) -> BinaryIO:
        return io.BytesIO(self._data)


class Part(Recording):
    """A transcript up to the byte offset `end`."""

    def __init__(self, path: Path, end: int) -> None:
        super().__init__(path)
        self._end = end

    def lines(self) -> Iterator[Line]:
        for line in super().lines():
            if line.end > self._end:
                return
            yield line


def prompt(recording: Recording) -> list[Standing]:
    """What the model would be sent after the transcript, recorded words as they are. Raises: BadInput."""
    ends: dict[str, int] = {}  # block → the end of what brought it to its place
    rows: list[Row] = []
    bodies: dict[tuple[str, str], bytes] = {}
    numbering = Numbering(block=0)
    for message, end in _conversation(own_events(recording)):
        for entry in numbering.add(message):
            rows += entry.rows
            ends |= {row.id: end for row in entry.rows}
            bodies |= {(block, suffix): data for block, suffix, data in entry.bodies}
    ledger = Ledger(meta=Meta(format=1, session="", scope="", counters=numbering.counters(0))).with_rows(rows)
    read = Bodies(lambda row: bodies[row.id, ""], lambda row, suffix: bodies[row.id, suffix])
    return [Standing(piece, ends.get(piece.block, 0)) for piece in valid(pieces(outline(ledger), read))]


def common(standing: list[Standing], wanted: list[Piece]) -> tuple[int, int]:
    """How far a transcript goes that comes to the beginning of `wanted`: the pieces it holds, and its end in bytes.

    (0, 0) where no part of it does. It ends where nothing is half done: behind a step or a compaction.
    """
    same = 0
    for own, other in zip(standing, wanted, strict=False):
        if own.piece.role != other.role or formats.content(own.piece) != formats.content(other):
            break
        same += 1
    differs = standing[same].end if same < len(standing) else None
    while same and standing[same - 1].end == differs:
        same -= 1
    end = standing[same - 1].end if same else 0
    return (same, end) if end else (0, 0)


def _conversation(events: Iterable[Event]) -> list[tuple[Message, int]]:
    """The messages that stand in the prompt at the end, sub-agents' left out, each with the end that brought it there.

    A compaction brings all that stand after it: before its end the prompt is another.
    """
    current: list[tuple[Message, int]] = []
    reached = {0: (current, 0)}  # after each unit: the messages, as many as there were
    scopes = {"main"}
    for number, unit in _units(events):
        match unit:
            case Step() if unit.scope in scopes:
                current += ((message, unit.end) for message in unit.messages)
            case Compaction() if unit.scope in scopes:
                current = [(message, unit.end) for message in _compacted([each for each, _ in current], unit.event)]
            case Fork():
                scopes.add(unit.scope)
                before, count = reached[unit.unit]
                current = before[:count]
        reached[number] = current, len(current)
    return current


def _compacted(messages: list[Message], event: Compacted) -> list[Message]:
    kept = [message for message in messages if message.key and message.key in event.kept]
    at = next((at for at, message in enumerate(kept) if message.key == event.before), len(kept))
    return [*kept[:at], *event.summary, *kept[at:]]


def _units(events: Iterable[Event]) -> Iterator[tuple[int, Unit]]:
    gatherer = Gatherer()
    for event in events:
        if isinstance(event, Said | Closed | Compacted | Forked):
            for unit in gatherer.feed(event):
                yield gatherer.number, unit
    for unit in gatherer.finish():
        yield gatherer.number, unit
