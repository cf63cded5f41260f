"""The operation log of a scope: who changed what, when, and what that did to the size of the prompt."""

from __future__ import annotations

import msgspec

from ctxvc.core.ledger.ledger import Ledger, Row
from ctxvc.core.prompt.outline import Bodies
from ctxvc.core.view.view import measure
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import operations, revision
from ctxvc.store.read.operations import Operation
from ctxvc.tokens.meter import Meter, Prices

#: Digits of a commit's id that name an operation.
_DIGITS = 12


class LoggedOperation(msgspec.Struct, frozen=True, kw_only=True):
    """An operation as listed. `name` is what `undo --to` takes: the beginning of its commit's id, or `+2` for the
    second oldest of those that wait for a commit.

    `tokens` is the size of the prompt after it, `change` the difference from the one before; None if there is no
    before. `state` is `undone`, `stands` (it can be taken back), or empty.
    """

    name: str
    operation: Operation
    tokens: int
    change: int | None
    state: str


def log(stored: StoredSession, scope: str, meter: Meter, limit: int) -> list[LoggedOperation]:
    """At most `limit` operations of the scope, newest first. Raises: Damaged."""
    every = [change for change in operations.changes(stored, scope) if change.op != "step"]
    undoable = {operation.index for operation in operations.undoable(every)}
    uncommitted = [operation.index for operation in every if not operation.commit]
    sizes = _Sizes(stored, scope, meter)
    return [
        LoggedOperation(
            name=operation.commit[:_DIGITS] or f"+{len(uncommitted) - operation.index}",
            operation=operation,
            tokens=sizes.after(operation),
            change=sizes.change(operation),
            state=_state(operation, undoable),
        )
        for operation in every[:limit]
    ]


def _state(operation: Operation, undoable: set[int]) -> str:
    if operation.index in undoable:
        return "stands"
    return "undone" if operation.is_verb or operation.op == "redo" else ""


class _Sizes:
    """The sizes of the prompts of a scope in tokens, system prompt and tools aside."""

    def __init__(self, stored: StoredSession, scope: str, meter: Meter) -> None:
        now = revision.now(stored, scope)
        self._store = stored.store
        self._rows = now.ledger

        def present(row: Row) -> Row:
            return self._rows.get(row.id) or row  # a body's path follows the row's current state

        bodies = Bodies(
            lambda row: now.bodies.body(present(row)), lambda row, suffix: now.bodies.file(present(row), suffix)
        )
        self._prices = Prices(meter, bodies, now.ledger.meta.model)
        self._known: dict[str, int] = {}

    def after(self, operation: Operation) -> int:
        return self._size(operation.commit, operation.after)

    def change(self, operation: Operation) -> int | None:
        if operation.op in operations.BEGINNING:
            return None
        return self.after(operation) - self._size(operation.parent, operation.before)

    def _size(self, commit: str, ledger: Ledger | None) -> int:
        if ledger is not None:
            return self._measured(ledger)
        if commit not in self._known:
            self._known[commit] = self._measured(self._store.reader.ledger(commit))
        return self._known[commit]

    def _measured(self, ledger: Ledger) -> int:
        self._prices.load(row for row in ledger.rows() if row.present)
        return measure(ledger, self._prices)
