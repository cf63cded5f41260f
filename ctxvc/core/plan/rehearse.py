"""The engine: a plan is tried on a copy, what is not allowed is left out with a reason, and the whole is measured anew.

What is done is done to rows and groups alone: no body is read, none is changed.
"""

from __future__ import annotations

from ctxvc.core.ledger.ledger import Group
from ctxvc.core.plan import protected, rollup
from ctxvc.core.plan.draft import Draft
from ctxvc.core.plan.plan import Action, Plan, Rehearsal
from ctxvc.core.plan.verbs import Trial
from ctxvc.core.prompt.outline import outline
from ctxvc.core.view.view import View, measure


def rehearse(view: View, plan: Plan, *, protect: frozenset[str] | None = None, roll_up: bool = False) -> Rehearsal:
    """The plan as it would go: what is allowed of it, done, and what of it is not, with the reason.

    `protect` are the blocks that only a person removes, by default `protection.protected`. With `roll_up`, stubs that
    cost too much afterwards are gathered into groups (`rollup`), as a part of the same change.
    """
    price = view.price
    before = measure(view.ledger, price)
    draft = Draft(view.ledger, price, view.next_group, view.handles)
    protect = protected.protected(view.ledger) if protect is None else protect
    trial = Trial(view, plan, draft, protect, total=before)
    done = [left for action in plan.actions if (left := trial.act(action)).targets]
    rows, groups = draft.changed()
    after = view.ledger.with_rows(rows).with_groups(groups)
    rolled: tuple[Group, ...] = ()
    if roll_up:
        rolled = rollup.gather(view, draft, outline(after), actor=plan.actor, protect=protect, previews=plan.pressure)
        if rolled:
            rows, groups = draft.changed()
            after = view.ledger.with_rows(rows).with_groups(groups)
    return Rehearsal(
        plan=plan,
        after=after,
        rows=rows,
        groups=groups,
        done=tuple(done),
        problems=tuple(trial.problems),
        tokens_before=view.overhead + before,
        tokens_after=view.overhead + measure(after, price),
        rolled=tuple(group.id for group in rolled),
    )


def until(
    view: View, plan: Plan, target: int, *, protect: frozenset[str] | None = None
) -> tuple[tuple[Action, ...], int]:
    """As many of the plan's first actions as bring the prompt to `target` tokens, and what it costs then.

    The tokens are as the provider counts them, overhead included. Targets that are not allowed are left out, and with
    them actions of which nothing is left; all the others stay where the target is not reached.
    """
    draft = Draft(view.ledger, view.price, view.next_group, view.handles)
    protect = protected.protected(view.ledger) if protect is None else protect
    trial = Trial(view, plan, draft, protect, total=measure(view.ledger, view.price))
    done: list[Action] = []
    for action in plan.actions:
        if view.calibrated(view.overhead + trial.total) <= target:
            break
        if (left := trial.act(action)).targets:
            done.append(left)
    return tuple(done), view.calibrated(view.overhead + trial.total)
