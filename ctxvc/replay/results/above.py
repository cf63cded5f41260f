"""Conversations in which a policy shows more than the oracle beside it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ctxvc.replay.results.result import Result, foresees

#: Points by which a policy may be above the oracle without being listed.
POINTS = 2.0


class Above(msgspec.Struct, frozen=True):
    """A conversation, and by how many points of its non-trivial uses (`uses`) a policy is above the oracle in it."""

    file: str
    conversation: str
    policy: str
    budget: int
    uses: int
    points: float


def above(results: Iterable[Result], points: float = POINTS) -> list[Above]:
    """Of policies that kept to their budgets, the highest first.

    A greedy rule that keeps blocks whole or not at all is no strict bound: of a preview it would have to keep the whole
    block, and for one giant result it lets much go.
    """
    conversations = []
    for result in results:
        own = result.retention.nt
        if own.total and not result.over and not foresees(result.policy):
            ahead = 100 * (own.visible - result.oracle.nt) / own.total
            if ahead > points:
                where = (result.file, result.conversation, result.policy, result.budget)
                conversations.append(Above(*where, own.total, round(ahead, 1)))
    return sorted(conversations, key=lambda one: (-one.points, one.file, one.conversation, one.policy, one.budget))
