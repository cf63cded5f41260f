"""Self-GC's prune against no-impact: what each method's plan costs the same recorded future, at the same cuts.

A cut is the first call at which the linear prompt passes a share of a budget. Each method proposes its plan for that
prompt; a plan has no impact if everything that later calls use from the prompt is still visible or routed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil
from statistics import median_low
from typing import Any

import msgspec

from ctxvc import policies
from ctxvc.core.plan.plan import Rehearsal
from ctxvc.core.plan.timing import committed
from ctxvc.replay.conversation import Conversation
from ctxvc.replay.experiments.measure import Table, interval, percent
from ctxvc.replay.judge.cuts import Cut as LinearCut
from ctxvc.replay.judge.cuts import Threshold, cuts_at
from ctxvc.replay.measures.anchors import KINDS, AnchorKind
from ctxvc.replay.measures.cut_points import SAVING, CutPoint, CutPoints, cut_point, cut_points
from ctxvc.replay.measures.retention import Counts
from ctxvc.replay.measures.uses import TITLES, Category
from ctxvc.tokens.meter import Meter

NAME = "no-impact"
SOURCE = "Self-GC (arXiv 2607.00692), Tables 3 and 4, and the A/B calibration"
APART = (
    "A model judged whether the paper's plans have an impact; here each exact string used by later calls decides, "
    "which is strict: one path out of hundreds is an impact. `planned` uses fixed rules instead of the paper's "
    "model. The paper cuts where its product compacted; here the cut is where the linear prompt exceeds a share of "
    "a budget. A result whose call stays is always routed: the call names it, and the mark in its place has the "
    "address."
)

#: The paper's prune and no-impact in per cent, on the hard set, then on the production suite.
PAPER: Mapping[str, tuple[str, str, str, str]] = {
    "oldest_turn": ("63.45", "66.67 [49.61, 80.25]", "40.19", "87.46 [83.46, 90.60]"),
    "tool_prune": ("67.93", "69.70 [52.66, 82.62]", "47.76", "77.71 [72.93, 81.86]"),
    "tool_mask_prune": ("61.90", "54.55 [37.99, 70.16]", "47.75", "80.12 [75.49, 84.06]"),
    "hybrid": ("69.87", "57.58 [40.81, 72.76]", "46.28", "83.73 [79.38, 87.31]"),
    "planned": ("43.95", "84.85 [69.08, 93.35]", "31.04-33.98", "91.27-94.58"),
}
#: The compared methods: the paper's, then others of ours.
METHODS = (*PAPER, "default", "layered", "episodes:derive=on", "summary")
#: The two of the paper's A/B.
_PAIR = ("planned", "oldest_turn")


class Cut(msgspec.Struct, frozen=True):
    """A method's plan at one cut; its impacts are None if there is no plan.

    `there` is its impact on the next calls if what is pruned or masked is lost, as in the paper; `near` and `far` are
    its impacts on the next calls and on all later ones here, where what is pruned or masked has an address.
    """

    conversation: str
    budget: int
    share: float
    method: str
    there: CutPoint | None = None
    near: CutPoint | None = None
    far: CutPoint | None = None


class Score(msgspec.Struct, frozen=True):
    """A method at all cuts of one kind.

    `cuts` is their number, `plans` that of the plans that saved enough to be counted; `there`, `near` and `far` (as in
    `Cut`) are None without any. `dependencies` counts by outcome all that the counted plans' futures use. `losses` and
    `kinds` count the strings that `there` misses, by category and by kind.
    """

    set: str
    budget: int
    share: float
    method: str
    cuts: int
    plans: int
    there: CutPoints | None
    near: CutPoints | None
    far: CutPoints | None
    dependencies: Counts
    losses: Mapping[Category, int] = {}
    kinds: Mapping[AnchorKind, int] = {}


class Calibration(msgspec.Struct, frozen=True):
    """The methods of `_PAIR` at cuts where only one has no impact: whose plan leaves more visible."""

    set: str
    budget: int
    share: float
    cuts: int
    disagreements: int
    first_better: int
    ties: int
    second_better: int


class NoImpact(msgspec.Struct, frozen=True):
    """`hard` has the conversations of the hard set, the hardest first, with their tool pressure in tokens."""

    horizon: int
    scores: tuple[Score, ...]
    calibrations: tuple[Calibration, ...]
    hard: Mapping[str, int] = {}

    @property
    def tables(self) -> tuple[Table, ...]:
        """One row a method for the hard set, all, and what was missed; then the A/B, and the hard set itself."""
        tables: list[Table] = []
        for name, first in (("hard set", 0), ("all", 2)):
            columns = (
                *("budget", "cut at", "method", "cuts", "plans ≥ 30 %", "prune", "paper: prune"),
                *(f"no impact on {self.horizon} calls, pruned is lost", "95 %", "paper: no impact"),
                *(f"no impact on {self.horizon} calls", "no impact on all", "dependencies visible or routed"),
            )
            rows = [_row(score, first) for score in self.scores if score.set == name]
            paper = "Table 3, hard set of 33" if first == 0 else "Table 4, production suite of 332"
            tables.append(Table(f"Self-GC: prune against no-impact, {name} ({paper})", columns, tuple(rows), APART))
        heads = ("set", "budget", "cut at", "cuts", "disagreements", "planned better", "ties", "oldest_turn better")
        lines = [
            (
                *(one.set, f"{one.budget:,}", percent(one.share, 0), str(one.cuts), str(one.disagreements)),
                *(str(one.first_better), str(one.ties), str(one.second_better)),
            )
            for one in self.calibrations
        ]
        lines.append(("paper", "", "", "332", "20", "11", "7", "2"))
        apart = (
            "The paper has a second judge; here the better plan is the one after which more of the future is visible."
        )
        calibration = Table("Self-GC: A/B on disagreements", heads, tuple(lines), apart)
        return (*tables, self._losses(), calibration, self._hard_set())

    def _hard_set(self) -> Table:
        """The conversations of the hard set."""
        rows = tuple((name, f"{pressure:,}") for name, pressure in self.hard.items())
        columns = ("conversation", "tokens of calls and results in half of its prompts")
        apart = "The paper gives no formula for its 33 of 332 sessions with the highest sustained tool pressure."
        return Table("Self-GC: the hard set, a tenth of the conversations", columns, rows, apart)

    def _losses(self) -> Table:
        """The strings that a method's plans missed in all, by the paper's categories and by kind."""
        scores = [score for score in self.scores if score.set == "all" and score.plans]
        titles = ("budget", "cut at", "method", "misses", *TITLES.values(), *KINDS)
        rows = [
            (
                *(f"{score.budget:,}", percent(score.share, 0), score.method, f"{sum(score.kinds.values()):,}"),
                *(f"{score.losses.get(name, 0):,}" for name in TITLES),
                *(f"{score.kinds.get(kind, 0):,}" for kind in KINDS),
            )
            for score in scores
        ]
        apart = (
            "The paper describes its categories and gives no figures. Its sixth, recovery-routing loss, is what an "
            "address leads to and nothing in the prompt names: here, each miss of a folded block."
        )
        title = f"Self-GC: what the next {self.horizon} calls missed, pruned is lost (Table 7)"
        return Table(title, titles, tuple(rows), apart)


def _row(score: Score, first: int) -> tuple[str, ...]:
    there, near, far = score.there, score.near, score.far
    paper = PAPER.get(score.method, ("", "", "", ""))
    return (
        *(f"{score.budget:,}", percent(score.share, 0), score.method, str(score.cuts), str(score.plans)),
        *(percent(far.prune) if far else "", paper[first]),
        *(percent(there.no_impact) if there else "", interval(there.low, there.high) if there else ""),
        *(paper[first + 1], percent(near.no_impact) if near else "", percent(far.no_impact) if far else ""),
        percent(score.dependencies.share("routed")),
    )


def run(
    conversations: Iterable[Conversation],
    *,
    methods: Sequence[str] = METHODS,
    budgets: Sequence[int] = (32_000, 80_000),
    shares: Sequence[float] = (0.62, 0.9),
    horizon: int = 10,
    saving: float = SAVING,
) -> NoImpact:
    """The scores of each method at each cut. `shares` are of the budgets; `horizon` is in calls."""
    cuts: list[Cut] = []
    pressures: dict[str, int] = {}
    meter = Meter(None)
    for conversation in conversations:
        sizes = [meter.count(block.text) for block in conversation.blocks]
        pressures[_key(conversation)] = tool_pressure(conversation, sizes)
        cuts += _cuts(conversation, methods, budgets, shares, horizon, meter)
    hard = {name: pressures[name] for name in hard_set(pressures)} if pressures else {}
    sets = {"hard set": [cut for cut in cuts if cut.conversation in hard], "all": cuts}
    kinds = [(name, budget, share) for name in sets for budget in budgets for share in shares]
    scores, calibrations = [], []
    for name, budget, share in kinds:
        of_kind = [cut for cut in sets[name] if (cut.budget, cut.share) == (budget, share)]
        scores += [_score((name, budget, share), method, of_kind, saving) for method in methods]
        if _PAIR[0] in methods and _PAIR[1] in methods:
            calibrations.append(_calibration((name, budget, share), of_kind))
    return NoImpact(horizon, tuple(scores), tuple(calibrations), hard)


def _key(conversation: Conversation) -> str:
    return f"{conversation.file} {conversation.id}"


def _cuts(
    conversation: Conversation,
    methods: Sequence[str],
    budgets: Sequence[int],
    shares: Sequence[float],
    horizon: int,
    meter: Meter,
) -> Iterator[Cut]:
    thresholds = {Threshold(budget * share, budget, budget): share for budget in budgets for share in shares}
    for cut in cuts_at(conversation, thresholds, meter):
        for method in methods:
            place = Cut(_key(conversation), cut.budget, thresholds[cut.threshold], method)
            rehearsal = cut.planned(policies.parse(method))
            yield _with_impacts(place, cut, rehearsal, horizon) if rehearsal else place


def _with_impacts(place: Cut, cut: LinearCut, rehearsal: Rehearsal, horizon: int) -> Cut:
    prompt, numbers = cut.after(rehearsal), cut.prompts.numbers
    lost = frozenset(
        numbers[row.id]
        for row in committed(rehearsal).rows()
        if row.state in ("pruned", "masked") and row.id in numbers
    )

    def impact(**options: Any) -> CutPoint:
        return cut_point(cut.lookup, cut.before, prompt, search=False, **options)

    there = impact(horizon=horizon, unreachable=lost)
    return msgspec.structs.replace(place, there=there, near=impact(horizon=horizon), far=impact())


def _score(kind: tuple[str, int, float], method: str, cuts: Sequence[Cut], saving: float) -> Score:
    own = [cut for cut in cuts if cut.method == method]
    planned = [cut for cut in own if cut.far and cut.far.prune >= saving]
    name, budget, share = kind
    return Score(
        set=name,
        budget=budget,
        share=share,
        method=method,
        cuts=len(own),
        plans=len(planned),
        there=cut_points((cut.there for cut in planned if cut.there), saving),
        near=cut_points((cut.near for cut in planned if cut.near), saving),
        far=cut_points((cut.far for cut in planned if cut.far), saving),
        dependencies=sum((cut.far.dependencies for cut in planned if cut.far), Counts()),
        losses=sum((Counter(cut.there.losses) for cut in planned if cut.there), Counter()),
        kinds=sum((Counter(cut.there.kinds) for cut in planned if cut.there), Counter()),
    )


def _calibration(kind: tuple[str, int, float], cuts: Sequence[Cut]) -> Calibration:
    by_conversation: dict[str, dict[str, CutPoint]] = {}
    for cut in cuts:
        if cut.there:
            by_conversation.setdefault(cut.conversation, {})[cut.method] = cut.there
    both = [(own[_PAIR[0]], own[_PAIR[1]]) for own in by_conversation.values() if own.keys() >= set(_PAIR)]
    apart = [(a.dependencies.visible, b.dependencies.visible) for a, b in both if a.no_impact != b.no_impact]
    name, budget, share = kind
    return Calibration(
        set=name,
        budget=budget,
        share=share,
        cuts=len(both),
        disagreements=len(apart),
        first_better=sum(a > b for a, b in apart),
        ties=sum(a == b for a, b in apart),
        second_better=sum(a < b for a, b in apart),
    )


#: The share of conversations in the paper's hard set.
SHARE = 33 / 332


def tool_pressure(conversation: Conversation, sizes: Sequence[int]) -> int:
    """The tokens of calls and results that at least half of the prompts contain, if nothing leaves.

    `sizes` are the blocks' tokens by number.
    """
    pressures = [0] * (len(conversation.calls) + 1)
    for block in conversation.blocks:
        if block.kind in ("tool_use", "tool_result"):
            pressures[min(block.seen, len(conversation.calls))] += sizes[block.number]
    total = 0
    for call, own in enumerate(pressures):
        total += own
        pressures[call] = total
    return median_low(pressures[:-1])


def hard_set(pressures: Mapping[str, int], share: float = SHARE) -> tuple[str, ...]:
    """The `share` of the conversations with the highest pressure, at least one, highest first; equals by name."""
    ranked = sorted(pressures, key=lambda name: (-pressures[name], name))
    return tuple(ranked[: ceil(len(ranked) * share)])
