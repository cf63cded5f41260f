"""Which blocks a search is about, as a person or a model specifies it; the same for searches with and without an
index."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import get_args

import msgspec

from ctxvc.core.display import one_line
from ctxvc.core.ledger.block import Kind
from ctxvc.core.ledger.facts import facts
from ctxvc.core.ledger.ledger import Row
from ctxvc.errors import BadInput
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import revision
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


#: The most parts from the end of a path that name the file.
_DEEPEST = 12
_NUMBER = re.compile("[0-9]{1,9}")
_NAMED = frozenset({"edited", "wrote", "deleted", "read"})


class SessionFacts:
    """The facts of one session, each worked out once. `oldest`: scope → the oldest step whose time is needed."""

    def __init__(self, stored: StoredSession, oldest: Mapping[str, int] | None = None) -> None:
        self._stored = stored
        self._oldest = oldest or {}
        self._times: dict[str, dict[int, int]] = {}
        self._calls: dict[str, dict[str, Row]] = {}
        self._files: dict[tuple[str, str], frozenset[str]] = {}

    @property
    def agent(self) -> str:
        """The format of the recording, such as `claude-code`; `ctxvc` for what ctxvc itself recorded."""
        source = self._stored.ledger().meta.source
        return source.format.removesuffix("-live") if source else "ctxvc"

    def time(self, scope: str, row: Row) -> int:
        """The time of the block's step, in seconds since 1970; for an open step, that of the step before."""
        if scope not in self._times:
            self._times[scope] = _times(self._stored, scope, self._oldest.get(scope, 0))
        return self._times[scope].get(row.step, 0)

    def files(self, scope: str, row: Row) -> frozenset[str]:
        """Every name for the files that a call names; for a result, those of its call."""
        if row.kind not in ("tool_use", "tool_result") or not row.call:
            return frozenset()
        key = (scope, row.call)
        if key not in self._files:
            call = self._calls_of(scope).get(row.call)
            acts = facts(call.tool, self._stored.body(call, scope), call.ext) if call else ()
            paths = (act.object for act in acts if act.act in _NAMED and act.object)
            self._files[key] = frozenset(name for path in paths for name in endings(path))
        return self._files[key]

    def _calls_of(self, scope: str) -> dict[str, Row]:
        if scope not in self._calls:
            rows = self._stored.ledger(scope).rows()
            self._calls[scope] = {row.call: row for row in rows if row.kind == "tool_use"}
        return self._calls[scope]


def endings(path: str) -> Iterator[str]:
    """The names for a file: `c.py`, `b/c.py`, …, and its whole path."""
    parts = path.replace("\\", "/").removeprefix("./").split("/")
    for count in range(1, min(len(parts), _DEEPEST) + 1):
        yield "/".join(parts[-count:])
    yield path


def _times(stored: StoredSession, scope: str, oldest: int) -> dict[int, int]:
    """Step → its time, for the steps from `oldest` on."""
    times: dict[int, int] = {}
    newest = stored.ledger(scope).meta.counters.step
    at = 0
    for commit in stored.store.first_parents(stored.tip(scope)):
        entry = revision.entry(stored.store, commit)
        number = entry.trailers.get("Ctxvc-Step", "") if entry.op == "step" else ""
        at = entry.time
        if _NUMBER.fullmatch(number):
            if not times:  # an open step has no commit yet
                times.update((later, at) for later in range(int(number) + 1, newest + 1))
            times.setdefault(int(number), at)
            if int(number) <= oldest:
                break
    if not times:
        times.update((number, at) for number in range(1, newest + 1))
    times.setdefault(oldest, at)
    return times
