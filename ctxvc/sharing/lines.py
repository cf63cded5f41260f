"""What becomes of another clone's scopes here: which go on, and which are lines of their own. Pure.

A *line* is a scope's commits by first parents. Where both clones went on from one commit there are two lines; both are
kept, here as `main` and `main@THEIRS`, there as `main@OURS` and `main`. Nothing is merged; `goto` joins them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from ctxvc.core.ledger import name_rules


class Move(msgspec.Struct, frozen=True):
    """A scope that goes to another commit. `before` is empty for a new scope."""

    scope: str
    before: str
    after: str


def arrivals(
    ours: Mapping[str, str],
    theirs: Mapping[str, str],
    *,
    clone: str,
    own: str,
    follows: Callable[[str, str], bool],
    is_free: Callable[[str], bool] = lambda _: True,
) -> list[Move]:
    """The moves that bring in every line of `theirs` (scope → tip) that `ours` does not have.

    `clone` is whose they are, `own` is ours. `follows(tip, older)` says whether a line at `tip` goes on from `older`. A
    scope that is not `free`, since somebody is in the middle of a step there, does not move.
    """
    state = dict(ours)
    moves: dict[str, Move] = {}
    for name in sorted(theirs, key=lambda scope: ("@" in scope, scope)):
        tip = theirs[name]
        base, _, owner = name.partition("@")
        target = base if owner == own else name
        family = [scope for scope in state if scope.partition("@")[0] == base]
        if any(state[scope] == tip or follows(state[scope], tip) for scope in family):
            continue
        aside = f"{base}@{owner or clone}" if owner != own else f"{base}@{clone}"
        candidates = (target, aside, *sorted(family))
        scope = next(
            (scope for scope in candidates if scope in state and is_free(scope) and follows(tip, state[scope])), ""
        ) or _unused(target, aside, state)
        moves[scope] = Move(scope, ours.get(scope, ""), tip)
        state[scope] = tip
    return list(moves.values())


def _unused(target: str, aside: str, state: Mapping[str, str]) -> str:
    """A name for a new line: its own, else that of its clone's line, else with a number."""
    for name in (target, aside, *(f"{aside}.{number}" for number in range(2, len(state) + 3))):
        if _fits(name, frozenset(state)):
            return name
    base, _, clone = aside.partition("@")
    return f"{name_rules.slug(base.replace('/', '-'))}@{clone}"


def _fits(name: str, scopes: frozenset[str]) -> bool:
    """Whether git and a file system can have that scope beside the others."""
    if name_rules.scope_problem(name):
        return False
    lower = name.lower()
    return not any(
        lower == scope or lower.startswith(f"{scope}/") or scope.startswith(f"{lower}/")
        for scope in map(str.lower, scopes)
    )
