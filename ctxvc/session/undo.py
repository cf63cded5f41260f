"""Undo and redo: changes of a scope's prompt, taken back by new commits.

What is taken back is decided under the session's lock, on the ledger that the new commits join, and these commits are
one record. So no writer gets in between, and a crash leaves all of it or nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice, takewhile
from typing import Any, Literal

import msgspec

from ctxvc.core.ledger.ledger import Group, Ledger, Row
from ctxvc.core.plan import undo as undoing
from ctxvc.core.plan.plan import Plan, Problem, Rehearsal
from ctxvc.core.prompt.cut import newest_reply
from ctxvc.core.view.view import View, measure
from ctxvc.errors import BadInput, NotFound, Phrase, Refused
from ctxvc.session.context import Context, hard_edit, touched
from ctxvc.store.log.transaction import Transaction
from ctxvc.store.read import operations, revision
from ctxvc.store.read.operations import Operation

#: An operation that waits for its commit: `+2` is the second oldest of them.
_WAITING = re.compile(r"\+([1-9][0-9]{0,5})")


def undo(context: Context, count: int = 1, to: str = "") -> tuple[Rehearsal, tuple[str, ...]]:
    """Takes back the newest changes; returns the rehearsal and their subjects; see `Session.undo`."""
    if count < 1:
        raise BadInput(f"{count} changes cannot be undone", hint="give 1 or more")
    with context.stored.writing() as transaction:
        history = _History(context)
        if to:
            targets = operations.net(history.since(to))
            if not targets:
                raise Refused(f"nothing in this scope has changed since {to}", hint=Phrase("list-operations"))
        else:
            targets = list(islice(operations.undoable(history), count))
        return _take_back(context, transaction, history, targets, "undo")


def redo(context: Context, count: int = 1) -> tuple[Rehearsal, tuple[str, ...]]:
    """Takes back the newest undos; returns the rehearsal and the subjects; see `Session.redo`."""
    if count < 1:
        raise BadInput(f"{count} changes cannot be redone", hint="give 1 or more")
    with context.stored.writing() as transaction:
        history = _History(context)
        targets = list(islice(operations.undone(history), count))
        return _take_back(context, transaction, history, targets, "redo")


class _History:
    """The changes of the scope, newest first, read as far as they are needed."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._unread = operations.changes(context.stored)
        self._read: list[Operation] = []

    def __iter__(self) -> Iterator[Operation]:
        at = 0
        while at < len(self._read) or self._more():
            yield self._read[at]
            at += 1

    def _more(self) -> bool:
        change = next(self._unread, None)
        if change is not None:
            self._read.append(change)
        return change is not None

    def since(self, moment: str) -> Sequence[Operation]:
        """The changes after a moment of this scope: a revision, or `+N`. Raises: NotFound, BadInput."""
        stored = self._context.stored
        if match := _WAITING.fullmatch(moment):
            uncommitted = [change for change in self if not change.commit and change.op != "step"]
            if int(match[1]) > len(uncommitted):
                raise NotFound(f"no operation {moment}: {len(uncommitted)} wait", hint=Phrase("list-operations"))
            index = uncommitted[-int(match[1])].index
            return [*takewhile(lambda change: change.index < index or change.op == "step", self)]
        commit = revision.resolve(stored.store, stored, moment).commit
        newer: list[Operation] = []
        for change in self:
            if change.commit == commit:
                return newer
            newer.append(change)
        raise NotFound(f"{moment} is not an operation of this scope", hint=Phrase("list-operations"))

    def subject(self, operation: Operation) -> str:
        """The subject of the verb that an operation is, undoes, or redoes."""
        while operation.op in ("undo", "redo"):
            target = {operation.target}
            preceding = next((change for change in self if change.op != "step" and change.is_in(target)), None)
            if preceding is None:
                break
            operation = preceding
        return operation.subject

    def irreversible(self, target: Operation | None) -> Iterator[Operation]:
        """The changes newer than `target` that cannot be taken back, but that a person might mean."""
        for change in takewhile(lambda change: change is not target, self):
            if change.op in ("goto", "compact") or change.switches:
                yield change

    def sent_since(self, target: Operation, before: Ledger, after: Ledger, now: Ledger) -> bool:
        """Whether a prompt was sent with the effect of `target`, as far as this store and this process know."""
        request = self._operations_since_request()
        if request is not None and target.index >= request:
            return True
        newer, older = [], iter(self)
        for change in older:
            if change is target:
                break
            newer.append(change)
        if any(map(self._asks, newer)):
            return True
        # If the target's step was open, its commit comes before the target's, even if some of its records came later.
        for position, change in enumerate(older, 1):
            if change.op == "step":
                sent = revision.sent_prompt(change.trailers.get(revision.PROMPT, ""))
                if sent and sent.later >= position:
                    return True
                break
        if before.meta.cuts == after.meta.cuts:
            return False
        reply = newest_reply(now)
        # A cut is made before the newest reply; an undo takes it back only where that is still the newest.
        return bool(reply) and reply[0].number - 1 > max([*before.meta.cuts, *after.meta.cuts])

    def _asks(self, change: Operation) -> bool:
        """Whether a change comes with a request: a reply, a dashboard, or the tags of results."""
        if change.op != "step":
            return change.op == "tag"
        rows = operations.new_rows(*operations.ledgers(self._context.store, change))
        return any(row.role == "assistant" or row.kind == "dashboard" for row in rows)

    def _operations_since_request(self) -> int | None:
        """The number of operations since this process' last request; None if it made none."""
        place = self._context.requested_at.get(self._context.scope)
        return None if place is None else operations.count_since(self, place)


