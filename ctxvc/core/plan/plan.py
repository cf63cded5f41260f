"""A plan, what it is made from (the view), and what came of trying it (the rehearsal). Values without behaviour."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from ctxvc.core.ledger.block import Verb
from ctxvc.core.ledger.ledger import Group, Ledger, Row

#: Why a target of a plan was left out.
RefusalReason = Literal[
    "unknown", "open", "pinned", "human", "gone", "no saving", "protected", "level", "stale", "no room", "not allowed"
]


class Action(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One verb on blocks and groups. `index` is the index text of an archive, the summary of a `summarise`, the reason
    of a `delete`; of a mask or prune it is why, for people. With `preview`, the stub of a block that is archived shows
    the beginning and the end of its text. `checksums` maps a block to the beginning of its checksum, where the one who
    planned knew it. `part` tells which policy of a composition wants it, counted from 1; 0 if one made the plan.
    `why` says of blocks why they leave, for people.
    """

    verb: Verb
    targets: tuple[str, ...]
    index: str = ""
    preview: bool = False
    checksums: Mapping[str, str] = {}
    part: int = 0
    why: Mapping[str, str] = {}


class Plan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Actions, with their actor and reason. `actor` is one of agent, planner, policy:NAME, guard, user.

    `allow_user` lets a person remove what a human wrote. `pressure` is set where the hard budget is at stake. `asked`
    says that a model was asked for it, whatever came of that, and `cost` is the price of that, in tokens.

    `later` are actions of the same plan that are not needed now: once the others are done they wait as a plan of their
    own, which is due `above` so many tokens of the prompt. `fallback` says why fixed rules made the plan where a model
    was meant to. With `rolls_up`, stubs that cost too much are gathered with it (`rollup`).
    """

    actions: tuple[Action, ...]
    actor: str
    reason: str = ""
    allow_user: bool = False
    pressure: bool = False
    asked: bool = False
    cost: int = 0
    later: tuple[Action, ...] = ()
    above: int = 0
    fallback: str = ""
    rolls_up: bool = False


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A target that was left out, and why: a word for programs, a sentence for people and models."""

    target: str
    why: RefusalReason
    text: str


class Rehearsal(msgspec.Struct, frozen=True, kw_only=True):
    """A plan as it was tried on a copy. Nothing is true before it is committed.

    `rows` and `groups` are those that stand otherwise (a group without members goes); `done` are the actions with the
    targets that were left; `tokens_before` and `tokens_after` are of the whole assembled prompt, counted, overhead
    included. `rolled` names groups that stub roll-up made.
    """

    plan: Plan
    after: Ledger
    rows: tuple[Row, ...]
    groups: tuple[Group, ...]
    done: tuple[Action, ...]
    problems: tuple[Problem, ...]
    tokens_before: int
    tokens_after: int
    rolled: tuple[str, ...] = ()

    @property
    def freed(self) -> int:
        return self.tokens_before - self.tokens_after

    def __bool__(self) -> bool:
        return bool(self.rows or self.groups)
