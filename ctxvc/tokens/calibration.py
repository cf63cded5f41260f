"""A provider's count relative to ours: learned from the usage that it reports, from the first reply on."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ctxvc.core.view.budget import DEFAULT_WINDOW, SMALL
from ctxvc.errors import BadInput, Phrase
from ctxvc.tokens import models
from ctxvc.tokens.models import is_older_claude

#: Calls between two looks at the samples once there are enough for a fit, and how many of the newest are looked at.
EVERY = 10
MOST = 200

#: Thousandths of a prompt by which a fit must differ to be taken: each change is a commit.
LEAST = 10

#: The margin, as a share, by which the line after one reply lies above it; after n replies, an n-th of that.
MARGIN = 0.1

#: Before a fit is possible, the true size of a prompt may be these shares above and below the expected one.
_ABOVE, _BELOW = 0.01, 0.05
#: Consecutive replies below the line before it is lowered: too low a line overruns the window, too high a line only
#: wastes some of it.
_LOWERING = 3
#: The smallest ratio of the largest to the smallest prompt that determines a slope.
_SPREAD = 1.25
#: The largest plausible chat template, in tokens.
_TEMPLATE = 2_000


class Calibrating:
    """The samples of one session in this process: our count of a prompt, and the provider's."""

    def __init__(self) -> None:
        self._sent: dict[str, int] = {}  # scope → our count of the prompt that waits for its reply
        self._samples: list[tuple[int, int]] = []
        self._model = ""

    def sent(self, scope: str, tokens: int) -> None:
        """Notes that a prompt of so many tokens, by our count, was sent."""
        self._sent[scope] = tokens

    def replied(
        self,
        scope: str,
        usage: Mapping[str, int],
        current: tuple[int, int],
        model: str,
        start: Calibration | None = None,
    ) -> Calibration | None:
        """A better calibration than `current` from the provider's count in `usage`, or None.

        The first reply replaces `start`, the session's initial guess (by default `initial(model)`).
        """
        ours, theirs = self._sent.pop(scope, 0), models.usage_of(usage).prompt
        self._begin(model)
        if not ours or not theirs:
            return None
        self._samples = [*self._samples[1 - MOST :], (ours, theirs)]
        line = Calibration(*current)
        if len(self._samples) < MIN_SAMPLES:
            return self._early(line, initial(model) if start is None else start)
        if len(self._samples) % EVERY:
            return self._raised(line)
        fitted = fit(self._samples, line)
        differs = max(abs(fitted.actual(size) - line.actual(size)) * 1000 // size for size, _ in self._samples)
        better = fitted if differs >= LEAST else None
        return self._raised(better or line) or better

    def refused(self, scope: str, theirs: int, current: tuple[int, int], model: str) -> Calibration | None:
        """A calibration that gives the refused prompt at least `theirs` tokens; None if `current` does already.

        The prompt no longer waits for a reply. An implausible size is ignored.
        """
        ours = self._sent.pop(scope, 0)
        self._begin(model)
        if not _is_believable(ours, theirs) or theirs <= Calibration(*current).actual(ours):
            return None
        return early([*self._samples, (ours, theirs)])

    def _begin(self, model: str) -> None:
        if model != self._model:
            self._model, self._samples = model, []  # another model counts in its own way

    def _raised(self, current: Calibration) -> Calibration | None:
        """The current line raised to the newest reply, if that lies above it: the next fit would come too late."""
        ours, theirs = self._samples[-1]
        lacking = theirs - current.actual(ours)
        if lacking <= theirs * _ABOVE or not _is_believable(ours, theirs):
            return None
        return current._replace(b=current.b + lacking)

    def _early(self, current: Calibration, start: Calibration) -> Calibration | None:
        """The line through the few replies so far, if it is better than the current one."""
        samples = [sample for sample in self._samples if _is_believable(*sample)]
        if not samples or samples[-1] != self._samples[-1]:
            return None
        ours, theirs = samples[-1]
        too_low = theirs > current.actual(ours) * (1 + _ABOVE)
        newest = samples[-_LOWERING:]
        too_high = len(newest) == _LOWERING and all(
            current.actual(own) > provider * (1 + _BELOW) for own, provider in newest
        )
        if not (current == start or too_low or too_high):
            return None
        line = early(samples)
        return line if line != current else None


class Calibration(NamedTuple):
    """A provider's count from ours: `a_milli` thousandths of it, plus `b` tokens. Integers, since it is stored."""

    a_milli: int = 1000
    b: int = 0

    def actual(self, tokens: int) -> int:
        """The provider's count for our `tokens`, rounded up."""
        return max(0, -(-self.a_milli * tokens // 1000) + self.b)


MIN_SAMPLES = 20
_ROUNDS = 20
_POSSIBLE = range(1, 10**9)  # a report of more or fewer tokens is no sample
_PLAUSIBLE = 0.5, 3.0  # a slope outside says that the samples do not fix one
_CLAUDE = re.compile(r"claude|^(?:opus|sonnet|haiku|fable|mythos)")


#: Assumed for an unknown model with a small window: the smallest tenth that covers 99 % of recorded prompts in each of
#: eight vocabularies, plus some hundreds of tokens for the chat template around a prompt (docs/benchmarks/agent.md).
UNKNOWN = Calibration(1400, 512)
#: The largest slope for a prompt of a few tokens, whose template may be as large.
_SMALL_PROMPT = 2.0
#: The assumption before the one above was measured; older sessions still have it.
FORMERLY = Calibration(2000, 512)
#: Replies without usage after which we warn that the model's tokens are a guess.
SILENT_REPLIES = 5


def initial(model: str, window: int = DEFAULT_WINDOW) -> Calibration:
    """The calibration before the provider's first count: 1.5 for current Claude models, 1.2 for older ones.

    It is 1 for any other model in the table, and for an unknown model with a large window. A small `window` may be full
    at the first prompt, so there it is `UNKNOWN`.
    """
    if _CLAUDE.search(model.lower()):
        return Calibration(1200) if is_older_claude(model) else Calibration(1500)
    return UNKNOWN if window < SMALL and models.window(model) is None else Calibration()


def is_guess(calibration: tuple[int, int]) -> bool:
    """Whether this is the pessimistic guess for an unknown model without any reported count."""
    return calibration in (UNKNOWN, FORMERLY)


def guess_remark(calibration: tuple[int, int], replies: int) -> Phrase | None:
    """The warning about a guess that `replies` replies have not replaced; None if it is not one, or too early."""
    if replies < SILENT_REPLIES or not is_guess(calibration):
        return None
    return Phrase("unknown-vocabulary", factor=f"{calibration[0] / 1000:g}")


def of_factor(tokens_per_count: float) -> Calibration:
    """The calibration of a model with `factor` tokens for each of ours. Raises: BadInput."""
    low, high = _PLAUSIBLE
    if not low <= tokens_per_count <= high:
        raise BadInput(
            f"a model does not make {tokens_per_count:g} tokens of one of ours",
            hint=f"give the provider's count of a prompt divided by ours, from {low:g} to {high:g}",
        )
    return Calibration(round(tokens_per_count * 1000))


def early(samples: Sequence[tuple[int, int]]) -> Calibration:
    """A line from too few samples for a fit: through the newest one, plus `MARGIN` divided by their number.

    Its slope is the median between samples of clearly different sizes, and at least nine tenths of the newest ratio.
    Where they determine none it is that ratio; for a small prompt at most 2, since much of that is the template. Larger
    prompts are more likely over- than underestimated; for smaller ones it is enough that this one fitted.
    """
    ours, theirs = samples[-1]
    ratio = theirs / ours
    slopes = [(v - y) / (u - x) for x, y in samples for u, v in samples if u >= x * _SPREAD]
    slope = max(_median(slopes), 0.9 * ratio) if slopes else ratio
    slope = min(slope, ratio, _PLAUSIBLE[1] if ours >= _TEMPLATE else _SMALL_PROMPT)
    above = 1 + MARGIN / len(samples)
    return Calibration(round(slope * above * 1000), round((theirs - slope * ours) * above))


def _is_believable(ours: int, theirs: int) -> bool:
    """Whether `theirs` is a plausible count for our `ours`: some providers report only what was not in their cache."""
    low, high = _PLAUSIBLE
    return ours in _POSSIBLE and low * ours <= theirs <= high * ours + _TEMPLATE


def fit(samples: Sequence[tuple[int, int]], start: Calibration) -> Calibration:
    """The line through `samples` of (our count, provider's count); `start` for fewer than 20, or if they show no line.

    Robust: up to a fifth of the samples may be outliers. It starts from the median slope between samples half the list
    apart (Theil's incomplete method) and ends with least squares under Tukey's weights, which ignore a sample more than
    4.7 standard deviations off. The order of the samples does not matter.
    """
    points = sorted(
        (float(ours), float(theirs)) for ours, theirs in samples if ours in _POSSIBLE and theirs in _POSSIBLE
    )
    if len(points) < MIN_SAMPLES:
        return start
    half = len(points) // 2
    slopes = [(v - y) / (u - x) for (x, y), (u, v) in zip(points, points[half:], strict=False) if u > x]
    if not slopes:
        return start
    slope = _median(slopes)
    offset = _median([y - slope * x for x, y in points])
    for _ in range(_ROUNDS):
        residuals = [y - slope * x - offset for x, y in points]
        reach = max(1.0, 4.685 * 1.4826 * _median([abs(residual) for residual in residuals]))
        weights = [max(0.0, 1.0 - (residual / reach) ** 2) ** 2 for residual in residuals]
        slope, offset = _least_squares(points, weights, slope)
    low, high = _PLAUSIBLE
    return Calibration(round(slope * 1000), round(offset)) if low <= slope <= high else start


def _least_squares(
    points: Sequence[tuple[float, float]], weights: Sequence[float], slope: float
) -> tuple[float, float]:
    """Slope and offset of the weighted line; the given slope if all points with a weight have the same abscissa."""
    total = math.fsum(weights)
    x_mean = math.fsum(weight * x for weight, (x, _) in zip(weights, points, strict=True)) / total
    y_mean = math.fsum(weight * y for weight, (_, y) in zip(weights, points, strict=True)) / total
    spread = math.fsum(weight * (x - x_mean) ** 2 for weight, (x, _) in zip(weights, points, strict=True))
    if spread > 0:
        shared = (weight * (x - x_mean) * (y - y_mean) for weight, (x, y) in zip(weights, points, strict=True))
        slope = math.fsum(shared) / spread
    return slope, y_mean - slope * x_mean


def _median(values: Sequence[float]) -> float:
    """The upper median."""
    return sorted(values)[len(values) // 2]
