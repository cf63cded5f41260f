"""A plan, what it is made from (the view), and what came of trying it (the rehearsal). Values without behaviour."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

import msgspec

from ctxvc.core.actions import Verb
from ctxvc.core.ledger.ledger import Group, Ledger, Row
from ctxvc.core.view.budget import Budget

#: Why a target of a plan was left out.
Why = Literal[
    "unknown", "open", "pinned", "human", "gone", "no saving", "protected", "level", "stale", "no room", "not allowed"
]


class Price(Protocol):
    """What things cost in tokens. Pure: the same block always costs the same."""

    def body(self, row: Row) -> int:
        """The whole body, with the images beside it."""

    def mask(self, row: Row) -> int:
        """What a mask leaves of it."""

    def text(self, words: str) -> int:
        """A text of ours: a stub, a note, a dashboard."""


class Action(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One verb on blocks and groups. `index` is the index text of an archive, the summary of a `summarise`, the reason
    of a `delete`; of a mask or prune it is why, for people. With `preview`, the stub of a block that is archived shows
    the beginning and the end of its text. `checksums` maps a block to the beginning of its checksum, where the one who
    planned knew it. `part` tells which policy of a composition wants it, counted from 1; 0 where one made the plan.
    """

    verb: Verb
    targets: tuple[str, ...]
    index: str = ""
    preview: bool = False
    checksums: Mapping[str, str] = {}
    part: int = 0


class Plan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What somebody wants done and why. `actor` is as in DESIGN's commits: agent, planner, policy:NAME, guard, user.

    `allow_user` lets a person remove what a human wrote. `pressure` is set where the hard budget is at stake. `asked`
    tells that a model was asked for it, whatever came of that, and `cost` what it took, in tokens.
    """

    actions: tuple[Action, ...]
    actor: str
    reason: str = ""
    allow_user: bool = False
    pressure: bool = False
    asked: bool = False
    cost: int = 0


def _unread(row: Row) -> str:
    raise LookupError(f"this view cannot read {row.id}")


@dataclass(frozen=True, slots=True)
class View:
    """What would be sent now and what it costs.

    `overhead` is what system prompt and tools cost, `next_group` the number that a new group of this session gets,
    `idle` the seconds since the last call (0 where nobody knows). `calibration` is (a, b) in thousandths and tokens:
    the provider counts about `a * count / 1000 + b`. `words` is the text of a block: the same block, the same text.
    Without `handles`, stubs do not say how to get back what they stand for.
    """

    ledger: Ledger
    price: Price
    budget: Budget = field(default_factory=Budget)
    overhead: int = 0
    next_group: int = 1
    idle: float = 0.0
    calibration: tuple[int, int] = (1000, 0)
    words: Callable[[Row], str] = _unread
    handles: bool = True

    def calibrated(self, tokens: int) -> int:
        """Counted tokens as the provider would count them."""
        a, b = self.calibration
        return tokens * a // 1000 + b if tokens else 0


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A target that was left out, and why: a word for programs, a sentence for people and models."""

    target: str
    why: Why
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
