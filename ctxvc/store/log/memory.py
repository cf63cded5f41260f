"""A session in memory: the same records, numbers and ledgers as a stored one, without a disk.

For runs of which only the outcome matters, not the history, as in a replay. Nothing is durable or visible to others.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, cast

from ctxvc.core.ledger.ledger import RENDER, Ledger, Meta, Row
from ctxvc.core.plan.plan import Plan
from ctxvc.store import format as fmt
from ctxvc.store.log.commits import apply_change
from ctxvc.store.log.journal import Change, Record, Tail, reference
from ctxvc.store.log.state import ScopeState, SessionState
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.log.transaction import Transaction
from ctxvc.store.pending_plans import PendingPlan
from ctxvc.store.store import Store


class MemorySession(StoredSession):
    """An empty session with a scope `main`. Lacks what needs commits: revisions, `undo`, helpers' branches."""

    def __init__(self, name: str = "session", *, system: Any = None, tools: Any = None) -> None:
        self.name = name
        self.scope = "main"
        self.flush_failure = None
        self._state: _MemoryState = _MemoryState(name)
        self.store = self._state.store
        self._redactor = None
        self._mutex = threading.RLock()
        self._named = False
        self._pending_switch = None
        self._asked_at = 0
        self._system, self._tools = system, tools
        self._plans: list[PendingPlan] = []
        self._last_plan = 0
        #: The number of times each operation was made, by (operation, actor).
        self.operations: Counter[tuple[str, str]] = Counter()

    def system_and_tools(self, scope: str = "") -> tuple[Any, Any]:  # noqa: ARG002 - the same for all scopes
        return self._system, self._tools

    def pending_plans(self) -> tuple[PendingPlan, ...]:
        return tuple(self._plans)

    def propose(self, plan: Plan) -> PendingPlan:
        if equal := next((own for own in self._plans if (own.scope, own.plan) == (self.scope, plan)), None):
            return equal
        self._last_plan += 1
        pending = PendingPlan(id=f"P{self._last_plan}", scope=self.scope, time="", base_commit="", plan=plan)
        self._plans.append(pending)
        return pending

    def drop_plans(self, ids: Collection[str], why: str, *, actor: str = "") -> tuple[str, ...]:  # noqa: ARG002
        dropped = tuple(plan.id for plan in self._plans if plan.id in ids)
        self._plans = [plan for plan in self._plans if plan.id not in ids]
        return dropped

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """Yields an empty transaction; one that is not acknowledged inside leaves no trace."""
        with self._mutex:
            self._state.settle()
            yield Transaction(self._state)

    def flush(self) -> None:
        self._state.settle()

    def leave(self) -> None: ...

    def close(self) -> None: ...

    def _write(self, record: Record) -> None:
        self.operations.update((change.op, change.actor) for change in record.changes)
        if record.changes:
            self._state.apply(self._state.seq + len(record.changes), record, b"")

    def _due(self) -> bool:
        return False

    def _flush_if_possible(self) -> None: ...

    def _end_turn(self) -> None: ...


class _MemoryState(SessionState):
    """The scopes of a session in memory. Bodies are stored by number, since a number is never used twice."""

    def __init__(self, name: str) -> None:
        self.store = cast(Store, _Timeless())
        self.name = name
        self.head = None
        self.seq = self.block = self.group = 0
        self.scopes = {"main": _scope(Ledger(meta=Meta(format=fmt.FORMAT, render=RENDER, session=name, scope="main")))}
        self.frames = []
        self.moved_to = ""
        self._format = fmt.FORMAT
        self.tail = Tail(0, 0)
        self.damage = {}
        self._bodies: dict[tuple[str, str], bytes] = {}

    def settle(self) -> None:
        """Counts complete steps as committed."""
        for state in self.scopes.values():
            if state.pending and not state.open:
                state.move("", state.current, self.seq, [])

    def body(self, scope: str, row: Row) -> bytes:  # noqa: ARG002 - numbers are the session's
        return self._bodies[row.id, ""]

    def file(self, scope: str, row: Row, suffix: str) -> bytes:  # noqa: ARG002
        return self._bodies[row.id, suffix]

    def catch_up(self) -> None: ...

    def reload(self) -> None: ...

    def rewrite(self, *, moving: bool = False, format: int = 1) -> None: ...

    def apply(self, seq: int, record: Record, frame_bytes: bytes) -> None:
        for change in record.changes:
            self._bodies.update(((block, suffix), data) for block, suffix, data in change.bodies)
        super().apply(seq, record, frame_bytes)
        self.frames.clear()

    def _new_scope(self, change: Change) -> ScopeState:
        origin, seq = reference(change.origin)
        state = self.scopes[origin or self.names()[0]]
        ledger = state.committed
        for item in state.pending:
            if item.seq <= seq:
                ledger = apply_change(ledger, item.change)
        return _scope(ledger)


class _Timeless:
    """Stands for the store of a session in memory: the time is constant, and there are no commits."""

    def now(self) -> int:
        return 1

    def now_iso(self) -> str:
        return "1970-01-01T00:00:01Z"

    def first_parents(self, commit: str) -> Iterator[str]:  # noqa: ARG002 - there is none
        return iter(())


def _scope(ledger: Ledger) -> ScopeState:
    return ScopeState(
        "",
        lambda _: ledger,
        counters=ledger.meta.counters,
        format=ledger.meta.format,
        committed=ledger,
        start=ledger,
        current=ledger,
    )
