"""What is known of models: their windows and prices, by a dated table, and how their counts of tokens follow ours."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Calibration(NamedTuple):
    """How a provider's count follows ours: `a_milli` thousandths of it, and `b` tokens more. Integers, to be stored."""

    a_milli: int = 1000
    b: int = 0

    def actual(self, tokens: int) -> int:
        """What the provider will count where we count `tokens`, rounded up."""
        return max(0, -(-self.a_milli * tokens // 1000) + self.b)


MIN_SAMPLES = 20
_ROUNDS = 20
_POSSIBLE = range(1, 10**9)  # a report of more or fewer tokens is no sample
_PLAUSIBLE = 0.5, 3.0  # a slope outside says that the samples do not fix one

# Claude 4.7 came with a tokenizer that makes about a third more of the same text; all 5.x have it.
_NEW_TOKENIZER = (4, 7)
_BINDING = (5, 1)
_CLAUDE = re.compile(r"claude|^(?:opus|sonnet|haiku|fable|mythos)")
_CLAUDE_VERSION = re.compile(r"claude-(?:[a-z]+-)?([0-9]{1,2})(?:[-.]([0-9]{1,2}))?(?![0-9])")


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


def binds_thinking(model: str) -> bool:
    """Whether its thinking is bound to every message before it: the Claude models from 5.1 on."""
    version = _CLAUDE_VERSION.search(model.lower())
    return version is not None and (int(version[1]), int(version[2] or 0)) >= _BINDING


def is_older_claude(model: str) -> bool:
    """Whether the model is a Claude of before 4.7, with the older tokenizer and the smaller images."""
    version = _CLAUDE_VERSION.search(model.lower())
    return version is not None and (int(version[1]), int(version[2] or 0)) < _NEW_TOKENIZER


class Limits(NamedTuple):
    """Tokens of a model: all that one request may hold, and what a reply may have of it."""

    window: int
    output: int


MODELS_DATE = "2026-11-03"
_MILLION = Limits(1_000_000, 128_000)

#: What the makers' documentation said on `MODELS_DATE`. The provider's own answer and the person's come first.
MODELS: Mapping[str, Limits] = {
    "claude-fable-5-2": _MILLION,
    "claude-fable-5-1": _MILLION,
    "claude-fable-5": _MILLION,
    "claude-mythos-5-2": _MILLION,
    "claude-mythos-5-1": _MILLION,
    "claude-opus-5-5": _MILLION,
    "claude-opus-5": _MILLION,
    "claude-opus-4-8": _MILLION,
    "claude-opus-4-7": _MILLION,
    "claude-opus-4-6": _MILLION,
    "claude-opus-4-5": Limits(200_000, 64_000),
    "claude-opus-4-1": Limits(200_000, 32_000),
    "claude-opus-4": Limits(200_000, 32_000),
    "claude-sonnet-5-5": _MILLION,
    "claude-sonnet-5": _MILLION,
    "claude-sonnet-4-6": _MILLION,
    "claude-sonnet-4-5": Limits(200_000, 64_000),
    "claude-sonnet-4": Limits(200_000, 64_000),
    "claude-haiku-5-5": _MILLION,
    "claude-haiku-4-5": Limits(200_000, 64_000),
    "gpt-4o": Limits(128_000, 16_384),
    "gpt-4o-mini": Limits(128_000, 16_384),
    "gpt-4.1": Limits(1_047_576, 32_768),
    "gpt-5": Limits(400_000, 128_000),
}

# `us.anthropic.claude-opus-4-1-20250805-v1:0`, `openai/gpt-4o-2024-08-06`: a route before the name, an edition after.
_ROUTE = re.compile(r"^(?:.*/)?(?:[a-z]+\.)*(?=claude-|gpt-)")
_EDITION = re.compile(r"(?:[-@](?:[0-9]{8}|[0-9]{4}-[0-9]{2}-[0-9]{2}|latest))?(?:-v[0-9]+(?::[0-9]+)?)?$")


def limits(model: str) -> Limits | None:
    """Window and output of a model as the table has them, by any of its usual spellings; None if it is not there."""
    return MODELS.get(_plain_name(model))


def window(model: str) -> int | None:
    """The context window of a model in tokens, as the table has it; None if it is not there."""
    known = limits(model)
    return known.window if known else None


class Rates(NamedTuple):
    """What tokens cost, in dollars a million: of the prompt and of the reply. `read` and `write` are multiples of the
    prompt's price, for what comes from the provider's cache and for what goes into it for five minutes."""

    prompt: float
    reply: float
    read: float = 0.1
    write: float = 1.25


#: What the makers' price list said on `MODELS_DATE`.
RATES: Mapping[str, Rates] = {
    "claude-fable-5-2": Rates(8, 40, read=0.025),
    "claude-mythos-5-2": Rates(8, 40, read=0.025),
    "claude-fable-5-1": Rates(10, 50, read=0.025),
    "claude-mythos-5-1": Rates(10, 50, read=0.025),
    "claude-fable-5": Rates(10, 50),
    "claude-opus-5-5": Rates(4, 20, read=0.05),
    "claude-opus-5": Rates(5, 25),
    "claude-opus-4-8": Rates(5, 25),
    "claude-opus-4-7": Rates(5, 25),
    "claude-opus-4-6": Rates(5, 25),
    "claude-opus-4-5": Rates(5, 25),
    "claude-opus-4-1": Rates(15, 75),
    "claude-opus-4": Rates(15, 75),
    "claude-sonnet-5-5": Rates(2, 10, read=0.05),
    "claude-sonnet-5": Rates(2, 10),
    "claude-sonnet-4-6": Rates(3, 15),
    "claude-sonnet-4-5": Rates(3, 15),
    "claude-sonnet-4": Rates(3, 15),
    "claude-haiku-5-5": Rates(0.1, 0.5),
    "claude-haiku-4-5": Rates(1, 5),
}
#: Of these, a prompt of more tokens than that costs so much.
_LONG: Mapping[str, tuple[int, Rates]] = {"claude-haiku-5-5": (100_000, Rates(0.5, 2.5))}


class Usage(NamedTuple):
    """The tokens of one call, as the provider counted them: fresh ones, those written into its cache and those read
    from it, which together are the prompt, and those of the reply."""

    fresh: int = 0
    written: int = 0
    read: int = 0
    reply: int = 0

    @property
    def prompt(self) -> int:
        return self.fresh + self.written + self.read

    def __add__(self, other: object) -> Usage:
        assert isinstance(other, Usage)
        return Usage(*(mine + its for mine, its in zip(self, other, strict=True)))


def usage_of(reported: Mapping[str, int]) -> Usage:
    """The usage of a call from what a reply says of it, in the words of the Messages API or of the OpenAI one.

    There the prompt's tokens have the cached ones among them.
    """
    if "prompt_tokens" in reported:
        cached = reported.get("cached_tokens", 0)
        return Usage(reported["prompt_tokens"] - cached, 0, cached, reported.get("completion_tokens", 0))
    return Usage(
        reported.get("input_tokens", 0),
        reported.get("cache_creation_input_tokens", 0),
        reported.get("cache_read_input_tokens", 0),
        reported.get("output_tokens", 0),
    )


def dollars(model: str, usage: Usage) -> float | None:
    """What a call cost by the table; None for a model that is not in it."""
    name = _plain_name(model)
    rates = RATES.get(name)
    if rates is None:
        return None
    most, above = _LONG.get(name, (0, rates))
    if usage.prompt > most:
        rates = above
    weighed = usage.fresh + usage.written * rates.write + usage.read * rates.read
    return (weighed * rates.prompt + usage.reply * rates.reply) / 1_000_000


def is_same(left: str, right: str) -> bool:
    """Whether two names are of one model: a provider answers with a dated one."""
    return _plain_name(left) == _plain_name(right)


def _plain_name(model: str) -> str:
    """The name by which the tables know a model."""
    name = _EDITION.sub("", _ROUTE.sub("", model.lower()), count=1)
    return name.replace(".", "-") if name.startswith("claude-") else name
