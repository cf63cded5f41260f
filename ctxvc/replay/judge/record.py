"""What was asked and what came of it: a JSON object a line, from which every figure can be worked out again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from ctxvc.errors import BadInput
from ctxvc.replay.judge.verdict import Choice, Verdict
from ctxvc.store import files

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
_ENCODER = msgspec.json.Encoder(order="deterministic")
_BEGINNING = b'{"schema":"ctxvc-'


def encode(record: Record) -> bytes:
    """The record as a line of a file, with its line feed."""
    return _ENCODER.encode(record) + b"\n"


def decode(line: bytes) -> Record:
    """The record in a line. Raises: msgspec.MsgspecError."""
    return _DECODER.decode(line)


class RecordFile:
    """The file of records at `path`, which may be new. Raises: BadInput if it is a file of something else."""

    def __init__(self, path: Path) -> None:
        self.path = path
        data = path.read_bytes() if path.exists() else b""
        end = data.rfind(b"\n") + 1
        tail = data[end:]
        hint = "name another file, or remove this one"
        if not (tail.startswith(_BEGINNING) or _BEGINNING.startswith(tail)):
            raise BadInput(f"{path}: its last line is not a question record", hint=hint)
        self.records: list[Record] = []
        for number, text in enumerate(data[:end].splitlines(), 1):
            try:
                self.records.append(decode(text))
            except msgspec.MsgspecError as error:
                raise BadInput(f"{path}, line {number}: not a question record: {error}", hint=hint) from error
        with path.open("ab") as file:
            file.truncate(end)  # a kill left a part of a line
        self._by_key = {_key(record): record for record in self.records}

    def answered(self, record: Record) -> Record | None:
        """The record with its answer, if the model was asked this question of the same place before."""
        return self._by_key.get(_key(record))

    def add(self, record: Record) -> None:
        """Adds a record, on the disk when this returns."""
        self.records.append(record)
        self._by_key[_key(record)] = record
        with self.path.open("ab") as file:
            file.write(encode(record))
            file.flush()
            files.sync(file.fileno())


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
