"""The operations of a scope: every change of it but its steps, newest first, with the ledgers around each.

Which of them stand, and what an `undo` or a `redo` took back, follows from the trailers alone, in old stores too.
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

#: Trailers: what an `undo` takes back, which `undo` a `redo` takes back, the block that a `recover` added.
UNDOES = "Ctxvc-Undoes"
REDOES = "Ctxvc-Redoes"
ADDED = "Ctxvc-Added"
#: The verbs on blocks, which can be taken back; a note and a `recover` that added a block can too.
VERBS = frozenset({"archive", "mask", "prune", "restore", "pin", "unpin", "delete", "summarise", "plan"})
#: The operations with which a scope begins.
BEGINNING = frozenset({"scope", "session"})
_BACK = re.compile(r"~([1-9][0-9]{0,8})")


class Place(NamedTuple):
    """A moment of a scope: its newest commit, how many operations waited for one, whether a step was open."""

    commit: str
    uncommitted: int
    in_step: bool


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a scope; steps are among them where `changes` gives them.

    `index` counts the operations that came after it, steps not counted. `commit` is its full id, empty while it waits;
    then `before` and `after` are the ledgers around it, else `ledgers` reads them. `time` is in seconds since 1970.
    `switches` says of a note that a change of scope wrote it, or a helper's return.
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
        """Whether it is a change of the prompt that can be taken back, and no `undo` or `redo`."""
        added = (self.op == "note" and not self.switches) or (self.op == "recover" and ADDED in self.trailers)
        return self.op in VERBS or added

    @property
    def target(self) -> str | int:
        """What an `undo` or `redo` takes back: the id of its commit, or its index. Empty where it takes nothing back.

        An operation that was in no commit yet, since its step was open, is named by its distance.
        """
        name = self.trailers.get(UNDOES if self.op == "undo" else REDOES, "")
        distance = _BACK.fullmatch(name)
        return self.index + int(distance[1]) if distance else name

    def is_in(self, targets: Iterable[str | int]) -> bool:
        return self.index in targets or (bool(self.commit) and self.commit in targets)

    def reference(self, later: int = 0) -> str:
        """The value of the trailer by which the next operation names this one; `later` come before that one."""
        return self.commit or f"~{self.index + later + 1}"


def changes(stored: StoredSession, scope: str = "") -> Iterator[Operation]:
    """The changes of the scope, its steps included, newest first, down to the one that it begins with.

    What waits for its commit comes first, in the order in which it was made. Raises: Damaged.
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
    """The changes that are in no commit yet, oldest first."""
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
    """Whether the note that came in tells of a change of scope."""
    return any({"to", "left"} & wire.own_metadata(row.extra).keys() for row in new_rows(before, after))


def new_rows(before: Ledger, after: Ledger) -> list[Row]:
    """The rows that came in with an operation."""
    return [row for row in after.since(before) if before.get(row.id) is None]


def undoable(newest_first: Iterable[Operation]) -> Iterator[Operation]:
    """What `undo` can take back, newest first: verbs, and what `redo` brought back, that no `undo` took back."""
    undone: set[str | int] = set()
    for operation in newest_first:
        if operation.op == "undo":
            undone.add(operation.target)
        elif (operation.is_verb or operation.op == "redo") and not operation.is_in(undone):
            yield operation


def undone(newest_first: Iterable[Operation]) -> Iterator[Operation]:
    """What `redo` can take back, newest first: each `undo` that no `redo` took back, since the last verb."""
    redone: set[str | int] = set()
    for operation in newest_first:
        if operation.op == "redo":
            redone.add(operation.target)
        elif operation.op == "undo" and not operation.is_in(redone):
            yield operation
        elif operation.is_verb:
            return


def net(newest_first: Sequence[Operation]) -> list[Operation]:
    """The operations that have to be taken back, in this order, for what stood before all of these; pairs cancel."""
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
    """The moment that the current scope is at."""
    uncommitted = sum(change.op != "step" for change in stored.waiting_changes())
    return Place(stored.tip(), uncommitted, stored.in_step)


def count_since(newest_first: Iterable[Operation], place: Place) -> int:
    """How many operations came after a moment."""
    later = takewhile(lambda change: change.commit != place.commit, newest_first)
    return max(0, sum(change.op != "step" for change in later) - place.uncommitted)
