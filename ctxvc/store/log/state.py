"""A session as this process last read it: its scopes at their tips, and the changes that the journal adds.

docs/format.md says how the two combine. Reading needs no lock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from ctxvc.core.ledger.ledger import Counters, Ledger, Row
from ctxvc.core.ledger.numbering import Numbering
from ctxvc.core.suggestion import meant
from ctxvc.errors import Damaged, NotFound, Phrase
from ctxvc.store import format as fmt
from ctxvc.store.log import aside
from ctxvc.store.log import damage as journal_damage
from ctxvc.store.log.commits import PendingChange, apply_change, covered
from ctxvc.store.log.damage import Numbers
from ctxvc.store.log.journal import (
    SWITCH,
    Change,
    Damage,
    Frame,
    Head,
    Journal,
    Record,
    Tail,
    encode_record,
    raw,
    reference,
)
from ctxvc.store.read.commit_reader import Outline
from ctxvc.store.store import Store

#: The journal format that has a request's files: an older program would commit the steps without them.
_WITH_FILES = 3


def format_of(change: Change) -> int:
    """The lowest journal format that can have this change; 1 if the change does not require a newer one."""
    number = change.meta.get("format")
    return max(number if isinstance(number, int) else 1, _WITH_FILES if change.files or change.without else 1)


class ScopeState:
    """A scope as this process last read it: its newest commit, the ledger there, and the ledger with pending changes.

    A scope without commits has the newest known commit of the scope that it comes from, and the ledger that it will
    `start` with. Ledgers are read on first use: a session can have thousands of scopes.
    """

    __slots__ = (
        "_committed",
        "_current",
        "_read",
        "counters",
        "covered",
        "format",
        "numbering",
        "pending",
        "start",
        "tip",
    )

    def __init__(
        self,
        tip: str,
        read: Callable[[str], Ledger],
        *,
        counters: Counters,
        format: int,
        committed: Ledger | None = None,
        start: Ledger | None = None,
        current: Ledger | None = None,
        covered: int = 0,
    ) -> None:
        self.tip = tip
        self.counters = counters  # at the tip
        self.format = format  # also at the tip
        self.covered = covered  # the newest change of this journal that the tip covers
        self.start = start
        self.pending: list[PendingChange] = []
        self.numbering: Numbering | None = None
        self._read = read
        self._committed = committed
        self._current = current

    @property
    def committed(self) -> Ledger:
        """The ledger at the tip. Raises: Damaged, Refused."""
        if self._committed is None:
            self._committed = self._read(self.tip)
        return self._committed

    @property
    def current(self) -> Ledger:
        """The ledger with the pending changes. Raises: Damaged, Refused."""
        if self._current is None:
            ledger = self.committed
            for item in self.pending:
                ledger = apply_change(ledger, item.change)
            self._current = ledger
        return self._current

    @property
    def loaded(self) -> Ledger | None:
        """The ledger at the tip if it was already read, else None."""
        return self._committed

    def add(self, item: PendingChange) -> None:
        """Adds an acknowledged change."""
        if self._current is not None:
            self._current = apply_change(self._current, item.change)
        self.pending.append(item)
        self.numbering = None

    def move(self, tip: str, committed: Ledger, covered: int, pending: list[PendingChange]) -> None:
        """Moves to the commits of the pending changes; `pending` are those that were not committed."""
        self.tip, self._committed, self.covered, self.counters = tip, committed, covered, committed.meta.counters
        self.format = committed.meta.format
        self.start, self.pending = None, pending

    @property
    def open(self) -> bool:
        """Whether the scope has an incomplete step."""
        ends = [item.change.done for item in self.pending if item.change.op == "step"]
        return bool(ends) and not ends[-1]

    @property
    def asking(self) -> Change | None:
        """The newest change of the open step that requests a switch or takes the request back, or None."""
        for item in reversed(self.pending):
            if item.change.op == "step":
                if item.change.done:
                    return None
                if SWITCH in item.change.trailers:
                    return item.change
        return None


class SessionState:
    """A session as it was last read. `catch_up` reads what was added; `reload` reads everything again."""

    def __init__(self, store: Store, name: str) -> None:
        """Raises: NotFound if there is no such session, Damaged."""
        self.store = store
        self.name = name
        self.journal = Journal(store.journal_path(name))
        self.head: Head | None = None
        self.seq = 0
        self.block = self.group = 0
        self.scopes: dict[str, ScopeState] = {}
        self.frames: list[tuple[int, int, bytes]] = []  # first and last number of a record, and its frame
        self.moved_to = ""  # where HEAD goes by a pending record; empty if it stays
        self.tail = Tail(0, 0)
        self.damage: dict[int, Damage] = {}  # by its place in the journal
        self.reload()

    # --- what is known

    def scope(self, name: str) -> ScopeState:
        """Raises: NotFound."""
        try:
            return self.scopes[name]
        except KeyError:
            raise NotFound(
                f"no scope {name[:80]!r} in session {self.name!r}{meant(name, self.scopes)}",
                hint=f"its scopes: {', '.join(self.names()[:8]) or 'none'}",
            ) from None

    def names(self) -> list[str]:
        """The names of the scopes, `main` first."""
        return sorted(self.scopes, key=lambda name: (name != "main", name))

    def outline(self, scope: str) -> Outline:
        """The scope's counts, without reading its ledger if possible. Raises: NotFound, Damaged."""
        state = self.scope(scope)
        if not state.pending and state.loaded is None:
            return self.store.reader.outline(state.tip)
        ledger = state.current
        return Outline(ledger.meta, len(ledger), sum(row.kind == "note" for row in ledger.rows()))

    def body(self, scope: str, row: Row) -> bytes:
        """The exact bytes of a block; their checksum is verified. Raises: Damaged."""
        state = self.scope(scope)
        if state.committed.get(row.id) is not None:
            return self.store.reader.body(state.tip, state.committed[row.id])
        return self._uncommitted(row, "")

    def file(self, scope: str, row: Row, suffix: str) -> bytes:
        """The exact bytes of a sibling file of a block. Raises: Damaged."""
        state = self.scope(scope)
        committed = state.committed.get(row.id)
        if committed is not None:
            return self.store.reader.path(state.tip, fmt.file_path(committed, suffix), f"{row.id}-{suffix}")
        return self._uncommitted(row, suffix)

    def _uncommitted(self, row: Row, suffix: str) -> bytes:
        """An uncommitted body or sibling file, in whichever scope it is pending: numbers are unique in the session."""
        for state in self.scopes.values():
            for item in state.pending:
                for block_id, of, data in item.change.bodies:
                    if block_id == row.id and of == suffix:
                        return data
        raise NotFound(f"no block {row.id} in this scope")

    def committed(self, scope: str, seq: int) -> str:
        """The full id of the commit that brought change `seq` into the scope; empty if none has yet.

        Commits of one flush can name the same change (a step, and a verb that waited for its end): the newest counts.
        """
        newest, number = "", 0
        if seq <= self.scope(scope).covered:
            for commit in self.store.first_parents(self.scopes[scope].tip):
                covers = covered(self.store.message(commit), self.head.journal if self.head else "")
                if covers < seq:
                    break
                if not newest or covers < number:
                    newest, number = commit, covers
        return newest

    @property
    def format(self) -> int:
        """The newest format in use by the journal or a scope's tip."""
        return max([self._format, *(state.format for state in self.scopes.values())])

    # --- looking

    def catch_up(self) -> None:
        """Applies the records that other processes have appended; reloads if the journal is another file."""
        if self.head is None or self.journal.moved():
            self.reload()
            return
        start = self.journal.size
        _, records, frames, self.tail = self.journal.read(start)
        self._take(records, frames, start)

    def reload(self) -> None:
        """Reads everything again: first the journal, then the tips, so that a flush in between cannot hide a record."""
        head, records, frames, self.tail = self.journal.read()
        self._format = head.format if head else 1
        tips = self.store.tips(self.name)
        if not tips:
            raise NotFound(f"no session {self.name!r} in {self.store.path}", hint=Phrase("list-sessions"))
        self.head, self.frames, self.seq, self.moved_to = head, [], head.base if head else 0, ""
        self.damage = {}
        earlier, self.scopes = self.scopes, {}
        for scope, tip in tips.items():
            self.scopes[scope] = self._at_tip(tip, earlier.get(scope))
        counters = [state.counters for state in self.scopes.values()]
        self.block = max([counter.block for counter in counters] + [head.block if head else 0])
        self.group = max([counter.group for counter in counters] + [head.group if head else 0])
        # An unreadable record may have been committed: its number is not free.
        self.seq = max([self.seq, *(state.covered for state in self.scopes.values())])
        self._take(records, frames, 0)
        if head and head.moving:
            self.journal.close()

    def rewrite(self, *, moving: bool = False, format: int = 1) -> None:
        """Writes a new journal file, of at least this format, with the known frames; damaged bytes are set aside.

        The caller holds the session's lock. If killed in between, the next call does it again, with the same files.
        """
        aside.keep(self.store, self.name, self.damage.values())
        journal = self.head.journal if self.head else self.store.new_id()
        self._format = max(self.format, format)
        self.head = Head(self._format, journal, self.seq, self.block, self.group, moving)
        self.journal.rewrite(self.head, [data for _, _, data in self.frames])
        self.tail, self.damage = Tail(self.journal.size, 0), {}

    def apply(self, seq: int, record: Record, frame_bytes: bytes) -> None:
        """Takes in one record; changes that a commit already covers are skipped."""
        first = seq - len(record.changes) + 1
        self.seq = max(self.seq, seq)
        self.frames.append((first, seq, frame_bytes))
        for number, change in enumerate(record.changes, first):
            self.block = max(self.block, change.counters.block)
            self.group = max(self.group, change.counters.group)
            state = self.scopes.get(change.scope)
            if state is None:
                state = self.scopes[change.scope] = self._new_scope(change)
            elif number <= state.covered:
                continue
            state.add(PendingChange(number, change))
            self._format = max(self._format, format_of(change))
        if record.head and self.head and seq > self.head.base:
            self.moved_to = record.head

    def _take(self, records: list[tuple[int, Record]], frames: list[Frame], start: int) -> None:
        """Takes in what was read of the journal from byte `start` on, with damage in its place among the records."""
        earlier = {place: damage for place, damage in self.damage.items() if place < start}
        counted, self.damage = self.damage, earlier
        waiting = list(self.tail.damage)
        spent = Numbers(0, 0, 0)
        for (seq, record), frame in zip(records, frames, strict=True):
            while waiting and waiting[0].start < frame.start:
                spent = self._lose(waiting.pop(0), spent, counted)
            data = raw(frame)
            if self.damage:
                block, group = self.block, self.group
                record, data = self._mended(seq, record, data)  # noqa: PLW2901
                self.apply(seq, record, data)
                # A number that was assigned later is larger than all lost ones.
                spent = Numbers(0, 0 if self.block > block else spent.block, 0 if self.group > group else spent.group)
            else:
                self.apply(seq, record, data)
        for damage in waiting:
            spent = self._lose(damage, spent, counted)
        self.seq = max(self.seq, spent.seq)
        self.block, self.group = max(self.block, spent.block), max(self.group, spent.group)

    def _lose(self, damage: Damage, spent: Numbers, counted: dict[int, Damage]) -> Numbers:
        """Records damage; returns the numbers that it, and damage directly before it, may have used up."""
        self.damage[damage.start] = damage
        if damage.start == 0 or counted.get(damage.start) == damage:
            return spent  # the head's, or already counted
        before = Numbers(max(self.seq, spent.seq), max(self.block, spent.block), max(self.group, spent.group))
        for state in self.scopes.values():
            state.numbering = None
        return journal_damage.numbers_after(damage, before)

    def _mended(self, seq: int, record: Record, data: bytes) -> tuple[Record, bytes]:
        """A record after damage, without what depends on lost records, and its frame; unchanged if nothing does."""
        changes: list[Change] = []
        after: dict[str, Ledger] = {}
        opened = {name: state.open for name, state in self.scopes.items()}
        for change in record.changes:
            change = self._referring(change, after, opened)  # noqa: PLW2901
            before = after[change.scope] if change.scope in after else self._before(change, after)
            changes.append(journal_damage.mended(change, before))
            after[change.scope] = apply_change(before, changes[-1])
            if change.op == "step":
                opened[change.scope] = not change.done
        if tuple(changes) == record.changes:
            return record, data
        record = Record(changes=tuple(changes), head=record.head)
        return record, encode_record(seq, record)

    def _before(self, change: Change, after: Mapping[str, Ledger]) -> Ledger:
        """The ledger before a change of a record; `after` has the ledgers after the record's earlier changes."""
        if change.scope in self.scopes:
            return self.scopes[change.scope].current
        origin, _ = reference(change.origin)
        ledger = after[origin] if origin in after else self._new_scope(change).current
        return apply_change(ledger, Change(change.scope, "", "", Counters(), inherit=change.inherit))

    def _referring(self, change: Change, after: Mapping[str, Ledger], opened: Mapping[str, bool]) -> Change:
        """The change, with references that are lost, or to a step left open by the loss, replaced by a tip."""

        def certain(origin: str) -> str:
            scope, seq = reference(origin)
            state = self.scopes.get(scope)
            if not scope or (state is not None and seq <= state.covered):
                return origin
            there = scope in after or (state is not None and any(item.seq == seq for item in state.pending))
            return origin if there and not opened.get(scope) else (state or self._main()).tip

        if change.scope in self.scopes or change.scope in after:
            return msgspec.structs.replace(change, merge=certain(change.merge)) if change.merge else change
        if change.origin:
            return msgspec.structs.replace(change, origin=certain(change.origin))
        # The record that created this scope is lost: it starts again beside main, without what it inherited.
        meta = {"scope": change.scope, "parent": "main", **change.meta}
        return msgspec.structs.replace(change, origin=self._main().tip, inherit=(), meta=meta)

    def _main(self) -> ScopeState:
        return self.scopes[self.names()[0]]

    def _at_tip(self, tip: str, earlier: ScopeState | None) -> ScopeState:
        reader = self.store.reader
        same = earlier is not None and earlier.tip == tip
        meta = earlier if earlier and same else reader.meta(tip)
        newest = covered(self.store.message(tip), self.head.journal if self.head else "")
        committed = earlier.loaded if earlier and same else None
        return ScopeState(
            tip, reader.ledger, counters=meta.counters, format=meta.format, committed=committed, covered=newest
        )

    def _new_scope(self, change: Change) -> ScopeState:
        """The scope that `change` creates, before the change is applied."""
        scope, seq = reference(change.origin)
        commit = self.committed(scope, seq) if scope else change.origin
        if commit:
            ledger = self.store.reader.ledger(commit)
            return self._starting(commit, ledger, ledger)
        state = self.scope(scope)
        ledger = state.start if state.start is not None else state.committed
        waiting = [item.change for item in state.pending if item.seq <= seq]
        if not waiting:
            raise Damaged(f"the journal refers to {change.origin!r}, which it does not hold", hint=Phrase("verify"))
        for change_before in waiting:
            ledger = apply_change(ledger, change_before)
        return self._starting(state.tip, state.committed, ledger)

    def _starting(self, tip: str, committed: Ledger, start: Ledger) -> ScopeState:
        meta = committed.meta
        return ScopeState(
            tip,
            self.store.reader.ledger,
            counters=meta.counters,
            format=meta.format,
            committed=committed,
            start=start,
            current=start,
        )
