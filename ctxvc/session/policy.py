"""The policy of a session: when it is asked, and whether its plan is committed, waits or is dropped."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message, Part
from ctxvc.core.ledger.ledger import Ledger
from ctxvc.core.plan.plan import Plan, Rehearsal
from ctxvc.core.plan.rehearse import rehearse
from ctxvc.core.plan.timing import USUAL
from ctxvc.core.policy import Policy
from ctxvc.core.view.budget import Budget
from ctxvc.core.view.dashboard import PROTOCOL, protocol
from ctxvc.core.view.view import View
from ctxvc.errors import Conflict
from ctxvc.policies import context_text
from ctxvc.policies.run import actor_name, ask_plan, ask_timing
from ctxvc.session.context import Context
from ctxvc.store.pending_plans import PendingPlan


def govern(context: Context, policy: Policy, *, cut: bool, incoming: int = 0) -> Rehearsal | None:
    """Asks the policy, and commits its plan or lets it wait; returns the rehearsal, or None if it proposed nothing.

    While a plan of its own waits, the policy makes no new one: the waiting plan is judged again on the current view. A
    plan that is due only above some usage waits for that; if the hard budget is at stake, a plan that does not bring
    the prompt below the guard gives way to a new one that frees more. `cut` means that the prefix breaks here anyway,
    so no plan needs to wait. `incoming` are counted tokens about to come in, which the policy sees as overhead.
    Raises: BadInput if a person's own policy fails.
    """
    context.stored.refresh()
    own_plan = next((own for own in pending(context) if own.plan.actor == actor_name(policy)), None)
    view = context.view()
    view = replace(view, overhead=view.overhead + incoming)
    if own_plan and view.used <= own_plan.plan.above:
        return None
    own_plan, plan = _plan(context, policy, view, own_plan)
    if not plan.actions:
        return None
    pressure = plan.pressure or view.used > view.budget.hard_guard
    rehearsal = rehearse(view, msgspec.structs.replace(plan, pressure=pressure), roll_up=pressure)
    now, why = _moment(policy, view, rehearsal, cut=cut)
    if rehearsal and not now:
        if own_plan is None:
            propose(context, _with_reason(plan, f"waits: {why}"))
        return rehearsal
    if rehearsal:
        plan = _with_reason(rehearsal.plan, f"now: {why}" if why else "")
        try:
            context.commit(msgspec.structs.replace(rehearsal, plan=plan))
        except Conflict:
            return rehearsal  # another writer changed the same blocks: the next request tries again
    if own_plan:
        context.stored.drop_plans([own_plan.id], "committed" if rehearsal else "stale")
    if rehearsal and plan.later:
        reason = "waits: not needed to reach the target"
        propose(context, Plan(actions=plan.later, actor=plan.actor, reason=reason, above=policy.high(view.budget)))
    return rehearsal


def _plan(
    context: Context, policy: Policy, view: View, own_plan: PendingPlan | None
) -> tuple[PendingPlan | None, Plan]:
    """The plan to judge: the policy's own that waits, with its entry, or a new one, with None."""
    if own_plan and not _falls_short(view, own_plan.plan):
        return own_plan, own_plan.plan
    plan = ask_plan(policy, view)
    if plan.asked:
        context.record_ask(actor_name(policy))
    if own_plan and _freed(view, plan) <= _freed(view, own_plan.plan):
        return own_plan, own_plan.plan
    if own_plan:
        context.stored.drop_plans([own_plan.id], "superseded")
    return None, plan


def _falls_short(view: View, plan: Plan) -> bool:
    """Whether the hard budget is at stake, and still would be after this plan."""
    guard = view.budget.guard
    return view.used > guard and view.used - _freed(view, plan) > guard


def _freed(view: View, plan: Plan) -> int:
    """The tokens that a plan frees, as the provider counts them."""
    return view.part(rehearse(view, plan).freed) if plan.actions else 0


def protocol_message(ledger: Ledger, policy: Policy, budget: Budget, *, tags: bool = True) -> Message | None:
    """The message on how to use the context tools, to be pinned; None if there is none or the prompt has it already.

    It mentions the tags of results only with `tags`.
    """
    text = policy.terms_in(budget.window).protocol
    text = text if tags else context_text.untagged(text)
    if not text or protocol(ledger):
        return None
    text += f"\n\nThe budget is {budget.effective:,} tokens."
    part: Part = wire.text_part(text, "user", "client", ctxvc={PROTOCOL: True})
    return Message(role="user", parts=(part,))


def _moment(policy: Policy, view: View, rehearsal: Rehearsal, *, cut: bool) -> tuple[bool, str]:
    turn = (True, "a turn begins")
    if cut and view.idle <= USUAL.lifetime:
        return turn
    decision = ask_timing(policy, view, rehearsal)
    return (decision.now, decision.why) if decision.now or not cut else turn


def _with_reason(plan: Plan, more: str) -> Plan:
    """The plan with `more` appended to its reason, replacing an earlier `waits`."""
    reason = plan.reason.partition("; waits: ")[0]
    return msgspec.structs.replace(plan, reason="; ".join(filter(None, (reason, more))))


#: Digits of a checksum by which a later rehearsal checks that a block is still the same.
_CHECKSUM = 12


def propose(context: Context, plan: Plan) -> PendingPlan:
    """Stores the plan for a later `settle`, bound to its blocks by checksum."""
    context.stored.refresh()
    ledger = context.ledger()
    actions = []
    for action in plan.actions:
        rows = (ledger.get(target) for target in action.targets if target.startswith("B"))
        checksums = {row.id: row.sha256[:_CHECKSUM] for row in rows if row}
        actions.append(msgspec.structs.replace(action, checksums={**checksums, **action.checksums}))
    return context.stored.propose(msgspec.structs.replace(plan, actions=tuple(actions)))


def pending(context: Context) -> tuple[PendingPlan, ...]:
    """The pending plans of this scope, oldest first."""
    return tuple(plan for plan in context.stored.pending_plans() if plan.scope == context.scope)


def settle(context: Context) -> list[tuple[PendingPlan, Rehearsal]]:
    """Commits the pending plans, each as far as the current view allows; returns each with its rehearsal.

    A plan without any allowed action is dropped as stale. If another writer interferes, the plan stays pending.
    """
    outcomes: list[tuple[PendingPlan, Rehearsal]] = []
    for pending_plan in pending(context):
        context.stored.refresh()
        if context.view().used <= pending_plan.plan.above:
            continue  # the room is not needed yet
        rehearsal = rehearse(context.view(), pending_plan.plan)
        try:
            context.commit(rehearsal)
        except Conflict:
            continue
        # A crash before this line leaves a plan without effect, which is dropped as stale next time.
        context.stored.drop_plans([pending_plan.id], "committed" if rehearsal else "stale")
        outcomes.append((pending_plan, rehearsal))
    return outcomes
