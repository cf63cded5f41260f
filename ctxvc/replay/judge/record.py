"""What was asked and what came of it: a JSON object a line, from which every figure can be worked out again."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from ctxvc.replay.judge.verdict import Choice, Verdict
from ctxvc.replay.results.file import LineFile

#: Characters of an unusable answer that are kept.
KEPT = 1_000

_Count = Annotated[int, msgspec.Meta(ge=0)]
Quantity = Literal["total", "block", "pairwise", "recency"]


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    """A question and its answer.

    `question` is the SHA-256 of its text. `unusable` says why there is no answer, and `answer` is the beginning of what
    came instead; both are empty if there is one.
    """

    model: str
    question: str
    conversation: str
    file: str
    sha256: str
    budget: _Count
    call: _Count
    unusable: str = ""
    answer: str = ""


class Judgement(_Record, frozen=True, kw_only=True, tag_field="schema", tag="ctxvc-judgement/1"):
    """A policy's plan at a cut, judged. `prune`, `dependencies` and `misses` are those of its `Sample`."""

    policy: str
    prune: float
    dependencies: _Count
    misses: _Count
    verdict: Verdict | None = None


class Preference(_Record, frozen=True, kw_only=True, tag_field="schema", tag="ctxvc-preference/1"):
    """Two policies' plans at a cut, compared. With `swapped`, the second stood as A."""

    first: str
    second: str
    swapped: bool
    choice: Choice | None = None

    @property
    def better(self) -> Literal["first", "second", "tie"] | None:
        if self.choice is None:
            return None
        if self.choice.verdict == "tie":
            return "tie"
        return "first" if (self.choice.verdict == "A_better") != self.swapped else "second"


class Estimate(_Record, frozen=True, kw_only=True, tag_field="schema", tag="ctxvc-estimate/1"):
    """A quantity of a prompt, as a model took it to be. `expected` is what the ledger says; `estimate` the answer."""

    quantity: Quantity
    dashboard: bool
    expected: int | str
    estimate: int | str | None = None


Record = Judgement | Preference | Estimate
_DECODER: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)
_BEGINNING = b'{"schema":"ctxvc-'


class RecordFile(LineFile[Record]):
    """The file of records at `path`, which may be new. Raises: BadInput if it is a file of something else."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, _DECODER.decode, "a question record", _BEGINNING)
        self._by_key = {_key(record): record for record in self.records}

    def answered(self, record: Record) -> Record | None:
        """The record with its answer, if the model was asked this question of the same place before."""
        return self._by_key.get(_key(record))

    def add(self, records: Iterable[Record]) -> None:
        """As `LineFile.add`."""
        super().add(added := list(records))
        self._by_key |= {_key(record): record for record in added}


def _key(record: Record) -> tuple[str | int, ...]:
    """What a record is of, its answer aside."""
    match record:
        case Judgement():
            about = record.policy
        case Preference():
            about = "\n".join(sorted((record.first, record.second)))
        case Estimate():
            about = f"{record.quantity} {record.dashboard}"
    place = (record.file, record.sha256, record.conversation, record.budget, record.call)
    return (type(record).__name__, record.model, record.question, *place, about)
