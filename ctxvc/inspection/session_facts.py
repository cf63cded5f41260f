"""Facts about a session's blocks besides their texts: the agent, the time of a step, the files of a call."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ctxvc.core.ledger.facts import facts
from ctxvc.core.ledger.ledger import Row
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import revision

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
