"""What a compaction costs: of a host's own summary, and of one that keeps blocks as they are.

The prompt that either leaves is new from its first message on, so all of it is written to the provider's cache, and
then read with each call. Prices are multiples of that of a fresh input token (`core.plan.timing`).
"""

from __future__ import annotations

import msgspec

from ctxvc.core.plan.timing import USUAL, Timing


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A host's summary: the tokens that a model writes for it, and those of the prompt after it, system and tools
    included. `output_price` is that of a written token.

    The defaults are the medians of 38 recorded compactions (docs/benchmarks/compaction.md).
    """

    written: int = 3_000
    prompt: int = 52_000
    output_price: float = 5.0


#: What Claude Code's own compactions were seen to cost.
RECORDED = Summary()
#: Calls over which a compaction is judged.
CALLS = 50


def lossless(after: int, *, calls: int = CALLS, timing: Timing = USUAL) -> float:
    """The cost of a prompt of `after` tokens that is written once and read in so many calls."""
    return after * (timing.write_price + timing.read_price * calls)


def summarised(
    before: int, *, cold: bool = False, calls: int = CALLS, summary: Summary = RECORDED, timing: Timing = USUAL
) -> float:
    """The cost of a host's summary of a prompt of `before` tokens, which a model reads and answers, and of the calls.

    `cold`: the provider has the prompt in no cache any more.
    """
    reading = before * (timing.write_price if cold else timing.read_price)
    return reading + summary.written * summary.output_price + lossless(summary.prompt, calls=calls, timing=timing)


def alone(before: int, *, cold: bool = False, calls: int = CALLS, timing: Timing = USUAL) -> float:
    """The cost of leaving a prompt of `before` tokens as it is."""
    return before * (timing.read_price * calls + (timing.write_price - timing.read_price if cold else 0.0))


#: The smallest prompt whose compaction pays: below, what a host's summary would leave is no smaller.
LEAST = 60_000
#: The share to which a smaller prompt is brought where somebody wants it compacted all the same.
_SMALLER = 0.6


def break_even(before: int, *, cold: bool = False, calls: int = CALLS, summary: Summary = RECORDED) -> int:
    """The largest prompt, kept verbatim, that costs no more than a host's summary of `before` tokens."""
    return int(summarised(before, cold=cold, calls=calls, summary=summary) / lossless(1, calls=calls))


def target(before: int) -> int:
    """The tokens to which a prompt of `before` tokens is brought: as many as pay, or a share where none would."""
    return break_even(before) if before >= LEAST else int(before * _SMALLER)


def beside_summary(before: int, after: int, recorded: int) -> float:
    """The cost of a compaction to `after` tokens as a multiple of that of a host's summary of `before` tokens.

    A summary of a prompt that is smaller than any recorded one is taken at its least: what is not `recorded` of that
    prompt stays, as its system prompt and tools, and the summary stands for the rest.
    """
    least = before - recorded + RECORDED.written
    summary = RECORDED if before >= LEAST else msgspec.structs.replace(RECORDED, prompt=least)
    return lossless(after) / summarised(before, summary=summary)
