"""A provider's count relative to ours: fitted from the usage that it reports."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ctxvc.tokens import models
from ctxvc.tokens.models import is_older_claude

#: Calls between two looks at the samples, and how many of the newest are looked at.
EVERY = 10
MOST = 200

#: Thousandths by which a new slope must differ to be taken: each change is a commit.
LEAST = 10


class Calibrating:
    """The samples of one session in this process: our count of a prompt, and the provider's."""

    def __init__(self) -> None:
        self._sent: dict[str, int] = {}  # scope → our count of the prompt that waits for its reply
        self._samples: list[tuple[int, int]] = []
        self._model = ""

    def sent(self, scope: str, tokens: int) -> None:
        """A prompt of so many tokens, as we count, goes out."""
        self._sent[scope] = tokens

    def replied(self, scope: str, usage: Mapping[str, int], current: tuple[int, int], model: str) -> Calibration | None:
        """A better calibration than `current`, from the provider's count in the reply's `usage`; None if none is."""
        ours, theirs = self._sent.pop(scope, 0), models.usage_of(usage).prompt
        if model != self._model:
            self._model, self._samples = model, []  # another model counts in its own way
        if not ours or not theirs:
            return None
        self._samples = [*self._samples[1 - MOST :], (ours, theirs)]
        if len(self._samples) < MIN_SAMPLES or len(self._samples) % EVERY:
            return None
        fitted = fit(self._samples, Calibration(*current))
        return (
            fitted if abs(fitted.a_milli - current[0]) >= LEAST or abs(fitted.b - current[1]) >= ours // 100 else None
        )


class Calibration(NamedTuple):
    """How a provider's count follows ours: `a_milli` thousandths of it, and `b` tokens more. Integers, to be stored."""

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


def initial(model: str) -> Calibration:
    """What to start from before the provider has reported anything: 1.5 for current Claude models, 1.2 for older ones.

    Any other model is taken at our own count.
    """
    if not _CLAUDE.search(model.lower()):
        return Calibration()
    return Calibration(1200) if is_older_claude(model) else Calibration(1500)


def fit(samples: Sequence[tuple[int, int]], start: Calibration) -> Calibration:
    """The line through `samples` of (our count, provider's count); `start` for fewer than 20, or where no line shows.

    Robust: up to a fifth of the samples may be anything. It begins with the median slope between samples half the
    list apart (Theil's incomplete method) and ends with least squares under Tukey's weights, which count a sample that
    is 4.7 standard deviations off for nothing. The same samples in any order give the same line.
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
    """Slope and offset of the weighted line; the given slope where all points that count have one abscissa."""
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
