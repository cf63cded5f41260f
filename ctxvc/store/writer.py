"""A writer: a session that is open, the one mutable object. What it acknowledges survives; what it reads is current.

An operation takes the session's lock, catches up with what other processes wrote, appends records to the journal, and
is acknowledged. A flush turns complete steps and verbs into commits. docs/architecture.md draws it.
"""

from __future__ import annotations

import errno
import threading
import time as clock
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec

from ctxvc.core.blocks import Message
from ctxvc.core.ledger import Counters, Group, Ledger, Row
from ctxvc.core.numbering import Entry, Numbering
from ctxvc.errors import Conflict, CtxvcError, NotFound
from ctxvc.store import format as fmt
from ctxvc.store.flush import Pending, Planned, apply, covered, plan, usage_trailers
from ctxvc.store.journal import FORMAT, Change, Frame, Head, Journal, Record, Tail, encode_record, raw
from ctxvc.store.locks import locked
from ctxvc.store.packs import Commit, PackWriter, epoch
from ctxvc.store.refs import ref_of

if TYPE_CHECKING:
    from ctxvc.store.store import Store

#: A flush happens after so many complete steps, or when the last one is so many seconds ago, whichever is first.
FLUSH_STEPS = 32
FLUSH_SECONDS = 1.0


@dataclass(slots=True)
class _Scope:
    """A scope as this process knows it: the tip (at first the origin's), the ledger there, what the journal adds."""

    tip: str
    committed: Ledger
    current: Ledger
    covered: int = 0  # the newest record of this journal that the tip covers
    pending: list[Pending] = field(default_factory=list)
    numbering: Numbering | None = None

    @property
    def open(self) -> bool:
        """Whether a step has begun and is not complete."""
        done = [item.change.done for item in self.pending if item.change.op == "step"]
        return bool(done) and not done[-1]


