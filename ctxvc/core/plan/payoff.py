"""What a compaction costs: a host's own summary, and one that keeps blocks as they are.

Either leaves a prompt that is new from its first message on, so all of it is written to the provider's cache and then
read with each call. Prices are multiples of the price of a fresh input token (`core.plan.timing`).
"""

from __future__ import annotations

import msgspec

from ctxvc.core.plan.timing import USUAL


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A host's summary: the tokens that a model writes for it, and those of the prompt after it.

    The prompt includes system and tools; `output_price` is the price of a written token. The defaults are the medians
    of 38 recorded compactions (docs/benchmarks/compaction.md).
    """

    written: int = 3_000
    prompt: int = 52_000
    output_price: float = 5.0


#: The observed cost of Claude Code's own compactions.
RECORDED = Summary()
#: The calls over which a compaction is judged.
CALLS = 50


def lossless(after: int) -> float:
    """The cost of a prompt of `after` tokens that is written once and read in `CALLS` calls."""
    return after * (USUAL.write_price + USUAL.read_price * CALLS)


def summarised(before: int, summary: Summary = RECORDED) -> float:
    """The cost of a host's summary of a prompt of `before` cached tokens, and of the calls after it."""
    return before * USUAL.read_price + summary.written * summary.output_price + lossless(summary.prompt)


#: The smallest prompt whose compaction pays: a host's summary of a smaller one would leave just as much.
LEAST = 60_000
#: The share to which a smaller prompt is reduced if somebody wants it compacted anyway.
_SMALLER = 0.6


def target(before: int) -> int:
    """The tokens to which a prompt of `before` tokens is reduced.

    These are the most that cost no more than a host's summary of it; for a small prompt, whose compaction never pays, a
    share.
    """
    return int(summarised(before) / lossless(1)) if before >= LEAST else int(before * _SMALLER)


def beside_summary(before: int, after: int, recorded: int) -> float:
    """The cost of a compaction to `after` tokens as a multiple of that of a host's summary of `before` tokens.

    For a prompt smaller than any recorded one, the summary is assumed to be minimal: what is not `recorded` of that
    prompt stays, such as its system prompt and tools, and the summary replaces the rest.
    """
    least = before - recorded + RECORDED.written
    summary = RECORDED if before >= LEAST else msgspec.structs.replace(RECORDED, prompt=least)
    return lossless(after) / summarised(before, summary)
