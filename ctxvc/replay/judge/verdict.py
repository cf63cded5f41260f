"""The answers of a judge: their schema, and how they are read.

Source: Self-GC, arXiv:2607.00692, Listings 3 and 4, with bounds, and a confidence in both. An answer that is not of the
schema, to the letter, is none: what it meant is not guessed.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Annotated, Literal, TypeVar

import msgspec

#: An answer of more characters than this is none.
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


def choice(answer: str) -> Choice:
    """A judge's choice between two plans. Raises: Unusable."""
    return parsed(answer, Choice)
