"""Room for incoming results: older blocks leave before anything new is withheld, and what did not fit comes back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial

from ctxvc.core.ledger.ledger import Row
from ctxvc.core.plan import timing
from ctxvc.core.plan.admission import is_large
from ctxvc.core.plan.guard import ACTOR, LOW_WATER, Relief, guard
from ctxvc.core.plan.plan import Action, Plan, Rehearsal
from ctxvc.core.plan.rehearse import rehearse
from ctxvc.core.policy import Policy
from ctxvc.core.prompt.cut import latest_step
from ctxvc.core.view.view import View
from ctxvc.errors import BadInput, Conflict
from ctxvc.policies.run import ask_relief, has_model
from ctxvc.session import policy as session_policy
from ctxvc.session.context import Context

#: The share of the budget that must be free below the guard for overflow mode to end.
ROOM = 0.05


def relief(policy: Policy | None) -> Relief | None:
    """What the guard removes first under this policy; None without a policy."""
    return partial(ask_relief, policy) if policy else None


def make_room(context: Context, policy: Policy | None, incoming: int, spare: int = 0) -> None:
    """Removes old blocks until `incoming` counted tokens fit below the guard beside `spare` provider's tokens.

    First by the pending plans, then by the policy's, which sees the incoming tokens as there, then by the guard; each
    in a commit of its own. No model is asked: the step is open, and its results are not recorded yet. A failure of the
    policy is left for the next request to report, so that no result is lost to it.
    """
    context.stored.refresh()
    if _fits(context, incoming, spare):
        return
    session_policy.settle(context)
    if _fits(context, incoming, spare):
        return
    # A conflict with another writer must lose no result either: then what does not fit is blocked.
    with suppress(BadInput, Conflict):
        if policy and not has_model(policy):
            spare_tokens = spare * 1000 // max(1, context.view().calibration[0])  # as we count
            session_policy.govern(context, policy, cut=False, incoming=incoming + spare_tokens)
        if _fits(context, incoming, spare):
            return
        view = context.view()
        rehearsal = guard(view, view.calibrated(view.counted + incoming) - view.used + spare, relief(policy))
        if rehearsal:
            context.commit(rehearsal)


def relieve(context: Context, policy: Policy | None, share: float) -> int:
    """Lets the guard bring the prompt down to a share of the budget or of itself, the smaller; returns tokens freed.

    The latest step leaves only if nothing else can. Overflow mode ends if there is room then. Raises: Conflict.
    """
    view = context.view()
    mark = int(min(view.budget.effective, view.used) * share)
    rehearsal = guard(view, max(0, view.budget.guard - mark), relief(policy))
    if rehearsal:
        rehearsal = rehearse(view, rehearsal.plan, roll_up=True) or rehearsal
        context.commit(rehearsal, relieves=False)
    if context.view().used <= view.budget.guard - view.budget.effective * ROOM:
        context.set({"refused": 0})
    return rehearsal.freed if rehearsal else 0


def unblock(context: Context, policy: Policy | None, spare: int = 0) -> bool:
    """Puts results that were blocked for lack of room into the prompt, oldest first; returns whether any came back.

    Only results of this turn and the one before, not read since, that may come in whole; and only if the broken part
    of the cached prefix costs no more than a call by which the model would read the result. The newest, which the model
    has not seen yet, come back up to the guard; older ones up to the usage at which the policy would remove something.
    """
    withheld = list(_withheld(context))
    if not withheld:
        return False
    view = context.view()
    mark = policy.high(view.budget) if policy else int(view.budget.effective * LOW_WATER)
    newest = latest_step(view.ledger)
    back: Rehearsal | None = None
    targets: tuple[str, ...] = ()
    for row in withheld:
        limit = (view.budget.guard if row.step >= newest else mark) - spare
        before = back.tokens_after if back else view.counted
        if view.calibrated(before + view.price.body(row) - view.price.text(row.stub)) > limit:
            continue  # a rehearsal goes through all rows, and is not needed at each request
        action = Action(verb="restore", targets=(*targets, row.id))
        rehearsal = rehearse(view, Plan(actions=(action,), actor=ACTOR, reason="there is room for what did not fit"))
        if rehearsal and view.calibrated(rehearsal.tokens_after) <= limit and _pays(context, policy, view, rehearsal):
            back, targets = rehearsal, action.targets
    if back:
        with suppress(Conflict):
            context.commit(back)
            return True
    return False


def _fits(context: Context, incoming: int, spare: int) -> bool:
    view = context.view()
    return view.calibrated(view.counted + incoming) + spare <= view.budget.guard


def _withheld(context: Context) -> Iterator[Row]:
    """The results that were blocked for lack of room, and may still be wanted."""
    view = context.view()
    ledger = view.ledger
    turn, latest = ledger.meta.counters.turn, latest_step(ledger)
    for rows in ledger.by_segment(_blocked):
        for row in rows:
            call = ledger.get(row.parent) if row.parent else None
            called = row.step >= latest or (call is not None and call.present)
            if called and row.turn >= turn - 1 and not row.reads and not is_large(view, view.price.body(row)):
                yield row


def _blocked(rows: tuple[Row, ...]) -> list[Row]:
    return [row for row in rows if row.state == "blocked" and not row.group]


def _pays(context: Context, policy: Policy | None, view: View, rehearsal: Rehearsal) -> bool:
    """Whether the broken part of the cached prefix costs no more than one more call."""
    sent = context.requested.get(context.scope)
    times = policy.timing if policy else timing.USUAL
    if sent is None or view.idle > times.lifetime:
        return True
    broken = timing.broken_by(view, rehearsal, sent) * (times.write_price - times.read_price)
    return broken <= view.counted * times.read_price
