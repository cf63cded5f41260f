"""A stored session: one that is open, the one mutable object. What it acknowledges survives; what it reads is current.

An operation takes the session's lock, catches up with what other processes wrote, appends a record to the journal, and
is acknowledged. A flush turns complete steps and verbs into commits. docs/architecture.md draws it.
"""

from __future__ import annotations

import errno
import threading
import time as clock
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import msgspec

from ctxvc.core import scope as scoping
from ctxvc.core.ledger import names
from ctxvc.core.ledger.block import Message, Part
from ctxvc.core.ledger.ledger import Counters, Group, Ledger, Row
from ctxvc.core.ledger.numbering import Entry, Numbering
from ctxvc.errors import BadInput, Conflict, CtxvcError, NotFound, Refused
from ctxvc.store.commit_reader import Outline
from ctxvc.store.files import locked
from ctxvc.store.git.fast_import import PackWriter
from ctxvc.store.log.flush import flush
from ctxvc.store.log.journal import Damage, Record, encode_record
from ctxvc.store.log.state import Known
from ctxvc.store.log.switch import Switch, arrive, branch, check, switch
from ctxvc.store.log.transaction import Draft, Shape
from ctxvc.store.store import Store

#: A flush happens after so many complete steps, or when the last one is so many seconds ago, whichever is first.
FLUSH_STEPS = 32
FLUSH_SECONDS = 1.0


