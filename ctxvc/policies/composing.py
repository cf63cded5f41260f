"""Several policies as one, each of which sees what those before it left."""

from __future__ import annotations

from dataclasses import replace

from ctxvc.core.engine import rehearse
from ctxvc.core.ledger import Ledger
from ctxvc.core.plan import Plan, Rehearsal, View
from ctxvc.core.policy import Policy, Terms
from ctxvc.core.timing import Moment


class Composed(Policy, frozen=True, kw_only=True):
    """Policies one after the other, each of which measures what those before it left."""

    parts: tuple[Policy, ...]

    def propose(self, view: View) -> Plan:
        plans: list[Plan] = []
        for part in self.parts:
            plan = part.propose(view)
            plans.append(plan)
            if plan.actions:
                view = after(view, rehearse(view, plan).after)
        actors = {plan.actor for plan in plans if plan.actions}
        return Plan(
            actions=tuple(action for plan in plans for action in plan.actions),
            actor=actors.pop() if len(actors) == 1 else self.actor,
            reason="; ".join(dict.fromkeys(plan.reason for plan in plans if plan.reason)),
            pressure=any(plan.pressure for plan in plans),
            cost=sum(plan.cost for plan in plans),
        )

    def moment(self, view: View, tried: Rehearsal) -> Moment:
        """Now, where one of them says so; else what the first of them says."""
        moments = [part.moment(view, tried) for part in self.parts]
        return next((moment for moment in moments if moment.now), moments[0])

    def terms(self) -> Terms:
        return joined([part.terms() for part in self.parts])

    @property
    def actor(self) -> str:
        return f"policy:{'+'.join(part.name for part in self.parts)}"


def joined(terms: list[Terms]) -> Terms:
    """What several policies ask for together: all of their tools, the least of what the model sees."""
    boards = {each.board for each in terms}
    ladder: dict[str, float] = {}
    for each in terms:
        ladder.update(each.ladder)
    return Terms(
        tools=tuple(dict.fromkeys(tool for each in terms for tool in each.tools)),
        protocol="\n\n".join(dict.fromkeys(part for each in terms for part in each.protocol.split("\n\n") if part)),
        board="off" if "off" in boards else "status" if "status" in boards else "full",
        handles=all(each.handles for each in terms),
        ladder=ladder,
        batch=min((each.batch for each in terms if each.batch), default=0),
    )


def after(view: View, ledger: Ledger) -> View:
    """The view of a ledger that came of changes to that of `view`."""
    newest = max((int(name[1:]) for name in ledger.groups), default=0)
    return replace(view, ledger=ledger, next_group=max(view.next_group, newest + 1))
