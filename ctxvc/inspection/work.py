"""What was done in a scope: what its calls took, and the files that they changed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from ctxvc.core.ledger import caption
from ctxvc.core.ledger.facts import facts
from ctxvc.core.ledger.ledger import Row
from ctxvc.core.prompt.outline import Bodies
from ctxvc.inspection.call_cost import TotalCost, call_costs, total_cost
from ctxvc.store.read import revision
from ctxvc.store.read.revision import Entry
from ctxvc.store.store import Store

_CHANGES = frozenset({"edited", "wrote", "deleted"})
_TEMPORARY = re.compile(r"(?:/private)?(?:/tmp|/var/tmp|/var/folders)/")


class Work(msgspec.Struct, frozen=True):
    """`files` are the paths as the calls name them."""

    cost: TotalCost
    files: frozenset[str]


def work(
    store: Store, tips: Iterable[str], rows: Iterable[tuple[Row, Bodies]], folder: str = "", *, own: bool = False
) -> Work:
    """The work in the commits that the tips reach, and in these blocks.

    `folder` is the session's. Files of a system's temporary folders are no work, unless it is there. With `own`, the
    commits before the one that made the scope are left out.
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
            if own and entry.trailers.get("Ctxvc-Op") == "scope":
                break


def _files(rows: list[tuple[Row, Bodies]], folder: str) -> frozenset[str]:
    failed = {row.call for row, _ in rows if row.kind == "tool_result" and row.error}
    calls = ((row, bodies) for row, bodies in rows if row.kind == "tool_use" and row.call not in failed)
    acts = (fact for row, bodies in calls for fact in facts(row.tool, bodies.body(row), row.ext))
    files = {fact.object for fact in acts if fact.act in _CHANGES}
    return frozenset(file for file in files if is_work(file, folder))


def is_work(file: str, folder: str) -> bool:
    """Whether a changed file counts: one in a system's temporary folders does only if the session works there."""
    return not _TEMPORARY.match(file) or caption.relative(file, folder) != file
