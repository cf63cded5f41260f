"""Models: their windows and prices, by a dated table, and how their counts of tokens relate to ours."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from ctxvc.core.view.budget import DEFAULT_WINDOW, Budget

# Claude 4.7 came with a tokenizer that makes about a third more of the same text; all 5.x have it.
_NEW_TOKENIZER = (4, 7)
_BINDING = (5, 1)
_CLAUDE_VERSION = re.compile(r"claude-(?:[a-z]+-)?([0-9]{1,2})(?:[-.]([0-9]{1,2}))?(?![0-9])")


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
_LARGE = "[1m]"
_EDITION = re.compile(r"(?:[-@](?:[0-9]{8}|[0-9]{4}-[0-9]{2}-[0-9]{2}|latest))?(?:-v[0-9]+(?::[0-9]+)?)?$")


def limits(model: str) -> Limits | None:
    """Window and output of a model as the table has them, by any of its usual spellings; None if it is not there."""
    return MODELS.get(_plain_name(model))


def names_its_window(model: str) -> bool:
    """Whether the name ends with `[1m]`, by which a host asks for a window of a million tokens."""
    return model.lower().endswith(_LARGE)


def window(model: str) -> int | None:
    """The context window of a model in tokens, by its name or as the table has it; None if neither tells."""
    if names_its_window(model):
        return _MILLION.window
    model_limits = limits(model)
    return model_limits.window if model_limits else None


def window_under(budget: int | Budget, model: str) -> int:
    """The tokens that a session under a budget has for its prompt and reply: the budget, or the model's window if that
    is smaller or there is no budget; the usual window where neither is known."""
    tokens = budget.window if isinstance(budget, Budget) else budget
    return min(filter(None, (tokens, window(model))), default=DEFAULT_WINDOW)


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
    """The price of a call by the table; None for a model that is not in it."""
    name = _plain_name(model)
    rates = RATES.get(name)
    if rates is None:
        return None
    most, above = _LONG.get(name, (0, rates))
    if usage.prompt > most:
        rates = above
    weighed = usage.fresh + usage.written * rates.write + usage.read * rates.read
    return (weighed * rates.prompt + usage.reply * rates.reply) / 1_000_000


def is_same(one: str, other: str) -> bool:
    """Whether two names are of one model: a provider answers with a dated one."""
    return _plain_name(one) == _plain_name(other)


def _plain_name(model: str) -> str:
    """The name by which the tables know a model."""
    name = _EDITION.sub("", _ROUTE.sub("", model.lower().removesuffix(_LARGE)), count=1)
    return name.replace(".", "-") if name.startswith("claude-") else name
