"""The bound beside each policy, and as an entry of its own: `oracle`, which only a replay offers.

It knows the recorded future, so no session can be run under it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ctxvc.core.plan.plan import Plan
from ctxvc.core.policy import Policy
from ctxvc.core.view.view import View
from ctxvc.replay.conversation import Prompt
from ctxvc.replay.measures import oracle
from ctxvc.replay.measures.retention import Gauge
from ctxvc.replay.results.result import ORACLE, Result
from ctxvc.replay.tally import Prepared, Room, Tally
from ctxvc.replay.work import Setup


class Oracle(Policy, frozen=True, kw_only=True):
    """What a policy could have kept in the same room, if it had known which uses were to come.

    - marks: the policy between whose marks it chooses, as that one worked at the same budget, with its tools.
    - results: whether only results of tools leave (Belady's rule).
    """

    name: ClassVar[str] = ORACLE
    decides: ClassVar[str] = "the recorded future"

    marks: str = "default"
    results: bool = False

    def __post_init__(self) -> None:
        if self.marks.partition(":")[0] == ORACLE:
            raise ValueError("marks must be those of a policy, as in marks=window")

    def propose(self, view: View) -> Plan:
        raise NotImplementedError("an oracle is no policy: it has no view, only the recorded future")


def bound(prepared: Prepared, room: Room, *, results_only: bool) -> bytes:
    """The outcome of each use under the oracle, or under Belady's rule if only results leave."""
    key = room, results_only
    if key not in prepared.bounds:
        gauge = Gauge(prepared.lookup, archive=False)
        for prompt in _prompts(prepared, room, results_only=results_only):
            gauge.add(prompt)
        prepared.bounds[key] = gauge.outcomes
    return prepared.bounds[key]


def foreseen(prepared: Prepared, setup: Setup, entry: Oracle, room: Room) -> Result:
    """The result of the oracle as an entry. What it let go counts as recoverable: a policy with an archive has that."""
    tally = Tally(prepared, search=False)
    over = 0
    for prompt in _prompts(prepared, room, results_only=entry.results):
        blocks = sorted(prompt.complete)
        tally.add(prompt, ["", *blocks], [room.overhead, *(prepared.tokens[number] for number in blocks)])
        over += prompt.tokens > room.budget
    bounds = (bound(prepared, room, results_only=only) for only in (False, True))
    return tally.result(setup, *bounds, over=over)


def _prompts(prepared: Prepared, room: Room, *, results_only: bool) -> Iterator[Prompt]:
    own = prepared.lookup.uses, prepared.tokens, room.budget, *room.marks
    return oracle.oracle(prepared.conversation, *own, overhead=room.overhead, results_only=results_only)
