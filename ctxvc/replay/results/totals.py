"""Results added up, by policy and budget, over all conversations or some of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from ctxvc.replay.measures.cost import Cost
from ctxvc.replay.measures.retention import Counts, Split, wilson
from ctxvc.replay.results.result import Result, Timing, Tokens, Visible, foresees

#: Uses by how hard it is to meet them: all, non-trivial, at risk.
Class = Literal["all", "nt", "ar"]
CLASSES: tuple[Class, ...] = ("all", "nt", "ar")


class Totals(msgspec.Struct, frozen=True):
    """The sums of some results of one policy at one budget; `tokens.peak` and `timing.worst` are the largest.

    `macro` has averages over the conversations with such uses, each counted once: by class of uses, the shares that are
    `visible`, `routed`, and visible under the `oracle` and `belady` bounds.
    """

    policy: str
    budget: int
    conversations: int = 0
    calls: int = 0
    failed: int = 0
    over: int = 0
    invalid: int = 0
    tokens: Tokens = Tokens()
    cost: Cost = Cost()
    prefix_breaks: int = 0
    recoveries: int = 0
    retention: Split = Split()
    oracle: Visible = Visible()
    belady: Visible = Visible()
    macro: dict[str, dict[str, float]] = {}
    kinds: Mapping[str, Split] = {}
    failures: Mapping[str, Split] = {}
    events: Mapping[str, Mapping[str, int]] = {}
    dropped: Mapping[str, int] = {}
    store_bytes: int = 0
    timing: Timing = Timing()
    stand_in: str = ""
    model: str = ""

    def share(self, uses: Class, *places: str) -> float | None:
        """The share of these uses whose outcome is one of `places`; None without uses."""
        outcomes = of_class(self.retention, uses)
        return sum(getattr(outcomes, place) for place in places) / outcomes.total if outcomes.total else None

    def of_oracle(self, uses: Class) -> float | None:
        """The visible uses as a share of those visible under the oracle; None if those are none."""
        best: int = getattr(self.oracle, uses)
        return of_class(self.retention, uses).visible / best if best else None

    def interval(self, uses: Class) -> tuple[float, float]:
        """The bounds of the 95 % interval of the share of visible uses."""
        outcomes = of_class(self.retention, uses)
        return wilson(outcomes.visible, outcomes.total)

    @property
    def breaks_per_100_calls(self) -> float:
        return 100 * self.prefix_breaks / self.calls if self.calls else 0.0


def of_class(retention: Split, uses: Class) -> Counts:
    """The outcomes of a class of uses."""
    return {"all": retention.all, "nt": retention.nt, "ar": retention.ar}[uses]


def totals(results: Iterable[Result]) -> list[Totals]:
    """The totals of each policy and budget, in the order of first appearance."""
    groups: dict[tuple[str, int], list[Result]] = {}
    for result in results:
        groups.setdefault((result.policy, result.budget), []).append(result)
    return [_total(policy, budget, group) for (policy, budget), group in groups.items()]


#: The counts of a result that totals add up.
_SUMMED = ("calls", "failed", "over", "invalid", "prefix_breaks", "recoveries", "store_bytes")


def _total(policy: str, budget: int, results: Sequence[Result]) -> Totals:
    return Totals(
        policy=policy,
        budget=budget,
        conversations=len(results),
        **{name: sum(getattr(result, name) for result in results) for name in _SUMMED},
        tokens=Tokens(
            peak=max(result.tokens.peak for result in results),
            total=sum(result.tokens.total for result in results),
            keep=sum(result.tokens.keep for result in results),
        ),
        cost=Cost(*(math.fsum(getattr(result.cost, part) for result in results) for part in Cost.__struct_fields__)),
        retention=sum((result.retention for result in results), Split()),
        oracle=sum((result.oracle for result in results), Visible()),
        belady=sum((result.belady for result in results), Visible()),
        macro={uses: _macro(uses, results) for uses in CLASSES},
        kinds=_splits(result.kinds for result in results),
        failures=_splits(result.failures for result in results),
        events=_events(results),
        dropped=_summed(result.dropped for result in results),
        timing=_timing(results),
        stand_in=", ".join(sorted({result.stand_in for result in results if result.stand_in})),
        model=", ".join(sorted({result.options.model for result in results if result.options.model})),
    )


def _splits(mappings: Iterable[Mapping[str, Split]]) -> dict[str, Split]:
    sums: dict[str, Split] = {}
    for name, split in (item for mapping in mappings for item in mapping.items()):
        sums[name] = sums.get(name, Split()) + split
    return sums


def _events(results: Sequence[Result]) -> dict[str, dict[str, int]]:
    verbs = sorted({verb for result in results for verb in result.events})
    return {verb: _summed(result.events.get(verb, {}) for result in results) for verb in verbs}


def _summed(mappings: Iterable[Mapping[str, int]]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for mapping in mappings:
        counts.update(mapping)
    return dict(sorted(counts.items()))


def _timing(results: Sequence[Result]) -> Timing:
    calls = sum(result.calls for result in results)
    total = math.fsum(result.timing.mean * result.calls for result in results)
    worst = max(result.timing.worst for result in results)
    return Timing(mean=round(total / calls, 3) if calls else 0.0, worst=worst)


def _macro(uses: Class, results: Sequence[Result]) -> dict[str, float]:
    """The averages over conversations of the shares of these uses; empty if no conversation has any."""
    with_uses = [(result, outcomes) for result in results if (outcomes := of_class(result.retention, uses)).total]
    if not with_uses:
        return {}

    def mean(shares: Iterable[float]) -> float:
        return math.fsum(shares) / len(with_uses)

    return {
        "visible": mean(outcomes.visible / outcomes.total for _, outcomes in with_uses),
        "routed": mean(outcomes.routed / outcomes.total for _, outcomes in with_uses),
        "oracle": mean(getattr(result.oracle, uses) / outcomes.total for result, outcomes in with_uses),
        "belady": mean(getattr(result.belady, uses) / outcomes.total for result, outcomes in with_uses),
    }


#: The share of all uses that should be visible.
ENOUGH = 0.95


class Advice(msgspec.Struct, frozen=True):
    """The recommended candidate, and the one that keeps most visible.

    `enough` is true if the choice keeps `ENOUGH` visible; if no candidate does, the choice is the one that keeps most.
    """

    choice: Totals
    fullest: Totals
    enough: bool


def advice(candidates: Iterable[Totals]) -> Advice | None:
    """The cheapest of the candidates that keep enough visible; the price includes recovering the rest.

    A candidate with a prompt that is over its budget, invalid or missing is chosen only if all have one. The oracle is
    not a candidate. None if nothing was used again, so that there is nothing to judge by.
    """
    policies = (one for one in candidates if one.retention.all.total and not foresees(one.policy))
    judged = sorted(policies, key=rank)
    if not judged:
        return None
    fullest = max(judged, key=lambda candidate: (not _unsent(candidate), visible(candidate)))
    return Advice(judged[0], fullest, visible(judged[0]) >= ENOUGH)


def rank(candidate: Totals) -> tuple[bool, bool, float, int, str]:
    """A sort key, best first: what can send every call, then what keeps enough; then the cheaper, or the fuller."""
    share, price = visible(candidate), candidate.cost.relative_with_demand
    return (
        _unsent(candidate) > 0,
        share < ENOUGH,
        price if share >= ENOUGH else -share,
        candidate.budget,
        candidate.policy,
    )


def visible(candidate: Totals) -> float:
    """The share of all uses that are visible; 1 if there are none."""
    share = candidate.share("all", "visible")
    return 1.0 if share is None else share


def _unsent(candidate: Totals) -> int:
    return candidate.over + candidate.failed + candidate.invalid
