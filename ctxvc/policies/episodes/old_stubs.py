"""Stubs of episodes that nobody marked, once they fill the prompt: a human's words between them keep them apart."""

from __future__ import annotations

from ctxvc.core.plan.plan import Action
from ctxvc.core.prompt.outline import outline
from ctxvc.core.prompt.stub import is_summary
from ctxvc.core.view.view import View

#: Of the ceiling, in hundredths: above what share the oldest stubs leave without a trace, and down to which. Roll-up
#: begins at half of that: what is left then is what it cannot join.
MOST, LEAST = 10, 6


def old_stubs(view: View) -> tuple[tuple[Action, ...], int]:
    """What takes the oldest stubs of rules away where all cost too much, and the tokens that this saves.

    Stubs that an agent or a person made stay, as do summaries and answers to calls. What left is found by a search.
    """
    slots = [slot for slot in outline(view.ledger) if slot.show == "text" and slot.text and not is_summary(slot.text)]
    total = sum(view.price.text(slot.text) for slot in slots)
    hundredth = view.budget.soft_limit / 100
    actions: list[Action] = []
    saved = 0
    for slot in slots if view.part(total) > MOST * hundredth else ():
        if view.part(total - saved) <= LEAST * hundredth:
            break
        by = view.ledger.groups[slot.group].removed_by if slot.group else slot.row.removed_by
        if slot.kind != "tool_result" and by.startswith(("policy:", "guard")):
            actions.append(Action(verb="prune", targets=(slot.group or slot.row.id,)))
            saved += view.price.text(slot.text)
    return tuple(actions), saved