class StoredSession:
    """One conversation, opened for reading and writing. Use it in a `with` block, or `close` it.

    `scope` is where this one is: at first the session's current scope, later what it switched to itself. The
    session's current scope moves with it, unless it was opened on a scope by name.
    """

    def __init__(self, store: Store, name: str, scope: str = "") -> None:
        self.store = store
        self.name = name
        self._redactor = store.redaction.of(name)
        self._mutex = threading.RLock()
        self._known = Known(store, name)
        self._journal = self._known.journal
        self._flushed = clock.monotonic()
        self._lock_handle = -1
        self._named = bool(scope)
        self._wanted: Switch | None = None
        #: Why the newest flush failed. What it would have committed is safe in the journal; the next one takes it.
        self.flush_failure: CtxvcError | None = None
        self.scope = scope or self._known.moved_to or store.current_scope(name)
        try:
            self._known.scope(self.scope)
        except CtxvcError:
            self._journal.close()
            raise

    @staticmethod
    def open(store: Store, name: str = "", scope: str = "") -> StoredSession:
        """The session of that name, by default the store's current one, in `scope`, by default its current one.

        Raises: NotFound.
        """
        name = name or store.current_session()
        if names.problem(name) or name not in store.sessions():
            near = ", ".join(store.sessions()[:8]) or "none yet"
            raise NotFound(f"no session {name!r} in {store.path}", hint=f"there are: {near}")
        return StoredSession(store, name, scope)

    def __enter__(self) -> StoredSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- reading

    def scopes(self) -> list[str]:
        """The names of the scopes, `main` first."""
        return self._known.names()

    def ledger(self, scope: str = "") -> Ledger:
        """The scope as it is now, with what is acknowledged and not committed yet."""
        return self._known.scope(scope or self.scope).current

    def outline(self, scope: str = "") -> Outline:
        """The scope as it is now, in numbers; cheaper than its ledger. Raises: NotFound, Damaged."""
        return self._known.outline(scope or self.scope)

    def tip(self, scope: str = "") -> str:
        """The full id of the scope's newest commit; of a scope that has none yet, of one that it comes from."""
        return self._known.scope(scope or self.scope).tip

    def body(self, row: Row, scope: str = "") -> bytes:
        """The exact bytes of a block, its checksum compared. Raises: Damaged."""
        return self._known.body(scope or self.scope, row)

    def file(self, row: Row, suffix: str, scope: str = "") -> bytes:
        """The exact bytes of a block's sibling, as in `1.png`. Raises: Damaged."""
        return self._known.file(scope or self.scope, row, suffix)

    def covers(self, scope: str = "") -> str:
        """What the scope's newest commit covers of the journal, as its successors must say too; empty if nothing."""
        held, head = self._known.scope(scope or self.scope), self._known.head
        return f"{head.journal}/{held.covered}" if head and held.covered else ""

    def waiting(self) -> int:
        """How many changes are acknowledged and in no commit yet."""
        return sum(len(held.pending) for held in self._known.scopes.values())

    @property
    def damage(self) -> tuple[Damage, ...]:
        """What of the journal cannot be read, and is passed over: the next writing operation sets it aside."""
        return tuple(self._known.damage.values())

    @property
    def in_step(self) -> bool:
        """Whether a step of the current scope has begun and is not complete."""
        return self._known.scope(self.scope).open

    @property
    def meanwhile(self) -> int:
        """How many verbs were made in the current scope while a step is open: their commits come right behind its."""
        count, begun = 0, False
        for item in self._known.scope(self.scope).pending:
            if item.change.op == "step":
                begun = not item.change.done
                count = count if begun else 0
            elif begun:
                count += 1
        return count

    @property
    def open_calls(self) -> tuple[str, ...]:
        """The ids of the calls in the current scope that have no result yet."""
        held = self._known.scope(self.scope)
        return tuple((held.numbering or Numbering.of(held.current, 0)).calls)

    @property
    def next_group(self) -> int:
        """The number that a new group gets."""
        return self._known.group + 1

    @property
    def switching(self) -> str:
        """The scope that this session will be in at the end of the open step; empty if it stays."""
        return self._wanted.name if self._wanted else ""

    def refresh(self) -> None:
        """Reads what other processes have written since."""
        with self._mutex:
            self._known.look()

    # --- writing

    def append(self, *messages: Message, scope: str = "", shape: Shape | None = None) -> list[str]:
        """Adds messages to the scope; gives the new blocks' ids. On the disk when this returns.

        Secrets in them have become marks by then: what was said is nowhere on the disk, at no time.
        `shape` may record the rows of an entry otherwise than they came, and set fields of `ctxvc.json` with them.
        Where a switch is asked for, it is made with the end of the open step, in one record; what is behind that goes
        into the new scope, unless `scope` names another.
        Raises: Conflict where the switch cannot be made any more: it is not asked for then; CtxvcError. In all cases
        nothing was added.
        """
        if self._redactor:
            messages = tuple(map(self._redactor.message, messages))
        with self.writing():
            draft = Draft(self._known)
            at = scope or self.scope
            entries: list[Entry] = []
            switched = None
            for message in messages:
                ended, rest = draft.numbering(at).settle(message)
                entries += draft.step(at, ended, shape)
                if switched is None and at == self.scope and (switched := self._due_switch(draft)):
                    at = scope or switched.name
                entries += draft.step(at, draft.numbering(at).begin(rest), shape)
            if switched is None and at == self.scope:
                switched = self._due_switch(draft)
            self._commit(draft, switched)
            if switched or (entries and entries[-1].done and (self._due() or self._turn_ended(entries[-1]))):
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
        parts: Sequence[Part] = (),
        meta: Mapping[str, Any] | None = None,
        trailers: Mapping[str, str] | None = None,
        text: str = "",
        scope: str = "",
    ) -> list[str]:
        """Rows, groups or fields of `ctxvc.json` are as given, as one commit. On the disk when this returns.

        `parts` become new blocks beside the conversation, which open no step and no turn; gives their ids. `text` is
        more that the commit's message says.
        Raises: Conflict where another process has changed one of them since this session last looked (`refresh`).
        """
        rows, groups = tuple(rows), tuple(groups)
        seen, free = self.ledger(scope) if rows or groups else None, self.next_group
        if redactor := self._redactor:
            subject, text, trailers = redactor.text(subject), redactor.text(text), redactor.value(dict(trailers or {}))
            parts = tuple(map(redactor.part, parts))
            rows, groups = tuple(map(redactor.row, rows)), tuple(map(redactor.group, groups))
        with self.writing():
            if seen is not None:
                self._unchanged(seen, self.ledger(scope), rows, groups, free)
            draft = Draft(self._known)
            ids = draft.verb(
                scope or self.scope,
                op=op,
                actor=actor,
                subject=subject,
                parts=parts,
                rows=rows,
                groups=groups,
                meta=meta,
                trailers=trailers,
                text=text,
            )
            self._commit(draft)
            self._flush_if_possible()
            return ids

    def note(
        self,
        text: str,
        *,
        actor: str = "agent",
        rows: Iterable[Row] = (),
        groups: Iterable[Group] = (),
        meta: Mapping[str, Any] | None = None,
        trailers: Mapping[str, str] | None = None,
        scope: str = "",
    ) -> str:
        """Records what was learned, as a commit and as a block that the model sees; gives the block's id.

        The rest changes with it, as by `change`. Raises: BadInput where there is no text, Conflict.
        """
        if not text.strip():
            raise BadInput("a note needs text", hint="give it with -m")
        first, whole = scoping.told(text)
        (block,) = self.change(
            subject=f"note: {first}",
            op="note",
            actor=actor,
            rows=rows,
            groups=groups,
            parts=[scoping.note(text, actor)],
            meta=meta,
            trailers=trailers,
            text=whole,
            scope=scope,
        )
        return block

    def redacted(self, texts: Mapping[str, str]) -> Mapping[str, str]:
        """The texts without their secrets, as all that is recorded is."""
        if not self._redactor:
            return texts
        return {key: self._redactor.text(value) for key, value in texts.items()}

    def open_scope(
        self, name: str, text: str, *, actor: str = "agent", from_commit: str = "", with_messages: bool = False
    ) -> None:
        """Leaves for a new scope: with a note on why, which is in both.

        It inherits what `core.scoping.inherited` says; with `with_messages` everything; with `from_commit` (a full id)
        everything that stood there, on top of that commit. While calls are open it is only kept: `switching` tells, and
        the end of the step makes it true.
        Raises: BadName, BadInput, Refused (the name is taken, or a switch is asked for already), NotFound.
        """
        self._switch(
            Switch(name=name, text=text, actor=actor, new=True, origin=from_commit, with_messages=with_messages)
        )

    def branch(self, name: str, text: str, *, actor: str = "agent") -> None:
        """A new scope beside this one, which goes on as it is, also in the middle of a step: for a helper.

        It begins on top of the newest complete step, with what is pinned there and no human's. Where it is done, a
        stored session of its own is opened on it. Raises: BadName, BadInput, Refused (the name is taken).
        """
        wanted = self._redacted(Switch(name=name, text=text, actor=actor, new=True))
        with self.writing():
            check(self._known, self.scope, wanted)
            self._flush()
            draft = Draft(self._known)
            branch(draft, self.scope, wanted, self.tip())
            self._commit(draft)
            self._flush_if_possible()

    def arrive(self, left: str, text: str, *, of: str, actor: str = "agent", scope: str = "") -> None:
        """A note of what a helper brings along from the scope `left`, as a commit on top of both; nobody goes anywhere.

        `of` is the block of the result that told of it. The step that it is of is complete. Raises: NotFound.
        """
        text = self._redactor.text(text) if self._redactor else text
        with self.writing():
            self._known.scope(left)
            draft = Draft(self._known)
            arrive(draft, scope or self.scope, left, text, actor=actor, of=of)
            self._commit(draft)
            self._flush_if_possible()

    def goto(self, name: str, text: str, *, actor: str = "agent") -> None:
        """Comes to another scope as it was left, with a note on what one brings along. Kept as by `open_scope`.

        A step that is open there is finished. Raises: BadInput, NotFound, Refused (one is there already, or a switch is
        asked for already).
        """
        self._switch(Switch(name=name, text=text, actor=actor))

    def finish(self, scope: str = "") -> None:
        """The open step is complete as it is; its missing results are marked interrupted. A switch is made with it."""
        with self.writing():
            draft = Draft(self._known)
            at = scope or self.scope
            draft.finish(at)
            switched = self._due_switch(draft) if at == self.scope else None
            self._commit(draft, switched)
            self._flush_if_possible()

    @contextmanager
    def bulk(self, config: Sequence[str] = ()) -> Iterator[tuple[PackWriter, Counters]]:
        """For many commits at once, as an import makes: a pack writer, and the session's last numbers.

        Nothing goes through the journal: all refs move when the block is left normally, else none does. Afterwards
        this session knows the new tips.
        """
        with self.writing():
            self._flush()
            self.store.clean_up()
            with self._moving(), self.store.pack_writer(self._lock_handle, config) as pack:
                yield pack, Counters(block=self._known.block, group=self._known.group)

    def flush(self) -> None:
        """Complete steps and verbs become commits. An open step stays in the journal.

        Raises: CtxvcError; then everything is still in the journal.
        """
        with self.writing():
            self._flush()

    def leave(self) -> None:
        """Lets go of the files without a flush, as a reader does; what was read stays readable."""
        with self._mutex:
            self._journal.close()

    def close(self) -> None:
        """Flushes and lets go of the files. Raises: CtxvcError as `flush` does."""
        with self._mutex:
            try:
                if self.waiting():
                    self.flush()
            finally:
                self._journal.close()

    # --- operations

    def _switch(self, wanted: Switch) -> None:
        wanted = self._redacted(wanted)
        with self._mutex:
            self._known.look()
            self._may(wanted)
            if self.open_calls:
                self._wanted = wanted
                return
            with self.writing():
                self._may(wanted)
                draft = Draft(self._known)
                switch(draft, self.scope, wanted)
                self._commit(draft, wanted)
                self._flush_if_possible()

    def _redacted(self, wanted: Switch) -> Switch:
        if not (redactor := self._redactor):
            return wanted
        return msgspec.structs.replace(wanted, name=redactor.name(wanted.name), text=redactor.text(wanted.text))

    def _may(self, wanted: Switch) -> None:
        """Raises: CtxvcError where the switch cannot be asked for."""
        if self._wanted:
            raise Refused(
                f"a switch to {self._wanted.name!r} is asked for already: it is made when this step ends",
                hint="ask again after that",
            )
        check(self._known, self.scope, wanted)

    def _due_switch(self, draft: Draft) -> Switch | None:
        """Adds the switch that is asked for, if the step is over now; gives it. Raises: Conflict."""
        wanted = self._wanted
        if wanted is None or draft.numbering(self.scope).calls:
            return None
        try:
            check(self._known, self.scope, wanted)
        except CtxvcError as error:
            self._wanted = None
            raise Conflict(
                f"the switch to {wanted.name!r} cannot be made any more: {error}; nothing was added",
                hint="add it again without the switch, and say so in the result of the call that asked for it",
            ) from error
        switch(draft, self.scope, wanted)
        return wanted

    def _unchanged(self, seen: Ledger, now: Ledger, rows: Sequence[Row], groups: Sequence[Group], free: int) -> None:
        """No writer loses another's work: what is replaced is what the caller has seen, a new number is still free.

        `free` was the next number when the caller looked; a group of a lower one was here, and comes back by an undo.
        """
        moved = [row.id for row in rows if seen.get(row.id) != now.get(row.id)]
        moved += [group.id for group in groups if seen.groups.get(group.id) != now.groups.get(group.id)]
        moved += [
            each.id for each in groups if each.id not in now.groups and free <= int(each.id[1:]) < self.next_group
        ]
        if moved:
            raise Conflict(
                f"another writer has changed {', '.join(moved[:8])} meanwhile; nothing was done",
                hint="look again, and repeat it if it is still wanted",
            )

    def _commit(self, draft: Draft, switched: Switch | None = None) -> None:
        """The draft is acknowledged, and this writer is where it wanted to be. Raises: CtxvcError."""
        head = switched.name if switched and not self._named else ""
        self._acknowledge(Record(changes=tuple(draft.changes), head=head))
        for scope, numbering in draft.numberings.items():
            self._known.scopes[scope].numbering = numbering
        if switched:
            self.scope, self._wanted = switched.name, None

    # --- the journal

    @contextmanager
    def writing(self) -> Iterator[None]:
        with self._mutex, locked(self.store.lock_path(self.name)) as handle:
            self._lock_handle = handle
            known = self._known
            try:
                known.look()
                if known.head is None or known.head.moving or known.damage:
                    known.rewrite()
                self._journal.cut_tail(known.tail)
                known.tail = msgspec.structs.replace(known.tail, size=0)
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
        self._known.rewrite(moving=True)
        yield
        self._known.load()
        self._known.rewrite()

    def _acknowledge(self, record: Record) -> None:
        """The record is on the disk, whole, and known here. Raises: CtxvcError; then it is nowhere."""
        if not record.changes:
            return
        seq = self._known.seq + len(record.changes)
        data = encode_record(seq, record)
        try:
            self._journal.append([data])
        except OSError as error:
            raise _unwritable(self.name, error, "; nothing was added") from error
        self._known.apply(seq, record, data)

    # --- the flush

    def _due(self) -> bool:
        done = sum(item.change.done for held in self._known.scopes.values() for item in held.pending)
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
            self._known.load()
            self._flush_once()

    def _flush_once(self) -> None:
        flush(self._known, self._lock_handle)
        self._flushed = clock.monotonic()
        self.flush_failure = None

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
