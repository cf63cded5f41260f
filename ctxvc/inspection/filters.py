"""Which blocks a search is about, as a person or a model specifies it; the same for searches with and without an
index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import get_args

import msgspec

from ctxvc.core.display import one_line
from ctxvc.core.ledger.block import Kind
from ctxvc.core.ledger.ledger import Row
from ctxvc.errors import BadInput
from ctxvc.inspection.session_facts import SessionFacts
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.timestamp import seconds_of

#: All times.
EVER = (-(1 << 62), 1 << 62)
_KINDS: tuple[Kind, ...] = get_args(Kind)


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """What is searched; an empty field accepts everything. `agents` are formats of recordings, such as `claude-code`;
    `ctxvc` for what ctxvc itself recorded. `files` are paths, or ends of paths, that the block's call names. `since`
    and `until` bound the time of the block's step, in seconds since 1970."""

    kinds: Sequence[Kind] = ()
    agents: Sequence[str] = ()
    files: Sequence[str] = ()
    sessions: Sequence[str] = ()
    since: int = EVER[0]
    until: int = EVER[1]

    @property
    def names(self) -> list[str]:
        """The files as the facts of blocks name them."""
        return [file.removeprefix("./") for file in self.files]

    @property
    def bounds_time(self) -> bool:
        return (self.since, self.until) != EVER

    def of_session(self, stored: StoredSession, scope: str) -> Callable[[Row], bool]:
        """A predicate for the blocks of a scope that are searched. Raises: Damaged, and so does the predicate."""
        facts = SessionFacts(stored)
        if (self.sessions and stored.name not in self.sessions) or (self.agents and facts.agent not in self.agents):
            return lambda _: False
        names = frozenset(self.names)

        def accepts(row: Row) -> bool:
            return (
                (not self.kinds or row.kind in self.kinds)
                and (not names or not names.isdisjoint(facts.files(scope, row)))
                and (not self.bounds_time or self.since <= facts.time(scope, row) <= self.until)
            )

        return accepts


def parsed(
    now: float,
    *,
    kinds: Sequence[str] = (),
    agents: Sequence[str] = (),
    files: Sequence[str] = (),
    sessions: Sequence[str] = (),
    since: str = "",
    until: str = "",
) -> Filters:
    """The filters from text, with times as for `seconds_of`. Raises: BadInput for an unknown kind or a bad time."""
    if unknown := next((kind for kind in kinds if kind not in _KINDS), ""):
        raise BadInput(f"{one_line(unknown, 40)!r} is not a kind of block", hint=f"use one of {', '.join(_KINDS)}")
    return Filters(
        kinds=[kind for kind in _KINDS if kind in kinds],
        agents=agents,
        files=files,
        sessions=sessions,
        since=int(seconds_of(since, now)) if since else EVER[0],
        until=int(seconds_of(until, now, end=True)) if until else EVER[1],
    )


def within(filters: Filters, sessions: Sequence[str]) -> Filters:
    """The same filters, for these sessions alone."""
    return msgspec.structs.replace(filters, sessions=sessions)
