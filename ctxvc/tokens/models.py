"""Models: a dated table of windows and prices, and the usage that providers report."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from ctxvc.core.view.budget import DEFAULT_WINDOW, Budget

# Claude 4.7 came with a tokenizer that makes about a third more of the same text; all 5.x have it.
_NEW_TOKENIZER = (4, 7)
_BINDING = (5, 1)
_CLAUDE_VERSION = re.compile(r"claude-(?:[a-z]+-)?([0-9]{1,2})(?:[-.]([0-9]{1,2}))?(?![0-9])")


def binds_thinking(model: str) -> bool:
    """Whether thinking is bound to every message before it, as for Claude models from 5.1 on."""
    version = _CLAUDE_VERSION.search(model.lower())
    return version is not None and (int(version[1]), int(version[2] or 0)) >= _BINDING


def is_older_claude(model: str) -> bool:
    """Whether the model is a Claude before 4.7, with the older tokenizer and smaller images."""
    version = _CLAUDE_VERSION.search(model.lower())
    return version is not None and (int(version[1]), int(version[2] or 0)) < _NEW_TOKENIZER


class Limits(NamedTuple):
    """Limits of a model in tokens: of a whole request, and of its reply."""

    window: int
    output: int


class Long(NamedTuple):
    """The factors on the price of the `prompt` and the `reply` for prompts of more than `tokens`."""

    tokens: int
    prompt: float
    reply: float


class Rates(NamedTuple):
    """Prices in dollars for a million tokens of the prompt and of the reply. `read` and `write` are multiples of the
    prompt's price, for what comes from the provider's cache and for what goes into it for five minutes."""

    prompt: float
    reply: float
    read: float = 0.1
    write: float = 1.25
    long: Long | None = None


#: The day of the makers' documentation and price lists that the tables here are taken from: platform.claude.com,
#: developers.openai.com and ai.google.dev. They were compared with the table in LiteLLM 1.110.2, which agrees but for
#: `gpt-6.2-*` and `gemini-4-neon`: it lacks them, and theirs are from the release notes of TokenMeter 0.17.
MODELS_DATE = "2026-11-27"
_MILLION = Limits(1_000_000, 128_000)
_CLAUDE_4 = Limits(200_000, 64_000)
_GPT_6 = Limits(1_050_000, 128_000)
_GPT_5 = Limits(400_000, 128_000)
_GPT_4_1 = Limits(1_047_576, 32_768)
_GPT_4O = Limits(128_000, 16_384)
_O = Limits(200_000, 100_000)
_GEMINI = Limits(1_048_576, 65_536)
_GPT_LONG = Long(272_000, 2, 1.5)
_GEMINI_LONG = Long(200_000, 2, 1.5)


class Model(NamedTuple):
    limits: Limits
    rates: Rates


#: The provider's own answer on a window, and the person's, come first.
MODELS: Mapping[str, Model] = {
    "claude-fable-5-2": Model(_MILLION, Rates(8, 40, read=0.025)),
    "claude-fable-5-1": Model(_MILLION, Rates(10, 50, read=0.025)),
    "claude-fable-5": Model(_MILLION, Rates(10, 50)),
    "claude-mythos-5-2": Model(_MILLION, Rates(8, 40, read=0.025)),
    "claude-mythos-5-1": Model(_MILLION, Rates(10, 50, read=0.025)),
    "claude-opus-5-5": Model(_MILLION, Rates(4, 20, read=0.05)),
    "claude-opus-5": Model(_MILLION, Rates(5, 25)),
    "claude-opus-4-8": Model(_MILLION, Rates(5, 25)),
    "claude-opus-4-7": Model(_MILLION, Rates(5, 25)),
    "claude-opus-4-6": Model(_MILLION, Rates(5, 25)),
    "claude-opus-4-5": Model(_CLAUDE_4, Rates(5, 25)),
    "claude-opus-4-1": Model(Limits(200_000, 32_000), Rates(15, 75)),
    "claude-opus-4": Model(Limits(200_000, 32_000), Rates(15, 75)),
    "claude-sonnet-5-5": Model(_MILLION, Rates(2, 10, read=0.05)),
    "claude-sonnet-5": Model(_MILLION, Rates(2, 10)),
    "claude-sonnet-4-6": Model(_MILLION, Rates(3, 15)),
    "claude-sonnet-4-5": Model(_CLAUDE_4, Rates(3, 15)),
    "claude-sonnet-4": Model(_CLAUDE_4, Rates(3, 15)),
    "claude-haiku-5-5": Model(_MILLION, Rates(0.1, 0.5, long=Long(100_000, 5, 5))),
    "claude-haiku-4-5": Model(_CLAUDE_4, Rates(1, 5)),
    # Of OpenAI's models before 5.6, and of Google's, what goes into the cache costs as much as any other token.
    "gpt-6.2-astra": Model(_GPT_6, Rates(8, 40, read=0.05, long=_GPT_LONG)),
    "gpt-6.2-sol": Model(_GPT_6, Rates(2, 10, read=0.05, long=_GPT_LONG)),
    "gpt-6.1-sol": Model(_GPT_6, Rates(2, 10, read=0.05, long=_GPT_LONG)),
    "gpt-6.1-terra": Model(_GPT_6, Rates(1, 5, read=0.05, long=_GPT_LONG)),
    "gpt-6-astra": Model(_GPT_6, Rates(10, 50, long=_GPT_LONG)),
    "gpt-6-sol": Model(_GPT_6, Rates(2, 10, long=_GPT_LONG)),
    "gpt-6-luna": Model(_GPT_6, Rates(0.1, 0.5, long=_GPT_LONG)),
    "gpt-5.6": Model(_GPT_6, Rates(4, 20, long=_GPT_LONG)),
    "gpt-5.6-sol": Model(_GPT_6, Rates(4, 20, long=_GPT_LONG)),
    "gpt-5.6-terra": Model(_GPT_6, Rates(2, 12, long=_GPT_LONG)),
    "gpt-5.6-luna": Model(_GPT_6, Rates(0.2, 1.2, long=_GPT_LONG)),
    "gpt-5.5": Model(_GPT_6, Rates(5, 30, write=1, long=_GPT_LONG)),
    "gpt-5.5-pro": Model(_GPT_6, Rates(30, 180, read=1, write=1, long=_GPT_LONG)),
    "gpt-5.4": Model(_GPT_6, Rates(2.5, 15, write=1, long=_GPT_LONG)),
    "gpt-5.4-pro": Model(_GPT_6, Rates(30, 180, read=1, write=1, long=_GPT_LONG)),
    "gpt-5.4-mini": Model(_GPT_5, Rates(0.75, 4.5, write=1)),
    "gpt-5.4-nano": Model(_GPT_5, Rates(0.2, 1.25, write=1)),
    "gpt-5.3-codex": Model(_GPT_5, Rates(1.75, 14, write=1)),
    "gpt-5.2": Model(_GPT_5, Rates(1.75, 14, write=1)),
    "gpt-5.2-codex": Model(_GPT_5, Rates(1.75, 14, write=1)),
    "gpt-5.2-pro": Model(_GPT_5, Rates(21, 168, read=1, write=1)),
    "gpt-5.1": Model(_GPT_5, Rates(1.25, 10, write=1)),
    "gpt-5.1-codex": Model(_GPT_5, Rates(1.25, 10, write=1)),
    "gpt-5.1-codex-max": Model(_GPT_5, Rates(1.25, 10, write=1)),
    "gpt-5.1-codex-mini": Model(_GPT_5, Rates(0.25, 2, write=1)),
    "gpt-5": Model(_GPT_5, Rates(1.25, 10, write=1)),
    "gpt-5-codex": Model(_GPT_5, Rates(1.25, 10, write=1)),
    "gpt-5-mini": Model(_GPT_5, Rates(0.25, 2, write=1)),
    "gpt-5-nano": Model(_GPT_5, Rates(0.05, 0.4, write=1)),
    "gpt-5-pro": Model(Limits(400_000, 272_000), Rates(15, 120, read=1, write=1)),
    "gpt-4.1": Model(_GPT_4_1, Rates(2, 8, read=0.25, write=1)),
    "gpt-4.1-mini": Model(_GPT_4_1, Rates(0.4, 1.6, read=0.25, write=1)),
    "gpt-4.1-nano": Model(_GPT_4_1, Rates(0.1, 0.4, read=0.25, write=1)),
    "gpt-4o": Model(_GPT_4O, Rates(2.5, 10, read=0.5, write=1)),
    "gpt-4o-mini": Model(_GPT_4O, Rates(0.15, 0.6, read=0.5, write=1)),
    "o4-mini": Model(_O, Rates(1.1, 4.4, read=0.25, write=1)),
    "o3": Model(_O, Rates(2, 8, read=0.25, write=1)),
    "o3-mini": Model(_O, Rates(1.1, 4.4, read=0.5, write=1)),
    "o3-pro": Model(_O, Rates(20, 80, read=1, write=1)),
    "o1": Model(_O, Rates(15, 60, read=0.5, write=1)),
    "gemini-4-neon": Model(_GEMINI, Rates(3, 15, read=0.05, write=1)),
    "gemini-4-argon": Model(_GEMINI, Rates(4, 20, read=0.05, write=1)),  # from December 2026 on; half of it until then
    "gemini-4-hydrogen": Model(_GEMINI, Rates(1.5, 7.5, read=0.05, write=1)),
    "gemini-3.8-flash": Model(_GEMINI, Rates(0.75, 3.75, write=1)),
    "gemini-3.7-flash": Model(_GEMINI, Rates(0.75, 3.75, write=1)),
    "gemini-3.6-flash": Model(_GEMINI, Rates(0.75, 3.75, write=1)),
    "gemini-3.5-flash": Model(_GEMINI, Rates(1.5, 9, write=1)),
    "gemini-3.5-flash-lite": Model(_GEMINI, Rates(0.3, 2.5, write=1)),
    "gemini-3.1-pro": Model(_GEMINI, Rates(2, 12, write=1, long=_GEMINI_LONG)),
    "gemini-3.1-flash-lite": Model(_GEMINI, Rates(0.25, 1.5, write=1)),
    "gemini-3-flash": Model(_GEMINI, Rates(0.5, 3, write=1)),
    "gemini-2.5-pro": Model(_GEMINI, Rates(1.25, 10, write=1, long=_GEMINI_LONG)),
    "gemini-2.5-flash": Model(_GEMINI, Rates(0.3, 2.5, write=1)),
    "gemini-2.5-flash-lite": Model(_GEMINI, Rates(0.1, 0.4, write=1)),
}

# `us.anthropic.claude-opus-4-1-20250805-v1:0`, `openai/gpt-4o-2024-08-06`: a route before the name, an edition after.
_ROUTE = re.compile(r"^(?:.*/)?(?:[a-z]+\.)*(?=claude-|gpt-|gemini-|o[134](?:-|$))")
_LARGE = "[1m]"
_EDITION = re.compile(r"(?:[-@](?:[0-9]{8}|[0-9]{4}-[0-9]{2}-[0-9]{2}|latest))?(?:-v[0-9]+(?::[0-9]+)?)?$")
_GEMINI_EDITION = re.compile(r"(?:-0[0-9]{2}|-preview(?:-[0-9]{2}-[0-9]{2,4})?(?:-customtools)?)$")


def limits(model: str) -> Limits | None:
    """Window and output of a model by any usual spelling of its name; None if the table does not have it."""
    entry = MODELS.get(_plain_name(model))
    return entry.limits if entry else None


def names_its_window(model: str) -> bool:
    """Whether the name ends with `[1m]`, with which a host requests a window of a million tokens."""
    return model.lower().endswith(_LARGE)


def window(model: str) -> int | None:
    """The context window of a model in tokens, from its name or the table; None if neither has it."""
    if names_its_window(model):
        return _MILLION.window
    model_limits = limits(model)
    return model_limits.window if model_limits else None


def window_under(budget: int | Budget, model: str) -> int:
    """The tokens that a session under a budget has for its prompt and reply: the budget, or the model's window if that
    is smaller or there is no budget; the usual window where neither is known."""
    tokens = budget.window if isinstance(budget, Budget) else budget
    return min(filter(None, (tokens, window(model))), default=DEFAULT_WINDOW)


class Usage(NamedTuple):
    """The tokens of one call, as the provider counted them: fresh ones, those written into its cache and those read
    from it, which together are the prompt, and those of the reply. `hour` of those written stay for an hour."""

    fresh: int = 0
    written: int = 0
    read: int = 0
    reply: int = 0
    hour: int = 0

    @property
    def prompt(self) -> int:
        return self.fresh + self.written + self.read

    def __add__(self, other: object) -> Usage:
        assert isinstance(other, Usage)
        return Usage(*map(operator.add, self, other))


#: The most tokens of a plausible prompt or reply: a report of more is nonsense.
_MOST = 20_000_000
#: What `Usage` is made of, in its order.
_NAMES = (
    *("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens"),
    "ephemeral_1h_input_tokens",
)
_OPENAI_NAMES = ("prompt_tokens", "", "cached_tokens", "completion_tokens", "")
#: The price of writing a token into the cache for an hour, as a factor of a prompt's token.
_HOUR = 2


def usage_of(reported: Mapping[str, object]) -> Usage:
    """The usage of a call from a reply's fields, in the terms of the Messages API or of OpenAI's.

    There the prompt's tokens have the cached ones among them. Where it says something that no call can have, nothing of
    it is believed, and all is 0.
    """
    of_openai = "prompt_tokens" in reported
    counts = [reported.get(name, 0) for name in (_OPENAI_NAMES if of_openai else _NAMES)]
    if not all(map(_is_count, counts)):
        return Usage()
    fresh, written, cached, reply, hour = counts
    usage = Usage(fresh - cached if of_openai else fresh, written, cached, reply, min(hour, written))  # type: ignore
    return usage if usage.fresh >= 0 and usage.prompt <= _MOST else Usage()


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= _MOST


def dollars(model: str, usage: Usage) -> float | None:
    """The price of a call by the table; None for a model that it does not have."""
    entry = MODELS.get(_plain_name(model))
    if entry is None:
        return None
    rates = entry.rates
    long = rates.long if rates.long and usage.prompt > rates.long.tokens else Long(0, 1, 1)
    weighed = usage.fresh + usage.written * rates.write + usage.read * rates.read + usage.hour * (_HOUR - rates.write)
    return (weighed * rates.prompt * long.prompt + usage.reply * rates.reply * long.reply) / 1_000_000


def is_same(one: str, other: str) -> bool:
    """Whether two names denote the same model: providers answer with a dated name."""
    return _plain_name(one) == _plain_name(other)


@lru_cache
def _plain_name(model: str) -> str:
    """The name of a model in the tables."""
    name = _EDITION.sub("", _ROUTE.sub("", model.lower().removesuffix(_LARGE)), count=1)
    if name.startswith("gemini-"):
        return _GEMINI_EDITION.sub("", name)
    return name.replace(".", "-") if name.startswith("claude-") else name
