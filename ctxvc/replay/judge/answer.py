"""A judge's answers, their parsing, and the records of questions, from which every figure can be worked out again.

A record is one line of JSON. Source: Self-GC, arXiv:2607.00692, Listings 3 and 4, with bounds, and a confidence in
both. An answer that does not match its schema exactly is unusable: its meaning is not guessed.
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
    """An answer that does not match its schema; the message says why."""


class Dimension(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    score: _Score
    verdict: Grade


class Dimensions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Scores from 0 (nothing is left) to 5 (all of it is)."""

    goal_retention: Dimension
    evidence_retention: Dimension
    continuation_readiness: Dimension
    compression_safety: Dimension


class Culprit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    target_id: Annotated[str, msgspec.Meta(min_length=1, max_length=40)]


class Verdict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A judge's verdict on a plan. `valid` is true if the prompt still supports the recorded future."""

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
# Models often put JSON in a fence; nothing may stand outside it.
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
    """A judge's verdict. Raises: Unusable, also for a culprit beside a valid plan or outside `blocks`."""
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

    `question` is the SHA-256 of its text. `unusable` is the reason why the answer could not be used, and `answer` its
    beginning; both are empty if it could.
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
    """Two policies' plans at a cut, compared. With `swapped`, the second was shown as A."""

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
    """A model's estimate of a quantity of its prompt. `expected` is the ledger's figure, `estimate` the answer."""

    quantity: Quantity
    dashboard: bool
    expected: int | str
    estimate: int | str | None = None


Record = Judgement | Preference | Estimate
_DECODER: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)
_BEGINNING = b'{"schema":"ctxvc-'


class RecordFile(LineFile[Record]):
    """The file of records at `path`, which may be new. Raises: BadInput if it holds anything else."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, _DECODER.decode, "a question record", _BEGINNING)
        self._by_key = {_key(record): record for record in self.records}

    def answered(self, record: Record) -> Record | None:
        """The record with its answer, or None if the model was not asked this question at the same place before."""
        return self._by_key.get(_key(record))

    def add(self, records: Iterable[Record]) -> None:
        """As `LineFile.add`."""
        super().add(added := list(records))
        self._by_key |= {_key(record): record for record in added}


def _key(record: Record) -> tuple[str | int, ...]:
    """What identifies a record: its question, not its answer."""
    match record:
        case Judgement():
            about = record.policy
        case Preference():
            about = "\n".join(sorted((record.first, record.second)))
        case Estimate():
            about = f"{record.quantity} {record.dashboard}"
    place = (record.file, record.sha256, record.conversation, record.budget, record.call)
    return (type(record).__name__, record.model, record.question, *place, about)
