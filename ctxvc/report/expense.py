"""What the calls of a session cost, and what they would have cost had nothing left. Pure.

The provider's own figures where it gave them. Else the cache is reckoned: what a prompt has in common with the one
before it is read, the rest is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ctxvc.tokens import models
from ctxvc.tokens.models import Usage

#: Seconds after which a provider's cache has forgotten.
_LIVES = 300


class Sized(NamedTuple):
    """A call as it is priced. `shared` are the tokens that its prompt begins with as the one before it did, of the
    `total`; `unmanaged` those that it would have, had nothing left; `broke` says that something
    before its end went, `reduced` that something has left by now.
    """

    model: str
    time: int | None
    total: int
    shared: int
    unmanaged: int
    reply: int
    broke: bool
    reduced: bool
    usage: Usage | None


class Expense(NamedTuple):
    """The usage of a call, whether the provider reported it, its dollars, and its dollars had nothing left."""

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
        usage = call.usage or _reckoned(call, forgotten=old or before is None)
        cost = models.dollars(call.model, usage)
        unreduced = unreduced and not call.reduced
        # What the recording lacks, such as the host's system prompt, would have been sent as well.
        prompt = usage.prompt + max(0, call.unmanaged - call.total)
        if unreduced:
            without = cost
        else:
            forgot = (old and call.usage is None) or (call.usage is not None and not usage.read and not call.broke)
            from_cache = 0 if forgot else min(cached, prompt)
            without = models.dollars(call.model, Usage(0, prompt - from_cache, from_cache, usage.reply))
        cached = prompt
        yield Expense(usage, call.usage is not None, cost, without)
        before = call


def _reckoned(call: Sized, *, forgotten: bool) -> Usage:
    from_cache = 0 if forgotten else call.shared
    return Usage(0, call.total - from_cache, from_cache, call.reply)
