"""The work in a scope: its calls' tokens, priced by the dated table, and the files that they changed."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from ctxvc.core.ledger import caption
from ctxvc.core.ledger.facts import facts
from ctxvc.core.ledger.ledger import Row
from ctxvc.core.prompt.outline import Bodies
from ctxvc.store.read import revision
from ctxvc.store.read.revision import Entry
from ctxvc.store.store import Store
from ctxvc.tokens import models
from ctxvc.tokens.models import Usage


class CallCost(NamedTuple):
    """The cost of a commit's call. `dollars` is None if the table has no price for the model."""

    entry: Entry
    model: str
    usage: Usage
    dollars: float | None

    @property
    def by_planner(self) -> bool:
        """Whether a policy asked, rather than the agent."""
        return self.entry.op == "ask"


class TotalCost(NamedTuple):
    """The cost of some calls together, of those whose usage is recorded. `dollars` is None if none has a price;
    `unpriced` counts those without one."""

    calls: int
    usage: Usage
    dollars: float | None
    unpriced: int


def call_costs(store: Store, entries: Iterable[Entry]) -> list[CallCost]:
    """The cost of each of these commits' calls whose usage is recorded."""
    return [cost for entry in entries if (cost := call_cost(store, entry)) is not None]


def call_cost(store: Store, entry: Entry) -> CallCost | None:
    """The cost of a commit's call; None if there was no call, or the provider's count is not recorded."""
    usage = models.usage_of(entry.usage)
    if not usage.prompt:
        return None
    # A reply that names no model is by the scope's; what is not committed yet always names it, or has none.
    model = entry.trailers.get("Ctxvc-Model", "") or (store.reader.meta(entry.commit).model if entry.commit else "")
    return CallCost(entry, model, usage, models.dollars(model, usage))


def total_cost(costs: Iterable[CallCost]) -> TotalCost:
    """The total of these calls."""
    costs = list(costs)
    usage = Usage(*map(sum, zip(*(cost.usage for cost in costs), strict=True))) if costs else Usage()
    prices = [cost.dollars for cost in costs if cost.dollars is not None]
    return TotalCost(len(costs), usage, math.fsum(prices) if prices else None, len(costs) - len(prices))


_CHANGES = frozenset({"edited", "wrote", "deleted"})
_TEMPORARY = re.compile(r"(?:/private)?(?:/tmp|/var/tmp|/var/folders)/")


class Work(msgspec.Struct, frozen=True):
    """The cost of some work, and the files that it changed, as the calls name them."""

    cost: TotalCost
    files: frozenset[str]


def work(
    store: Store, tips: Iterable[str], rows: Iterable[tuple[Row, Bodies]], folder: str = "", *, own: bool = False
) -> Work:
    """The work in the commits reachable from the tips, and in these blocks.

    `folder` is the session's. Files in the system's temporary folders do not count, unless `folder` is there. With
    `own`, the commits before the one that made the scope are left out.
    """
    return Work(total_cost(call_costs(store, _entries(store, tips, own=own))), _files(list(rows), folder))


def _entries(store: Store, tips: Iterable[str], *, own: bool) -> Iterator[Entry]:
    seen: set[str] = set()
    for tip in tips:
        for commit in store.first_parents(tip):
            if commit in seen:
                break
            seen.add(commit)
            entry = revision.entry(store, commit)
            yield entry
            if own and entry.op == "scope":
                break


def _files(rows: list[tuple[Row, Bodies]], folder: str) -> frozenset[str]:
    failed = {row.call for row, _ in rows if row.kind == "tool_result" and row.error}
    calls = ((row, bodies) for row, bodies in rows if row.kind == "tool_use" and row.call not in failed)
    acts = (fact for row, bodies in calls for fact in facts(row.tool, bodies.body(row), row.ext))
    files = {fact.object for fact in acts if fact.act in _CHANGES}
    return frozenset(file for file in files if is_work(file, folder))


def is_work(file: str, folder: str) -> bool:
    """Whether a changed file counts: in the system's temporary folders, only if the session works there."""
    return not _TEMPORARY.match(file) or caption.relative(file, folder) != file
