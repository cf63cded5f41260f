"""A plan, what it is made from (the view), and the result of trying it (the rehearsal). Values without behaviour."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from ctxvc.core.ledger.block import Verb
from ctxvc.core.ledger.ledger import Group, Ledger, Row

#: Why a target of a plan was refused.
RefusalReason = Literal[
    "unknown", "open", "pinned", "human", "gone", "no saving", "protected", "level", "stale", "no room", "not allowed"
]


class Action(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One verb on blocks and groups.

    `index` is the index text of an archive, the summary of a `summarise`, the reason of a `delete`; for a mask or prune
    it is the reason shown to people. With `preview`, the stub of an archived block shows the beginning and the end of
    its text. `checksums` maps a block to the beginning of its checksum, if the planner knew it. `part` is the number of
    the policy in a composition that wants the action, from 1; 0 if a single one made the plan. `why` maps blocks to the
    reasons for their leaving, for people.
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

    `allow_user` lets a person remove what a human wrote. `pressure` is set if the hard budget is at risk. `asked` says
    that a model was asked for the plan, whatever it answered, and `cost` is the price of that, in tokens.

    `later` are actions of the same plan that are not needed now: once the others are done they wait as a plan of their
    own, which is due when the prompt exceeds `above` tokens. `fallback` is the reason why fixed rules made the plan
    instead of a model. With `rolls_up`, stubs that cost too much are gathered along with it (`rollup`).
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
    """A refused target, and why: a word for programs, a sentence for people and models."""

    target: str
    why: RefusalReason
    text: str


class Rehearsal(msgspec.Struct, frozen=True, kw_only=True):
    """A plan as tried on a copy. Nothing takes effect before it is committed.

    `rows` and `groups` are the changed ones (a group without members is removed); `done` are the actions with the
    targets that were not refused; `tokens_before` and `tokens_after` are uncalibrated tokens of the whole assembled
    prompt, overhead included. `rolled` names groups that stub roll-up made.
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
