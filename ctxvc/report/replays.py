"""The page of a replay's results: what each policy keeps and costs at each budget. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice

from ctxvc.core import display
from ctxvc.replay.measures.transitions import transitions
from ctxvc.replay.results.comparison import examples
from ctxvc.replay.results.result import Result, decode_uses, foresees
from ctxvc.replay.results.totals import Totals, advice, rank, totals, visible
from ctxvc.replay.work import Source
from ctxvc.report import data

#: The most policies compared with the best, and differences shown of each pair.
_OTHERS, _DIFFERENCES = 4, 8
#: Standard errors on each side of a 95 % interval.
_Z = 1.959964


def replay(
    results: Sequence[Result], sources: Sequence[Source], *, title: str, created: str, version: str
) -> data.Replay:
    """The page of these results. `sources` are the available recordings, for examples."""
    sums = totals(result for result in results if not foresees(result.policy))
    judged = sorted((total for total in sums if total.retention.all.total), key=rank)
    return data.Replay(
        title=title,
        created=created,
        version=version,
        recordings=len({(result.sha256, result.conversation) for result in results}),
        verdict=data.Verdict(sentence=_sentence(judged), numbers=_numbers(results, judged), notes=list(_notes(sums))),
        points=[*(_point(total, results) for total in sums), *_oracles(sums)],
        baseline="keep",
        differences=list(_differences(results, judged, sources)),
    )


def _point(total: Totals, results: Sequence[Result]) -> data.Point:
    cost, keep = total.cost, total.cost.keep or 1.0
    parts = {"prompts": cost.prompts, "planner": cost.planner, "summariser": cost.summariser}
    parts |= {"recovery": cost.recovery, "demand": cost.demand}
    own = [result for result in results if (result.policy, result.budget) == (total.policy, total.budget)]
    return data.Point(
        policy=total.policy,
        budget=total.budget,
        retention=(visible(total), *total.interval("all")),
        cost=_cost(own, total.cost.relative_with_demand),
        cost_parts={name: round(part / keep, 6) for name, part in parts.items()},
        valid=not (total.over or total.failed or total.invalid),
        runs=total.conversations,
        oracle=False,
    )


def _oracles(sums: Sequence[Totals]) -> Iterator[data.Point]:
    """The oracle's points: about the most that any policy could keep at each budget."""
    for budget in sorted({total.budget for total in sums}):
        best = max((total for total in sums if total.budget == budget), key=lambda total: total.oracle.all)
        if uses := best.retention.all.total:
            share = best.oracle.all / uses
            yield data.Point(
                policy="oracle", budget=budget, retention=(share, share, share), cost=None, cost_parts={}, valid=True,
                runs=best.conversations, oracle=True,
            )  # fmt: skip


def _cost(results: Sequence[Result], mean: float) -> tuple[float, float, float]:
    """The relative cost of all recordings, and its 95 % interval over recordings, by the jackknife."""
    count, keep = len(results), math.fsum(result.cost.keep for result in results)
    total = math.fsum(result.cost.total + result.cost.demand for result in results)
    without_one = [
        (total - result.cost.total - result.cost.demand) / (keep - result.cost.keep)
        for result in results
        if keep > result.cost.keep
    ]
    if len(without_one) < max(2, count):
        return mean, mean, mean
    middle = math.fsum(without_one) / count
    half = _Z * math.sqrt((count - 1) / count * math.fsum((one - middle) ** 2 for one in without_one))
    return mean, max(0.0, mean - half), mean + half


