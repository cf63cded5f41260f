"""What a process knows of a session: its scopes at their tips, and what the journal adds.

docs/format.md says how the two are put together. Looking needs no lock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ctxvc.core.ledger import Counters, Ledger, Row
from ctxvc.core.numbering import Numbering
from ctxvc.errors import Damaged, NotFound
from ctxvc.store import format as fmt
from ctxvc.store.flush import Pending, apply, covered
from ctxvc.store.journal import FORMAT, Change, Frame, Head, Journal, Record, Tail, raw, reference
from ctxvc.store.reading import Outline

if TYPE_CHECKING:
    from ctxvc.store.store import Store


class Scope:
    """A scope as this process knows it: its newest commit, the ledger there, and the ledger with what waits.

    One that has no commit yet has the newest that is known of where it comes from, and the ledger that it will `start`
    from. A ledger is read when it is first asked for: a session can have thousands of scopes.
    """

    __slots__ = ("_committed", "_current", "_read", "counters", "covered", "numbering", "pending", "start", "tip")

    def __init__(
        self,
        tip: str,
        read: Callable[[str], Ledger],
        *,
        counters: Counters,
        committed: Ledger | None = None,
        start: Ledger | None = None,
        current: Ledger | None = None,
        covered: int = 0,
    ) -> None:
        self.tip = tip
        self.counters = counters  # at the tip
        self.covered = covered  # the newest change of this journal that the tip covers
        self.start = start
        self.pending: list[Pending] = []
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
        """The ledger with what waits. Raises: Damaged, Refused."""
        if self._current is None:
            ledger = self.committed
            for item in self.pending:
                ledger = apply(ledger, item.change)
            self._current = ledger
        return self._current

    @property
    def known(self) -> Ledger | None:
        """The ledger at the tip, where it was read already."""
        return self._committed

    def add(self, item: Pending) -> None:
        """A change is acknowledged."""
        if self._current is not None:
            self._current = apply(self._current, item.change)
        self.pending.append(item)
        self.numbering = None

    def move(self, tip: str, committed: Ledger, covered: int, pending: list[Pending]) -> None:
        """What waited is in commits now, but for `pending`."""
        self.tip, self._committed, self.covered, self.counters = tip, committed, covered, committed.meta.counters
        self.start, self.pending = None, pending

    @property
    def open(self) -> bool:
        """Whether a step has begun and is not complete."""
        done = [item.change.done for item in self.pending if item.change.op == "step"]
        return bool(done) and not done[-1]


class Known:
    """A session as it was when it was last looked at: `look` does so again."""

    def __init__(self, store: Store, name: str) -> None:
        """Raises: NotFound where there is no such session, Damaged."""
        self.store = store
        self.name = name
        self.journal = Journal(store.journal_path(name))
        self.head: Head | None = None
        self.seq = 0
        self.block = self.group = 0
        self.scopes: dict[str, Scope] = {}
        self.frames: list[tuple[int, int, bytes]] = []  # first and last number of a record, and its frame
        self.moved_to = ""  # where a record that waits moves HEAD
        self.tail = Tail(0, 0, complete=False)
        self.load()

    # --- what is known

    def scope(self, name: str) -> Scope:
        """Raises: NotFound."""
        try:
            return self.scopes[name]
        except KeyError:
            raise NotFound(
                f"no scope {name[:80]!r} in session {self.name!r}",
                hint=f"its scopes: {', '.join(self.names()[:8]) or 'none'}",
            ) from None

    def names(self) -> list[str]:
        """The names of the scopes, `main` first."""
        return sorted(self.scopes, key=lambda name: (name != "main", name))

    def outline(self, scope: str) -> Outline:
        """What the scope has, in numbers; its ledger is not kept. Raises: NotFound, Damaged."""
        held = self.scope(scope)
        if not held.pending and held.known is None:
            return self.store.reader.outline(held.tip)
        ledger = held.current
        return Outline(ledger.meta, len(ledger), sum(row.kind == "note" for row in ledger.rows()))

    def body(self, scope: str, row: Row) -> bytes:
        """The exact bytes of a block, its checksum compared. Raises: Damaged."""
        held = self.scope(scope)
        if held.committed.get(row.id) is not None:
            return self.store.reader.body(held.tip, held.committed[row.id])
        return self._uncommitted(row, "")

    def file(self, scope: str, row: Row, suffix: str) -> bytes:
        """The exact bytes of a block's sibling. Raises: Damaged."""
        held = self.scope(scope)
        committed = held.committed.get(row.id)
        if committed is not None:
            return self.store.reader.path(held.tip, fmt.file_path(committed, suffix), f"{row.id}-{suffix}")
        return self._uncommitted(row, suffix)

    def _uncommitted(self, row: Row, suffix: str) -> bytes:
        """A body that waits: a new scope's may wait with the scope that it comes from. Numbers are the session's."""
        for held in self.scopes.values():
            for item in held.pending:
                for block_id, of, data in item.change.bodies:
                    if block_id == row.id and of == suffix:
                        return data
        raise NotFound(f"no block {row.id} in this scope")

    def committed(self, scope: str, seq: int) -> str:
        """The full id of the commit by which the scope has change `seq`; empty where none does yet.

        Commits of one flush can name the same change (a step, and a verb that waited for its end): the newest counts.
        """
        found, number = "", 0
        if seq <= self.scope(scope).covered:
            for commit in self.store.first_parents(self.scopes[scope].tip):
                covers = covered(self.store.message(commit), self.head.journal if self.head else "")
                if covers < seq:
                    break
                if not found or covers < number:
                    found, number = commit, covers
        return found

    # --- looking

    def look(self) -> None:
        """Takes in what other processes have written since."""
        if self.head is None or self.journal.moved():
            self.load()
            return
        _, records, frames, self.tail = self.journal.read(self.journal.size)
        self._take(records, frames)

    def load(self) -> None:
        """Everything anew: first the journal, then the tips, so that a flush in between cannot hide a record."""
        head, records, frames, self.tail = self.journal.read()
        tips = self.store.tips(self.name)
        if not tips:
            raise NotFound(f"no session {self.name!r} in {self.store.path}", hint="`ctxvc sessions` lists them")
        self.head, self.frames, self.seq, self.moved_to = head, [], head.base if head else 0, ""
        known, self.scopes = self.scopes, {}
        for scope, tip in tips.items():
            self.scopes[scope] = self._at_tip(tip, known.get(scope))
        counters = [held.counters for held in self.scopes.values()]
        self.block = max([counter.block for counter in counters] + [head.block if head else 0])
        self.group = max([counter.group for counter in counters] + [head.group if head else 0])
        self._take(records, frames)
        if head and head.moving:
            self.journal.close()

    def rewrite(self, *, moving: bool = False) -> None:
        """The journal is a new file, with the frames that are known. Whoever calls it holds the session's lock."""
        journal = self.head.journal if self.head else self.store.new_id()
        self.head = Head(FORMAT, journal, self.seq, self.block, self.group, moving)
        self.journal.rewrite(self.head, [data for _, _, data in self.frames])

    def apply(self, seq: int, record: Record, frame_bytes: bytes) -> None:
        """Takes in one record; a change that a commit already covers is skipped."""
        first = seq - len(record.changes) + 1
        self.seq = max(self.seq, seq)
        self.frames.append((first, seq, frame_bytes))
        for number, change in enumerate(record.changes, first):
            self.block = max(self.block, change.counters.block)
            self.group = max(self.group, change.counters.group)
            held = self.scopes.get(change.scope)
            if held is None:
                held = self.scopes[change.scope] = self._begun(change)
            elif number <= held.covered:
                continue
            held.add(Pending(number, change))
        if record.head and self.head and seq > self.head.base:
            self.moved_to = record.head

    def _take(self, records: list[tuple[int, Record]], frames: list[Frame]) -> None:
        for (seq, record), found in zip(records, frames, strict=True):
            self.apply(seq, record, raw(found))

    def _at_tip(self, tip: str, earlier: Scope | None) -> Scope:
        reader = self.store.reader
        same = earlier is not None and earlier.tip == tip
        counters = earlier.counters if earlier and same else reader.meta(tip).counters
        newest = covered(self.store.message(tip), self.head.journal if self.head else "")
        committed = earlier.known if earlier and same else None
        return Scope(tip, reader.ledger, counters=counters, committed=committed, covered=newest)

    def _begun(self, change: Change) -> Scope:
        """The scope that `change` begins, as it stands before it."""
        scope, seq = reference(change.origin)
        commit = self.committed(scope, seq) if scope else change.origin
        if commit:
            ledger = self.store.reader.ledger(commit)
            return self._starting(commit, ledger, ledger)
        held = self.scope(scope)
        ledger = held.start or held.committed
        waiting = [item.change for item in held.pending if item.seq <= seq]
        if not waiting:
            raise Damaged(f"the journal refers to {change.origin!r}, which it does not hold", hint="run `ctxvc verify`")
        for each in waiting:
            ledger = apply(ledger, each)
        return self._starting(held.tip, held.committed, ledger)

    def _starting(self, tip: str, committed: Ledger, start: Ledger) -> Scope:
        counters = committed.meta.counters
        return Scope(tip, self.store.reader.ledger, counters=counters, committed=committed, start=start, current=start)
