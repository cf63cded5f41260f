"""How the context of a scope grew: the provider's count of each call, as its commits have it."""

from __future__ import annotations

from itertools import islice

from ctxvc.store.read import revision
from ctxvc.store.store import Store
from ctxvc.tokens import models

#: Commits back that are looked at.
_MOST = 2_000


def reported(store: Store, commit: str) -> list[int]:
    """The tokens of the newest calls of which the provider's count is recorded, prompt and reply, oldest first."""
    counts: list[int] = []
    for entry in islice(revision.history(store, commit), _MOST):
        usage = models.usage_of(entry.usage)
        if usage.prompt and entry.trailers.get("Ctxvc-Op") == "step":
            counts.append(usage.prompt + usage.reply)
    return counts[::-1]
