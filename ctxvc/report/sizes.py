"""How big the prompt of each call was, by the same rule as `status` at its commit (`tokens.prompt_size`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ctxvc.report.history import ScopeHistory
from ctxvc.tokens import models
from ctxvc.tokens.calibration import Calibration
from ctxvc.tokens.models import Usage
from ctxvc.tokens.prompt_size import NEAR, Size, line_of, line_through, size


class Sizing(NamedTuple):
    """The size of a call's prompt, the provider's usage (all 0 where none is known), and the slope, in thousandths,
    from our counts to the provider's."""

    size: Size
    usage: Usage
    a_milli: int

    def scaled(self, ours: int) -> int:
        """So many of our tokens as the provider would count them."""
        return ours * self.a_milli // 1000


class _Learned(NamedTuple):
    """The line through the newest count of a scope, and how many commits ago that was."""

    line: Calibration
    age: int = 0

    def older(self) -> _Learned | None:
        return self._replace(age=self.age + 1) if self.age + 1 < NEAR else None


def sizings(scopes: Iterable[ScopeHistory]) -> dict[int, Sizing]:
    """Call -> the size of its prompt. A scope goes on with what its parent had learned where it began."""
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
