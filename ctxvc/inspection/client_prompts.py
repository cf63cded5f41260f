"""The prompts that clients would have sent without a budget, compared with those that were sent."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import NamedTuple

from ctxvc.inspection.work import CallCost, call_costs
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import revision
from ctxvc.store.read.revision import CLIENT_TOKENS, Entry
from ctxvc.store.store import Store
from ctxvc.tokens import models
from ctxvc.tokens.models import Usage

#: Seconds after which a provider has dropped a prompt from its cache.
_LIFETIME = 300


class Comparison(NamedTuple):
    """The managed calls of some sessions, compared with what their clients sent.

    Sizes are tokens; `dollars` are None if the table has no price for the model. A client's own prompts are priced as
    if its cache, where it uses one, had never been broken: each reads the one before and writes what is new.
    """

    calls: int = 0
    largest: int = 0
    largest_of_client: int = 0
    tokens: int = 0
    tokens_of_client: int = 0
    dollars: float | None = None
    dollars_of_client: float | None = None
    removed: int = 0
    recovered: int = 0


def comparison(store: Store, since: float) -> Comparison:
    """The comparison of the managed calls since a time, in seconds since 1970; an empty one without any call."""
    runs = [list(_since(store, tip, since)) for tips in store.all_tips().values() for tip in tips.values()]
    entries = {entry.commit: entry for run in runs for entry in run}
    ordered = sorted([*entries.values(), *_uncommitted(store, since)], key=lambda entry: entry.time)
    costs = [cost for cost in call_costs(store, ordered) if CLIENT_TOKENS in cost.entry.trailers]
    if not costs:
        return Comparison()
    sizes = [_of_client(cost.entry) for cost in costs]
    return Comparison(
        calls=len(costs),
        largest=max(cost.usage.prompt for cost in costs),
        largest_of_client=max(sizes),
        tokens=sum(cost.usage.prompt for cost in costs),
        tokens_of_client=sum(sizes),
        dollars=_total(cost.dollars for cost in costs),
        dollars_of_client=_total(_dollars_of_client(costs)),
        removed=sum(_blocks(entry) for entry in ordered if entry.op in ("archive", "plan", "mask")),
        recovered=sum(entry.op == "recover" for entry in ordered),
    )


def _since(store: Store, tip: str, since: float) -> Iterator[Entry]:
    return takewhile(lambda entry: entry.time >= since, revision.history(store, tip))


def _uncommitted(store: Store, since: float) -> Iterator[Entry]:
    """What is acknowledged but not committed yet: a conversation may end with a call whose result never comes."""
    for name in store.sessions():
        with suppress(OSError):
            if store.journal_path(name).stat().st_mtime >= since:
                stored = StoredSession.for_reading(store, name)
                changes = (change for scope in stored.scopes() for change in stored.waiting_changes(scope))
                yield from (revision.waiting_entry(change) for change in changes if change.written >= since)


def _of_client(entry: Entry) -> int:
    size = entry.trailers.get(CLIENT_TOKENS, "")
    return int(size) if size.isdecimal() and len(size) < 10 else 0


def _blocks(entry: Entry) -> int:
    names = entry.trailers.get("Ctxvc-Blocks", "").split()
    return sum(name.startswith("B") for name in names)


def _dollars_of_client(costs: Sequence[CallCost]) -> Iterator[float | None]:
    before, time = 0, -_LIFETIME
    has_cache = any(cost.usage.read for cost in costs)
    for cost in costs:
        size = _of_client(cost.entry)
        read = min(before, size) if has_cache and cost.entry.time - time <= _LIFETIME else 0
        new = size - read
        usage = Usage(new, 0, read) if not cost.usage.written else Usage(0, new, read)
        usage = usage._replace(reply=cost.usage.reply)
        yield models.dollars(cost.model, usage)
        before, time = size, cost.entry.time


def _total(dollars: Iterable[float | None]) -> float | None:
    priced = [item for item in dollars if item is not None]
    return math.fsum(priced) if priced else None
