"""The size, usage and cost of each call of a session, and its cost had nothing left the prompt. Pure.

Only usage that the provider reported has a price. Otherwise the cache is estimated: what a prompt shares with the one
before is read, the rest is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ctxvc.report.history import ScopeHistory
from ctxvc.tokens import models
from ctxvc.tokens.calibration import Calibration
from ctxvc.tokens.models import Usage
from ctxvc.tokens.prompt_size import NEAR, Size, line_of, line_through, size

#: The seconds that a provider's cache lasts.
_LIVES = 300


class Sizing(NamedTuple):
    """The size of a call's prompt, the provider's usage (all 0 if unknown), and the factor from our counts to the
    provider's, in thousandths."""

    size: Size
    usage: Usage
    a_milli: int

    def scaled(self, ours: int) -> int:
        """A number of our tokens as the provider would count them."""
        return ours * self.a_milli // 1000


class _Learned(NamedTuple):
    """The line through the newest count of a scope, and its age in commits."""

    line: Calibration
    age: int = 0

    def older(self) -> _Learned | None:
        return self._replace(age=self.age + 1) if self.age + 1 < NEAR else None


def sizings(scopes: Iterable[ScopeHistory]) -> dict[int, Sizing]:
    """Call → the size of its prompt, by the rule of `status` at its commit (`tokens.prompt_size`).

    A scope begins with the newest count of its parent.
    """
    sized: dict[int, Sizing] = {}
    learned: dict[str, _Learned] = {}  # commit -> the newest count there
    for scope in scopes:
        calls = {id(sent.entry): (number, sent) for number, sent in zip(scope.numbers, scope.sent, strict=True)}
        parents = scope.line.entries[0].parents
        newest = learned.get(parents[0]) if parents else None
        for entry in scope.line.all_entries:
            newest = newest and newest.older()
            if found := calls.get(id(entry)):
                number, sent = found
                usage = models.usage_of(entry.usage)
                if usage.prompt:
                    newest = _Learned(line_through(sent.total, usage.prompt, sent.meta.model))
                line = line_of(sent.meta, newest and newest.line)
                sized[number] = Sizing(size(sent.total, usage, line, sent.meta), usage, line.a_milli)
            if newest:
                learned[entry.commit] = newest
    return sized


class Sized(NamedTuple):
    """A call to be priced, in tokens. `shared` of the prompt's `total` begin the prompt before, too.

    `unmanaged` would be its size had nothing left. `broke`: it does not continue the whole prompt before. `reduced`:
    something has left so far. `usage` is the provider's, all 0 if unknown.
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
    """The usage of a call, whether the provider reported it, its dollars, and its dollars had nothing left.

    Both are None if the usage or the price is unknown.
    """

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
