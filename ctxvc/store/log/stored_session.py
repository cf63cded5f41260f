"""An open session in the store, the one mutable object. An acknowledged append survives a crash.

Each operation takes the session's lock, catches up with what other processes wrote and appends a record to the journal;
then it is acknowledged. A flush turns complete steps and verbs into commits. docs/architecture.md has a diagram.
"""

from __future__ import annotations

import errno
import threading
import time as clock
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NewType

import msgspec

from ctxvc.core import scope as scoping
from ctxvc.core.ledger.block import Message, Part
from ctxvc.core.ledger.ledger import Counters, Group, Ledger, Row
from ctxvc.core.ledger.numbering import Entry, Numbering
from ctxvc.core.plan.plan import Plan
from ctxvc.core.prompt.outline import Bodies
from ctxvc.errors import BadInput, Conflict, CtxvcError, NotFound, Phrase, Refused
from ctxvc.store import pending_plans
from ctxvc.store.files import locked
from ctxvc.store.format import BODY, ref_of
from ctxvc.store.git.fast_import import PackWriter
from ctxvc.store.log.flush import flush
from ctxvc.store.log.journal import Change, Damage, Record, encode_record
from ctxvc.store.log.state import SessionState, format_of
from ctxvc.store.log.switch import (
    Switch,
    arrive,
    begin_empty,
    branch,
    check,
    fork,
    make_switch,
    switch_asked,
    take_over,
    trailer,
)
from ctxvc.store.log.transaction import AdmittedEntry, Transaction
from ctxvc.store.pending_plans import PendingPlan
from ctxvc.store.read.commit_reader import Outline, system_and_tools
from ctxvc.store.store import Store, request_files

#: A flush happens after this many complete steps, or this many seconds after the last one, whichever comes first.
FLUSH_STEPS = 32
FLUSH_SECONDS = 1.0
#: The end of a turn is flushed at once if the last flush is at least this many seconds ago; otherwise a timer flushes
#: when they have passed. In a burst, a flush per turn would cost more than all its appends.
TURN_SECONDS = 1.0


#: Made only by `redacted_messages`, so that nothing is numbered before its secrets are removed.
RedactedMessages = NewType("RedactedMessages", tuple[Message, ...])


