"""The answers of a judge, how they are read, and the record of what was asked: a JSON object a line, from which every
figure can be worked out again.

Source: Self-GC, arXiv:2607.00692, Listings 3 and 4, with bounds, and a confidence in both. An answer that is not of the
schema, to the letter, is none: what it meant is not guessed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec

from ctxvc.replay.results.file import LineFile

#: The most characters of a usable answer.
LONGEST = 20_000

_Score = Annotated[float, msgspec.Meta(ge=0, le=5)]
_Confidence = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Text = Annotated[str, msgspec.Meta(max_length=2_000)]
_Texts = Annotated[list[_Text], msgspec.Meta(max_length=20)]

Grade = Literal["pass", "warn", "fail"]


class Unusable(ValueError):
    """An answer that is not of its schema; the text says what is wrong with it."""


class Dimension(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    score: _Score
    verdict: Grade


class Dimensions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Each from 0, nothing is left of it, to 5, all of it is."""

    goal_retention: Dimension
    evidence_retention: Dimension
    continuation_readiness: Dimension
    compression_safety: Dimension


class Culprit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    target_id: Annotated[str, msgspec.Meta(min_length=1, max_length=40)]


class Verdict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether the future that was recorded is still supported (`valid`), and how sure that is."""

    valid: bool
    uncertain: bool
    overall_score: _Score
    summary: _Text
    dimension_scores: Dimensions
    failure_culprit: Culprit | None
    confidence: _Confidence


class Choice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which of two plans leaves more of what the future needs."""

    verdict: Literal["A_better", "B_better", "tie"]
    summary: _Text
    rationale: _Text
    stronger_aspects: _Texts
    risks: _Texts
    confidence: _Confidence


_Schema = TypeVar("_Schema", bound=msgspec.Struct)
# Models like to put JSON between these; nothing may stand outside.
_FENCED = re.compile(r"```(?:json)?\n(.*)\n```", re.DOTALL)


def parsed(answer: str, schema: type[_Schema]) -> _Schema:
    """The answer as a value of its schema. Raises: Unusable."""
    text = answer[: LONGEST + 1].strip()
    if not text:
        raise Unusable("it is empty")
    if len(answer) > LONGEST:
        raise Unusable(f"it has {len(answer):,} characters, more than {LONGEST:,}")
    if fenced := _FENCED.fullmatch(text):
        text = fenced[1]
    try:
        return msgspec.json.decode(text.encode(), type=schema)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as error:
        raise Unusable(str(error)) from error


def verdict(answer: str, blocks: Collection[str]) -> Verdict:
    """A judge's verdict; its culprit is one of `blocks`, and there is none if all is well. Raises: Unusable."""
    own = parsed(answer, Verdict)
    culprit = own.failure_culprit
    if culprit and own.valid:
        raise Unusable("it names a culprit although it reports no failure")
    if culprit and culprit.target_id not in blocks:
        raise Unusable(f"its culprit {culprit.target_id!r} is not a block that left")
    return own


# --- records


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
    """The key of a record: its question, not its answer."""
    match record:
        case Judgement():
            about = record.policy
        case Preference():
            about = "\n".join(sorted((record.first, record.second)))
        case Estimate():
            about = f"{record.quantity} {record.dashboard}"
    place = (record.file, record.sha256, record.conversation, record.budget, record.call)
    return (type(record).__name__, record.model, record.question, *place, about)
