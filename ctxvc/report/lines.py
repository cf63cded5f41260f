"""The history of a session by scope: what each commit changed, and which call of the model was the first to see it."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ctxvc.core.ledger.ledger import Group, Ledger, Meta, Row
from ctxvc.core.prompt.request import up_to
from ctxvc.errors import Damaged, Phrase
from ctxvc.store import format as fmt
from ctxvc.store.git.objects import Objects, Tree, Unbrowsed, Unreadable
from ctxvc.store.log.commits import apply_change
from ctxvc.store.log.journal import Change as WaitingChange
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import revision
from ctxvc.store.read.operations import BEGINNING
from ctxvc.store.read.revision import PROMPT, Entry, Snapshot
from ctxvc.store.read.sent_prompt import Sent, parse
from ctxvc.store.store import Store
from ctxvc.store.verify.decoded import Contents


class Change(NamedTuple):
    """A commit of a scope, and the rows and groups that it made or changed; a group that went has no members."""

    entry: Entry
    meta: Meta
    rows: tuple[Row, ...]
    groups: tuple[Group, ...] = ()

    @property
    def op(self) -> str:
        return self.entry.trailers.get("Ctxvc-Op", "")

    @property
    def actor(self) -> str:
        return self.entry.trailers.get("Ctxvc-Actor", self.entry.actor)

    @property
    def reason(self) -> str:
        """The reason that was given for all of it; often empty."""
        return self.entry.trailers.get("Ctxvc-Reason", "")

    def reasons(self) -> dict[str, str]:
        """Block → the reason that was given for it alone."""
        of_blocks = (text.partition(" ") for text in self.entry.trailers.get("Ctxvc-Why", "").split("; "))
        return {block: reason for block, _, reason in of_blocks if block}


@dataclass(slots=True)
class Line:
    """A scope's own commits, oldest first. The first change has all that it began with; `parent` is the line that it
    left, when `start` calls had been made.
    """

    number: int
    name: str
    parent: Line | None
    start: int
    changes: list[Change] = field(default_factory=list)

    #: What is acknowledged and in no commit yet, and where the scope stands with it; None if nothing waits.
    now: Snapshot | None = None

    @property
    def tip(self) -> str:
        """Its newest commit."""
        return next(change.entry.commit for change in reversed(self.changes) if change.entry.commit)


class Call(NamedTuple):
    """A call of the model: the change that has its reply, None for the call that would come next; and what was sent.

    `changes` are those that no call of this line had seen before, `fresh` the rows that came or changed with them,
    each with its change, `groups` the groups.
    """

    line: Line
    change: Change | None
    ledger: Ledger
    fresh: tuple[tuple[Row, Change], ...]
    groups: tuple[Group, ...]
    changes: tuple[Change, ...]


class _Unseen(NamedTuple):
    """A change that no call has seen, or its last rows only."""

    change: Change
    rows: tuple[Row, ...]
    complete: bool = True


def lines(store: Store, tips: Iterable[str]) -> tuple[list[Line], list[Line]]:
    """The scopes that the tips reach with all of their changes, and the line of each call, both in the order in which
    they were made. Raises: Damaged.
    """
    collected: list[Line] = []
    order: list[Line] = []
    by_commit: dict[str, Line] = {}
    reader = _Reader(store)
    for entry in revision.trace(store, tips):
        parent = entry.parents[0] if entry.parents else ""
        line = by_commit.get(parent)
        if line is None or line.tip != parent or entry.trailers.get("Ctxvc-Op") in BEGINNING:
            change = reader.everything(entry)
            line = Line(len(collected), change.meta.scope, line, len(order), [change])
            collected.append(line)
        else:
            change = reader.change(entry, parent)
            line.changes.append(change)
        if _sent(change):
            order.append(line)
        by_commit[entry.commit] = line
    return collected, order


def add_waiting(line: Line, stored: StoredSession) -> bool:
    """Adds what is acknowledged of a line's scope and in no commit yet; gives whether that has a call of the model.

    The messages of the open step are one change, as they will be one commit; verbs made meanwhile come behind it.
    """
    pending = stored.waiting_changes(line.name)
    if not pending:
        return False
    line.now = revision.now(stored, line.name)
    ledger = stored.committed(line.name)
    step: list[tuple[WaitingChange, Meta]] = []
    verbs: list[Change] = []
    for one in pending:
        ledger = apply_change(ledger, one)
        if one.op == "step":
            step.append((one, ledger.meta))
        else:
            verbs.append(Change(_waiting_entry(one), ledger.meta, one.rows, one.groups))
    changes = verbs
    if step:
        rows = {row.id: row for one, _ in step for row in one.rows}
        groups = {group.id: group for one, _ in step for group in one.groups}
        newest, meta = step[-1]
        changes = [Change(_waiting_entry(newest), meta, tuple(rows.values()), tuple(groups.values())), *verbs]
    line.changes += changes
    return any(_sent(change) for change in changes)


def _waiting_entry(change: WaitingChange) -> Entry:
    trailers = {**change.trailers, "Ctxvc-Op": change.op, "Ctxvc-Actor": change.actor}
    return Entry(
        commit="", parents=(), subject=change.subject, body="", trailers=trailers, actor=change.actor,
        time=change.written,
    )  # fmt: skip


def calls(line: Line) -> Iterator[Call]:
    """The calls of a line in order, and at last the one that would come next."""
    ledger = Ledger(meta=line.changes[0].meta)
    unseen: list[_Unseen] = []
    position = 0  # of the first change that was not looked at yet
    for place, change in enumerate(line.changes):
        sent = _sent(change)
        if sent is None:
            continue
        end = max(position, place + 1 + max(sent.later, 0))
        unseen += [_Unseen(one, one.rows) for one in line.changes[position:end]]
        position = end
        between = {id(one) for one in line.changes[max(0, place + sent.later) : place]} if sent.later < 0 else set()
        last = int(sent.last[1:]) if sent.last else 0
        seen, unseen = _divided(unseen, last, between)
        call = _call(line, change, ledger, seen)
        ledger = call.ledger
        newest = ledger.last()
        yield call._replace(ledger=up_to(ledger, sent.last)) if newest and newest.number > last else call
    yield _call(line, None, ledger, [*unseen, *(_Unseen(one, one.rows) for one in line.changes[position:])])


def _divided(unseen: Iterable[_Unseen], last: int, between: Container[int]) -> tuple[list[_Unseen], list[_Unseen]]:
    """What a call saw whose newest block is `last`, and the rest; the changes `between` it and its reply it did not."""
    seen: list[_Unseen] = []
    unseen_still: list[_Unseen] = []
    for one in unseen:
        if id(one.change) in between:
            unseen_still.append(one)
            continue
        early = tuple(row for row in one.rows if row.number <= last)
        seen.append(one._replace(rows=early))
        if len(early) < len(one.rows):
            unseen_still.append(
                _Unseen(one.change, tuple(row for row in one.rows if row.number > last), complete=False)
            )
    return seen, unseen_still


def _call(line: Line, change: Change | None, ledger: Ledger, seen: Iterable[_Unseen]) -> Call:
    fresh: list[tuple[Row, Change]] = []
    groups: list[Group] = []
    changes: list[Change] = []
    meta = ledger.meta
    for one in seen:
        fresh += [(row, one.change) for row in one.rows]
        if one.complete:
            changes.append(one.change)
            groups += one.change.groups
            meta = one.change.meta
    after = ledger.with_rows(row for row, _ in fresh).with_groups(groups).with_meta(meta)
    return Call(line, change, after, tuple(fresh), tuple(groups), tuple(changes))


def _sent(change: Change) -> Sent | None:
    """The prompt that a change's reply saw: as its commit says, else all that came before; None without a reply."""
    if change.op != "step":
        return None
    step = change.meta.counters.step
    replies = [row.number for row in change.rows if row.step == step and row.role == "assistant"]
    if not replies:
        return None
    recorded = parse(change.entry.trailers.get(PROMPT, ""))
    return recorded or Sent("", f"B{min(replies) - 1}" if min(replies) > 1 else "")


