"""The replies of a scope's steps, as their commits tell of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from ctxvc.store.read.revision import Entry
from ctxvc.store.store import Store


class Reply(msgspec.Struct, frozen=True):
    """The facts about a step's reply: its time in seconds since 1970, the model and the provider's counts."""

    time: int
    model: str
    usage: Mapping[str, int]


def of(store: Store, entries: Iterable[Entry]) -> dict[int, Reply]:
    """Step → its reply, of the newest first in `entries`."""
    replies: dict[int, Reply] = {}
    for entry in entries:
        if entry.trailers.get("Ctxvc-Op") == "step":
            step = store.reader.meta(entry.commit).counters.step
            replies.setdefault(step, Reply(entry.time, entry.trailers.get("Ctxvc-Model", ""), entry.usage))
    return replies
