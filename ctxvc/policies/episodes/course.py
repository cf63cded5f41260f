"""Which blocks are in which episode: the part of the graph that depends on no state and only grows with the ledger.

A policy asks for the graph at each batch. What was placed for an earlier ledger stays placed, so that the time a batch
takes does not grow with a session's age.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from ctxvc.core.ledger.ledger import Ledger, Row, segment_of
from ctxvc.core.ledger.segments import Segments
from ctxvc.policies.episodes.delimiter import Type

#: What an episode is known by: the model's own calls, a rule over what was done, or nothing.
Made = Literal["declared", "derived", "implicit"]


@dataclass(slots=True)
class Span:
    """The blocks of an episode. `first` and `last` are the steps of the first and the last of them."""

    name: str
    type: Type
    made: Made
    dependencies: tuple[str, ...] = ()
    description: str = ""
    ended: int | None = None
    blocks: list[str] = field(default_factory=list)
    first: int = 0
    last: int = 0


@dataclass(slots=True)
class Cache:
    """Results computed from spans: `of`, by place, for the rows in `segments` under `terms`."""

    of: dict[int, Any] = field(default_factory=dict)
    segments: Segments = field(default_factory=Segments)
    terms: Any = None


@dataclass(slots=True)
class Course:
    """The spans in the order in which they began, and the place among them of each block in one.

    What stands in none is in an implicit span of at most `implicit` steps, or before the first in the prologue. Without
    any span there is none, nor without `prologue`.
    """

    implicit: int
    prologue: bool
    before: list[str] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)
    #: The place of the implicit span that is not over, and of the spans that are not shared with what this was forked
    #: from; None where nothing is shared.
    _outside: int | None = None
    _own: set[int] | None = None
    #: What was worked out of spans that are over, by their places: forks share it.
    cache: Cache = field(default_factory=Cache)

    def fork(self) -> Course:
        """A copy that continues from here; this course stays unchanged."""
        before, spans, places = [*self.before], [*self.spans], dict(self.places)
        return replace(self, before=before, spans=spans, places=places, _own=set())

    def begin(self, span: Span) -> int:
        """Adds a span; returns its place."""
        self.spans.append(span)
        self._outside = None
        if self._own is not None:
            self._own.add(len(self.spans) - 1)
        return len(self.spans) - 1

    def span(self, place: int) -> Span:
        """The span at this place, safe to change: a shared one is copied first."""
        if self._own is not None and place not in self._own:
            self._own.add(place)
            self.spans[place] = replace(self.spans[place], blocks=[*self.spans[place].blocks])
        return self.spans[place]

    def is_settled(self, place: int) -> bool:
        """Whether the span is over, and the same in the course that this was forked from."""
        return place != self._outside and self.spans[place].ended is not None and place not in (self._own or ())

    def put(self, row: Row, place: int | None) -> None:
        """Adds a row to the span at this place; with None, to the prologue or an implicit span."""
        if place is None:
            if self.prologue and not self.spans:
                self.before.append(row.id)
                return
            if self._outside is None or row.step - self.spans[self._outside].first >= self.implicit:
                self._outside = self.begin(Span("", "expl", "implicit"))
            place = self._outside
            self.span(place).ended = row.step
        span = self.span(place)
        span.first = span.first if span.blocks else row.step
        span.last = row.step
        span.blocks.append(row.id)
        self.places[row.id] = place


G = TypeVar("G", bound="Growing")


class Growing(Protocol):
    """Grows with the rows of one step after the other."""

    def fork(self: G) -> G: ...

    def take(self, step: list[Row]) -> None: ...

    def renew(self: G, fresh: G, rows: list[Row]) -> bool:
        """Takes over what a `fresh` one knows beside the rows it has taken; False if it would place these otherwise.

        `rows` are those that follow.
        """
        ...


class _Grown(NamedTuple):
    """What was made of all rows before block `end`, and what of these decides it."""

    key: Hashable
    state: Any
    end: int
    past: list[tuple[Any, ...]]


def grown(ledger: Ledger, key: Hashable, fresh: G, *, since: int = 0) -> G:
    """What becomes of a `fresh` one with the rows of all steps from `since` on.

    What an earlier call with this `key` made is taken over where it had the same rows. The newest step is taken by a
    fork of it, since more of that step may come.
    """
    cache = ledger.cache_of(grown)
    entry: _Grown | None = cache.get("newest")
    if entry is not None and (entry.key != key or entry.past != _past(ledger, entry.end)):
        entry = None
    rows = _from(ledger, entry.end if entry else 0, since)
    if entry is not None and not entry.state.renew(fresh, rows):
        entry, rows = None, _from(ledger, 0, since)
    state: G = entry.state if entry else fresh
    steps = [list(step) for _, step in groupby(rows, key=attrgetter("step"))]
    for step in steps[:-1]:
        state.take(step)
    if steps:
        end = steps[-1][0].number
        cache["newest"] = _Grown(key, state, end, _past(ledger, end))
    newest = state.fork()
    for step in steps[-1:]:
        newest.take(step)
    return newest


def _from(ledger: Ledger, block: int, since: int) -> list[Row]:
    """The rows from this block and this step on."""
    key = segment_of(block)
    segments = (rows for segment, rows in ledger.segments.items() if segment >= key and rows[-1].step >= since)
    return [row for rows in segments for row in rows if row.number >= block and row.step >= since]


def _past(ledger: Ledger, end: int) -> list[tuple[Any, ...]]:
    """What decides the course of the rows before block `end`, by segment; equal segments are mostly the same object."""
    key = segment_of(end)
    return [
        of_rows if segment < key else tuple(row for row in of_rows if row[0] < end)
        for segment, of_rows in zip(ledger.segments, ledger.by_segment(_deciding), strict=True)
        if segment <= key
    ]


def _deciding(rows: tuple[Row, ...]) -> tuple[tuple[Any, ...], ...]:
    return tuple(
        (row.number, row.kind, row.role, row.origin, row.step, row.call, row.tool, row.sha256, row.ext) for row in rows
    )