def _differences(
    results: Sequence[Result], judged: Sequence[Totals], sources: Sequence[Source]
) -> Iterator[data.Difference]:
    """The largest differences between the best policy and each of the next, at non-trivial uses."""
    policies = list(dict.fromkeys(total.policy for total in judged))
    for rival in policies[1 : 1 + _OTHERS]:
        at_hand = {(source.name, source.sha256) for source in sources}
        readable = [result for result in results if (result.file, result.sha256) in at_hand and result.uses]
        blocks = examples(readable, policies[0], rival, sources, _DIFFERENCES)
        if not blocks:
            yield from _by_recording(results, policies[0], rival)
        for one in blocks:
            block = one.difference
            yield data.Difference(
                a=policies[0],
                b=rival,
                budget=one.budget,
                recording=block.conversation,
                step=block.calls[0] if block.calls else -1,
                text=block.label,
                what_a=_uses_text(block.only_a, "used again, in sight with this policy alone"),
                what_b=_uses_text(block.only_b, "used again, in sight with this policy alone"),
                example=", ".join(block.anchors),
            )


def _by_recording(results: Sequence[Result], a: str, b: str) -> Iterator[data.Difference]:
    """The recordings in which two policies differ most, for recordings that are not available."""
    by_run = {(run.sha256, run.conversation, run.budget, run.policy): run for run in results if run.uses}
    by_size: list[tuple[int, data.Difference]] = []
    for (sha256, conversation, budget, policy), first in by_run.items():
        second = by_run.get((sha256, conversation, budget, b))
        if policy != a or second is None:
            continue
        mine, theirs = decode_uses(first.uses), decode_uses(second.uses)
        if len(mine.outcomes) != len(theirs.outcomes):
            continue
        moved = transitions(mine.outcomes, theirs.outcomes, mine.nt)
        difference = data.Difference(
            a=a,
            b=b,
            budget=budget,
            recording=conversation,
            step=-1,
            text=first.file,
            what_a=_uses_text(moved.only_a, "in sight with this policy alone"),
            what_b=_uses_text(moved.only_b, "in sight with this policy alone"),
            example="",
        )
        by_size.append((moved.only_a + moved.only_b, difference))
    by_size.sort(key=lambda pair: -pair[0])
    yield from (difference for size, difference in islice(by_size, _DIFFERENCES) if size)


def _uses_text(uses: int, which: str) -> str:
    return f"{uses:,} {which}" if uses else "none"


def _sentence(judged: Sequence[Totals]) -> str:
    best = advice(judged)
    if best is None:
        return "No reply used anything of its prompt again: there is nothing to compare."
    choice = best.choice
    budget = display.human_tokens(choice.budget)
    enough = "the cheapest that keeps at least 95 % in sight" if best.enough else "which keeps the most in sight"
    return (
        f"{choice.policy} at {budget} is {enough}: {visible(choice):.0%} of what was used again was in the prompt, "
        f"at {choice.cost.relative_with_demand:.2f} of the cost of keeping everything."
    )


def _numbers(results: Sequence[Result], judged: Sequence[Totals]) -> list[data.Number]:
    conversations = {(result.sha256, result.conversation): result for result in results}
    calls = sum(result.calls for result in conversations.values())
    uses = max((total.retention.all.total for total in judged), default=0)
    best = judged[0] if judged else None
    shares = [("kept", visible(best)), ("cost", best.cost.relative_with_demand)] if best else []
    counts = [("recordings", len(conversations)), ("calls", calls), ("uses", uses)]
    counts.append(("points", len({(result.policy, result.budget) for result in results})))
    return [
        *(data.Number(name=name, value=value, text=f"{value:,}") for name, value in counts),
        *(data.Number(name=name, value=round(value, 4), text=f"{value:.2f}") for name, value in shares),
    ]


def _notes(sums: Sequence[Totals]) -> Iterator[str]:
    yield "Cost is relative to keeping everything, and has a recovery for each use that is not in the prompt."
    yield (
        "Intervals are 95 %: of retention over uses, taken as independent, which those of a conversation are not; of "
        "cost over recordings."
    )
    if stand_ins := ", ".join(sorted({total.policy for total in sums if total.stand_in})):
        yield f"Fixed rules stood in for an agent or a model: {stand_ins}."
