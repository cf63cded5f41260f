"""The answer of `replay` as JSON, and how it is made of results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec

from ctxvc.cli.answers.shared import Answer, Item, TokenCount, described, struct_of
from ctxvc.cli.options.judge_model import ModelAnswers
from ctxvc.cli.output import Column, hint_of, message_of

if TYPE_CHECKING:
    from ctxvc.replay.measures.retention import Split
    from ctxvc.replay.results.result import Result
    from ctxvc.replay.results.totals import Class, Totals
    from ctxvc.replay.work import Outcome, Source

_MOST_EXAMPLES = 8


class UsesItem(Item, frozen=True, kw_only=True):
    """Uses of one class, and where each could be met."""

    uses: int
    visible: Annotated[int, described("in a block of the prompt")]
    routed: Annotated[int, described("through a stub, a call or a note in the prompt")]
    searchable: Annotated[int, described("by one search of the archive")]
    recoverable: Annotated[int, described("by an address that is not in the prompt")]
    lost: int
    low: Annotated[float, described("lower 95 % bound of the visible share")]
    high: Annotated[float, described("upper 95 % bound")]
    oracle: Annotated[int, described("visible under the oracle, which knows the future")]
    belady: Annotated[int, described("visible under the oracle if only results may leave")]
    of_oracle: Annotated[float | None, described("`visible` as a share of `oracle`")]
    macro: Annotated[dict[str, float], described("averages in which each conversation counts once")]


class PlacesItem(Item, frozen=True, kw_only=True):
    """How many uses of one class were met where, as in the item of the class."""

    visible: int
    routed: int
    searchable: int
    recoverable: int
    lost: int


class ClassesItem(Item, frozen=True, kw_only=True):
    """Some uses, by class."""

    all: PlacesItem
    nt: PlacesItem
    ar: PlacesItem


class ReplayItem(Item, frozen=True, kw_only=True):
    """A policy at a budget."""

    part: Annotated[str, described("`all`, `aside` or `rest`")]
    policy: str
    budget: TokenCount
    stand_in: Annotated[str, described("the stand-ins for the agent and for a model; empty if none")]
    model: Annotated[str, described("the model that the policy asked; empty if none")]
    conversations: int
    calls: int
    failed: Annotated[int, described("calls for which no prompt could be made")]
    over: Annotated[int, described("calls with a prompt over the budget")]
    invalid: Annotated[int, described("calls with a prompt that a provider would reject")]
    peak: Annotated[int, described("tokens of the largest prompt")]
    mean: Annotated[int, described("tokens of a prompt")]
    prune_rate: Annotated[float, described("share of the input saved")]
    cost: Annotated[float, described("of all calls with a prefix cache; 1 is the cost of keeping everything")]
    cost_with_recoveries: Annotated[float, described("the same plus a recovery for each use that is not visible")]
    planner: Annotated[float, described("calls of a planner, in `cost`")]
    summariser: Annotated[float, described("calls of a summariser, in `cost`")]
    recovery: Annotated[float, described("calls that recover, in `cost`")]
    recoveries: Annotated[int, described("recoveries included in `cost_with_recoveries`")]
    breaks: Annotated[float, described("breaks of the cached prefix per 100 calls")]
    all: UsesItem
    nt: Annotated[UsesItem, described("non-trivial: in no block of the last 5 steps")]
    ar: Annotated[UsesItem, described("at risk: non-trivial uses found only in tool results")]
    kinds: Annotated[dict[str, ClassesItem], described("uses by kind of string, as in `path`")]
    failures: Annotated[dict[str, ClassesItem], described("uses by what their loss would be, as in `locator`")]
    events: Annotated[dict[str, dict[str, int]], described("changes of the context, by verb and actor")]
    dropped: Annotated[dict[str, int], described("actions left out of plans, by reason")]


class EngineItem(Item, frozen=True, kw_only=True):
    """What a policy at a budget took of the machine: it differs from run to run."""

    policy: str
    budget: TokenCount
    mean_ms: Annotated[float, described("milliseconds of the engine per call")]
    worst_ms: Annotated[float, described("milliseconds of the slowest call")]
    store_bytes: Annotated[int, described("bytes of the stores; 0 with `--no-store`")]


class AboveItem(Item, frozen=True, kw_only=True):
    """A conversation in which a policy shows clearly more than the oracle, a greedy rule, would have."""

    file: str
    conversation: str
    policy: str
    budget: TokenCount
    uses: Annotated[int, described("non-trivial uses in it")]
    points: Annotated[float, described("percentage points of NT above the oracle")]


class Recommended(Item, frozen=True, kw_only=True):
    """The recommended policy and budget; no policy if there was nothing to compare."""

    sessions: Annotated[int, described("number of newest sessions replayed")]
    recorded: Annotated[int, described("number of sessions available")]
    uses: Annotated[int, described("number of non-trivial uses behind the figures")] = 0
    policy: str = ""
    budget: TokenCount = 0
    enough: Annotated[bool, described("whether at least 95 % of all uses are visible under it")] = False
    visible: Annotated[float, described("share of all uses that are visible under it")] = 0.0
    routed: Annotated[float, described("share of them reachable through a stub, a call or a note in the prompt")] = 0.0
    cost: Annotated[float, described("its cost with recoveries; 1 is the cost of keeping everything")] = 0.0
    prune_rate: Annotated[float, described("share of the input that it saves")] = 0.0
    fullest: Fullest | None = None


def round_tokens(amount: int) -> str:
    """`32k`; `32768` where that is no round number."""
    return f"{amount // 1000}k" if amount % 1000 == 0 else str(amount)


def _class(uses: str) -> str:
    return uses if uses == "all" else uses.upper()


def _block_id(place: int) -> str:
    return f"B{place + 1}"


class Transition(Item, frozen=True, kw_only=True):
    """So many uses of a class at a budget that are visible under both policies, only one of them, or neither."""

    TABLE = "budget uses both only_a only_b neither"

    budget: Annotated[TokenCount, Column("budget", right=True, cell=round_tokens)]
    uses: Annotated[str, described("`all`, `nt` or `ar`"), Column("uses", cell=_class)]
    both: Annotated[int, Column("both", right=True)]
    only_a: Annotated[int, Column("only A", right=True)]
    only_b: Annotated[int, Column("only B", right=True)]
    neither: Annotated[int, Column("neither", right=True)]


class DifferenceItem(Item, frozen=True, kw_only=True):
    """A block of which one policy kept in sight what was used again, and the other did not."""

    TABLE = "only_a only_b budget conversation block label anchors"

    file: str
    conversation: Annotated[str, Column("conversation", least=12)]
    budget: Annotated[TokenCount, Column("budget", right=True, cell=round_tokens)]
    block: Annotated[
        int, described("its place in the conversation, from 0"), Column("block", right=True, cell=_block_id)
    ]
    label: Annotated[str, described("kind, tool and argument"), Column("what", least=16)]
    only_a: Annotated[int, described("non-trivial uses that only A kept visible"), Column("only A", right=True)]
    only_b: Annotated[int, described("non-trivial uses that only B kept visible"), Column("only B", right=True)]
    anchors: Annotated[
        list[str], described("examples of the strings used"), Column("examples", least=16, cell=", ".join)
    ]
    calls: Annotated[list[int], described("examples of the calls that used it, from 0")]


class Comparison(Item, frozen=True, kw_only=True):
    """Two policies at the same uses."""

    a: str
    b: str
    transitions: list[Transition]
    differences: Annotated[list[DifferenceItem], described("the largest, from the conversations that differ most")]


class Fullest(Item, frozen=True, kw_only=True):
    """The policy and budget under which most uses are visible."""

    policy: str
    budget: TokenCount
    visible: float
    cost: float


class FailedSource(Item, frozen=True, kw_only=True):
    """A file or session that could not be replayed."""

    source: Annotated[str, described("the file's name, or the session's")]
    error: str
    hint: str


class Replay(Answer, frozen=True, kw_only=True, tag="ctxvc.replay/1"):
    """`replay`"""

    version: Annotated[str, described("version of ctxvc and checksum of the replay code")]
    anchors: Annotated[str, described("version of the list of excluded anchors")]
    conversations: int
    calls: int
    items: list[ReplayItem]
    above_oracle: Annotated[list[AboveItem], described("conversations more than 2 points above it, highest first")]
    engine: Annotated[list[EngineItem], described("of each item of all conversations")]
    recommended: Annotated[Recommended | None, described("with `--mine`")]
    compared: Annotated[Comparison | None, described("with `--compare`")]
    judged: Annotated[ModelAnswers | None, described("with `--judge` or `--perception`")]
    failures: list[FailedSource]


def answer_of(results: Sequence[Result], failures: Sequence[Outcome], *, aside: bool, ranked: bool) -> Replay:
    """The answer of `replay`. With `aside`, the held-out third and the rest are listed apart too; with `ranked`, the
    best comes first.
    """
    from ctxvc.replay.results.comparison import above
    from ctxvc.replay.results.totals import rank, totals

    def ordered(results: Sequence[Result]) -> list[Totals]:
        return sorted(totals(results), key=rank) if ranked else totals(results)

    parts = {"all": list(results)}
    if aside:
        parts |= {
            "aside": [result for result in results if result.aside],
            "rest": [result for result in results if not result.aside],
        }
    items = [_item(part, total) for part, own in parts.items() for total in ordered(own)]
    return Replay(
        version=results[0].version if results else "",
        anchors=results[0].anchors if results else "",
        conversations=len({(result.sha256, result.conversation) for result in results}),
        calls=sum({(result.sha256, result.conversation): result.calls for result in results}.values()),
        items=items,
        above_oracle=[struct_of(AboveItem, one) for one in above(results)],
        engine=[
            struct_of(EngineItem, total, mean_ms=total.timing.mean, worst_ms=total.timing.worst)
            for total in ordered(results)
        ],
        recommended=None,
        compared=None,
        judged=None,
        failures=[_failure(outcome) for outcome in failures],
    )


def recommended(results: Sequence[Result], sources: int, recorded: int) -> Recommended:
    """The policy and budget to use, of results of `sources` of the `recorded` sessions."""
    from ctxvc.replay.results.totals import advice, totals, visible

    best = advice(totals(results))
    if best is None:
        return Recommended(sessions=sources, recorded=recorded)
    return struct_of(
        Recommended,
        best,
        best.choice,
        sessions=sources,
        recorded=recorded,
        uses=best.choice.retention.nt.total,
        visible=round(visible(best.choice), 4),
        routed=round(best.choice.share("all", "routed") or 0.0, 4),
        cost=round(best.choice.cost.relative_with_demand, 4),
        prune_rate=round(best.choice.tokens.prune_rate, 4),
        fullest=struct_of(
            Fullest,
            best.fullest,
            visible=round(visible(best.fullest), 4),
            cost=round(best.fullest.cost.relative_with_demand, 4),
        ),
    )


def with_comparison(answer: Replay, results: Sequence[Result], sources: Sequence[Source], a: str, b: str) -> Replay:
    """The answer, with the comparison of the policies `a` and `b` in it."""
    from ctxvc.replay.results.comparison import compared, examples

    counts = [
        struct_of(Transition, one.transitions, budget=one.budget, uses=one.uses) for one in compared(results, a, b)
    ]
    largest = [
        struct_of(DifferenceItem, one.difference, file=one.file, budget=one.budget)
        for one in examples(results, a, b, sources, _MOST_EXAMPLES)
    ]
    return msgspec.structs.replace(answer, compared=Comparison(a=a, b=b, transitions=counts, differences=largest))


def _failure(outcome: Outcome) -> FailedSource:
    assert outcome.error
    return FailedSource(source=outcome.unit.source.name, error=message_of(outcome.error), hint=hint_of(outcome.error))


def _item(part: str, total: Totals) -> ReplayItem:
    cost = total.cost
    return struct_of(
        ReplayItem,
        total,
        part=part,
        peak=total.tokens.peak,
        mean=round(total.tokens.total / sent) if (sent := total.calls - total.failed) else 0,
        prune_rate=round(total.tokens.prune_rate, 4),
        cost=round(cost.relative, 4),
        cost_with_recoveries=round(cost.relative_with_demand, 4),
        planner=round(cost.planner / cost.keep, 4) if cost.keep else 0.0,
        summariser=round(cost.summariser / cost.keep, 4) if cost.keep else 0.0,
        recovery=round(cost.recovery / cost.keep, 4) if cost.keep else 0.0,
        breaks=round(total.breaks_per_100_calls, 2),
        all=_uses(total, "all"),
        nt=_uses(total, "nt"),
        ar=_uses(total, "ar"),
        kinds={name: _classes(split) for name, split in total.kinds.items()},
        failures={name: _classes(split) for name, split in total.failures.items()},
        events={verb: dict(actors) for verb, actors in total.events.items()},
        dropped=dict(total.dropped),
    )


def _classes(split: Split) -> ClassesItem:
    return ClassesItem(**{name: struct_of(PlacesItem, getattr(split, name)) for name in ("all", "nt", "ar")})


def _uses(total: Totals, uses: Class) -> UsesItem:
    from ctxvc.replay.results.totals import of_class

    outcomes = of_class(total.retention, uses)
    low, high = total.interval(uses)
    share = total.of_oracle(uses)
    return struct_of(
        UsesItem,
        outcomes,
        uses=outcomes.total,
        low=round(low, 4),
        high=round(high, 4),
        oracle=getattr(total.oracle, uses),
        belady=getattr(total.belady, uses),
        of_oracle=None if share is None else round(share, 4),
        macro={name: round(value, 4) for name, value in total.macro[uses].items()},
    )
