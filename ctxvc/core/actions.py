"""What can be done to a block, and in which state: the one transition table."""

from __future__ import annotations

from typing import Literal

from ctxvc.core.ledger.block import State

Verb = Literal["archive", "mask", "prune", "restore", "pin", "unpin", "delete", "summarise"]
Actor = Literal["agent", "planner", "guard", "user", "host"]  # or "policy:NAME"

#: state → verb → new state. What is not here is not allowed.
TRANSITIONS: dict[State, dict[Verb, State]] = {
    "visible": {
        "archive": "archived",
        "mask": "masked",
        "prune": "pruned",
        "pin": "pinned",
        "delete": "deleted",
        "summarise": "archived",
    },
    "pinned": {"unpin": "visible"},
    "masked": {
        "restore": "visible",
        "archive": "archived",
        "prune": "pruned",
        "delete": "deleted",
        "summarise": "archived",
    },
    "archived": {
        "restore": "visible",
        "archive": "archived",
        "prune": "pruned",
        "delete": "deleted",
        "summarise": "archived",
    },
    "pruned": {"restore": "visible", "delete": "deleted"},
    "blocked": {
        "restore": "visible",
        "archive": "archived",
        "prune": "pruned",
        "delete": "deleted",
        "summarise": "archived",
    },
    "deleted": {"restore": "visible"},
}


def after(state: State, verb: Verb) -> State | None:
    """The state that `verb` leads to from `state`; None where it is not allowed."""
    return TRANSITIONS[state].get(verb)
