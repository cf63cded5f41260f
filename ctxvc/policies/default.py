"""The default policy: what stands nowhere else and was used last stays; and the agent's own tools beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from ctxvc.core.ledger.ledger import Row
from ctxvc.core.ledger.numbering import is_human
from ctxvc.core.plan.plan import Action, Plan
from ctxvc.core.plan.value import WEIGHTS, Departure, departures
from ctxvc.core.policy import Names, Policy, Share, Terms, Tokens
from ctxvc.core.view.budget import Budget
from ctxvc.core.view.view import View
from ctxvc.policies import protocol, scoped, self_managed
from ctxvc.policies.candidates import leaving, removable, standing
from ctxvc.policies.knobs import ordered, shares


class Default(Policy, frozen=True, kw_only=True):
    name: ClassVar[str] = "default"
    source: ClassVar[str] = "VISTA, explicit scopes, and a rule of our own"
    decides: ClassVar[str] = "agent, then rule"
    sees: ClassVar[str] = "dashboard and stubs"

    trigger: Share = 0.95
    low_water: Share = 0.6
    ceiling: Tokens = 0
    weights: Names = ()

    def __post_init__(self) -> None:
        shares(self, "trigger", "low_water")
        ordered(self, "low_water", "trigger")

    def propose(self, view: View) -> Plan:
        before, high = view.used, self.high(view.budget)
        if before <= high:
            return Plan(actions=(), actor=self.actor, reason=standing(view, before, high, "the mark"))
        actions, after = self._actions(view, int(self._most(view.budget) * self.low_water))
        reason = leaving(view, before, after, f"{len(actions)} leave")
        return Plan(actions=actions, actor=self.actor, reason=reason, pressure=bool(actions))

    def _most(self, budget: Budget) -> int:
        """The tokens that the shares are of."""
        return min(budget.effective, self.ceiling) if self.ceiling else budget.effective

    def _actions(self, view: View, target: int) -> tuple[tuple[Action, ...], int]:
        """The actions that bring the prompt down to `target` tokens, and its tokens after them, about."""
        weights = {**WEIGHTS, **{name: float(value) for name, _, value in (w.partition("=") for w in self.weights)}}
        need, gone, freed = view.used - target, [], 0
        for departure in departures(view, removable(view), weights, _last_answers(view)):
            if view.calibrated(freed) >= need:
                break
            gone.append(departure)
            freed += departure.freed
        return _actions(view, gone), view.used - view.calibrated(freed)

    def relief(self, view: View, target: int) -> Sequence[Action]:
        return self._actions(view, target)[0]

    def high(self, budget: Budget) -> int:
        return int(self._most(budget) * self.trigger)

    def terms(self) -> Terms:
        tools = tuple(dict.fromkeys((*self_managed.TOOLS, *scoped.TOOLS)))
        return Terms(tools=tools, protocol=protocol.text(tools))


def _actions(view: View, gone: Iterable[Departure]) -> tuple[Action, ...]:
    folded: set[str] = set()
    stubbed: dict[str, None] = {}
    for departure in gone:
        if len(departure.rows) == 1 and departure.rows[0].kind == "tool_result":
            stubbed[departure.rows[0].id] = None
        else:
            folded |= {row.id for row in departure.rows}
    for block in list(stubbed):
        row = view.ledger[block]
        if row.parent in folded:
            folded.add(block)
            del stubbed[block]
    actions = [Action(verb="archive", targets=(block,)) for block in stubbed]
    run: list[str] = []
    turn = 0
    for row in view.ledger.rows():
        breaks = row.present and (is_human(row.role, row.origin) or row.kind == "note" or row.state == "pinned")
        if run and (breaks or row.turn != turn):
            actions.append(Action(verb="archive", targets=tuple(run)))
            run = []
        if row.id in folded:
            run.append(row.id)
        turn = row.turn
    if run:
        actions.append(Action(verb="archive", targets=tuple(run)))
    return tuple(actions)


def _last_answers(view: View) -> frozenset[str]:
    answers: dict[int, str] = {}
    for row in view.ledger.rows():
        if row.kind == "assistant":
            answers[row.turn] = row.id
        elif row.kind == "tool_use":
            answers.pop(row.turn, None)
    return frozenset(answers.values())
