"""Runs in memory, recorded or made: the steps that a session would record, without a store."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from ctxvc.core import display as text
from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.ledger import Ledger, Meta, Row
from ctxvc.core.ledger.numbering import Numbering
from ctxvc.core.plan import Rehearsal, View
from ctxvc.core.prompt.outline import Bodies, Slot, pieces
from ctxvc.core.recording.events import Said
from ctxvc.core.view.budget import Budget
from ctxvc.importers import claude_code
from ctxvc.importers.ctxvc_trajectory import events
from ctxvc.importers.file import Recording

TRANSCRIPT = Path(__file__).parents[1] / "data" / "claude-code" / "20-02395c1048-0.jsonl"


def trajectories() -> list[Path]:
    """Every recorded trajectory on this machine; none where there are none."""
    folder = os.environ.get("CTXVC_TEST_DATA")
    return sorted((Path(folder) / "trajectories").glob("*.jsonl.gz")) if folder else []


def sample() -> list[Path]:
    """A few recorded runs of different makers; none where there are none on this machine."""
    wanted = ("agentv-34", "deer-flow-21", "entire-cli-13-34", "tau-bench-airline-4", "intercode", "swe-agent")
    files = trajectories()
    return [found for name in wanted if (found := next((file for file in files if name in file.name), None))]


class Cheap:
    """Prices without a tokenizer: four bytes are one token. Deterministic and fast."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._masks: dict[str, int] = {}

    def body(self, row: Row) -> int:
        return row.bytes // 4 + 1

    def mask(self, row: Row) -> int:
        if row.sha256 not in self._masks:
            slot = Slot(row, "mask", row.role, row.kind, call=row.call)
            self._masks[row.sha256] = self.text(text.decode(pieces([slot], self._bodies)[0].body))
        return self._masks[row.sha256]

    def text(self, words: str) -> int:
        return len(words.encode("utf-8", "surrogatepass")) // 4 + 1


@dataclass
class Run:
    """A conversation that grows in memory. `bodies` has every body there ever was, by block."""

    ledger: Ledger = field(default_factory=lambda: Ledger(meta=Meta(format=1, session="s", scope="main")))
    bodies: dict[str, bytes] = field(default_factory=dict)
    files: dict[tuple[str, str], bytes] = field(default_factory=dict)
    next_group: int = 1

    def append(self, *messages: Message) -> None:
        for message in messages:
            numbering = Numbering.of(self.ledger, self.ledger.meta.counters.block)
            for entry in numbering.add(message):
                counters = numbering.counters(self.next_group - 1)
                meta = msgspec.structs.replace(self.ledger.meta, counters=counters)
                self.ledger = self.ledger.with_rows(entry.rows).with_meta(meta)
                for block, suffix, data in entry.bodies:
                    if suffix:
                        self.files[block, suffix] = data
                    else:
                        self.bodies[block] = data

    def words(self, row: Row) -> str:
        return text.decode(self.bodies[row.id])

    def held(self) -> Bodies:
        return Bodies(lambda row: self.bodies[row.id], lambda row, suffix: self.files[row.id, suffix])

    def view(self, budget: int | Budget = 128_000, **more: Any) -> View:
        return View(
            ledger=self.ledger,
            price=more.pop("price", None) or Cheap(self.held()),
            budget=Budget(budget) if isinstance(budget, int) else budget,
            next_group=self.next_group,
            words=self.words,
            **more,
        )


@cache
def messages(file: Path) -> tuple[Message, ...]:
    """The messages of a recorded trajectory."""
    recording = Recording(file)
    return tuple(event.message for event in events(recording) if isinstance(event, Said))


@cache
def _whole(file: Path, most: int | None) -> Run:
    return running(*messages(file)[:most])


def run(file: Path, most: int | None = None) -> Run:
    """A recorded trajectory, or its first `most` messages, as a run of the caller's own."""
    whole = _whole(file, most)
    return replace(whole, bodies=dict(whole.bodies), files=dict(whole.files))


def running(*messages: Message) -> Run:
    """A run of these messages."""
    made = Run()
    made.append(*messages)
    return made


def moved(run: Run, rehearsal: Rehearsal) -> None:
    """Commits the rehearsal to the run."""
    run.ledger = rehearsal.after
    run.next_group = max([run.next_group, *(int(name[1:]) + 1 for name in rehearsal.after.groups)])


def states(ledger: Ledger, kind: str = "tool_result") -> list[str]:
    return [row.state for row in ledger.rows() if row.kind == kind]


def gone(rehearsal: Rehearsal) -> list[str]:
    """The blocks of a rehearsal that are not in the prompt after it."""
    return [row.id for row in rehearsal.rows if not row.present]


@cache
def transcript() -> tuple[Message, ...]:
    """The messages of a recorded Claude Code session, each reply in one: the host writes a line a content block."""
    merged: list[Message] = []
    replies: dict[str, int] = {}  # reply → where it is in `merged`
    for event in claude_code.events(Recording(TRANSCRIPT)):
        if not isinstance(event, Said) or event.scope:
            continue
        at = replies.setdefault(event.message.reply, len(merged)) if event.message.reply else len(merged)
        if at < len(merged):
            merged[at] = msgspec.structs.replace(merged[at], parts=(*merged[at].parts, *event.message.parts))
        else:
            merged.append(event.message)
    return tuple(merged)