def _take_back(
    context: Context,
    transaction: Transaction,
    history: _History,
    targets: Sequence[Operation],
    op: Literal["undo", "redo"],
) -> tuple[Rehearsal, tuple[str, ...]]:
    """Adds and acknowledges the verbs that take back `targets`, in this order. `op` is the caller's request."""
    scope = context.scope
    irreversible = [
        Problem(target=change.op, why="not allowed", text=f"{change.subject!r} cannot be undone")
        for change in islice(history.irreversible(targets[-1] if targets else None), 3 if op == "undo" else 0)
    ]
    if not targets:
        raise Refused(
            f"nothing to {op} in this scope", hint=irreversible[0].text if irreversible else Phrase("list-operations")
        )
    start = transaction.ledger(scope)
    view = context.view(start)
    problems: list[Problem] = []
    subjects: list[str] = []
    tokens = view.counted
    for target in targets:
        subject = history.subject(target)
        if target.actor == "user" and context.actor != "user":
            raise Refused(
                f"a person did {target.subject!r}: only a person can undo it",
                hint="ask the person, or continue without it",
            )
        rows, groups, fields, remainder = _inverse(context, history, target, transaction.ledger(scope))
        problems += remainder
        if not rows and not groups and not fields:
            continue
        word, trailer = ("redo", operations.REDOES) if target.op == "undo" else ("undo", operations.UNDOES)
        now = transaction.ledger(scope)
        after = now.with_rows(rows).with_groups(groups).with_meta(msgspec.structs.replace(now.meta, **fields))
        taken_back = _rehearsal(context, view, after, tokens, rows, groups)
        transaction.verb(
            scope,
            op=word,
            actor=context.actor,
            subject=f"{word}: {subject}",
            rows=rows,
            groups=groups,
            meta=fields,
            trailers={
                "Ctxvc-Blocks": touched(taken_back),
                "Ctxvc-Freed": f"{taken_back.freed} tokens",
                trailer: target.reference(len(subjects)),
            },
        )
        tokens = taken_back.tokens_after
        subjects.append(subject)
    if not subjects:
        why = problems[0].text if problems else "none of its changes remain"
        raise Refused(f"nothing is left to {op} of {history.subject(targets[0])!r}", hint=why)
    final = transaction.ledger(scope)
    rehearsal = _rehearsal(context, view, final, view.counted, *_changes(start, final), (*problems, *irreversible))
    needed = view.calibrated(rehearsal.tokens_after)
    if needed > view.budget.effective and rehearsal.freed < 0:
        raise Refused(
            f"there is no room: the prompt would need {needed:,} of {view.budget.effective:,} tokens",
            hint="archive something else first",
        )
    context.stored.acknowledge(transaction)
    context.changed = True
    return rehearsal, tuple(subjects)


def _inverse(
    context: Context, history: _History, target: Operation, now: Ledger
) -> tuple[tuple[Row, ...], tuple[Group, ...], dict[str, Any], list[Problem]]:
    """The rows, groups and fields of `ctxvc.json` that take back `target` in `now`, and why some parts cannot be."""
    before, after = operations.ledgers(context.store, target)
    rows, groups, problems = undoing.inverse(before, after, now)
    added, changed_since = undoing.withdrawn(before, after, now, context.actor)
    rows = (*rows, *added)
    if not history.sent_since(target, before, after, now):
        return rows, groups, undoing.rendering(before.meta, after.meta, now.meta), [*problems, *changed_since]
    fields: dict[str, Any] = {}
    restored = now.with_rows(rows).with_groups(groups)
    if undoing.alters(rows, groups, now):
        fields = {name: value for name, value in hard_edit(restored).items() if value != getattr(now.meta, name)}
    final = restored.with_meta(msgspec.structs.replace(now.meta, **fields))
    return rows, groups, fields, [*problems, *changed_since, *undoing.lost(before, after, final)]


def _rehearsal(
    context: Context,
    view: View,
    after: Ledger,
    tokens: int,
    rows: tuple[Row, ...],
    groups: tuple[Group, ...],
    problems: tuple[Problem, ...] = (),
) -> Rehearsal:
    """The rehearsal of a change to `after`, from a prompt of `tokens` counted tokens."""
    return Rehearsal(
        plan=Plan(actions=(), actor=context.actor),
        after=after,
        rows=rows,
        groups=groups,
        done=(),
        problems=problems,
        tokens_before=tokens,
        tokens_after=view.overhead + measure(after, context.view(after).price),
    )


def _changes(before: Ledger, after: Ledger) -> tuple[tuple[Row, ...], tuple[Group, ...]]:
    """The rows and groups that differ in `after`; a group that is gone has no members."""
    rows = tuple(row for row in after.since(before) if row != before.get(row.id))
    emptied = [msgspec.structs.replace(group, members=()) for name, group in before.groups.items()
            if name not in after.groups]  # fmt: skip
    return rows, (*emptied, *(group for name, group in after.groups.items() if group != before.groups.get(name)))
