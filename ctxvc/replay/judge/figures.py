"""The figures of records: pure sums, reproducible from the record file alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median

import msgspec

from ctxvc.replay.judge.answer import Dimensions, Estimate, Judgement, Preference, Quantity, Record
from ctxvc.replay.measures.retention import wilson

#: Decimal places of shares and means.
_DIGITS = 4

#: What identifies a cut, to pair the judgements of two policies.
_Cut = tuple[str, str, str, int, int]


class Share(msgspec.Struct, frozen=True):
    """`hits` of `total`, and the 95 % interval of that share; `hits` may be a sum of halves."""

    hits: float
    total: int
    low: float
    high: float

    @property
    def share(self) -> float | None:
        return round(self.hits / self.total, _DIGITS) if self.total else None


class Judged(msgspec.Struct, frozen=True):
    """A model's judgements of a policy's plans at a budget.

    `no_impact` is over the usable answers, `certain` over those of them that are not uncertain. `prune`, `overall` (0
    to 5), each of `dimensions` (0 to 5) and `confidence` are means over the usable answers, None without any.
    `culprits` names the most missed block of each plan with an impact, if the judge names one. The last four count the
    plans without impact by `both` the judge and the measure of exact strings (`CutPoint.no_impact`), by only one, or by
    `neither`.
    """

    model: str
    policy: str
    budget: int
    samples: int
    unusable: int
    uncertain: int
    no_impact: Share
    certain: Share
    prune: float | None
    overall: float | None
    dimensions: dict[str, float]
    confidence: float | None
    culprits: tuple[str, ...]
    both: int
    only_judge: int
    only_measure: int
    neither: int

    @property
    def kappa(self) -> float | None:
        """Cohen's kappa of the judge and the measure."""
        return kappa(self.both, self.only_judge, self.only_measure, self.neither)


class Preferred(msgspec.Struct, frozen=True):
    """Two policies at the cuts where both were judged, and how comparisons settled the cuts where they differ.

    `raw_…` are the shares without impact by the single judgements. In `calibrated_…` each comparison replaces the two
    judgements: the better plan has no impact, the other has one; a tie counts half for both. A difference without a
    usable comparison keeps its judgements.
    """

    model: str
    first: str
    second: str
    budget: int
    cuts: int
    differing: int
    first_better: int
    ties: int
    second_better: int
    unusable: int
    confidence: float | None
    raw_first: Share
    raw_second: Share
    calibrated_first: Share
    calibrated_second: Share


class Perceived(msgspec.Struct, frozen=True):
    """A model's estimates of one quantity, with or without a dashboard.

    `error` is the median of |estimate − expected| / expected, for sizes; `right` the share of exact answers.
    """

    model: str
    quantity: Quantity
    dashboard: bool
    questions: int
    unusable: int
    error: float | None
    right: Share


def judged(records: Iterable[Record]) -> list[Judged]:
    """The figures of each model, policy and budget, in the order of first appearance."""
    groups: dict[tuple[str, str, int], list[Judgement]] = {}
    for record in _newest(record for record in records if isinstance(record, Judgement)):
        groups.setdefault((record.model, record.policy, record.budget), []).append(record)
    return [_judged(*key, own) for key, own in groups.items()]


def preferred(records: Iterable[Record]) -> list[Preferred]:
    """The figures of each model, pair of policies and budget that has a comparison."""
    judgements: dict[tuple[str, _Cut, str], Judgement] = {}
    groups: dict[tuple[str, str, str, int], dict[_Cut, Preference]] = {}
    for record in records:
        match record:
            case Judgement():
                judgements[record.model, _cut(record), record.policy] = record
            case Preference():
                own = groups.setdefault((record.model, record.first, record.second, record.budget), {})
                own[_cut(record)] = record
    return [_preferred(*key, own, judgements) for key, own in groups.items()]


def perceived(records: Iterable[Record]) -> list[Perceived]:
    """The figures of each model and quantity, without the dashboard and with it."""
    groups: dict[tuple[str, Quantity, bool], list[Estimate]] = {}
    for record in records:
        if isinstance(record, Estimate):
            groups.setdefault((record.model, record.quantity, record.dashboard), []).append(record)
    return [_perceived(*key, own) for key, own in groups.items()]


def _newest(records: Iterable[Judgement]) -> Iterable[Judgement]:
    """The newest record of each plan: earlier ones may have had a differently worded question."""
    return {(record.model, _cut(record), record.policy): record for record in records}.values()


def _cut(record: Record) -> _Cut:
    return record.file, record.sha256, record.conversation, record.budget, record.call


