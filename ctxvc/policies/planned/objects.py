"""The context objects of which something may leave now, and what that costs (`core.ledger.objects` has the names)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

import msgspec

from ctxvc.core.ledger.ledger import Ledger, Row
from ctxvc.core.ledger.objects import ContextObject
from ctxvc.core.plan.protected import protected
from ctxvc.core.view.view import View

#: So many steps of the latest turn are folded together.
STEPS = 10


class MovableObject(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An object with the blocks of it that a plan may take out now, what they cost, and whose turn it is of."""

    object: ContextObject
    rows: tuple[Row, ...]
    tokens: int
    latest: bool


def movable(view: View, candidates: Iterable[ContextObject], *, latest: bool) -> list[MovableObject]:
    """The objects of which something may leave now, in their order; those of the latest turn only with `latest`.

    The latest step, what came in since, what is pinned and what is protected stay in any case.
    """
    turn, step = edge(view.ledger)
    protect = protected(view.ledger)
    movables: list[MovableObject] = []
    for candidate in candidates:
        if candidate.turn >= turn and not latest:
            continue
        rows = tuple(
            row
            for row in candidate.rows
            if row.state in ("visible", "masked") and row.step < step and row.id not in protect
        )
        if rows:
            tokens = tokens_of(view, rows)
            movables.append(MovableObject(object=candidate, rows=rows, tokens=tokens, latest=candidate.turn >= turn))
    return movables


def batches(turn: MovableObject) -> list[tuple[Row, ...]]:
    """The parts of a turn that leave one after the other: all of it, or of the latest turn `STEPS` steps each."""
    if not turn.latest:
        return [turn.rows]
    return [tuple(part) for _, part in groupby(turn.rows, key=lambda row: row.step // STEPS)]


def tokens_of(view: View, rows: Iterable[Row]) -> int:
    """The tokens of blocks that are in the prompt, in their place."""
    return sum(view.price.mask(row) if row.state == "masked" else view.price.body(row) for row in rows)


def edge(ledger: Ledger) -> tuple[int, int]:
    """The newest turn, and the newest step that has a reply; 0 if there is none."""
    turn = 0
    for row in ledger.backwards():
        turn = turn or row.turn
        if row.role == "assistant":
            return turn, row.step
    return turn, 0


def results(candidates: Iterable[MovableObject]) -> Iterator[MovableObject]:
    """Those that are a tool's, whose result is still in the prompt; a skill is none: it folds, and nothing else."""
    return (one for one in candidates if one.object.family == "function" and one.rows[-1].kind == "tool_result")
