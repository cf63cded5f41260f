"""Two whole policies whose measures are known beforehand: one keeps everything, one takes away all that it may."""

from __future__ import annotations

from typing import ClassVar

import pytest

from ctxvc.core.plan.plan import Action, Plan
from ctxvc.core.policy import Policy
from ctxvc.core.view.view import View
from ctxvc.policies.baselines import Keep
from ctxvc.policies.candidates import removable, steps
from ctxvc.replay.conversation import Conversation
from ctxvc.replay.results.result import Options, Result
from ctxvc.replay.run import run
from ctxvc.replay.tally import prepare
from ctxvc.replay.work import Setup
from tests.making.conversation import human, reply, result, results
from tests.replay.login import conversation

#: Of ten lines: the port and the path are read once, and used again eight calls later.
PATH = "/srv/app/gateway.yaml"
BUDGET = 50_000


class Nothing(Policy, frozen=True, kw_only=True):
    """All that may leave is pruned at once."""

    name: ClassVar[str] = "nothing"

    def propose(self, view: View) -> Plan:
        rows = [row for row in removable(view) if row.role == "assistant" or row.kind == "tool_result"]
        actions = tuple(Action(verb="prune", targets=tuple(row.id for row in step)) for step in steps(rows))
        return Plan(actions=actions, actor=self.actor, pressure=bool(actions))


def talk() -> Conversation:
    read = "\n".join([f"listen: 48213 # {PATH}", *(f"{n}: a line of the file that nobody needs" for n in range(90))])
    idle = [
        ([results(result(f"c{n - 1}", read if n == 1 else "ok " * 200))], reply(f"step {n}", f"c{n}"))
        for n in range(1, 9)
    ]
    last = ([results(result("c8", "ok"))], reply(f"{PATH} listens on 48213."))
    return conversation(([human("Where does it listen?")], reply("I look.", "c0")), *idle, last)


def measured(policy: Policy, *, bare: bool = False) -> Result:
    options = Options(bare=bare)
    return run(prepare(talk()), Setup(policy.name, BUDGET, options), policy)


def test_what_keeps_everything_stands_at_one_end_of_every_measure() -> None:
    kept = measured(Keep(), bare=True)

    assert kept.tokens.prune_rate == 0 and kept.tokens.total == kept.tokens.keep
    assert kept.cost.relative == kept.cost.relative_with_demand == 1.0
    assert (kept.prefix_breaks, kept.recoveries, kept.events, kept.dropped) == (0, 0, {}, {})
    assert (kept.failed, kept.over, kept.invalid) == (0, 0, 0)
    assert kept.retention.all.visible == kept.retention.all.total == kept.oracle.all == kept.belady.all > 0
    assert kept.retention.ar.visible == kept.retention.ar.total == kept.oracle.ar == 2  # the path and the port


def test_what_keeps_nothing_stands_at_the_other() -> None:
    gone, kept = measured(Nothing()), measured(Keep(), bare=True)

    assert 0.5 < gone.tokens.prune_rate < 1 and gone.tokens.peak < kept.tokens.peak
    assert gone.prefix_breaks > 5 and sum(gone.events["prune"].values()) > 5
    assert (gone.failed, gone.over, gone.invalid) == (0, 0, 0)
    assert (gone.retention.nt.visible, gone.retention.ar.visible, gone.retention.all.lost) == (0, 0, 0)
    assert gone.recoveries == 1  # one block has both
    block = max(prepare(talk()).tokens)
    assert gone.cost.demand == pytest.approx(block * 1.25 + 0.1 * _last(gone), rel=0.05)


def test_without_a_way_back_it_loses_what_it_took() -> None:
    gone = measured(Nothing(), bare=True)

    assert gone.retention.ar.lost == gone.retention.ar.total == 2
    assert gone.recoveries == 0 and gone.cost.demand == 0


def _last(result: Result) -> float:
    """The tokens of the last prompt, nearly: those of a mean one."""
    return result.tokens.total / result.calls