class StoredSession:
    """One conversation, opened for reading and writing. Use it in a `with` block, or `close` it.

    `scope` is this object's scope: at first the session's current scope, later the one that this object last switched
    to. The session's current scope follows, unless this object was opened on a scope by name.
    """

    def __init__(self, store: Store, name: str, scope: str = "") -> None:
        self.store = store
        self.name = name
        self._redactor = store.redaction.of(name)
        self._mutex = threading.RLock()
        self._state = SessionState(store, name)
        self._journal = self._state.journal
        self._flushed = clock.monotonic()
        self._is_fresh = True  # no flush yet: the first end of a turn is flushed at once
        self._later: _Flush | None = None
        self._lock_handle = -1
        self._named = bool(scope)
        self._pending_switch: Switch | None = None  # requested by this session, when `_asked_at` was the newest block
        self._asked_at = 0
        #: The error of the newest flush, or None. The changes that it did not commit are safe in the journal; the next
        #: flush takes them.
        self.flush_failure: CtxvcError | None = None
        self.scope = scope or self._state.moved_to or store.current_scope(name)
        try:
            self._state.scope(self.scope)
        except CtxvcError:
            self._journal.close()
            raise

    @staticmethod
    def open(store: Store, name: str = "", scope: str = "") -> StoredSession:
        """Opens a session, by default the store's current one, in `scope`, by default the session's current one.

        Raises: NotFound.
        """
        name = name or store.current_session()
        if not store.has(name) and not store.tips(name):
            near = ", ".join(store.sessions()[:8]) or "none yet"
            raise NotFound(f"no session {name!r} in {store.path}", hint=f"available: {near}")
        return StoredSession(store, name, scope)

    @staticmethod
    def for_reading(store: Store, name: str, scope: str = "") -> StoredSession:
        """As `open`, but leaves no file open: a store may have more sessions than a process may have open files."""
        stored = StoredSession.open(store, name, scope)
        stored.leave()
        return stored

    def __enter__(self) -> StoredSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- reading

    def scopes(self) -> list[str]:
        """The names of the scopes, `main` first."""
        return self._state.names()

    def ledger(self, scope: str = "") -> Ledger:
        """The scope's ledger now, including changes that are acknowledged but not committed."""
        return self._state.scope(scope or self.scope).current

    def outline(self, scope: str = "") -> Outline:
        """The scope's counts now; cheaper than its ledger. Raises: NotFound, Damaged."""
        return self._state.outline(scope or self.scope)

    def tip(self, scope: str = "") -> str:
        """The full id of the scope's newest commit; for a scope without commits, of the scope that it comes from."""
        return self._state.scope(scope or self.scope).tip

    def body(self, row: Row, scope: str = "") -> bytes:
        """The exact bytes of a block; their checksum is verified. Raises: Damaged."""
        return self._state.body(scope or self.scope, row)

    def file(self, row: Row, suffix: str, scope: str = "") -> bytes:
        """The exact bytes of a sibling file of a block, such as `1.png`. Raises: Damaged."""
        return self._state.file(scope or self.scope, row, suffix)

    def system_and_tools(self, scope: str = "") -> tuple[Any, Any]:
        """System prompt and tools as the provider got them; each is None if not recorded."""
        state, reader = self._state.scope(scope or self.scope), self.store.reader
        changes = [item.change for item in state.pending if item.change.files or item.change.without]
        if not changes:
            return reader.system_and_tools(state.tip)

        def file(path: str) -> bytes | None:
            for change in reversed(changes):
                if (data := dict(change.files).get(path)) is not None:
                    return data
                if not {path, "request"}.isdisjoint(change.without):
                    return None
            return reader.optional(state.tip, path)

        return system_and_tools(file)

    def pieces(self, scope: str = "", folder: str = BODY) -> dict[str, str | bytes]:
        """The pieces of the request body that the scope's newest reply answers, in the body's order.

        Maps path → bytes, or → blob id if the piece is committed. With another `folder`, the files in that folder.
        """
        state = self._state.scope(scope or self.scope)
        pieces: dict[str, str | bytes] = dict(self.store.reader.pieces(state.tip, folder))
        for item in state.pending:
            if item.change.origin:
                is_whole = item.change.inherit is None
                pieces = dict(self.store.reader.pieces(state.tip, folder)) if is_whole else {}
            dropped = item.change.without
            pieces = {path: piece for path, piece in pieces.items() if path not in dropped and folder not in dropped}
            pieces |= {path: data for path, data in item.change.files if path.startswith(f"{folder}/")}
        return dict(sorted(pieces.items()))

    def pending_plans(self) -> tuple[PendingPlan, ...]:
        """The pending plans of all scopes, oldest first. Raises: Damaged."""
        return pending_plans.pending(self.store, self.name)

    def covers(self, scope: str = "") -> str:
        """The `Ctxvc-Seq` of the scope's newest commit, which later commits repeat; empty if it covers nothing."""
        state, head = self._state.scope(scope or self.scope), self._state.head
        return f"{head.journal}/{state.covered}" if head and state.covered else ""

    def waiting(self) -> int:
        """The number of changes that are acknowledged but not committed."""
        return sum(len(state.pending) for state in self._state.scopes.values())

    def committed(self, scope: str = "") -> Ledger:
        """The ledger at the scope's newest commit; for a scope without commits, the ledger that it starts with."""
        state = self._state.scope(scope or self.scope)
        return state.committed if state.start is None else state.start

    def waiting_changes(self, scope: str = "") -> tuple[Change, ...]:
        """The scope's changes that are acknowledged but not committed, oldest first."""
        return tuple(item.change for item in self._state.scope(scope or self.scope).pending)

    @property
    def damage(self) -> tuple[Damage, ...]:
        """The unreadable parts of the journal: skipped, and set aside by the next operation that writes."""
        return tuple(self._state.damage.values())

    @property
    def in_step(self) -> bool:
        """Whether the current scope has an incomplete step."""
        return self._state.scope(self.scope).open

    @property
    def meanwhile(self) -> int:
        """The number of verbs in the current scope since its open step began; they are committed after that step."""
        count, begun = 0, False
        for item in self._state.scope(self.scope).pending:
            if item.change.op == "step":
                begun = not item.change.done
                count = count if begun else 0
            elif begun:
                count += 1
        return count

    @property
    def open_calls(self) -> tuple[str, ...]:
        """The ids of the current scope's calls without a result."""
        state = self._state.scope(self.scope)
        return tuple((state.numbering or Numbering.of(state.current, 0)).calls)

    @property
    def next_group(self) -> int:
        """The number of the next new group."""
        return self._state.group + 1

    @property
    def next_block(self) -> int:
        """The number of the next new block."""
        return self._state.block + 1

    @property
    def switching(self) -> str:
        """The scope that this session switches to at the end of the open step; empty if no switch is pending."""
        pending = self._asked_in(self.scope)
        return pending.name if pending else ""

    def refresh(self) -> None:
        """Catches up with what other processes wrote."""
        with self._mutex:
            self._catch_up()

    # --- writing

    def append(self, *messages: Message, scope: str = "") -> list[str]:
        """Adds messages to the scope; returns the ids of the new blocks, which are on the disk on return.

        Secrets are replaced by marks first, so that they never reach the disk.
        Raises: as `number`; CtxvcError. In all cases nothing was added.
        """
        redacted, ids = self.redacted_messages(messages), []
        with self.writing() as transaction:
            for at, entry in self.number(transaction, redacted, scope):
                transaction.append(at, AdmittedEntry(entry))
                ids += [row.id for row in entry.rows]
            self.acknowledge(transaction)
        return ids

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """Holds the session's lock; yields an empty transaction on top of everything that other processes wrote.

        A transaction that is not acknowledged inside leaves no trace. After an error, the next operation reads the
        journal from its beginning.
        """
        with self._mutex, locked(self.store.lock_path(self.name)) as handle:
            self._lock_handle = handle
            state = self._state
            try:
                self._catch_up()
                if state.head is None or state.head.moving or state.damage:
                    state.rewrite()
                self._journal.cut_tail(state.tail)
                state.tail = msgspec.structs.replace(state.tail, size=0)
                yield Transaction(state)
            except OSError as error:
                self._journal.close()
                raise _unwritable(self.name, error) from error
            except BaseException:
                # Only the disk shows how much was written: the next operation reads everything again.
                self._journal.close()
                raise

    def redacted_messages(self, messages: Iterable[Message]) -> RedactedMessages:
        """The messages without their secrets. This can be slow, so it is done before the lock is taken."""
        return RedactedMessages(tuple(map(self._redactor.message, messages) if self._redactor else messages))

    def number(
        self, transaction: Transaction, messages: RedactedMessages, scope: str = ""
    ) -> Iterator[tuple[str, Entry]]:
        """Numbers the messages; yields (scope, entry) one at a time. Append each before taking the next.

        A pending switch is made at the end of the open step, in the same record; what follows goes into the new scope,
        unless `scope` names another. The bodies of a yielded entry are already in `transaction.bodies`.
        Raises: Conflict if the switch is no longer possible; it is then no longer pending.
        """
        at = scope or self.scope
        for message in messages:
            ended, rest = transaction.numbering(at).settle(message)
            yield from _numbered(transaction, at, ended)
            if self._switch_if_due(transaction, at):
                at = scope or transaction.switched_to
            yield from _numbered(transaction, at, transaction.numbering(at).begin(rest))
        self._switch_if_due(transaction, at)

    def acknowledge(self, transaction: Transaction) -> None:
        """Writes the transaction to the disk as one record, and flushes if a flush is due.

        Raises: CtxvcError; then nothing was written.
        """
        self._acknowledge(transaction)
        newest = transaction.newest
        only_verbs = newest is None and bool(transaction.changes)
        if only_verbs or transaction.switched_to or (newest and newest.done and self._due()):
            self._flush_if_possible()
        elif newest and _ends_turn(newest):
            self._end_turn()

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
        blocks: Sequence[str] = (),
    ) -> list[str]:
        """Sets rows, groups and fields of `ctxvc.json` in one commit; the change is on the disk on return.

        `parts` become new blocks beside the conversation, which start no step and no turn; returns their ids. `text`
        follows the subject in the commit's message.
        Raises: Conflict if another process changed one of these rows or groups since this session last looked
        (`refresh`), or if the new blocks would get other ids than `blocks`, if given.
        """
        rows, groups = tuple(rows), tuple(groups)
        seen, free = self.ledger(scope) if rows or groups else None, self.next_group
        if redactor := self._redactor:
            subject, text, trailers = redactor.text(subject), redactor.text(text), redactor.value(dict(trailers or {}))
            parts = tuple(map(redactor.part, parts))
            rows, groups = tuple(map(redactor.row, rows)), tuple(map(redactor.group, groups))
        with self.writing() as transaction:
            if seen is not None:
                self._unchanged(seen, self.ledger(scope), rows, groups, free)
            ids = transaction.verb(
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
            if blocks and list(blocks) != ids:
                raise Conflict(
                    f"another writer has taken the number of {blocks[0]}; nothing was done", hint="try again"
                )
            self._record(transaction)
            return ids

    def note(
        self,
        text: str,
        *,
        actor: str = "agent",
        labels: Sequence[str] = (),
        supersedes: Sequence[str] = (),
        rows: Iterable[Row] = (),
        groups: Iterable[Group] = (),
        meta: Mapping[str, Any] | None = None,
        trailers: Mapping[str, str] | None = None,
        scope: str = "",
        block: str = "",
    ) -> str:
        """Records what was learned, as a commit and as a block that the model sees; returns the block's id.

        The other arguments are as for `change`.
        Raises: BadInput if there is no text; Conflict as `change`, also if the note would get another id than `block`.
        """
        if not text.strip():
            raise BadInput("a note needs text", hint=Phrase("give-text"))
        first, whole = scoping.subject_and_text(text)
        (written,) = self.change(
            subject=f"note: {first}",
            op="note",
            actor=actor,
            rows=rows,
            groups=groups,
            parts=[scoping.note(text, actor, labels=labels, supersedes=supersedes)],
            meta=meta,
            trailers=trailers,
            text=whole,
            scope=scope,
            blocks=[block] if block else (),
        )
        return written

    def propose(self, plan: Plan) -> PendingPlan:
        """Stores a pending plan for the current scope, visible to every process. Raises: as `pending_plans.put`."""
        now = self.store.now_iso()
        return pending_plans.put(self.store, self.name, self.scope, plan, base_commit=self.tip(), time=now)

    def drop_plans(self, ids: Collection[str], why: str, *, actor: str = "") -> tuple[str, ...]:
        """Drops pending plans; returns the ids of those that were pending. See `pending_plans.drop`."""
        return pending_plans.drop(self.store, self.name, ids, why, actor=actor)

    def redacted(self, texts: Mapping[str, str]) -> Mapping[str, str]:
        """The texts without their secrets, redacted like everything recorded."""
        if not self._redactor:
            return texts
        return {key: self._redactor.text(value) for key, value in texts.items()}

    def open_scope(
        self, name: str, text: str, *, actor: str = "agent", from_commit: str = "", with_messages: bool = False
    ) -> None:
        """Switches to a new scope, with a note that says why, in both scopes.

        The new scope inherits what `core.scope.inherited` says; with `with_messages` everything; with `from_commit` (a
        full id) everything in that commit, on top of it. While calls are open, the switch is pending (`switching`) and
        on the disk: it is made when the step ends, by whichever process ends it.
        Raises: BadName, BadInput, Refused (the name is taken, or a switch is already pending), NotFound.
        """
        self._switch(
            Switch(name=name, text=text, actor=actor, new=True, origin=from_commit, with_messages=with_messages)
        )

    def branch(self, name: str, text: str) -> None:
        """Creates a new scope for a helper, beside this one, which goes on unchanged; also in the middle of a step.

        It starts from the newest complete step, with what is pinned there except humans' text. The helper opens a
        session of its own on it. Raises: BadName, BadInput, Refused (the name is taken).
        """
        requested = self._redacted(Switch(name=name, text=text, actor="agent", new=True))
        with self._beside(requested) as transaction:
            branch(transaction, self.scope, requested, self.tip())

    def begin_empty(self, name: str) -> None:
        """Creates an empty scope beside this one, on top of the newest complete step, for a host's sub-agent.

        No session switches to it: the caller opens a stored session of its own on it.
        Raises: BadName, Refused for a taken name.
        """
        with self._beside(Switch(name=name, text=name, actor="host", new=True)) as transaction:
            begin_empty(transaction, self.scope, name, self.tip())

    def fork(self, name: str, text: str, *, commit: str, source: str) -> None:
        """Creates a scope that continues from a commit unchanged, without a note, for a host's session `source`.

        No session switches to it: the caller opens a stored session of its own on it.
        Raises: BadName, BadInput, Refused (the name is taken), NotFound (the commit belongs to another session).
        """
        requested = self._redacted(Switch(name=name, text=text, actor="host", new=True, origin=commit))
        with self._beside(requested) as transaction:
            fork(transaction, requested, source)

    def take_over(
        self, name: str, text: str, *, commit: str, ledger: Ledger, bodies: Bodies, system: Any, tools: Any
    ) -> None:
        """Creates a scope on top of a commit, with this ledger, for an agent with its own system prompt and tools.

        No session switches to it: the caller opens a stored session of its own on it. Raises: as `fork`.
        """
        requested = self._redacted(Switch(name=name, text=text, actor="user", new=True, origin=commit))
        with self._beside(requested) as transaction:
            take_over(transaction, requested, ledger, bodies, request_files(system, tools))

    def arrive(self, from_scope: str, text: str, *, of: str, scope: str = "") -> None:
        """Records what a helper brings back from `from_scope`: a note, in a commit with both scopes as parents.

        This session stays in its scope. `of` is the block of the result that has the helper's report; its step is
        complete. Raises: NotFound.
        """
        text = self._redactor.text(text) if self._redactor else text
        with self.writing() as transaction:
            self._state.scope(from_scope)
            arrive(transaction, scope or self.scope, from_scope, text, of=of)
            self._record(transaction)

    def goto(self, name: str, text: str, *, actor: str = "agent") -> None:
        """Switches to another scope as it was left, with a note on what is brought along. Pending as in `open_scope`.

        A step that is open there is finished.
        Raises: BadInput, NotFound, Refused (this is the current scope, or a switch is already pending).
        """
        self._switch(Switch(name=name, text=text, actor=actor))

    def finish(self, scope: str = "") -> None:
        """Ends the open step now: missing results are marked interrupted, and a pending switch is made."""
        with self.writing() as transaction:
            at = scope or self.scope
            transaction.finish(at)
            self._switch_if_due(transaction, at)
            self._record(transaction)

    @contextmanager
    def bulk(self, config: Sequence[str] = ()) -> Iterator[tuple[PackWriter, Counters]]:
        """For writing many commits at once, as an import does: yields a pack writer and the session's last numbers.

        Bypasses the journal. If the block ends normally, all refs move; otherwise none does. Afterwards this session
        knows the new tips.
        """
        with self.writing():
            self._flush()
            self.store.clean_up()
            with self._moving(), self.store.pack_writer(self._lock_handle, config) as pack:
                yield pack, Counters(block=self._state.block, group=self._state.group)

    def receive(self, lines: Mapping[str, tuple[str, str]]) -> dict[str, str]:
        """Moves scopes to commits that another clone made; returns scope → new tip of those that moved.

        `lines` maps scope → (its tip now, empty for a new scope; its new tip). A scope stays if it was moved meanwhile
        or has an open step; the next time, it is a line of its own.
        Raises: CtxvcError; then either none has moved or all have.
        """
        with self.writing():
            self._flush()
            moves = {}
            for scope, (before, after) in lines.items():
                state = self._state.scopes.get(scope)
                if (state.tip if state else "") == before and not (state and state.pending):
                    moves[scope] = after
            if moves:
                with self._moving():
                    self.store.move_refs(
                        {ref_of(self.name, scope): (lines[scope][0], after) for scope, after in moves.items()},
                        self._lock_handle,
                    )
            return moves

    def flush(self) -> None:
        """Commits complete steps and verbs. An open step stays in the journal.

        Raises: CtxvcError; then everything is still in the journal.
        """
        with self.writing():
            self._flush()

    def leave(self) -> None:
        """Closes the files without a flush, as a reader does; everything read so far stays readable."""
        with self._mutex:
            self._end_timer()
            self._journal.close()

    def close(self) -> None:
        """Flushes and closes the files. Raises: CtxvcError as `flush` does."""
        with self._mutex:
            try:
                if self.waiting():
                    self.flush()
            finally:
                self._end_timer()
                self._journal.close()

    # --- operations

    def _switch(self, requested: Switch) -> None:
        requested = self._redacted(requested)
        with self._mutex:
            self._catch_up()
            self._check_request(requested)
            with self.writing() as transaction:
                self._check_request(requested)
                if self.open_calls:
                    transaction.ask(self.scope, trailer(requested), actor=requested.actor, text=requested.text)
                    self._acknowledge(transaction)
                    self._pending_switch, self._asked_at = requested, self._state.block
                    return
                self._make(transaction, self.scope, requested)
                self._record(transaction)

    @contextmanager
    def _beside(self, requested: Switch) -> Iterator[Transaction]:
        """Yields a transaction that adds a scope on top of the committed state, and records it. Raises: as `check`."""
        with self.writing():
            check(self._state, self.scope, requested)
            self._flush()
            transaction = Transaction(self._state)
            yield transaction
            self._record(transaction)

    def _redacted(self, requested: Switch) -> Switch:
        if not (redactor := self._redactor):
            return requested
        name, text = redactor.name(requested.name), redactor.text(requested.text)
        return msgspec.structs.replace(requested, name=name, text=text)

    def _check_request(self, requested: Switch) -> None:
        """Raises: CtxvcError if the switch cannot be requested."""
        if pending := self._asked_in(self.scope):
            raise Refused(
                f"a switch to {pending.name!r} is already pending; it happens when this step ends",
                hint="ask again after that",
            )
        check(self._state, self.scope, requested)

    def _switch_if_due(self, transaction: Transaction, scope: str) -> bool:
        """Makes the switch that is pending in `scope` if its step is now over; returns whether this session switched.

        Raises: Conflict.
        """
        pending = self._asked_in(scope)
        if pending is None or scope in transaction.left or transaction.numbering(scope).calls:
            return False
        try:
            check(self._state, scope, pending)
        except CtxvcError as error:
            self._take_back(scope, pending)
            raise Conflict(
                f"the switch to {pending.name!r} is no longer possible: {error}; nothing was added",
                hint="add it again without the switch, and report that in the result of the call that requested it",
            ) from error
        self._make(transaction, scope, pending)
        return bool(transaction.switched_to)

    def _take_back(self, scope: str, pending: Switch) -> None:
        """Cancels the pending switch. Nothing else of this operation is written."""
        transaction = Transaction(self._state)
        transaction.ask(scope, "-", actor=pending.actor)
        self._write(Record(changes=tuple(transaction.changes)))
        self._pending_switch = None

    def _asked_in(self, scope: str) -> Switch | None:
        """The switch pending at the end of the scope's open step, whichever process requested it, or None."""
        state = self._state.scopes.get(scope)  # a scope that this same operation creates is not there yet
        change = state.asking if state else None
        return switch_asked(change) if change else None

    def _catch_up(self) -> None:
        """Applies what other processes wrote, and follows our pending switch if one of them made it."""
        self._state.catch_up()
        pending = self._pending_switch
        if pending and not self._asked_in(self.scope):
            self._pending_switch = None
            if self._was_made(pending):
                self.scope = pending.name

    def _was_made(self, pending: Switch) -> bool:
        """Whether another process made the switch that this one requested: its new scope, or its arrival note, exists.

        It was not made if someone went to this scope and finished the step there.
        """
        if pending.new or pending.name not in self._state.scopes:
            return pending.name in self._state.scopes
        note = scoping.arrival(self.scope, pending.text).encode()
        return any(
            row.kind == "note" and self.body(row, pending.name) == note
            for row in self._state.scope(pending.name).current.backwards()
            if row.number > self._asked_at
        )

    def _make(self, transaction: Transaction, scope: str, pending: Switch) -> None:
        make_switch(transaction, scope, pending)
        transaction.left.add(scope)
        if scope == self.scope:
            transaction.switched_to = pending.name

    def _unchanged(
        self, seen: Ledger, current: Ledger, rows: Sequence[Row], groups: Sequence[Group], free: int
    ) -> None:
        """Raises: Conflict if a replaced row or group has changed since the caller looked, or a new number is taken.

        `seen` was the ledger then, and `free` the next group number. A group below that existed: an undo restores it.
        """
        moved = [row.id for row in rows if seen.get(row.id) != current.get(row.id)]
        moved += [group.id for group in groups if seen.groups.get(group.id) != current.groups.get(group.id)]
        moved += [
            group.id
            for group in groups
            if group.id not in current.groups and free <= int(group.id[1:]) < self.next_group
        ]
        if moved:
            raise Conflict(
                f"another writer has changed {', '.join(moved[:8])} meanwhile; nothing was done",
                hint="check the new state, and repeat the command if it is still wanted",
            )

    # --- the journal

    @contextmanager
    def _moving(self) -> Iterator[None]:
        """Lets refs move without a record. Other processes read the tips again, even after a crash inside the block."""
        self._state.rewrite(moving=True)
        yield
        self._state.reload()
        self._state.rewrite()

    def _acknowledge(self, transaction: Transaction) -> None:
        """Writes the whole transaction to the disk, and follows its switch.

        Raises: CtxvcError; then nothing was written.
        """
        switched_to = transaction.switched_to
        self._write(Record(changes=tuple(transaction.changes), head="" if self._named else switched_to))
        for scope, numbering in transaction.numberings.items():
            self._state.scopes[scope].numbering = numbering
        if switched_to:
            self.scope, self._pending_switch = switched_to, None

    def _record(self, transaction: Transaction) -> None:
        """Acknowledges and flushes the transaction. Raises: as `_acknowledge`."""
        self._acknowledge(transaction)
        self._flush_if_possible()

    def _write(self, record: Record) -> None:
        """Writes the whole record to the disk and applies it. Raises: CtxvcError; then neither was done."""
        if not record.changes:
            return
        seq = self._state.seq + len(record.changes)
        data = encode_record(seq, record)
        if (needed := max(map(format_of, record.changes))) > self._state.format:
            self._state.rewrite(format=needed)  # a program that does not know this format must not read on
        try:
            self._journal.append([data])
        except OSError as error:
            raise _unwritable(self.name, error, "; nothing was added") from error
        self._state.apply(seq, record, data)

    # --- the flush

    def _due(self) -> bool:
        complete = sum(item.change.done for state in self._state.scopes.values() for item in state.pending)
        waited = clock.monotonic() - self._flushed > FLUSH_SECONDS
        return complete > 0 and (waited or (complete >= FLUSH_STEPS and self.flush_failure is None))

    def _end_turn(self) -> None:
        """Flushes now; right after another flush, a timer does within a second, unless something else does before."""
        if self._is_fresh or clock.monotonic() - self._flushed >= TURN_SECONDS:
            self._flush_if_possible()
        elif self._later is None:
            self._later = _Flush(self.store.path, self.name)
            self._later.start()

    def _flush_if_possible(self) -> None:
        """Flushes. The operation is acknowledged already, so a failure is stored in `flush_failure`, not raised."""
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
        """Commits complete steps and verbs, moves refs, HEAD last, and drops from the journal what is committed."""
        try:
            self._flush_once()
        except Conflict:
            # A killed writer's git may have moved a ref after we read it. It has ended: we hold the lock that it held.
            self._state.reload()
            self._flush_once()

    def _flush_once(self) -> None:
        flush(self._state, self._lock_handle)
        self._flushed = clock.monotonic()
        self._is_fresh = False
        self.flush_failure = None
        self._end_timer()

    def _end_timer(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None


class _Flush(threading.Timer):
    """Flushes a session in a second, as another process would: its thread shares nothing with the open session.

    If it fails, everything stays in the journal for the next flush.
    """

    def __init__(self, store: Path, name: str) -> None:
        super().__init__(TURN_SECONDS, self._flush)
        self.daemon = True
        self._path, self._session = store, name

    def _flush(self) -> None:
        with suppress(CtxvcError, OSError), Store(self._path) as store, StoredSession(store, self._session) as session:
            session.flush()


def _numbered(transaction: Transaction, scope: str, entries: Iterable[Entry]) -> Iterator[tuple[str, Entry]]:
    """Each entry with its scope, after its bodies were added to the transaction."""
    for entry in entries:
        transaction.add_bodies(entry.bodies)
        yield scope, entry


def _ends_turn(entry: Entry) -> bool:
    """Whether the model stopped by itself: its reply has no calls."""
    return entry.done and any(row.role == "assistant" for row in entry.rows)


def _unwritable(session: str, error: OSError, what: str = "") -> CtxvcError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return CtxvcError(
        f"cannot write to the journal of {session!r}: {error.strerror or error}{what}",
        hint="free some space" if full else "check the disk and the store's permissions",
    )
