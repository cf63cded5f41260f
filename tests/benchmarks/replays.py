"""`python -m tests.benchmarks.replays RESULTS [INDEX TOKENS]`: the figures of docs/benchmarks/policies.md.

RESULTS is a file of `ctxvc replay --out`. With the index.csv of a folder of recordings, only those of more than TOKENS
tokens. Below the tables are the policies and the conversations above the oracle.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ctxvc.replay.results.comparison import POINTS, above
from ctxvc.replay.results.result import Result, decode
from ctxvc.replay.results.totals import Totals, totals

HEAD = (
    "budget | policy | NT seen, % | AR seen, % | share of the oracle, NT / AR | set aside | the rest | routed, % "
    "| cost | with recoveries | breaks"
)


def main() -> None:
    results = [decode(line) for line in Path(sys.argv[1]).read_bytes().splitlines()]
    if len(sys.argv) > 2:
        long = _long(Path(sys.argv[2]), int(sys.argv[3]))
        results = [own for own in results if own.file in long]
    parts = [results, [own for own in results if own.aside], [own for own in results if not own.aside]]
    for budget in sorted({own.budget for own in results}):
        print(f"\n| {HEAD} |\n|{'---|' * (HEAD.count('|') + 1)}")
        every, aside, rest = ({own.policy: own for own in totals(_at(part, budget))} for part in parts)
        for policy in sorted(every):
            print(_row(every[policy], [_share(part.get(policy)) for part in (every, aside, rest)]))
    print()
    print("\n".join(_notes(results)))


def _at(results: Iterable[Result], budget: int) -> Iterator[Result]:
    return (own for own in results if own.budget == budget)


def _long(index: Path, least: int) -> frozenset[str]:
    """The files of the recordings that have more tokens than this."""
    with index.open(encoding="utf-8") as lines:
        return frozenset(f"{row['id']}.jsonl.gz" for row in csv.DictReader(lines) if int(row["tokens"]) > least)


def _row(total: Totals, shares: Sequence[str]) -> str:
    seen = []
    for uses in ("nt", "ar"):
        low, high = total.interval(uses)
        seen.append(f"{100 * (total.share(uses, 'visible') or 0):.1f} ({100 * low:.1f}–{100 * high:.1f})")
    routed = " / ".join(f"{100 * (total.share(uses, 'routed') or 0):.0f}" for uses in ("nt", "ar"))
    cost = (_hundredths(total.cost.relative), _hundredths(total.cost.relative_with_demand))
    cells = (
        f"{total.budget // 1000}k",
        total.policy,
        *seen,
        *shares,
        routed,
        *cost,
        f"{total.breaks_per_100_calls:.1f}",
    )
    return f"| {' | '.join(cells)} |"


def _share(total: Totals | None) -> str:
    """The macro average as a share of the oracle's."""
    if total is None:
        return ""
    own = (total.macro[uses] for uses in ("nt", "ar"))
    return " / ".join(_hundredths(one["visible"] / one["oracle"]) if one.get("oracle") else "" for one in own)


def _hundredths(value: float) -> str:
    return f"{value:.2f}".removeprefix("0") if value < 1 else f"{value:.2f}"


def _notes(results: Sequence[Result]) -> Iterator[str]:
    sums = totals(results)
    conversations = {(own.sha256, own.conversation) for own in results}
    yield f"{len(conversations)} conversations, {len(results):,} results, {sum(own.calls for own in results):,} calls; "
    yield (
        f"{sum(own.over for own in sums)} prompts over, {sum(own.invalid for own in sums)} invalid, "
        f"{sum(own.retention.all.lost for own in sums)} uses lost, {sum(own.failed for own in sums)} calls failed; "
        f"{sum(own.store_bytes for own in sums) / 1e6:.0f} MB of stores"
    )
    for total in sums:
        for uses in ("nt", "ar"):
            mean = total.macro[uses]
            if mean and 100 * (mean["visible"] - mean["oracle"]) > POINTS:
                yield f"ABOVE THE ORACLE AS A MEAN: {total.policy} at {total.budget:,}, {uses}"
    files = above(results)
    yield f"{len(files)} of {len(results):,} results are more than {POINTS:g} points of NT above the oracle:"
    for one in files:
        yield f"  +{one.points:.1f} of {one.uses} uses: {one.conversation}, {one.policy} at {one.budget:,}"


if __name__ == "__main__":
    main()