class Writer:
    """One conversation, opened for reading and writing. Use it in a `with` block, or `close` it.

    `scope` is where this writer is: at first the session's current scope, later what it switched to itself.
    """

    def __init__(self, store: Store, name: str, scope: str = "") -> None:
        self.store = store
        self.name = name
        self._mutex = threading.RLock()
        self._journal = Journal(store.journal_path(name))
        self._head: Head | None = None
        self._seq = 0
        self._block = self._group = 0
        self._scopes: dict[str, _Scope] = {}
        self._frames: list[tuple[int, int, bytes]] = []  # first and last number of a record, and its frame
        self._flushed = clock.monotonic()
        self._moved_to = ""
        self._lock_handle = -1
        #: Why the newest flush failed. What it would have committed is safe in the journal; the next one takes it.
        self.flush_failure: CtxvcError | None = None
        self._tail = Tail(0, 0, complete=False)
        self._load()
        self.scope = scope or store.current_scope(name)
        if self.scope not in self._scopes:
            self._journal.close()
            known = ", ".join(sorted(self._scopes)) or "none"
            raise NotFound(f"no scope {self.scope!r} in session {name!r}", hint=f"its scopes: {known}")

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- reading

    def scopes(self) -> list[str]:
        """The names of the scopes, `main` first."""
        return sorted(self._scopes, key=lambda name: (name != "main", name))

    def ledger(self, scope: str = "") -> Ledger:
        """The scope as it is now, with what is acknowledged and not committed yet."""
        return self._scope(scope).current

    def tip(self, scope: str = "") -> str:
        """The full id of the scope's newest commit."""
        return self._scope(scope).tip

    def body(self, row: Row, scope: str = "") -> bytes:
        """The exact bytes of a block, its checksum compared. Raises: Damaged."""
        held = self._scope(scope)
        if held.committed.get(row.id) is not None:
            return self.store.reader.body(held.tip, held.committed[row.id])
        return self._uncommitted(held, row, "")

    def file(self, row: Row, suffix: str, scope: str = "") -> bytes:
        """The exact bytes of a block's sibling, as in `1.png`. Raises: Damaged."""
        held = self._scope(scope)
        committed = held.committed.get(row.id)
        if committed is not None:
            return self.store.reader.path(held.tip, fmt.file_path(committed, suffix), f"{row.id}-{suffix}")
        return self._uncommitted(held, row, suffix)

    def covers(self, scope: str = "") -> str:
        """What the scope's newest commit covers of the journal, as its successors must say too; empty if nothing."""
        held = self._scope(scope)
        return f"{self._head.journal}/{held.covered}" if self._head and held.covered else ""

    def waiting(self) -> int:
        """How many changes are acknowledged and in no commit yet."""
        return sum(len(held.pending) for held in self._scopes.values())

    def refresh(self) -> None:
        """Reads what other processes have written since."""
        with self._mutex:
            self._catch_up()

    # --- writing

    def append(self, *messages: Message, scope: str = "") -> list[str]:
        """Adds messages to the scope; gives the new blocks' ids. On the disk when this returns.

        Raises: CtxvcError; then nothing was added.
        """
        with self._writing():
            held = self._scope(scope)
            numbering = held.numbering or Numbering.of(held.current, self._block)
            held.numbering = None  # a failure below leaves it in the middle
            numbering.block = self._block
            entries = [entry for message in messages for entry in numbering.add(message)]
            self._acknowledge(Record(changes=tuple(self._step_change(scope, entry) for entry in entries)))
            held.numbering = numbering
            if entries and entries[-1].done and (self._due() or self._turn_ended(entries[-1])):
                self._flush_if_possible()
            return [row.id for entry in entries for row in entry.rows]

    def change(
        self,
        *,
        subject: str,
        op: str,
        actor: str,
        rows: Iterable[Row] = (),
        groups: Iterable[Group] = (),
        meta: Mapping[str, Any] | None = None,
        trailers: Mapping[str, str] | None = None,
        scope: str = "",
    ) -> None:
        """Rows, groups or fields of `ctxvc.json` are as given, as one commit. On the disk when this returns.

        Raises: Conflict where another process has changed one of them since this session last looked (`refresh`).
        """
        seen = self._scope(scope).current
        rows, groups = tuple(rows), tuple(groups)
        with self._writing():
            self._unchanged(seen, self._scope(scope).current, rows, groups)
            self._group = max([self._group, *(int(group.id[1:]) for group in groups)])
            counters = msgspec.structs.replace(
                self._scope(scope).current.meta.counters, block=self._block, group=self._group
            )
            change = Change(
                scope=scope or self.scope,
                op=op,
                actor=actor,
                counters=counters,
                time=self.store.now_iso(),
                rows=rows,
                groups=groups,
                meta=dict(meta or {}),
                subject=subject,
                trailers=dict(trailers or {}),
            )
            self._acknowledge(Record(changes=(change,)))
            self._flush_if_possible()

    def _unchanged(self, seen: Ledger, now: Ledger, rows: Sequence[Row], groups: Sequence[Group]) -> None:
        """Law 8: what is about to be replaced is what the caller has seen, and a new group's number is free."""
        moved = [row.id for row in rows if seen.get(row.id) != now.get(row.id)]
        moved += [group.id for group in groups if seen.groups.get(group.id) != now.groups.get(group.id)]
        moved += [each.id for each in groups if each.id not in now.groups and int(each.id[1:]) <= self._group]
        if moved:
            raise Conflict(
                f"another writer has changed {', '.join(moved[:8])} meanwhile; nothing was done",
                hint="look again, and repeat it if it is still wanted",
            )

    def finish(self, scope: str = "") -> None:
        """The open step is complete as it is; its missing results are marked interrupted."""
        with self._writing():
            held = self._scope(scope)
            numbering = held.numbering or Numbering.of(held.current, self._block)
            held.numbering = None
            numbering.block = self._block
            entries = numbering.interrupt(self.store.now_iso())
            if not entries and held.open:
                entries = [Entry(step=numbering.step, rows=(), bodies=(), done=True)]
            self._acknowledge(Record(changes=tuple(self._step_change(scope, entry) for entry in entries)))
            self._flush_if_possible()

    @contextmanager
    def bulk(self, config: Sequence[str] = ()) -> Iterator[tuple[PackWriter, Counters]]:
        """For many commits at once, as an import makes: a pack writer, and the session's last numbers.

        Nothing goes through the journal: all refs move when the block is left normally, else none does. Afterwards
        this session knows the new tips.
        """
        with self._writing():
            self._flush()
            self.store.clean_up()
            with self._moving(), self.store.pack_writer(self._lock_handle, config) as writer:
                yield writer, Counters(block=self._block, group=self._group)

    def flush(self) -> None:
        """Complete steps and verbs become commits. An open step stays in the journal.

        Raises: CtxvcError; then everything is still in the journal.
        """
        with self._writing():
            self._flush()

    def leave(self) -> None:
        """Lets go of the files without a flush, as a reader does; what was read stays readable."""
        with self._mutex:
            self._journal.close()

    def close(self) -> None:
        """Flushes and lets go of the files. Raises: CtxvcError as `flush` does."""
        with self._mutex:
            try:
                if any(held.pending for held in self._scopes.values()):
                    self.flush()
            finally:
                self._journal.close()

    # --- the journal

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._mutex, locked(self.store.lock_path(self.name)) as handle:
            self._lock_handle = handle
            try:
                self._catch_up()
                self._journal.cut_tail(self._tail)
                self._tail = msgspec.structs.replace(self._tail, size=0)
                if self._head is None or self._head.moving:
                    self._rewrite([data for _, _, data in self._frames])
                yield
            except OSError as error:
                self._journal.close()
                raise _unwritable(self.name, error) from error
            except BaseException:
                # How far it came stands on the disk: the next operation reads everything anew.
                self._journal.close()
                raise

    @contextmanager
    def _moving(self) -> Iterator[None]:
        """Inside, refs may move without a record. Other sessions look at the tips again, also after a crash in here."""
        frames = [data for _, _, data in self._frames]
        self._rewrite(frames, moving=True)
        yield
        self._load()
        self._rewrite(frames)

    def _rewrite(self, frames: Sequence[bytes], *, moving: bool = False) -> None:
        """The journal is a new file, with these frames behind its head."""
        journal = self._head.journal if self._head else self.store.new_id()
        self._head = Head(FORMAT, journal, self._seq, self._block, self._group, moving)
        self._journal.rewrite(self._head, frames)

    def _catch_up(self) -> None:
        if self._head is None or self._journal.moved():
            self._load()
            return
        _, records, frames, self._tail = self._journal.read(self._journal.size)
        self._take(records, frames)

    def _load(self) -> None:
        """Everything anew: first the journal, then the tips, so that a flush in between cannot hide a record."""
        head, records, frames, self._tail = self._journal.read()
        tips = self.store.tips(self.name)
        if not tips:
            raise NotFound(f"no session {self.name!r} in {self.store.path}", hint="`ctxvc sessions` lists them")
        self._head, self._frames, self._seq = head, [], head.base if head else 0
        known, self._scopes = self._scopes, {}
        for scope, tip in tips.items():
            same = scope in known and known[scope].tip == tip
            self._scopes[scope] = self._at_tip(tip, known[scope].committed if same else None)
        counters = [held.committed.meta.counters for held in self._scopes.values()]
        self._block = max([counter.block for counter in counters] + [head.block if head else 0])
        self._group = max([counter.group for counter in counters] + [head.group if head else 0])
        self._take(records, frames)
        if head and head.moving:
            self._journal.close()

    def _at_tip(self, tip: str, ledger: Ledger | None = None) -> _Scope:
        ledger = ledger or self.store.reader.ledger(tip)
        journal = self._head.journal if self._head else ""
        return _Scope(tip=tip, committed=ledger, current=ledger, covered=covered(self.store.message(tip), journal))

    def _take(self, records: list[tuple[int, Record]], frames: list[Frame]) -> None:
        for (seq, record), found in zip(records, frames, strict=True):
            self._apply(seq, record, raw(found))

    def _apply(self, seq: int, record: Record, frame_bytes: bytes) -> None:
        """Takes one record into what this process knows; a change that a commit already covers is skipped."""
        first = seq - len(record.changes) + 1
        self._seq = max(self._seq, seq)
        self._frames.append((first, seq, frame_bytes))
        for number, change in enumerate(record.changes, first):
            self._block = max(self._block, change.counters.block)
            self._group = max(self._group, change.counters.group)
            held = self._scopes.get(change.scope)
            if held is None:
                before = self.store.reader.ledger(change.origin)
                held = self._scopes[change.scope] = _Scope(tip=change.origin, committed=before, current=before)
            elif number <= held.covered:
                continue
            held.current = apply(held.current, change)
            held.pending.append(Pending(number, change))
            held.numbering = None
        if record.head and self._head and seq > self._head.base:
            self._moved_to = record.head

    def _acknowledge(self, record: Record) -> None:
        """The record is on the disk, whole, and known here. Raises: CtxvcError; then it is nowhere."""
        if not record.changes:
            return
        seq = self._seq + len(record.changes)
        data = encode_record(seq, record)
        try:
            self._journal.append([data])
        except OSError as error:
            raise _unwritable(self.name, error, "; nothing was added") from error
        self._apply(seq, record, data)

    def _step_change(self, scope: str, entry: Entry) -> Change:
        last = entry.rows[-1] if entry.rows else None
        return Change(
            scope=scope or self.scope,
            op="step",
            actor="agent",
            counters=Counters(
                block=last.number if last else 0,
                group=self._group,
                msg=last.msg if last else 0,
                step=entry.step,
                turn=last.turn if last else 0,
            ),
            time=entry.time or self.store.now_iso(),
            step=entry.step,
            done=entry.done,
            rows=entry.rows,
            bodies=entry.bodies,
            meta={"model": entry.model} if entry.model else {},
            trailers=usage_trailers(entry.usage),
        )

    # --- the flush

    def _due(self) -> bool:
        done = sum(item.change.done for held in self._scopes.values() for item in held.pending)
        waited = clock.monotonic() - self._flushed > FLUSH_SECONDS
        return done > 0 and (waited or (done >= FLUSH_STEPS and self.flush_failure is None))

    def _flush_if_possible(self) -> None:
        """Flushes, after something was acknowledged: a failure must not pass for one of that, so it is only noted."""
        try:
            self._flush()
        except OSError as error:
            self.flush_failure = _unwritable(self.name, error)
        except CtxvcError as error:
            self.flush_failure = error
        else:
            return
        self._flushed = clock.monotonic()
        self._journal.close()

    def _flush(self) -> None:
        """Complete steps and verbs become commits, refs move, HEAD last, and the journal drops what is committed."""
        try:
            self._flush_once()
        except Conflict:
            # A killed writer's git may have moved a ref after we read it. It is gone: we hold the lock that it held.
            self._load()
            self._flush_once()

    def _flush_once(self) -> None:
        assert self._head is not None
        journal = self._head.journal
        plans = {name: plan(held.committed, held.pending, journal) for name, held in self._scopes.items()}
        if any(planned for planned, _ in plans.values()):
            tips = self._write({name: planned for name, (planned, _) in plans.items() if planned})
            for name, tip in tips.items():
                planned, rest = plans[name]
                held = self._scopes[name]
                held.tip, held.committed, held.covered = tip, planned[-1].after, planned[-1].seq
                held.pending = rest
        moved, self._moved_to = self._moved_to, ""
        if moved:
            self.store.set_current_scope(self.name, moved)
        left = {item.seq for held in self._scopes.values() for item in held.pending}
        frames = [found for found in self._frames if not left.isdisjoint(range(found[0], found[1] + 1))]
        if moved or len(frames) < len(self._frames):
            self._frames = frames
            self._rewrite([data for _, _, data in frames])
        self._flushed = clock.monotonic()
        self.flush_failure = None

    def _write(self, plans: Mapping[str, Sequence[Planned]]) -> dict[str, str]:
        """The commits are in a pack and the refs have moved when this returns; gives the new tips."""
        commits: list[Commit] = []
        now = self.store.now()
        for name, planned in plans.items():
            held = self._scopes[name]
            before = held.committed
            for item in planned:
                commits.append(
                    Commit(
                        ref=ref_of(self.name, name),
                        before=before,
                        after=item.after,
                        bodies=item.bodies,
                        message=item.message,
                        actor=item.actor,
                        time=epoch(item.time, now),
                        now=now,
                        parent=item.origin or held.tip,
                        merge=item.merge,
                    )
                )
                before = item.after
        ids = self.store.write(commits, self._lock_handle)
        return {name: ids[ref_of(self.name, name)] for name in plans}

    def _uncommitted(self, held: _Scope, row: Row, suffix: str) -> bytes:
        for item in held.pending:
            for block_id, of, data in item.change.bodies:
                if block_id == row.id and of == suffix:
                    return data
        raise NotFound(f"no block {row.id} in this scope")

    def _scope(self, name: str) -> _Scope:
        try:
            return self._scopes[name or self.scope]
        except KeyError:
            raise NotFound(
                f"no scope {name!r} in session {self.name!r}", hint=f"its scopes: {', '.join(self.scopes())}"
            ) from None

    @staticmethod
    def _turn_ended(entry: Entry) -> bool:
        """The model stopped by itself: its reply called nothing."""
        return entry.done and any(row.role == "assistant" for row in entry.rows)


def _unwritable(session: str, error: OSError, what: str = "") -> CtxvcError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return CtxvcError(
        f"cannot write to the journal of {session!r}: {error.strerror or error}{what}",
        hint="free some space" if full else "check the disk and the store's permissions",
    )