class _Reader:
    """Reads what a commit changed. What two commits share is decoded once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._objects = Objects(store.repository)
        self._contents = Contents(self._objects)

    def everything(self, entry: Entry) -> Change:
        """All that a commit's ledger has."""
        ledger = self._store.reader.ledger(entry.commit)
        return Change(entry, ledger.meta, tuple(ledger.rows()), tuple(ledger.groups.values()))

    def change(self, entry: Entry, parent: str) -> Change:
        """What differs from the parent's ledger. Raises: Damaged."""
        try:
            old, new = map(self._tree, (parent, entry.commit))
            meta = self._contents.meta(new[fmt.META.encode()][1])
            rows: list[Row] = []
            groups: tuple[Group, ...] = ()
            ledgers = (tree.get(b"ledger") for tree in (old, new))
            before, after = (entry_of and entry_of[1] for entry_of in ledgers)
            for file in self._objects.diff(before, after, "ledger", 1) if before != after else ():
                if isinstance(file, Unbrowsed):
                    raise file.error
                was, now = file.old and file.old.id, file.new and file.new.id
                if file.path == fmt.GROUPS:
                    groups = self._groups(was, now)
                else:
                    rows += self._rows(was, now)
        except (Unreadable, KeyError) as error:
            raise Damaged(f"commit {entry.commit[:12]} cannot be read: {error}", hint=Phrase("verify")) from error
        rows.sort(key=lambda row: row.number)
        return Change(entry, meta, tuple(rows), groups)

    def _tree(self, commit: str) -> Tree:
        return self._objects.tree(self._objects.commit(bytes.fromhex(commit)).tree)

    def _rows(self, old: bytes | None, new: bytes | None) -> Iterable[Row]:
        if new is None:
            return ()
        if old is None:
            return self._contents.rows(new).values()
        if added := self._contents.added(old, new):
            return added
        before = self._contents.rows(old)
        return [row for name, row in self._contents.rows(new).items() if before.get(name) != row]

    def _groups(self, old: bytes | None, new: bytes | None) -> tuple[Group, ...]:
        changes = self._contents.regrouped(old, new)
        return tuple(changes.new.get(name) or Group(id=name, members=()) for name in sorted(changes.touched))
