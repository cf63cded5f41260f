"""The bound: what a prompt could have kept of what is used later, chosen with the recorded future in hand.

No policy can choose so, and none is meant to: what a policy keeps is printed as a share of this.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import accumulate
from typing import NamedTuple

from ctxvc.core.ledger.numbering import is_human, speaks
from ctxvc.replay.conversation import Block, Conversation, Prompt
from ctxvc.replay.measures.uses import Use

#: The weight of a trivial use beside a non-trivial one: it decides between blocks that are worth about the same.
TRIVIAL = 0.01


def oracle(
    conversation: Conversation,
    uses: Iterable[Use],
    tokens: Sequence[int],
    budget: int,
    high: float,
    low: float,
    *,
    overhead: int = 0,
    results_only: bool = False,
) -> Iterator[Prompt]:
    """The prompts of a chooser that knows which uses are to come: an upper reference for policies at these marks.

    `uses` are those of the whole conversation, `tokens` the size of each block, `overhead` that of what no policy takes
    away (system prompt, tools). A prompt of more than the share `high` of the budget is brought down to the share
    `low`: blocks of every kind leave for good, first those of which the fewest uses to come are lost, per token, that
    no other block meets. Non-trivial uses count, the others decide between equals.

    Text of humans and system messages stay, and of the newest step all that fits into the budget: old blocks leave for
    it before it does. Where what stays is more than `low`, they leave until `high`, and where it is more than that
    until the budget: an empty prompt would be no bound.

    It is above what an engine can reach: nothing stands in the place of what left, a call may leave without its result,
    and thinking of earlier turns, which an engine takes out itself, costs nothing unless it holds what is used later.
    It is below the best of all choices, as it is greedy: of three ways to value a block, the one that keeps the most
    non-trivial uses is given, and of equal ones the one that keeps the most at risk.

    With `results_only` it chooses from the results of tools alone, as Belady's rule for results could at best. Calls
    and texts leave only where a prompt without old results is still over the budget: oldest first, as a guard does it.
    """
    future = _Future(conversation, uses, tokens, results_only=results_only)
    room = _Room(budget=budget, high=int(budget * high), low=int(budget * low), overhead=overhead)
    best = max((_Run(future, room, order) for order in ORDERS), key=lambda run: (run.kept, run.kept_at_risk))
    return iter(best.prompts)


class _Order(NamedTuple):
    """A way to value a block.

    With `ahead`, blocks that are yet to come meet uses as if they stood in the prompt already. With `rounds`, a use
    counts the less, the more often the prompt will be brought down before it: so often is room paid for the block.
    """

    ahead: bool
    rounds: bool


ORDERS = (_Order(ahead=True, rounds=False), _Order(ahead=True, rounds=True), _Order(ahead=False, rounds=True))


class _Room(NamedTuple):
    """In tokens: the budget, the water marks between which the prompt is brought down, and what is always in it."""

    budget: int
    high: int
    low: int
    overhead: int


class _Future:
    """The future of a conversation: its blocks by the call that first sees them, and its uses.

    Uses of one call that the same blocks meet are one, with the sum of their weights. `of` are the uses that a block
    meets, in order, `at` those of a call, `came` how many tokens have come in by a call, `opens` whether a human speaks
    in it. `free` are the blocks that may leave at all, `chosen` those that may while others could.
    """

    def __init__(
        self, conversation: Conversation, uses: Iterable[Use], tokens: Sequence[int], *, results_only: bool
    ) -> None:
        self.blocks = conversation.blocks
        self.size = tokens
        self.arrivals: list[list[int]] = [[] for _ in conversation.calls]
        for block in self.blocks:
            if block.seen < len(self.arrivals):  # the last reply is in no prompt
                self.arrivals[block.seen].append(block.number)
        self.came = list(accumulate(sum(tokens[number] for number in numbers) for numbers in self.arrivals))
        self.free = [_may_leave(block) for block in self.blocks]
        self.chosen = [not results_only or block.kind == "tool_result" for block in self.blocks]
        self.opens = [any(_opens(self.blocks[number]) for number in numbers) for numbers in self.arrivals]

        together: dict[tuple[int, tuple[int, ...]], tuple[int, int, int]] = {}
        for use in uses:
            count, nontrivial, at_risk = together.get((use.call, use.blocks), (0, 0, 0))
            together[use.call, use.blocks] = (count + 1, nontrivial + use.nt, at_risk + use.ar)
        ordered = sorted(together.items())
        self.call = [call for (call, _), _ in ordered]
        self.holders = [blocks for (_, blocks), _ in ordered]
        self.nontrivial = [nontrivial for _, (_, nontrivial, _) in ordered]
        self.at_risk = [at_risk for _, (_, _, at_risk) in ordered]
        self.weight = [nontrivial + TRIVIAL * (count - nontrivial) for _, (count, nontrivial, _) in ordered]
        self.of: list[list[int]] = [[] for _ in self.blocks]
        self.at: list[list[int]] = [[] for _ in conversation.calls]
        for use_number, (call, holders) in enumerate(zip(self.call, self.holders, strict=True)):
            self.at[call].append(use_number)
            for number in holders:
                self.of[number].append(use_number)


def _may_leave(block: Block) -> bool:
    return block.kind != "system" and not is_human(block.role, block.origin)


def _opens(block: Block) -> bool:
    return speaks(block.kind, block.role, block.origin)


class _Run:
    """One run over a conversation in one order: its prompts, and how many uses they met."""

    def __init__(self, future: _Future, room: _Room, order: _Order) -> None:
        self.future, self.room, self.order = future, room, order
        self.prompts: list[Prompt] = []
        self.kept = self.kept_at_risk = 0
        self._visible: set[int] = set()
        self._tokens = room.overhead
        self._now = 0
        self._span = max(1, room.high - room.low)
        #: use → the blocks that can meet it; block → the first of its uses that is to come
        self._meeting = [len(holders) if order.ahead else 0 for holders in future.holders]
        self._next = [0] * len(future.blocks)
        for call in range(len(future.arrivals)):
            self._step(call)

    def _step(self, call: int) -> None:
        future, room = self.future, self.room
        self._now = call
        for number in future.arrivals[call]:
            self._add(number, new=True)
        if future.opens[call]:
            self._forget_thinking()
        if self._tokens > room.high:
            self._make_room(call)
        for use in future.at[call]:
            if not self._visible.isdisjoint(future.holders[use]):
                self.kept += future.nontrivial[use]
                self.kept_at_risk += future.at_risk[use]
        self.prompts.append(
            Prompt(call=call, complete=frozenset(self._visible), parts={}, texts=(), routes={}, tokens=self._tokens)
        )

    def _add(self, number: int, *, new: bool) -> None:
        self._visible.add(number)
        self._tokens += self.future.size[number]
        if not (new and self.order.ahead):
            for use in self.future.of[number]:
                self._meeting[use] += 1

    def _remove(self, number: int) -> None:
        self._visible.remove(number)
        self._tokens -= self.future.size[number]
        for use in self.future.of[number]:
            self._meeting[use] -= 1

    def _forget_thinking(self) -> None:
        """The engine takes thinking out when a turn begins; here only what nothing uses later."""
        blocks = self.future.blocks
        for number in sorted(self._visible):
            block = blocks[number]
            if block.kind == "thinking" and self.future.free[number] and not self._to_come(number):
                self._remove(number)

    def _to_come(self, number: int) -> int:
        """How many uses that a block meets are to come."""
        own, call = self.future.of[number], self.future.call
        start = self._next[number]
        while start < len(own) and call[own[start]] < self._now:
            start += 1
        self._next[number] = start
        return len(own) - start

    def _make_room(self, call: int) -> None:
        """Old blocks leave until a mark; of the newest step what is over the budget even without them."""
        future, room = self.future, self.room
        free = [future.blocks[number] for number in self._visible if future.free[number]]
        old = [block.number for block in free if block.seen < call]
        results = [block.number for block in free if block.seen == call and block.kind == "tool_result"]
        calls_and_texts = [block.number for block in free if block.seen == call and block.kind != "tool_result"]

        chosen = [number for number in old if future.chosen[number]]
        floor = self._tokens - self._size(chosen)
        self._shrink(chosen, next((mark for mark in (room.low, room.high) if floor <= mark), room.budget))
        for number in sorted(old):
            if self._tokens > room.budget and number in self._visible:
                self._remove(number)
        for newest in (results, calls_and_texts):
            self._shrink(newest, room.budget)

    def _size(self, numbers: Iterable[int]) -> int:
        return sum(self.future.size[number] for number in numbers)

    def _shrink(self, numbers: Iterable[int], mark: int) -> None:
        """Takes out the least valuable per token until `mark`, or all; then puts back what still fits.

        What nothing uses any more is put back only if it is of the newest step.
        """
        size, blocks = self.future.size, self.future.blocks
        if self._tokens <= mark:
            return
        heap = [(self._value(number), -size[number], number) for number in numbers if size[number]]
        heapify(heap)
        evicted: list[int] = []
        while heap and self._tokens > mark:
            value, _, number = heappop(heap)
            # The value rises where the others that met a use have left.
            risen = self._value(number)
            if risen > value and heap and risen > heap[0][0]:
                heappush(heap, (risen, -size[number], number))
                continue
            self._remove(number)
            evicted.append(number)
        for number in reversed(evicted):
            if self._tokens + size[number] <= mark:
                self._add(number, new=False)
                if blocks[number].seen < self._now and not self._value(number):
                    self._remove(number)

    def _value(self, number: int) -> float:
        """The loss, per token, if a block of the prompt leaves."""
        future, meeting = self.future, self._meeting
        if not self._to_come(number):
            return 0.0
        own = future.of[number][self._next[number] :]
        lost = 0.0
        if not self.order.rounds:
            for use in own:
                if meeting[use] == 1:
                    lost += future.weight[use]
            return lost / future.size[number]
        best, here = 0.0, future.came[self._now]
        for use in own:
            if meeting[use] == 1:
                lost += future.weight[use]
                best = max(best, lost / (1 + (future.came[future.call[use]] - here) / self._span))
        return best / future.size[number]
