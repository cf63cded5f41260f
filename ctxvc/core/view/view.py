"""The view that a policy sees: the ledger, the prompt and its cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from operator import indexOf, is_not
from typing import NamedTuple, Protocol

from ctxvc.core.ledger.ledger import Ledger, Row
from ctxvc.core.prompt.outline import Slot, outline, tag_of
from ctxvc.core.view.budget import Budget
from ctxvc.core.view.dashboard import Cost


class _Summed(NamedTuple):
    """A measured outline. `sums[i]` is the cost of all slots before slot i; its last entry is the total."""

    price: Price
    slots: tuple[Slot, ...]
    sums: list[int]


def measure(ledger: Ledger, price: Price) -> int:
    """The tokens of the messages in a ledger's prompt, without system prompt and tools."""
    return ledger.derived(_measure, price)


def costs(ledger: Ledger, price: Price) -> Mapping[str, Cost]:
    """The cost of each block: of its body, and of what is now in the prompt for it."""
    return ledger.derived(_costs, price)


def dashboards(ledger: Ledger, price: Price) -> int:
    """Tokens of the sent dashboards, except those archived in a group."""
    return sum(
        cost_of(slot, price)
        for slot in outline(ledger)
        if slot.row.kind == "dashboard" and (slot.show != "text" or slot.row.group not in ledger.groups)
    )


def _measure(ledger: Ledger, price: Price) -> int:
    """The total of the outline; recounts only what differs from the previously measured outline.

    The slots at the beginning and the end that both have in common are not counted again.
    """
    slots, cache = outline(ledger), ledger.cache_of(_measure)
    earlier: _Summed | None = cache.get("newest")
    if earlier is None or earlier.price != price:
        earlier = _Summed(price, (), [0])
    before, sums = earlier.slots, earlier.sums
    shorter = min(len(slots), len(before))
    start = _common(slots, before, shorter)
    end = min(_common(reversed(slots), reversed(before), shorter), len(slots) - start, len(before) - start)
    changed = accumulate((cost_of(slot, price) for slot in slots[start : len(slots) - end]), initial=sums[start])
    new = [*sums[:start], *changed]
    more = new[-1] - sums[len(before) - end]
    new += (so_far + more for so_far in sums[len(before) - end + 1 :])
    cache["newest"] = summed = _Summed(price, slots, new)
    return summed.sums[-1]


def _common(slots: Iterable[Slot], earlier: Iterable[Slot], limit: int) -> int:
    """The number of slots that both begin with, at most `limit`."""
    try:
        return indexOf(map(is_not, slots, earlier), True)
    except ValueError:
        return limit


def costs_in_prompt(ledger: Ledger, price: Price) -> dict[str, int]:
    """Block → its tokens in the prompt; only blocks with a slot."""
    tokens: dict[str, int] = {}
    for slot in outline(ledger):
        tokens[slot.row.id] = tokens.get(slot.row.id, 0) + cost_of(slot, price)
    return tokens


def _costs(ledger: Ledger, price: Price) -> dict[str, Cost]:
    in_prompt = costs_in_prompt(ledger, price)
    return {row.id: Cost(body=price.body(row), shown=in_prompt.get(row.id, 0)) for row in ledger.rows()}


def cost_of(slot: Slot, price: Price) -> int:
    """The tokens of one piece of the prompt."""
    if slot.show == "text":
        return price.text(slot.text) if slot.text else 0
    if slot.show == "mask":
        return price.mask(slot.row)
    return price.body(slot.row) + (price.text(tag) if (tag := tag_of(slot)) else 0)


class Price(Protocol):
    """Prices in tokens. Pure: a block's price never changes."""

    def body(self, row: Row) -> int:
        """The whole body, including its images."""

    def mask(self, row: Row) -> int:
        """The block's mask."""

    def text(self, text: str) -> int:
        """A text of ours: a stub, a note, a dashboard."""


def _unread(row: Row) -> str:
    raise LookupError(f"this view cannot read {row.id}")


@dataclass(frozen=True, slots=True)
class View:
    """The prompt that would be sent now, and its cost.

    `overhead` is the tokens of system prompt and tools, `next_group` the number for a new group in this session, `idle`
    the seconds since the last call (0 if unknown). `calibration` is (a, b) in thousandths and tokens: the provider
    counts about `a * count / 1000 + b`. `words` returns the text of a block, always the same for the same block.
    Without `handles`, stubs do not say how to get back what they replace.
    """

    ledger: Ledger
    price: Price
    budget: Budget = field(default_factory=Budget)
    overhead: int = 0
    next_group: int = 1
    idle: float = 0.0
    calibration: tuple[int, int] = (1000, 0)
    words: Callable[[Row], str] = _unread
    handles: bool = True

    @property
    def readable(self) -> bool:
        """Whether the view can read blocks."""
        return self.words is not _unread

    @property
    def counted(self) -> int:
        """The uncalibrated tokens of the whole prompt, overhead included."""
        return self.overhead + measure(self.ledger, self.price)

    @property
    def used(self) -> int:
        """The tokens of the whole prompt as the provider would count them."""
        return self.calibrated(self.counted)

    def part(self, tokens: int) -> int:
        """The provider's tokens for our count of a part of the prompt: without its chat template."""
        return tokens * self.calibration[0] // 1000

    def has_room(self, text: str) -> bool:
        """Whether a text of ours fits at the end of the prompt, below the guard."""
        return self.used + self.part(self.price.text(text)) <= self.budget.guard

    def calibrated(self, tokens: int) -> int:
        """The provider's tokens for our count of a whole prompt."""
        a, b = self.calibration
        return tokens * a // 1000 + b if tokens else 0
