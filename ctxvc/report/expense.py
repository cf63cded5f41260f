"""What the calls of a session took and cost, and what they would have cost had nothing left. Pure.

Only what the provider reported has a price. Where it reported nothing, the cache is reckoned: what a prompt has in
common with the one before it is read, the rest is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ctxvc.tokens import models
from ctxvc.tokens.models import Usage

#: Seconds after which a provider's cache has forgotten.
_LIVES = 300


class Sized(NamedTuple):
    """A call as it is priced. `total` is the size of its prompt, of which `shared` tokens are what the one before it
    begins with too; `unmanaged` is the size that it would have, had nothing left; `broke` says that something before
    its end went, `reduced` that something has left by now. `usage` is the provider's, all 0 where none is known.
    """

    model: str
    time: int | None
    total: int
    shared: int
    unmanaged: int
    reply: int
    broke: bool
    reduced: bool
    usage: Usage


class Expense(NamedTuple):
    """The usage of a call, whether the provider reported it, its dollars, and its dollars had nothing left. Both are
    None where it did not, or where no price is known."""

    usage: Usage
    reported: bool
    cost: float | None
    without: float | None


def expenses(calls: Iterable[Sized]) -> Iterator[Expense]:
    """The expenses of the calls of one scope, in their order."""
    before: Sized | None = None
    unreduced = True  # nothing has left so far
    cached = 0  # the tokens that would be in the cache, had nothing left
    for call in calls:
        old = (
            before is not None
            and call.time is not None
            and before.time is not None
            and call.time - before.time > _LIVES
        )
        reported = call.usage.prompt > 0
        usage = call.usage if reported else _reckoned(call, forgotten=old or before is None)
        unreduced = unreduced and not call.reduced
        prompt = max(usage.prompt, call.unmanaged)
        forgot = not usage.read and not call.broke if reported else old
        from_cache = 0 if forgot else min(cached, prompt)
        unmanaged = usage if unreduced else Usage(0, prompt - from_cache, from_cache, usage.reply)
        cached = prompt
        yield Expense(
            usage,
            reported,
            models.dollars(call.model, usage) if reported else None,
            models.dollars(call.model, unmanaged) if reported else None,
        )
        before = call


def _reckoned(call: Sized, *, forgotten: bool) -> Usage:
    from_cache = 0 if forgotten else call.shared
    return Usage(0, call.total - from_cache, from_cache, call.reply)
