"""Several policies as one: each sees the view that the ones before it leave."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from ctxvc.core.ledger.ledger import Ledger
from ctxvc.core.plan import timing
from ctxvc.core.plan.plan import Plan, Rehearsal
from ctxvc.core.plan.rehearse import rehearse
from ctxvc.core.plan.timing import CommitDecision
from ctxvc.core.policy import DASHBOARD, Policy, Terms
from ctxvc.core.view.budget import Budget
from ctxvc.core.view.model_dashboard import Board
from ctxvc.core.view.view import View
from ctxvc.policies import context_text
from ctxvc.policies.run import ask_plan, ask_timing


class Composed(Policy, frozen=True, kw_only=True):
    """Runs policies in order, each on the view that the ones before it leave, and joins their actions in one plan."""

    parts: tuple[Policy, ...]

    def __post_init__(self) -> None:
        flat = (leaf for part in self.parts for leaf in (part.parts if isinstance(part, Composed) else (part,)))
        msgspec.structs.force_setattr(self, "parts", tuple(flat))

    def propose(self, view: View) -> Plan:
        plans: list[Plan] = []
        for number, part in enumerate(self.parts, start=1):
            plan = ask_plan(part, view)
            own = tuple(msgspec.structs.replace(action, part=number) for action in plan.actions)
            plans.append(msgspec.structs.replace(plan, actions=own))
            if plan.actions:
                view = after(view, rehearse(view, plan).after)
        reasons = (f"{part.name}: {plan.reason}" for part, plan in zip(self.parts, plans, strict=True) if plan.reason)
        return Plan(
            actions=tuple(action for plan in plans for action in plan.actions),
            actor=self.actor,
            reason="; ".join(reasons),
            pressure=any(plan.pressure for plan in plans),
            asked=any(plan.asked for plan in plans),
            cost=sum(plan.cost for plan in plans),
        )

    def moment(self, view: View, rehearsal: Rehearsal) -> CommitDecision:
        """Now, if any part with actions would commit its own now; otherwise the decision of the first such part.

        Each part decides on its own actions only, in the view that the parts before it leave. Once one part breaks the
        cached prefix, the others gain nothing by waiting to break it again.
        """
        decisions: list[tuple[Policy, CommitDecision]] = []
        view_after = view
        for number, part in enumerate(self.parts, start=1):
            actions = tuple(action for action in rehearsal.done if action.part == number)
            if not actions:
                continue
            alone = len(actions) == len(rehearsal.done)
            own = rehearsal if alone else rehearse(view_after, msgspec.structs.replace(rehearsal.plan, actions=actions))
            decisions.append((part, ask_timing(part, view_after, own)))
            view_after = after(view_after, own.after)
        if not decisions:
            return timing.moment(view, rehearsal)
        part, decides = next(((part, moment) for part, moment in decisions if moment.now), decisions[0])
        why = f"{part.name}: {decides.why}"
        if len(decisions) == 1:
            return msgspec.structs.replace(decides, why=why)
        return timing.reckon(view, rehearsal).moment(f"{why}; including all other parts", now=decides.now)

    def high(self, budget: Budget) -> int:
        return min(part.high(budget) for part in self.parts)

    def terms(self) -> Terms:
        return joined([part.terms() for part in self.parts])

    def terms_in(self, window: int) -> Terms:
        return joined([part.terms_in(window) for part in self.parts])

    @property
    def actor(self) -> str:
        return f"policy:{'+'.join(part.name for part in self.parts)}"


#: The boards, the one that shows the model least first.
_LEAST_FIRST: tuple[Board, ...] = ("off", "status", "thresholds", "changes", "full", "each")


def joined(terms: list[Terms]) -> Terms:
    """The combined terms of several policies: all their tools, and the board that shows least.

    If one of them hides handles, or has notes that do not fold, the combination does too.
    """
    boards = {part_terms.board for part_terms in terms}
    ladder: dict[str, float] = {}
    for part_terms in terms:
        ladder.update(part_terms.ladder)
    paragraphs = dict.fromkeys(part for part_terms in terms for part in part_terms.protocol.split("\n\n") if part)
    terms_joined = Terms(
        tools=tuple(dict.fromkeys(tool for part_terms in terms for tool in part_terms.tools if tool != DASHBOARD)),
        board=next(board for board in _LEAST_FIRST if board in boards),
        handles=all(part_terms.handles for part_terms in terms),
        ladder=ladder,
        batch=min((part_terms.batch for part_terms in terms if part_terms.batch), default=0),
        folds=all(part_terms.folds for part_terms in terms),
        candidates=min(part_terms.candidates for part_terms in terms),
        nudges=all(part_terms.nudges for part_terms in terms),
        brief=all(part_terms.brief for part_terms in terms),
    )
    text = context_text.fitting(
        "\n\n".join(paragraphs), terms_joined.tools, board=terms_joined.board, folds=terms_joined.folds
    )
    return msgspec.structs.replace(terms_joined, protocol=text)


def after(view: View, ledger: Ledger) -> View:
    """`view` with this ledger, which results from changes to its own, and the next free group number."""
    newest = max((int(name[1:]) for name in ledger.groups), default=0)
    return replace(view, ledger=ledger, next_group=max(view.next_group, newest + 1))
