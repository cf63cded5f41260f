"""Which result answers which call. Independent of block states, so the same before and after a plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import NamedTuple

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Part
from ctxvc.core.ledger.ledger import Ledger, Row

PAIRED = frozenset({"tool_use", "tool_result"})


class Pairs(NamedTuple):
    """`results`: a call's block → its result's block; `calls` is the reverse."""

    results: Mapping[str, str]
    calls: Mapping[str, str]


def pairs(ledger: Ledger) -> Pairs:
    """The pairs of a ledger, by the rule of `results_of`."""
    return ledger.derived(_pairs)


def results_of(rows: Iterable[Row]) -> dict[str, Row]:
    """A call's block → the result that represents it: the newest that was really recorded.

    A reused id belongs to the newer call from there on.
    """
    calls: dict[str, str] = {}
    results: dict[str, Row] = {}
    for row in rows:
        if row.kind == "tool_use":
            calls[row.call] = row.id
        elif (
            row.kind == "tool_result"
            and (call := calls.get(row.call))
            and not (call in results and is_interrupted(row))
        ):
            results[call] = row
    return results


def calls_and_results(ledger: Ledger, calls: set[str]) -> list[Row]:
    """All calls and results with one of these ids, in order."""
    segments = (rows for ids, rows in ledger.by_segment(_paired) if not ids.isdisjoint(calls))
    return [row for row in chain.from_iterable(segments) if row.call in calls]


def _paired(rows: tuple[Row, ...]) -> tuple[frozenset[str], list[Row]]:
    paired = [row for row in rows if row.kind in PAIRED]
    return frozenset(row.call for row in paired), paired


def is_interrupted(part: Part | Row) -> bool:
    """Whether this is the result of a call that never got one."""
    return wire.own_metadata(part.extra).get("interrupted") is True


class _OfSegment(NamedTuple):
    """The pairs within a segment, its calls by id, and its results of earlier calls (`later`).

    Each of the latter is the block, the id of the call, and whether it was interrupted.
    """

    results: Mapping[str, str]
    calls: Mapping[str, str]
    later: tuple[tuple[str, str, bool], ...]


class _Beginning(NamedTuple):
    """What the first parts of a ledger contribute: `results`, `calls` as in `Pairs`, the `newest` call of each id."""

    results: dict[str, str]
    calls: dict[str, str]
    newest: dict[str, str]

    def copy(self) -> _Beginning:
        return _Beginning(*map(dict.copy, self))

    def add(self, part: _OfSegment) -> None:
        for result, name, interrupted in part.later:
            call = self.newest.get(name)
            if call and not (call in self.results and interrupted):
                self.calls.pop(self.results.get(call, ""), None)
                self.results[call] = result
                self.calls[result] = call
        self.results.update(part.results)
        self.calls.update((result, call) for call, result in part.results.items())
        self.newest.update(part.calls)


def _pairs(ledger: Ledger) -> Pairs:
    """The pairs; caches those of the newest ledger and of all its segments but the last, usually the one that grows."""
    cache: dict[str, tuple[list[_OfSegment], _Beginning, Pairs]] = ledger.cache_of(_pairs)
    parts = list(ledger.by_segment(_of_segment))
    earlier, beginning, newest_pairs = cache.get("newest", ([], _Beginning({}, {}, {}), Pairs({}, {})))
    if earlier == parts:
        return newest_pairs
    start = max(0, len(earlier) - 1)
    if len(parts) <= start or parts[:start] != earlier[:start]:
        start, beginning = 0, _Beginning({}, {}, {})
    beginning = beginning.copy()
    for part in parts[start:-1]:
        beginning.add(part)
    to_end = beginning.copy()
    to_end.add(parts[-1])
    result = Pairs(to_end.results, to_end.calls)
    cache["newest"] = parts, beginning, result
    return result


def _of_segment(rows: tuple[Row, ...]) -> _OfSegment:
    results = {call: result.id for call, result in results_of(rows).items()}
    calls: dict[str, str] = {}
    later: list[tuple[str, str, bool]] = []
    for row in rows:
        if row.kind == "tool_use":
            calls[row.call] = row.id
        elif row.kind == "tool_result" and row.call not in calls:
            later.append((row.id, row.call, is_interrupted(row)))
    return _OfSegment(results, calls, tuple(later))
