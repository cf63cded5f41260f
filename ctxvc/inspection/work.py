"""What was done in a scope: its calls' price as the provider counted, and the files that its calls changed."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from ctxvc.core.ledger import caption
from ctxvc.core.ledger.facts import facts
from ctxvc.core.ledger.ledger import Row
from ctxvc.core.prompt.outline import Bodies
from ctxvc.store.read import revision
from ctxvc.store.store import Store
from ctxvc.tokens import models

_CHANGES = frozenset({"edited", "wrote", "deleted"})
_TEMPORARY = re.compile(r"(?:/private)?(?:/tmp|/var/tmp|/var/folders)/")


class Work(msgspec.Struct, frozen=True):
    """`dollars` is None if no call has both a count and a price; `files` are the paths as the calls name them."""

    dollars: float | None
    files: frozenset[str]


def work(
    store: Store, tips: Iterable[str], rows: Iterable[tuple[Row, Bodies]], folder: str = "", *, own: bool = False
) -> Work:
    """The work in the commits that the tips reach, and in these blocks.

    `folder` is the session's. Files of a system's temporary folders are no work, unless it is there. With `own`, the
    commits before the one that made the scope are left out.
    """
    return Work(_dollars(store, tips, own=own), _files(list(rows), folder))


def _dollars(store: Store, tips: Iterable[str], *, own: bool) -> float | None:
    seen: set[str] = set()
    prices: list[float] = []
    for tip in tips:
        for commit in store.first_parents(tip):
            if commit in seen:
                break
            seen.add(commit)
            entry = revision.entry(store, commit)
            price = models.dollars(entry.trailers.get("Ctxvc-Model", ""), models.usage_of(entry.usage))
            if entry.usage and price is not None:
                prices.append(price)
            if own and entry.trailers.get("Ctxvc-Op") == "scope":
                break
    return sum(prices) if prices else None


def _files(rows: list[tuple[Row, Bodies]], folder: str) -> frozenset[str]:
    failed = {row.call for row, _ in rows if row.kind == "tool_result" and row.error}
    calls = ((row, bodies) for row, bodies in rows if row.kind == "tool_use" and row.call not in failed)
    acts = (fact for row, bodies in calls for fact in facts(row.tool, bodies.body(row), row.ext))
    files = {fact.object for fact in acts if fact.act in _CHANGES}
    return frozenset(file for file in files if is_work(file, folder))


def is_work(file: str, folder: str) -> bool:
    """Whether a changed file counts: one in a system's temporary folders does only if the session works there."""
    return not _TEMPORARY.match(file) or caption.relative(file, folder) != file
