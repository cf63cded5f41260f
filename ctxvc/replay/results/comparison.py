"""Compares two policies at the same budgets over many conversations, and lists those above the oracle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from ctxvc.replay.measures.transitions import Difference, Transitions, differences, transitions
from ctxvc.replay.measures.uses import uses
from ctxvc.replay.results.result import Result, decode_uses, foresees
from ctxvc.replay.results.totals import CLASSES, Class
from ctxvc.replay.work import Source

#: The number of conversations searched for differing blocks: those with the most differences.
_LOOKED_AT = 5


class Compared(msgspec.Struct, frozen=True):
    """The outcomes of a class of uses under both policies at a budget."""

    budget: int
    uses: Class
    transitions: Transitions


class Example(msgspec.Struct, frozen=True):
    """A block that one policy kept in sight and the other did not, in a file and at a budget."""

    file: str
    budget: int
    difference: Difference


def compared(results: Iterable[Result], a: str, b: str) -> list[Compared]:
    """The transitions at each budget, by class, over all conversations with results of both policies."""
    sums: dict[tuple[int, Class], Transitions] = {}
    for first, second in _pairs(results, a, b):
        for name, counts in _by_class(first, second).items():
            sums[first.budget, name] = sums.get((first.budget, name), Transitions()) + counts
    return [Compared(budget, name, counts) for (budget, name), counts in sums.items()]


def examples(results: Iterable[Result], a: str, b: str, sources: Sequence[Source], limit: int) -> list[Example]:
    """The largest differences in non-trivial uses, from the conversations with the most differences."""
    pairs = [(first, second, _by_class(first, second)["nt"]) for first, second in _pairs(results, a, b)]
    differing = sorted(pairs, key=lambda pair: -(pair[2].only_a + pair[2].only_b))[:_LOOKED_AT]
    by_name = {(source.name, source.sha256): source for source in sources}
    collected: list[Example] = []
    for first, second, _ in differing:
        source = by_name[first.file, first.sha256]
        conversation = next(own for own in source.conversations() if own.id == first.conversation)
        mine, theirs = decode_uses(first.uses), decode_uses(second.uses)
        blocks = differences(conversation, uses(conversation), mine.outcomes, theirs.outcomes, mine.nt)
        collected += [Example(first.file, first.budget, difference) for difference in blocks[:limit]]
    return sorted(collected, key=lambda own: -abs(own.difference.only_a - own.difference.only_b))[:limit]


def _pairs(results: Iterable[Result], a: str, b: str) -> Iterator[tuple[Result, Result]]:
    unpaired: dict[tuple[str, str, str, int], Result] = {}
    for result in results:
        if result.policy not in (a, b):
            continue
        key = (result.file, result.sha256, result.conversation, result.budget)
        second = unpaired.pop(key, None)
        if second is None:
            unpaired[key] = result
        else:
            yield (second, result) if second.policy == a else (result, second)


def _by_class(first: Result, second: Result) -> dict[Class, Transitions]:
    mine, theirs = decode_uses(first.uses), decode_uses(second.uses)
    places: dict[Class, Sequence[int] | None] = {"all": None, "nt": mine.nt, "ar": mine.ar}
    return {name: transitions(mine.outcomes, theirs.outcomes, places[name]) for name in CLASSES}


#: Percentage points by which a policy may be above the oracle without being listed.
POINTS = 2.0


class Above(msgspec.Struct, frozen=True):
    """A policy above the oracle in a conversation, by `points` percentage points of its `uses` non-trivial uses."""

    file: str
    conversation: str
    policy: str
    budget: int
    uses: int
    points: float


def above(results: Iterable[Result], points: float = POINTS) -> list[Above]:
    """Where policies that kept to their budgets are above the oracle, the highest first.

    The oracle is no strict bound, since it is greedy and keeps blocks whole or not at all: it pays for a whole block
    where a preview would do, and removes much to keep one giant result.
    """
    conversations = []
    for result in results:
        own = result.retention.nt
        if own.total and not result.over and not foresees(result.policy):
            ahead = 100 * (own.visible - result.oracle.nt) / own.total
            if ahead > points:
                where = (result.file, result.conversation, result.policy, result.budget)
                conversations.append(Above(*where, own.total, round(ahead, 1)))
    return sorted(conversations, key=lambda one: (-one.points, one.file, one.conversation, one.policy, one.budget))
