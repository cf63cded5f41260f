"""Rehearsal: tries a plan on a copy, drops refused targets with a reason, and measures the result.

Only rows and groups change; bodies never do.
"""

from __future__ import annotations

from collections.abc import Iterable

from ctxvc.core.ledger.ledger import Group, Ledger
from ctxvc.core.plan import protected, rollup
from ctxvc.core.plan.draft import LedgerDraft
from ctxvc.core.plan.plan import Action, Plan, Rehearsal
from ctxvc.core.plan.verbs import Rehearser
from ctxvc.core.prompt.digest import names_in
from ctxvc.core.prompt.outline import Slot, outline
from ctxvc.core.prompt.stub import is_summary
from ctxvc.core.view.view import View, measure

#: Tokens of the smallest budget in which stubs contain names.
NAMES_FROM = 24_000


def rehearse(view: View, plan: Plan, *, protect: frozenset[str] | None = None, roll_up: bool = False) -> Rehearsal:
    """Tries `plan` on a copy: applies what is allowed, lists what is refused and why.

    `protect` are the blocks that only a person removes, by default `protected.protected`. With `roll_up`, or if the
    plan asks for it and it pays, stubs that cost too much afterwards are gathered into groups (`rollup`) as part of the
    same change.
    """
    price = view.price
    before = measure(view.ledger, price)
    draft = LedgerDraft.of(view)
    protect = protected.protected(view.ledger) if protect is None else protect
    rehearser = Rehearser(view, plan, draft, protect, total=before)
    actions = [applied for action in plan.actions if (applied := rehearser.act(action)).targets]
    after = draft.after()
    rolled: tuple[Group, ...] = ()
    if roll_up or (plan.rolls_up and rollup.pays(view, outline(after))):
        rolled = rollup.gather(view, draft, outline(after), actor=plan.actor, protect=protect, previews=plan.pressure)
        after = draft.after() if rolled else after
    if _name(view, draft, after):
        after = draft.after()
    rows, groups = draft.changed()
    return Rehearsal(
        plan=plan,
        after=after,
        rows=rows,
        groups=groups,
        done=tuple(actions),
        problems=tuple(rehearser.problems),
        tokens_before=view.overhead + before,
        tokens_after=view.overhead + measure(after, price),
        rolled=tuple(group.id for group in rolled),
    )


def _name(view: View, draft: LedgerDraft, after: Ledger) -> bool:
    """Adds names to the stubs of new groups, provided that all stubs together cost no more than roll-up leaves.

    Returns whether any was added; none are in a small window, where every token counts.
    """
    soft_limit = view.budget.soft_limit
    if soft_limit < NAMES_FROM or not any(row.group for row in draft.changed()[0]):
        return False
    slots = outline(after)
    stubs = sum(view.price.text(slot.text) for slot in slots if slot.show == "text" and not is_summary(slot.text))
    used = view.calibrated(view.overhead + measure(after, view.price))
    room = min(soft_limit * rollup.LEAST // 100 - view.part(stubs), (view.budget.guard - used) // 3)
    return draft.add_names(LedgerDraft.of(view), room, lambda: _visible_names(view, slots))


def _visible_names(view: View, slots: Iterable[Slot]) -> set[str]:
    """The names that a prompt shows."""
    cache = view.ledger.cache_of(names_in)
    names: set[str] = set()
    for slot in slots:
        if slot.show == "text":
            names |= names_in(slot.text)
        elif slot.row.kind not in ("image", "document"):
            if slot.row.sha256 not in cache:
                cache[slot.row.sha256] = names_in(view.words(slot.row))
            names |= cache[slot.row.sha256]
    return names


def fewest_actions(
    view: View, plan: Plan, target: int, *, protect: frozenset[str] | None = None
) -> tuple[tuple[Action, ...], int]:
    """The shortest prefix of the plan that reaches `target` tokens, and the prompt's cost after it.

    Tokens are as the provider counts them, overhead included. Refused targets are omitted, and actions without any
    remaining target; if the target is not reached, all other actions are returned.
    """
    draft = LedgerDraft.of(view)
    protect = protected.protected(view.ledger) if protect is None else protect
    rehearser = Rehearser(view, plan, draft, protect, total=measure(view.ledger, view.price))
    actions: list[Action] = []
    for action in plan.actions:
        if view.calibrated(view.overhead + rehearser.total) <= target:
            break
        if (applied := rehearser.act(action)).targets:
            actions.append(applied)
    return tuple(actions), view.calibrated(view.overhead + rehearser.total)
