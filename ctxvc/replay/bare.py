"""A policy without board, recover and search, as the papers ran what they compared with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from ctxvc.core.plan.plan import Action, Plan, Rehearsal
from ctxvc.core.plan.timing import CommitDecision
from ctxvc.core.policy import Policy, Terms
from ctxvc.core.view.budget import Budget
from ctxvc.core.view.view import View


class Bare(Policy, frozen=True, kw_only=True):
    """The plans of `inner`, whose model sees no board and has no context tools: what left is out of its reach."""

    name: ClassVar[str] = "bare"

    inner: Policy

    def propose(self, view: View) -> Plan:
        return self.inner.propose(view)

    def terms(self) -> Terms:
        return _bare(self.inner.terms())

    def terms_in(self, window: int) -> Terms:
        return _bare(self.inner.terms_in(window))

    def moment(self, view: View, rehearsal: Rehearsal) -> CommitDecision:
        return self.inner.moment(view, rehearsal)

    def relief(self, view: View, target: int) -> Sequence[Action]:
        return self.inner.relief(view, target)

    def high(self, budget: Budget) -> int:
        return self.inner.high(budget)

    @property
    def actor(self) -> str:
        return self.inner.actor


def _bare(terms: Terms) -> Terms:
    return msgspec.structs.replace(terms, tools=(), protocol="", board="off", handles=False, folds=False)
