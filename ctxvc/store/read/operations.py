"""The operations of a scope: every change except its steps, newest first, with the ledgers before and after each.

Which of them are in effect, and what an `undo` or `redo` reversed, follows from the trailers alone, in old stores too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

import msgspec

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.ledger import Ledger, Row
from ctxvc.store.git.fast_import import epoch
from ctxvc.store.log.commits import apply_change
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import revision
from ctxvc.store.store import Store

#: Trailers: the operation that an `undo` reverses, the `undo` that a `redo` reverses, the block that a `recover` added.
UNDOES = "Ctxvc-Undoes"
REDOES = "Ctxvc-Redoes"
ADDED = "Ctxvc-Added"
#: The verbs on blocks, which can be undone; so can a note and a `recover` that added a block.
VERBS = frozenset({"archive", "mask", "prune", "restore", "pin", "unpin", "delete", "summarise", "plan"})
#: The operations with which a scope begins.
BEGINNING = frozenset({"scope", "session"})
_BACK = re.compile(r"~([1-9][0-9]{0,8})")


class Place(NamedTuple):
    """A moment of a scope: its newest commit, the number of uncommitted operations, and whether a step was open."""

    commit: str
    uncommitted: int
    in_step: bool


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a scope; `changes` also yields steps.

    `index` counts the later operations, without steps. `commit` is a full id, empty for an uncommitted operation; then
    `before` and `after` are the ledgers around it, otherwise `ledgers` reads them. `time` is in seconds since 1970.
    `switches` is set for a note that was written by a change of scope or a helper's return.
    """

    index: int
    op: str
    actor: str
    subject: str
    time: int
    trailers: Mapping[str, str]
    commit: str = ""
    parent: str = ""
    switches: bool = False
    before: Ledger | None = None
    after: Ledger | None = None

    @property
    def is_verb(self) -> bool:
        """Whether it is a change of the prompt that can be undone, and not itself an `undo` or `redo`."""
        added = (self.op == "note" and not self.switches) or (self.op == "recover" and ADDED in self.trailers)
        return self.op in VERBS or added

    @property
    def target(self) -> str | int:
        """The operation that an `undo` or `redo` reverses: its commit id or its index. Empty for other operations.

        An operation that was uncommitted then, because its step was open, is named by its distance.
        """
        name = self.trailers.get(UNDOES if self.op == "undo" else REDOES, "")
        distance = _BACK.fullmatch(name)
        return self.index + int(distance[1]) if distance else name

    def is_in(self, targets: Iterable[str | int]) -> bool:
        return self.index in targets or (bool(self.commit) and self.commit in targets)

    def reference(self, later: int = 0) -> str:
        """The value of the trailer by which a new operation names this one; `later` counts those in between."""
        return self.commit or f"~{self.index + later + 1}"


def changes(stored: StoredSession, scope: str = "") -> Iterator[Operation]:
    """The changes of the scope, including its steps, newest first, back to the one that began it.

    Uncommitted changes come first, in the reverse order in which they were made. Raises: Damaged.
    """
    index = 0
    for change in reversed(_uncommitted(stored, scope)):
        yield msgspec.structs.replace(change, index=index)
        index += change.op != "step"
        if change.op in BEGINNING:
            return
    for entry in revision.history(stored.store, stored.tip(scope)):
        op = entry.op
        operation = Operation(
            index=index,
            op=op,
            actor=entry.trailers.get("Ctxvc-Actor", entry.actor),
            subject=entry.subject,
            time=entry.time,
            trailers=entry.trailers,
            commit=entry.commit,
            parent=entry.parents[0] if entry.parents else "",
        )
        if op == "note":
            operation = msgspec.structs.replace(operation, switches=_switches(*ledgers(stored.store, operation)))
        yield operation
        index += op != "step"
        if op in BEGINNING:
            return


def _uncommitted(stored: StoredSession, scope: str) -> Sequence[Operation]:
    """The uncommitted changes, oldest first."""
    ledger = stored.committed(scope)
    uncommitted: list[Operation] = []
    for change in stored.waiting_changes(scope):
        before, ledger = ledger, apply_change(ledger, change)
        uncommitted.append(
            Operation(
                index=0, op=change.op, actor=change.actor, subject=change.subject, time=epoch(change.time, 0),
                trailers=change.trailers, switches=change.op == "note" and _switches(before, ledger), before=before,
                after=ledger,
            )
        )  # fmt: skip
    return uncommitted


def ledgers(store: Store, operation: Operation) -> tuple[Ledger, Ledger]:
    """The ledgers before and after an operation that has a parent. Raises: Damaged, Refused."""
    if operation.before is not None and operation.after is not None:
        return operation.before, operation.after
    return store.reader.ledger(operation.parent), store.reader.ledger(operation.commit)


def _switches(before: Ledger, after: Ledger) -> bool:
    """Whether the new note records a change of scope."""
    return any({"to", "left"} & wire.own_metadata(row.extra).keys() for row in new_rows(before, after))


def new_rows(before: Ledger, after: Ledger) -> list[Row]:
    """The rows that an operation added."""
    return [row for row in after.since(before) if before.get(row.id) is None]


def undoable(newest_first: Iterable[Operation]) -> Iterator[Operation]:
    """What `undo` can reverse, newest first: verbs and `redo`s that no `undo` has reversed."""
    undone: set[str | int] = set()
    for operation in newest_first:
        if operation.op == "undo":
            undone.add(operation.target)
        elif (operation.is_verb or operation.op == "redo") and not operation.is_in(undone):
            yield operation


def undone(newest_first: Iterable[Operation]) -> Iterator[Operation]:
    """What `redo` can reverse, newest first: each `undo` since the last verb that no `redo` has reversed."""
    redone: set[str | int] = set()
    for operation in newest_first:
        if operation.op == "redo":
            redone.add(operation.target)
        elif operation.op == "undo" and not operation.is_in(redone):
            yield operation
        elif operation.is_verb:
            return


def net(newest_first: Sequence[Operation]) -> list[Operation]:
    """The operations to reverse, in this order, to restore the state before all of these; pairs cancel out."""
    pending: list[Operation] = []
    for operation in reversed(newest_first):
        if operation.op in ("undo", "redo"):
            target = {operation.target}
            partner = next((earlier for earlier in pending if earlier.is_in(target)), None)
            if partner is not None:
                pending.remove(partner)
                continue
        elif not operation.is_verb:
            continue
        pending.append(operation)
    return pending[::-1]


def now(stored: StoredSession) -> Place:
    """The current moment of the current scope."""
    uncommitted = sum(change.op != "step" for change in stored.waiting_changes())
    return Place(stored.tip(), uncommitted, stored.in_step)


def count_since(newest_first: Iterable[Operation], place: Place) -> int:
    """The number of operations since a moment."""
    later = takewhile(lambda change: change.commit != place.commit, newest_first)
    return max(0, sum(change.op != "step" for change in later) - place.uncommitted)
