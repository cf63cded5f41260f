"""What calls of a model cost: by the provider's count of each, and the dated table of prices."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from ctxvc.store.read.revision import Entry
from ctxvc.store.store import Store
from ctxvc.tokens import models
from ctxvc.tokens.models import Usage


class CallCost(NamedTuple):
    """What the call of a commit took. `dollars` is None where the table has no price for the model."""

    entry: Entry
    model: str
    usage: Usage
    dollars: float | None

    @property
    def by_planner(self) -> bool:
        """Whether a policy asked, rather than the agent."""
        return self.entry.trailers.get("Ctxvc-Op") == "ask"


class TotalCost(NamedTuple):
    """What some calls took together: those whose usage is recorded. `dollars` is None if none of them has a price;
    `unpriced` counts those that have none."""

    calls: int
    usage: Usage
    dollars: float | None
    unpriced: int


def call_costs(store: Store, entries: Iterable[Entry]) -> list[CallCost]:
    """What the calls of these commits took, each whose usage is recorded."""
    return [cost for entry in entries if (cost := call_cost(store, entry)) is not None]


def call_cost(store: Store, entry: Entry) -> CallCost | None:
    """What the call of a commit took; None if it is no call, or the provider's count of it is not recorded."""
    usage = models.usage_of(entry.usage)
    if not usage.prompt:
        return None
    # A reply that does not name its model is of the scope's; what is in no commit yet always names it, or has none.
    model = entry.trailers.get("Ctxvc-Model", "") or (store.reader.meta(entry.commit).model if entry.commit else "")
    return CallCost(entry, model, usage, models.dollars(model, usage))


def total_cost(costs: Iterable[CallCost]) -> TotalCost:
    """What these calls took together, whatever their order."""
    costs = list(costs)
    usage = Usage(*map(sum, zip(*(cost.usage for cost in costs), strict=True))) if costs else Usage()
    prices = [cost.dollars for cost in costs if cost.dollars is not None]
    return TotalCost(len(costs), usage, math.fsum(prices) if prices else None, len(costs) - len(prices))
