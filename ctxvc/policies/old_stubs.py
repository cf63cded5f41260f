"""Stubs that rules made, once they fill the prompt: a human's words between them keep them apart."""

from __future__ import annotations

from ctxvc.core.plan.plan import Action
from ctxvc.core.prompt.outline import outline
from ctxvc.core.prompt.stub import is_summary
from ctxvc.core.view.view import View


def old_stubs(view: View, above: int, down_to: int, *, more: int = 0) -> tuple[tuple[Action, ...], int]:
    """What takes the oldest stubs of rules away, and the tokens that this saves.

    Nothing unless all stubs, with `more` tokens to come, cost more than `above` hundredths of the budget; then as many
    as bring them `down_to`. Stubs that an agent or a person made stay, as do summaries and answers to calls. What
    left is found by a search.
    """
    slots = [slot for slot in outline(view.ledger) if slot.show == "text" and slot.text and not is_summary(slot.text)]
    total = more + sum(view.price.text(slot.text) for slot in slots)
    hundredth = view.budget.soft_limit / 100
    actions: list[Action] = []
    saved = 0
    for slot in slots if view.part(total) > above * hundredth else ():
        if view.part(total - saved) <= down_to * hundredth:
            break
        by = view.ledger.groups[slot.group].removed_by if slot.group else slot.row.removed_by
        if slot.kind != "tool_result" and by.startswith(("policy:", "guard")):
            actions.append(Action(verb="prune", targets=(slot.group or slot.row.id,)))
            saved += view.price.text(slot.text)
    return tuple(actions), saved
