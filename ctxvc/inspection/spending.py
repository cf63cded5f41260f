"""What calls of a model cost: by the provider's count of each, and the dated table of prices."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from ctxvc.store.read.revision import Entry
from ctxvc.store.store import Store
from ctxvc.tokens import models
from ctxvc.tokens.models import Usage


class Spent(NamedTuple):
    """What the call of a commit took. `dollars` is None where the table has no price for the model."""

    entry: Entry
    model: str
    usage: Usage
    dollars: float | None

    @property
    def by_planner(self) -> bool:
        """Whether a policy asked, rather than the agent."""
        return self.entry.trailers.get("Ctxvc-Op") == "ask"


class Spending(NamedTuple):
    """What some calls took together: those whose usage is recorded. `dollars` is None if none of them has a price;
    `unpriced` counts those that have none."""

    calls: int
    usage: Usage
    dollars: float | None
    unpriced: int


def spent(store: Store, entry: Entry) -> Spent | None:
    """What the call of a commit took; None if it is no call, or the provider's count of it is not recorded."""
    usage = models.usage_of(entry.usage)
    if not usage.prompt:
        return None
    # A reply that does not name its model is of the scope's; what is in no commit yet always names it, or has none.
    model = entry.trailers.get("Ctxvc-Model", "") or (store.reader.meta(entry.commit).model if entry.commit else "")
    return Spent(entry, model, usage, models.dollars(model, usage))


def spending(store: Store, entries: Iterable[Entry]) -> Spending:
    """What the calls of these commits took."""
    return total(call for entry in entries if (call := spent(store, entry)) is not None)


def total(calls: Iterable[Spent]) -> Spending:
    """What these calls took together, whatever their order."""
    each = list(calls)
    usage = Usage(*map(sum, zip(*(call.usage for call in each), strict=True))) if each else Usage()
    prices = [call.dollars for call in each if call.dollars is not None]
    return Spending(len(each), usage, math.fsum(prices) if prices else None, len(each) - len(prices))
