"""What the prompts of a run cost where a provider caches their common beginning, and what looking things up would add.

All costs are in fresh input tokens, the provider's price for one being 1.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Literal

import msgspec

from ctxvc.replay.conversation import Prompt
from ctxvc.replay.measures.retention import LOST, VISIBLE
from ctxvc.replay.measures.uses import Use

#: Model calls that a policy makes besides the agent's own.
Extra = Literal["planner", "summariser", "recovery"]


class Prices(msgspec.Struct, frozen=True):
    """Of a token, relative to one of fresh input. `seconds` is how long a cached beginning lives after its last use."""

    cached: float = 0.1
    written: float = 1.25
    fresh: float = 1.0
    output: float = 5.0
    seconds: float = 300.0


#: Those of Anthropic, with a cache of five minutes.
PRICES = Prices()


class Charge(msgspec.Struct, frozen=True):
    """What one call's prompt costs: so many tokens read from the cache, and written to it.

    `broke`: it does not begin with the whole of the prompt before, which could have been read. `expired`: the cache was
    too old to be read.
    """

    cached: int
    written: int
    broke: bool = False
    expired: bool = False

    @property
    def tokens(self) -> int:
        return self.cached + self.written

    def cost(self, prices: Prices) -> float:
        return self.cached * prices.cached + self.written * prices.written


class Cost(msgspec.Struct, frozen=True):
    """What a run's prompts cost. `prompts` is the agent's own calls, the others are apart from it."""

    calls: int
    input_tokens: int
    prompts: float
    planner: float
    summariser: float
    recovery: float
    breaks: int
    expiries: int

    @property
    def total(self) -> float:
        return self.prompts + self.planner + self.summariser + self.recovery

    def relative_to(self, baseline: Cost) -> float | None:
        """This total as a share of another run's, as of `keep`; None if that is 0."""
        return self.total / baseline.total if baseline.total else None


class CacheSimulation:
    """The cache of a provider that keeps one conversation's newest prompt: give it each prompt as it is sent."""

    def __init__(self, prices: Prices = PRICES) -> None:
        self.prices = prices
        self._keys: Sequence[Hashable] = ()
        self._time: float | None = None
        self._calls = self._tokens = self._breaks = self._expiries = 0
        self._prompts = 0.0
        self._extra: dict[Extra, float] = {"planner": 0.0, "summariser": 0.0, "recovery": 0.0}

    def send(self, keys: Sequence[Hashable], sizes: Sequence[int], time: float | None = None) -> Charge:
        """What a prompt of these pieces costs: equal keys are equal bytes, `sizes` their tokens, `time` in seconds.

        Keys are a tuple in one run or a list in one run.
        """
        shared = shared_prefix(self._keys, keys)
        expired = time is not None and self._time is not None and time - self._time > self.prices.seconds
        broke = shared < len(self._keys) and not expired
        total = sum(sizes)
        cached = 0 if expired else sum(sizes[:shared])
        charge = Charge(cached, total - cached, broke, expired)
        self._keys = keys
        self._time = self._time if time is None else time
        self._calls += 1
        self._tokens += total
        self._breaks += broke
        self._expiries += expired
        self._prompts += charge.cost(self.prices)
        return charge

    def ask(self, extra: Extra, *, cached: int = 0, fresh: int = 0, written: int = 0, output: int = 0) -> float:
        """The cost of a model call besides the agent's own, in tokens of each price; it is added to the run's."""
        prices = self.prices
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
        expired = time is not None and self._time is not None and time - self._time > self.prices.seconds
        cached = 0 if expired else sum(sizes[: shared_prefix(self._keys, keys)])
        return self.ask(extra, cached=cached, written=sum(sizes) - cached, fresh=fresh, output=output)

    def cost(self) -> Cost:
        """The cost of everything until now."""
        return Cost(
            calls=self._calls,
            input_tokens=self._tokens,
            prompts=self._prompts,
            planner=self._extra["planner"],
            summariser=self._extra["summariser"],
            recovery=self._extra["recovery"],
            breaks=self._breaks,
            expiries=self._expiries,
        )


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


class Recoveries(msgspec.Struct, frozen=True):
    """What it would cost to look up, when it is needed, each thing that is not visible.

    `calls` recover calls, the `tokens` that they bring in, and their `cost`. `unmet` uses could not be met: lost.
    """

    calls: int
    tokens: int
    cost: float
    unmet: int


class DemandRecovery:
    """Charges a recover call for each use that is not visible: once a block and 20 steps.

    The call's price is that of the block's tokens as they are written, and of one more call over the prompt at hand,
    read from the cache. The block is the newest of those that hold the anchor; a use one of whose blocks was recovered
    in the last 20 steps costs nothing. `sizes` are the blocks' tokens by number; `ceiling` is the most that one recover
    call brings.
    """

    STEPS = 20

    def __init__(
        self, uses: Sequence[Use], sizes: Sequence[int], prices: Prices = PRICES, ceiling: int | None = None
    ) -> None:
        self._uses = uses
        self._sizes = sizes
        self._prices = prices
        self._ceiling = ceiling
        self._recovered: dict[int, int] = {}  # a block → the call at which it was recovered
        self._calls = self._tokens = self._unmet = 0
        self._cost = 0.0

    def add(
        self, prompt: Prompt, numbers: Iterable[int], outcomes: bytes, unreachable: Collection[int] = frozenset()
    ) -> tuple[int, ...]:
        """The blocks that are recovered for uses at a call's prompt, given the uses' places and outcomes."""
        recovered = []
        for number, outcome in zip(numbers, outcomes, strict=True):
            if outcome == VISIBLE:
                continue
            holders = [block for block in reversed(self._uses[number].blocks) if block not in unreachable]
            if outcome == LOST or not holders:
                self._unmet += 1
                continue
            if any(prompt.call - self._recovered.get(block, -self.STEPS) < self.STEPS for block in holders):
                continue
            block = holders[0]
            size = self._sizes[block] if self._ceiling is None else min(self._sizes[block], self._ceiling)
            self._recovered[block] = prompt.call
            self._calls += 1
            self._tokens += size
            self._cost += size * self._prices.written + prompt.tokens * self._prices.cached
            recovered.append(block)
        return tuple(recovered)

    def recoveries(self) -> Recoveries:
        """Everything that was charged until now."""
        return Recoveries(self._calls, self._tokens, self._cost, self._unmet)
