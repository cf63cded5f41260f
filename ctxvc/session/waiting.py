"""Plans that wait: soft edits, which break the cached prefix and so are kept for a moment when that costs least."""

from __future__ import annotations

import msgspec

from ctxvc.core.plan.plan import Plan, Rehearsal
from ctxvc.core.plan.rehearse import rehearse
from ctxvc.errors import Conflict
from ctxvc.session.context import Context
from ctxvc.store import pending_plans
from ctxvc.store.pending_plans import Pending

#: Digits of a checksum by which a later rehearsal tells that a block is still the one that was meant.
_CHECKSUM = 12


def propose(context: Context, plan: Plan) -> Pending:
    """The plan waits, on the disk, for `settle`. It is bound to the blocks that it names by their checksums."""
    context.writer.refresh()
    ledger = context.ledger()
    actions = []
    for action in plan.actions:
        named = (ledger.get(target) for target in action.targets if target.startswith("B"))
        known = {row.id: row.sha256[:_CHECKSUM] for row in named if row}
        actions.append(msgspec.structs.replace(action, checksums={**known, **action.checksums}))
    return pending_plans.put(
        context.store,
        context.writer.name,
        context.scope,
        msgspec.structs.replace(plan, actions=tuple(actions)),
        base_commit=context.writer.tip(),
        time=context.store.now_iso(),
    )


def pending(context: Context) -> tuple[Pending, ...]:
    """The plans that wait in this scope, oldest first."""
    held = pending_plans.pending(context.store, context.writer.name)
    return tuple(plan for plan in held if plan.scope == context.scope)


def settle(context: Context) -> list[tuple[Pending, Rehearsal]]:
    """Commits what waits, each plan as far as the view of now allows it; gives what came of each.

    A plan of which nothing is left is dropped as stale. Where another writer is in between, the plan goes on waiting.
    """
    done: list[tuple[Pending, Rehearsal]] = []
    for held in pending(context):
        context.writer.refresh()
        tried = rehearse(context.view(), held.plan)
        try:
            context.commit(tried)
        except Conflict:
            continue
        # A crash between the two leaves a plan that has nothing left to do: it is dropped as stale next time.
        pending_plans.drop(context.store, context.writer.name, [held.id], "committed" if tried else "stale")
        done.append((held, tried))
    return done
