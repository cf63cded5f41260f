"""A record in the making: what one operation does, as changes of scopes. Nothing of it is on the disk yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ctxvc.core.display import visible_controls
from ctxvc.core.ledger.block import Message, Part
from ctxvc.core.ledger.ledger import Counters, Group, Ledger, Row
from ctxvc.core.ledger.numbering import Body, Entry, Numbering
from ctxvc.errors import BadInput
from ctxvc.store.log.commits import apply, usage_trailers
from ctxvc.store.log.journal import Change
from ctxvc.store.log.state import Known

#: What no scope has yet, by block and suffix (empty for the body itself).
Fresh = Mapping[tuple[str, str], bytes]


class Shaped(NamedTuple):
    """An entry's rows as they are to be recorded; fields of `ctxvc.json` to set, and trailers of the commit."""

    rows: tuple[Row, ...]
    meta: Mapping[str, Any] = {}
    trailers: Mapping[str, str] = {}


#: Called with the ledger before an entry, the entry, and all that is new with it.
Shape = Callable[[Ledger, Entry, Fresh], Shaped]


class Draft:
    """Changes on top of what is known, which stays as it is. They get the numbers that follow its newest.

    Whoever makes one holds the session's lock; afterwards `numberings` tells where the numbers of its scopes stand.
    """

    def __init__(self, known: Known) -> None:
        self.known = known
        self.changes: list[Change] = []
        self.numberings: dict[str, Numbering] = {}
        self._group = known.group
        self._time, self._written = known.store.now_iso(), known.store.now()
        self._fresh: dict[tuple[str, str], bytes] = {}
        self._ledgers: dict[str, tuple[Ledger, int]] = {}  # and how many of the changes are in it

    # --- a scope as the changes so far leave it

    def ledger(self, scope: str) -> Ledger:
        """Raises: BadInput where a change cannot be made."""
        ledger, done = self._ledgers.get(scope) or (self.known.scope(scope).current, 0)
        try:
            for change in self.changes[done:]:
                if change.scope == scope:
                    ledger = apply(ledger, change)
        except (msgspec.ValidationError, TypeError) as error:
            raise BadInput(f"this cannot be recorded: {error}", hint="see the fields of ctxvc.json") from error
        self._ledgers[scope] = ledger, len(self.changes)
        return ledger

    def numbering(self, scope: str) -> Numbering:
        """Where the scope's numbers stand. It may be used until this is asked for another scope, or again."""
        if scope not in self.numberings:
            held = self.known.scopes.get(scope)
            self.numberings[scope] = (held and held.numbering) or Numbering.of(self.ledger(scope), self.block)
            if held:
                held.numbering = None  # a failure would leave it in the middle
        numbering = self.numberings[scope]
        numbering.block = self.block
        return numbering

    @property
    def block(self) -> int:
        """The session's newest block number, these changes included."""
        return max([self.known.block, *(numbering.block for numbering in self.numberings.values())])

    def open(self, scope: str) -> bool:
        """Whether a step of the scope has begun and is not complete."""
        done = [change.done for change in self.changes if change.scope == scope and change.op == "step"]
        return not done[-1] if done else self.known.scope(scope).open

    def place(self, scope: str) -> str:
        """What has the scope as its newest commit: for `origin` and `merge` of a later change."""
        for at, change in reversed([*enumerate(self.changes, self.known.seq + 1)]):
            if change.scope == scope:
                return f"{scope}/{at}"
        held = self.known.scope(scope)
        return f"{scope}/{held.pending[-1].seq}" if held.pending else held.tip

    # --- changes

    def step(self, scope: str, entries: Iterable[Entry], shape: Shape | None = None) -> list[Entry]:
        """Rows of steps, as `shape` wants them; gives the entries."""
        made = list(entries)
        for entry in made:
            self._fresh.update(((block, suffix), data) for block, suffix, data in entry.bodies)
            rows, meta, trailers = shape(self.ledger(scope), entry, self._fresh) if shape else Shaped(entry.rows)
            last = rows[-1] if rows else None
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
                rows=rows,
                bodies=entry.bodies,
                meta={**({"model": entry.model} if entry.model else {}), **meta},
                trailers={**usage_trailers(entry.usage), **trailers},
            )
            if shape:
                self.ledger(scope)
        return made

    def finish(self, scope: str) -> list[Entry]:
        """The scope's open step is complete as it is, its missing results marked interrupted."""
        numbering = self.numbering(scope)
        entries = numbering.interrupt(self._time)
        if not entries and self.open(scope):
            entries = [Entry(step=numbering.step, rows=(), bodies=(), done=True)]
        return self.step(scope, entries)

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
        """One commit of its own: rows and groups as they are after it, and `parts` as new blocks at the current step.

        Gives the new blocks' ids. Raises: BadInput.
        """
        groups = tuple(groups)
        made, bodies = self.aside(scope, parts)
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
            rows=(*rows, *made),
            bodies=tuple(bodies),
            groups=groups,
            meta=dict(meta or {}),
            subject=subject,
            trailers=dict(trailers or {}),
            text=text,
            merge=merge,
        )
        self.ledger(scope)
        return [row.id for row in made]

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
        text: str = "",
    ) -> None:
        """A new scope on top of what `origin` refers to, where the ledger is `before`."""
        self._add(
            scope=scope,
            op="scope",
            actor=actor,
            counters=msgspec.structs.replace(counters, block=self.block, group=self._group),
            time=self._time,
            rows=rows,
            bodies=bodies,
            meta=dict(meta),
            subject=f"scope {scope}",
            origin=origin,
            inherit=inherit,
            text=text,
        )
        self._ledgers[scope] = apply(before, self.changes[-1]), len(self.changes)

    def aside(self, scope: str, parts: Sequence[Part]) -> tuple[list[Row], list[Body]]:
        """Rows and bodies of what stands beside the conversation, in one message at the current step."""
        if not parts:
            return [], []
        return self.numbering(scope).aside(Message(role=parts[0].role, parts=tuple(parts)))

    def _add(self, **fields: Any) -> None:
        words = {name: visible_controls(fields.get(name, "")) for name in ("subject", "text")}
        self.changes.append(Change(**{**fields, **words}, written=self._written))
        self._fresh.update(((block, suffix), data) for block, suffix, data in self.changes[-1].bodies)
