"""A transaction: the changes that one operation appends to the journal, as one record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

import msgspec

from ctxvc.core.display import visible_controls
from ctxvc.core.ledger.block import Message, Part
from ctxvc.core.ledger.ledger import Counters, Group, Ledger, Row
from ctxvc.core.ledger.numbering import Body, Entry, Numbering
from ctxvc.errors import BadInput
from ctxvc.store.log.commits import apply_change, usage_trailers
from ctxvc.store.log.journal import SWITCH, Change
from ctxvc.store.log.state import SessionState


class AdmittedEntry(NamedTuple):
    """An entry with its rows as they are to be recorded, fields of `ctxvc.json` to set, and trailers of the commit.

    `files` and `without` are as in `Change`.
    """

    entry: Entry
    meta: Mapping[str, Any] = {}
    trailers: Mapping[str, str] = {}
    files: tuple[tuple[str, bytes], ...] = ()
    without: tuple[str, ...] = ()


class Attachment(NamedTuple):
    """What is recorded with an entry besides its rows; the fields are as in `AdmittedEntry`."""

    trailers: Mapping[str, str] = {}
    files: tuple[tuple[str, bytes], ...] = ()
    without: tuple[str, ...] = ()


class Transaction:
    """A session in memory, with the changes that are being made to it.

    The changes get the numbers that follow the session's newest. Until they are acknowledged they are invisible to
    others, and dropping the transaction undoes them. A transaction is made and used under the session's lock.
    """

    def __init__(self, state: SessionState) -> None:
        self.state = state
        self.changes: list[Change] = []
        #: The newest appended entry.
        self.newest: Entry | None = None
        #: The scope that HEAD moves to with these changes; empty if it stays.
        self.switched_to = ""
        #: The scopes whose pending switch is among these changes.
        self.left: set[str] = set()
        #: (block, suffix) → bytes, of bodies in no commit and no record yet; the suffix is empty for the body itself.
        self.bodies: dict[tuple[str, str], bytes] = {}
        #: The numbering, after these changes, of each scope that they concern.
        self.numberings: dict[str, Numbering] = {}
        self._group = state.group
        self._time, self._written = state.store.now_iso(), state.store.now()
        self._ledgers: dict[str, tuple[Ledger, int]] = {}  # with the number of changes applied

    # --- a scope as the changes so far leave it

    def ledger(self, scope: str) -> Ledger:
        """The scope's ledger after the changes so far. Raises: BadInput if a change cannot be made."""
        ledger, applied = self._ledgers.get(scope) or (self.state.scope(scope).current, 0)
        try:
            for change in self.changes[applied:]:
                if change.scope == scope:
                    ledger = apply_change(ledger, change)
        except (msgspec.ValidationError, TypeError) as error:
            raise BadInput(f"this cannot be recorded: {error}", hint="see the fields of ctxvc.json") from error
        self._ledgers[scope] = ledger, len(self.changes)
        return ledger

    def numbering(self, scope: str) -> Numbering:
        """The scope's numbering after these changes. It is valid until the next call of this method."""
        if scope not in self.numberings:
            state = self.state.scopes.get(scope)
            self.numberings[scope] = (state and state.numbering) or Numbering.of(self.ledger(scope), self.block)
            if state:
                state.numbering = None  # a failure could leave it half-changed
        numbering = self.numberings[scope]
        numbering.block = self.block
        return numbering

    @property
    def block(self) -> int:
        """The session's newest block number, including these changes."""
        return max([self.state.block, *(numbering.block for numbering in self.numberings.values())])

    def body(self, scope: str, row: Row, suffix: str = "") -> bytes:
        """The exact bytes of a block of the scope or of its sibling file, including blocks that these changes add."""
        for change in self.changes:
            for block, of, data in change.bodies:
                if (block, of) == (row.id, suffix):
                    return data
        return self.state.file(scope, row, suffix) if suffix else self.state.body(scope, row)

    def open(self, scope: str) -> bool:
        """Whether the scope has an incomplete step."""
        ends = [change.done for change in self.changes if change.scope == scope and change.op == "step"]
        return not ends[-1] if ends else self.state.scope(scope).open

    def step_ledger(self, scope: str, verbs: int = 0) -> Ledger:
        """The ledger of the commit that the open step will make, or of the newest commit, with the changes so far.

        The first `verbs` of the verbs made since the step began are included: their commits follow the step's.
        """
        state = self.state.scope(scope)
        ledger = state.committed if state.start is None else state.start
        before, step, meanwhile = self._parted(scope)
        for change in (*before, *step, *meanwhile[:verbs]):
            ledger = apply_change(ledger, change)
        return ledger

    def verbs_in_step(self, scope: str) -> int:
        """The number of verbs since the scope's open step began; 0 if none is open."""
        return len(self._parted(scope)[2])

    def _parted(self, scope: str) -> tuple[list[Change], list[Change], list[Change]]:
        """The scope's uncommitted changes: before its open step began, of that step, and verbs made meanwhile."""
        changes = [item.change for item in self.state.scope(scope).pending]
        changes += [change for change in self.changes if change.scope == scope]
        steps = [at for at, change in enumerate(changes) if change.op == "step"]
        begins = [len(changes), *takewhile(lambda at: not changes[at].done, reversed(steps))][-1]
        later = changes[begins:]
        return changes[:begins], [one for one in later if one.op == "step"], [one for one in later if one.op != "step"]

    def place(self, scope: str) -> str:
        """A reference to the scope's newest change or commit, for `origin` and `merge` of a later change."""
        for at, change in reversed([*enumerate(self.changes, self.state.seq + 1)]):
            if change.scope == scope:
                return f"{scope}/{at}"
        state = self.state.scope(scope)
        return f"{scope}/{state.pending[-1].seq}" if state.pending else state.tip

    # --- changes

    def append(self, scope: str, admitted: AdmittedEntry) -> None:
        """Adds rows of a step. Raises: BadInput if a field is invalid.

        A model that is already recorded stays: a gateway replies under names of its own, which requests cannot use.
        """
        entry, meta, trailers, files, without = admitted
        last = entry.rows[-1] if entry.rows else None
        unnamed = bool(entry.model) and not self.ledger(scope).meta.model
        self._add(
            scope=scope,
            op="step",
            actor="agent",
            counters=Counters(
                block=last.number if last else 0,
                group=self._group,
                msg=last.msg if last else 0,
                step=entry.step,
                turn=last.turn if last else 0,
            ),
            time=entry.time or self._time,
            step=entry.step,
            done=entry.done,
            rows=entry.rows,
            bodies=entry.bodies,
            meta={**({"model": entry.model} if unnamed else {}), **meta},
            trailers={
                **({"Ctxvc-Model": entry.model} if entry.model else {}),
                **usage_trailers(entry.usage),
                **trailers,
            },
            files=files,
            without=without,
        )
        self.newest = entry
        if meta:
            self.ledger(scope)

    def ask(self, scope: str, value: str, *, actor: str, text: str = "") -> None:
        """Adds a request for a switch to the scope's open step: `value` is the trailer `Ctxvc-Switch`."""
        counters = msgspec.structs.replace(self.ledger(scope).meta.counters, block=self.block, group=self._group)
        self.changes.append(
            Change(
                scope=scope,
                op="step",
                actor=actor,
                counters=counters,
                time=self._time,
                step=counters.step,
                trailers={SWITCH: value},
                text=text,
                written=self._written,
            )
        )

    def finish(self, scope: str) -> None:
        """Ends the scope's open step now; its missing results are marked interrupted."""
        numbering = self.numbering(scope)
        entries = numbering.interrupt(self._time)
        if not entries and self.open(scope):
            entries = [Entry(step=numbering.step, rows=(), bodies=(), done=True)]
        for entry in entries:
            self.append(scope, AdmittedEntry(entry))

    def verb(
        self,
        scope: str,
        *,
        op: str,
        actor: str,
        subject: str,
        parts: Sequence[Part] = (),
        rows: Iterable[Row] = (),
        groups: Iterable[Group] = (),
        meta: Mapping[str, Any] | None = None,
        trailers: Mapping[str, str] | None = None,
        text: str = "",
        merge: str = "",
    ) -> list[str]:
        """Adds a commit of its own; returns the ids of its new blocks.

        Rows and groups are in their state after it; `parts` become new blocks at the current step. Raises: BadInput.
        """
        groups = tuple(groups)
        new_rows, bodies = self.aside(scope, parts)
        self._group = max([self._group, *(int(group.id[1:]) for group in groups)])
        if parts:
            counters = self.numbering(scope).counters(self._group)
        else:
            counters = msgspec.structs.replace(self.ledger(scope).meta.counters, block=self.block, group=self._group)
        self._add(
            scope=scope,
            op=op,
            actor=actor,
            counters=counters,
            time=self._time,
            rows=(*rows, *new_rows),
            bodies=tuple(bodies),
            groups=groups,
            meta=dict(meta or {}),
            subject=subject,
            trailers=dict(trailers or {}),
            text=text,
            merge=merge,
        )
        self.ledger(scope)
        return [row.id for row in new_rows]

    def begin(
        self,
        scope: str,
        origin: str,
        before: Ledger,
        *,
        actor: str,
        counters: Counters,
        inherit: tuple[str, ...] | None,
        meta: Mapping[str, Any],
        rows: tuple[Row, ...] = (),
        bodies: tuple[Body, ...] = (),
        groups: tuple[Group, ...] = (),
        text: str = "",
        without: tuple[str, ...] = (),
        files: tuple[tuple[str, bytes], ...] = (),
    ) -> None:
        """Adds a new scope on top of what `origin` refers to, where the ledger is `before`.

        `files` and `without` are as in `Change`.
        """
        self._add(
            scope=scope,
            op="scope",
            actor=actor,
            counters=msgspec.structs.replace(counters, block=self.block, group=self._group),
            time=self._time,
            rows=rows,
            bodies=bodies,
            groups=groups,
            meta=dict(meta),
            subject=f"scope {scope}",
            origin=origin,
            inherit=inherit,
            text=text,
            without=without,
            files=files,
        )
        self._ledgers[scope] = apply_change(before, self.changes[-1]), len(self.changes)

    def aside(self, scope: str, parts: Sequence[Part]) -> tuple[list[Row], list[Body]]:
        """Rows and bodies of parts outside the conversation (notes, dashboards): one message at the current step."""
        if not parts:
            return [], []
        return self.numbering(scope).aside(Message(role=parts[0].role, parts=tuple(parts)))

    def _add(self, **fields: Any) -> None:
        texts = {name: visible_controls(fields.get(name, "")) for name in ("subject", "text")}
        self.changes.append(Change(**{**fields, **texts}, written=self._written))
        self.add_bodies(self.changes[-1].bodies)

    def add_bodies(self, bodies: Iterable[Body]) -> None:
        """Adds to `bodies`, which an entry's admission reads before the entry is appended."""
        self.bodies.update(((block, suffix), data) for block, suffix, data in bodies)
