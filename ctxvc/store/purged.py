"""What a store remembers of its purges: which commits became which. Of what they erased it knows nothing."""

from __future__ import annotations

from collections.abc import Mapping

from ctxvc.core.ledger import wire
from ctxvc.store.store import Store

REF = "refs/ctxvc/purged"
MAP = "purged.json"


def commits(store: Store) -> Mapping[str, str]:
    """Commits that are no more → what stands in their place, over all purges."""
    if REF not in store.repository.references:
        return {}
    told = wire.parsed(store.reader.path(str(store.repository.references[REF].target), MAP, MAP), dict) or {}
    held = told.get("commits")
    return {str(old): str(new) for old, new in held.items()} if isinstance(held, dict) else {}
