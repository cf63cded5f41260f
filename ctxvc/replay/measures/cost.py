"""What the prompts of a run cost where a provider caches their common beginning, and what looking things up would add.

All costs are in fresh input tokens, the provider's price for one being 1.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Literal

import msgspec

from ctxvc.replay.conversation import Prompt
from ctxvc.replay.measures.retention import LOST, VISIBLE
from ctxvc.replay.measures.uses import Use

#: Model calls that a policy makes besides the agent's own.
Extra = Literal["planner", "summariser", "recovery"]


class Prices(msgspec.Struct, frozen=True):
    """Prices of a token, relative to fresh input. `seconds` is how long a cached beginning lives after its last use."""

    cached: float = 0.1
    written: float = 1.25
    fresh: float = 1.0
    output: float = 5.0
    seconds: float = 300.0


#: Those of Anthropic, with a cache of five minutes.
PRICES = Prices()


class Cost(msgspec.Struct, frozen=True, gc=False):
    """The cost of the calls with a prefix cache, in tokens at the price of uncached input.

    `prompts` are the conversation's own calls; `keep` is what these cost if nothing ever leaves. What comes on top of
    `prompts` stands apart: calls of a `planner` and a `summariser`, the `recovery` that the stand-in asked for, and
    the `demand` recovery of each use that is not visible.
    """

    prompts: float = 0.0
    keep: float = 0.0
    planner: float = 0.0
    summariser: float = 0.0
    recovery: float = 0.0
    demand: float = 0.0

    @property
    def total(self) -> float:
        """All of it but `demand`."""
        return self.prompts + self.planner + self.summariser + self.recovery

    @property
    def relative(self) -> float:
        """`total` as a multiple of `keep`; 1 if there is nothing to pay."""
        return self.total / self.keep if self.keep else 1.0

    @property
    def relative_with_demand(self) -> float:
        return (self.total + self.demand) / self.keep if self.keep else 1.0


class CacheSimulation:
    """The cache of a provider that keeps one conversation's newest prompt: give it each prompt as it is sent.

    `breaks` counts the prompts that do not begin with the whole of the one before, which could have been read.
    """

    def __init__(self) -> None:
        self.breaks = 0
        self._keys: Sequence[Hashable] = ()
        self._time: float | None = None
        self._prompts = 0.0
        self._extra: dict[Extra, float] = {"planner": 0.0, "summariser": 0.0, "recovery": 0.0}

    def send(self, keys: Sequence[Hashable], sizes: Sequence[int], time: float | None = None) -> int:
        """Takes in a prompt of these pieces; the tokens of it that are read from the cache, the others are written.

        Equal keys are equal bytes, `sizes` their tokens, `time` in seconds. Keys are a tuple in one run or a list in
        one run.
        """
        shared, expired = shared_prefix(self._keys, keys), self._expired(time)
        cached = 0 if expired else sum(sizes[:shared])
        self.breaks += shared < len(self._keys) and not expired
        self._prompts += cached * PRICES.cached + (sum(sizes) - cached) * PRICES.written
        self._keys = keys
        self._time = self._time if time is None else time
        return cached

    def _expired(self, time: float | None) -> bool:
        """Whether the cache has expired."""
        return time is not None and self._time is not None and time - self._time > PRICES.seconds

    def ask(self, extra: Extra, *, cached: int = 0, fresh: int = 0, written: int = 0, output: int = 0) -> float:
        """The cost of a model call besides the agent's own, in tokens of each price; it is added to the run's."""
        prices = PRICES
        cost = cached * prices.cached + fresh * prices.fresh + written * prices.written + output * prices.output
        self._extra[extra] += cost
        return cost

    def extra_call(
        self,
        extra: Extra,
        keys: Sequence[Hashable],
        sizes: Sequence[int],
        time: float | None = None,
        *,
        fresh: int = 0,
        output: int = 0,
    ) -> float:
        """The cost of a call that is sent this prompt with `fresh` tokens behind it, as `ask` gives it.

        What the prompt shares with the newest one is read from the cache, which stays as it is.
        """
        cached = 0 if self._expired(time) else sum(sizes[: shared_prefix(self._keys, keys)])
        return self.ask(extra, cached=cached, written=sum(sizes) - cached, fresh=fresh, output=output)

    def cost(self) -> Cost:
        """The cost of everything until now."""
        return Cost(prompts=self._prompts, **self._extra)


def shared_prefix(before: Sequence[Hashable], after: Sequence[Hashable]) -> int:
    """How many pieces two prompts have in common from their beginning."""
    if after[: len(before)] == before:
        return len(before)
    low, high = 0, min(len(before), len(after))  # the first `low` are equal, the first `high` + 1 are not
    while low < high:
        middle = (low + high + 1) // 2
        if before[low:middle] == after[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


class DemandRecovery:
    """Charges a recover call for each use that is not visible and not lost: once a block and 20 steps.

    The call's price is that of the block's tokens as they are written, and of one more call over the prompt at hand,
    read from the cache. The block is the newest of those that hold the anchor; a use one of whose blocks was recovered
    in the last 20 steps costs nothing. `sizes` are the blocks' tokens by number. So far it is `calls`, and their
    `cost`.
    """

    STEPS = 20

    def __init__(self, uses: Sequence[Use], sizes: Sequence[int]) -> None:
        self.calls = 0
        self.cost = 0.0
        self._uses = uses
        self._sizes = sizes
        self._recovered: dict[int, int] = {}  # a block → the call at which it was recovered

    def add(self, prompt: Prompt, numbers: Iterable[int], outcomes: bytes) -> None:
        """Recovers blocks for uses at a call's prompt, given the uses' places and outcomes."""
        for number, outcome in zip(numbers, outcomes, strict=True):
            holders = self._uses[number].blocks
            if outcome in (VISIBLE, LOST) or any(
                prompt.call - self._recovered.get(block, -self.STEPS) < self.STEPS for block in holders
            ):
                continue
            self._recovered[holders[-1]] = prompt.call
            self.calls += 1
            self.cost += self._sizes[holders[-1]] * PRICES.written + prompt.tokens * PRICES.cached