def _judged(model: str, policy: str, budget: int, records: Sequence[Judgement]) -> Judged:
    usable = [(record, record.verdict) for record in records if record.verdict]
    certain = [own for _, own in usable if not own.uncertain]
    counts = Counter((own.valid, not record.misses) for record, own in usable)
    names = Dimensions.__struct_fields__
    dimensions = {
        name: _mean(getattr(own.dimension_scores, name).score for _, own in usable) for name in names if usable
    }
    return Judged(
        model=model,
        policy=policy,
        budget=budget,
        samples=len(records),
        unusable=len(records) - len(usable),
        uncertain=sum(own.uncertain for _, own in usable),
        no_impact=_share(sum(own.valid for _, own in usable), len(usable)),
        certain=_share(sum(own.valid for own in certain), len(certain)),
        prune=_mean(record.prune for record, _ in usable),
        overall=_mean(own.overall_score for _, own in usable),
        dimensions={name: value for name, value in dimensions.items() if value is not None},
        confidence=_mean(own.confidence for _, own in usable),
        culprits=tuple(
            f"{record.conversation}, call {record.call}: {culprit.target_id}"
            for record, own in usable
            if (culprit := own.failure_culprit)
        ),
        both=counts[True, True],
        only_judge=counts[True, False],
        only_measure=counts[False, True],
        neither=counts[False, False],
    )


def _preferred(
    model: str,
    first: str,
    second: str,
    budget: int,
    preferences: dict[_Cut, Preference],
    judgements: dict[tuple[str, _Cut, str], Judgement],
) -> Preferred:
    raw, calibrated = [0.0, 0.0], [0.0, 0.0]
    cuts = differing = 0
    for (of_model, cut, policy), judgement in judgements.items():
        opposite = judgements.get((model, cut, second))
        if (of_model, policy, cut[3]) != (model, first, budget) or not opposite:
            continue
        if not judgement.verdict or not opposite.verdict:
            continue
        valid = judgement.verdict.valid, opposite.verdict.valid
        better = preferences[cut].better if cut in preferences and valid[0] != valid[1] else None
        settled = {"first": (1.0, 0.0), "second": (0.0, 1.0), "tie": (0.5, 0.5), None: valid}[better]
        cuts += 1
        differing += valid[0] != valid[1]
        raw = [raw[0] + valid[0], raw[1] + valid[1]]
        calibrated = [calibrated[0] + settled[0], calibrated[1] + settled[1]]
    outcomes = Counter(own.better for own in preferences.values())
    return Preferred(
        model=model,
        first=first,
        second=second,
        budget=budget,
        cuts=cuts,
        differing=differing,
        first_better=outcomes["first"],
        ties=outcomes["tie"],
        second_better=outcomes["second"],
        unusable=outcomes[None],
        confidence=_mean(own.choice.confidence for own in preferences.values() if own.choice),
        raw_first=_share(raw[0], cuts),
        raw_second=_share(raw[1], cuts),
        calibrated_first=_share(calibrated[0], cuts),
        calibrated_second=_share(calibrated[1], cuts),
    )


def _perceived(model: str, quantity: Quantity, dashboard: bool, records: Sequence[Estimate]) -> Perceived:
    usable = [record for record in records if record.estimate is not None]
    errors = [
        abs(record.estimate - record.expected) / record.expected
        for record in usable
        if quantity in ("total", "block") and isinstance(record.estimate, int) and isinstance(record.expected, int)
        and record.expected
    ]  # fmt: skip
    return Perceived(
        model=model,
        quantity=quantity,
        dashboard=dashboard,
        questions=len(records),
        unusable=len(records) - len(usable),
        error=round(median(errors), _DIGITS) if errors else None,
        right=_share(sum(record.estimate == record.expected for record in usable), len(usable)),
    )


def kappa(both: int, only_first: int, only_second: int, neither: int) -> float | None:
    """Cohen's kappa of two judges; None without any cases, or if chance alone would always agree."""
    total = both + only_first + only_second + neither
    if not total:
        return None
    first, second = both + only_first, both + only_second
    chance = (first * second + (total - first) * (total - second)) / total**2
    return None if chance == 1 else round(((both + neither) / total - chance) / (1 - chance), _DIGITS)


def _share(hits: float, total: int) -> Share:
    low, high = wilson(hits, total)
    return Share(hits, total, round(low, _DIGITS), round(high, _DIGITS))


def _mean(values: Iterable[float]) -> float | None:
    own = list(values)
    return round(math.fsum(own) / len(own), _DIGITS) if own else None
