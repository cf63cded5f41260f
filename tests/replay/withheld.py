"""Results that a replay withholds: how many, and how many of them though older blocks could have left.

As a program: the figures of recordings, one line each. `python -m tests.replay.withheld POLICY BUDGET FILES`
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ctxvc.core.ledger.ledger import Row
from ctxvc.core.plan.admission import is_large
from ctxvc.core.plan.guard import ACTOR, oldest_steps
from ctxvc.core.plan.plan import Plan
from ctxvc.core.plan.rehearse import rehearse
from ctxvc.core.policy import Policy
from ctxvc.core.view import model_dashboard
from ctxvc.core.view.view import View
from ctxvc.errors import CtxvcError
from ctxvc.policies import parse
from ctxvc.replay.conversation import Conversation, conversations_in
from ctxvc.replay.drive import new_session
from ctxvc.session.session import Session
from ctxvc.tokens.meter import Meter


class Withheld(NamedTuple):
    """Results, those over the threshold, those that a request withheld for lack of room, and the needless of these."""

    results: int = 0
    large: int = 0
    blocked: int = 0
    needless: tuple[str, ...] = ()
    failed: int = 0


def withheld(conversation: Conversation, policy: Policy, budget: int, meter: Meter) -> Withheld:
    """What is withheld when the conversation is replayed."""
    session = new_session(conversation, policy, budget, meter=meter)
    total = Withheld()
    for call in conversation.calls:
        new = [block for message in call.before for block in session.append(message)]
        try:
            session.request()
            total = _added(total, session, new)
        except CtxvcError:
            total = total._replace(failed=total.failed + 1)
        session.append(call.reply)
    return total


def _added(total: Withheld, session: Session, new: Iterable[str]) -> Withheld:
    view = session.view()
    spare = _spare(session, view)
    for row in (view.ledger[block] for block in new):
        if row.kind != "tool_result":
            continue
        blocked = row.state == "blocked"
        large = blocked and is_large(view, view.price.body(row))
        needless = (row.id,) if blocked and not large and _could_be_shown(view, row, spare) else ()
        total = total._replace(
            results=total.results + 1,
            large=total.large + large,
            blocked=total.blocked + (blocked and not large),
            needless=(*total.needless, *needless),
        )
    return total


def _spare(session: Session, view: View) -> int:
    """The tokens that stay free for a dashboard."""
    cap = model_dashboard.cap_of(view.budget, view.calibration)
    return view.calibrated(model_dashboard.room("full", 0, cap, session.terms.visible_board))


def _could_be_shown(view: View, row: Row, spare: int) -> bool:
    """Whether the result would fit if all old steps left that may, with so many tokens to spare."""
    plan = Plan(actions=tuple(oldest_steps(view, 0)), actor=ACTOR, pressure=True)
    after = rehearse(view, plan).tokens_after + view.price.body(row) - view.price.text(row.stub)
    return view.calibrated(after) <= view.budget.guard - spare


def _figures(policy: str, budget: int, paths: list[Path]) -> Iterator[str]:
    meter = Meter(None)
    for conversation in conversations_in(paths):
        yield f"{policy} {budget} {conversation.file} {withheld(conversation, parse(policy), budget, meter)}"


if __name__ == "__main__":
    for line in _figures(sys.argv[1], int(sys.argv[2]), list(map(Path, sys.argv[3:]))):
        print(line, flush=True)
