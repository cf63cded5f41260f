"""The history of a session by scope: what each commit changed, and the first call of the model that saw it."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
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
from ctxvc.store.read.revision import PROMPT, Entry, Sent, Snapshot, sent_prompt
from ctxvc.store.store import Store
from ctxvc.store.verify.decoded import Contents

#: Decoded segments of the ledger in memory: a commit changes few of them.
_SEGMENTS = 32


class Change(NamedTuple):
    """A commit of a scope, and the rows and groups that it made or changed; a removed group has no members."""

    entry: Entry
    meta: Meta
    rows: tuple[Row, ...]
    groups: tuple[Group, ...] = ()

    @property
    def op(self) -> str:
        return self.entry.op

    @property
    def actor(self) -> str:
        return self.entry.trailers.get("Ctxvc-Actor", self.entry.actor)

    @property
    def reason(self) -> str:
        """The reason for the change as a whole; often empty."""
        return self.entry.trailers.get("Ctxvc-Reason", "")

    def bare(self) -> Change:
        """The change without rows and groups."""
        return self._replace(rows=(), groups=())

    def reasons(self) -> dict[str, str]:
        """Block → the reason for it alone."""
        of_blocks = (text.partition(" ") for text in self.entry.trailers.get("Ctxvc-Why", "").split("; "))
        return {block: reason for block, _, reason in of_blocks if block}


@dataclass(slots=True)
class Line:
    """A scope's own commits, oldest first; it left the line `parent` after `start` calls.

    `uncommitted` are acknowledged changes that are not committed yet; `now` is the scope with them, None without any.
    """

    number: int
    name: str
    parent: Line | None
    entries: list[Entry]
    start: int = 0
    uncommitted: list[Change] = field(default_factory=list)
    now: Snapshot | None = None

    @property
    def tip(self) -> str:
        """The newest commit."""
        return self.entries[-1].commit

    @property
    def all_entries(self) -> list[Entry]:
        """The commits and uncommitted changes, oldest first."""
        return [*self.entries, *(change.entry for change in self.uncommitted)]


class Call(NamedTuple):
    """A call of the model: the (bare) change with its reply, None for the call that would come next; the rows of the
    `reply`; and the `ledger` that was sent.

    `changes` are those that no earlier call of the line saw; `fresh` are the rows that they made or changed, each with
    its change, and `groups` the groups.
    """

    line: Line
    change: Change | None
    reply: tuple[Row, ...]
    ledger: Ledger
    fresh: tuple[tuple[Row, Change], ...]
    groups: tuple[Group, ...]
    changes: tuple[Change, ...]


class _Unseen(NamedTuple):
    """A change of a line that no call has seen, or just its last rows; `place` is its number in the line."""

    place: int
    change: Change
    rows: tuple[Row, ...]
    complete: bool = True


def lines(store: Store, tips: Iterable[str]) -> tuple[list[Line], list[Line]]:
    """The scopes that the tips reach, and the line of each commit, both in the order of the commits.

    Raises: Damaged.
    """
    own: list[Line] = []
    order: list[Line] = []
    by_commit: dict[str, Line] = {}
    for entry in revision.trace(store, tips):
        parent = entry.parents[0] if entry.parents else ""
        line = by_commit.get(parent)
        if line is None or line.tip != parent or entry.op in BEGINNING:
            line = Line(len(own), store.reader.meta(entry.commit).scope, line, [entry])
            own.append(line)
        else:
            line.entries.append(entry)
        order.append(line)
        by_commit[entry.commit] = line
    return own, order


def add_waiting(line: Line, stored: StoredSession) -> None:
    """Adds the acknowledged changes of a line's scope that are not committed yet.

    The messages of the open step are one change, as they will be one commit; verbs made meanwhile come after it.
    """
    pending = stored.waiting_changes(line.name)
    if not pending:
        return
    line.now = revision.now(stored, line.name)
    ledger = stored.committed(line.name)
    step: list[tuple[WaitingChange, Meta]] = []
    verbs: list[Change] = []
    for one in pending:
        ledger = apply_change(ledger, one)
        if one.op == "step":
            step.append((one, ledger.meta))
        else:
            verbs.append(Change(revision.waiting_entry(one), ledger.meta, one.rows, one.groups))
    changes = verbs
    if step:
        rows = {row.id: row for one, _ in step for row in one.rows}
        groups = {group.id: group for one, _ in step for group in one.groups}
        newest, meta = step[-1]
        changes = [Change(revision.waiting_entry(newest), meta, tuple(rows.values()), tuple(groups.values())), *verbs]
    line.uncommitted = changes


def calls(
    store: Store, own: Sequence[Line], order: Iterable[Line], newest: Sequence[Mapping[str, Row]]
) -> Iterator[Call]:
    """The calls of the lines in order, then for each line the call that would come next.

    A commit is read when its turn comes, and dropped once a call has seen it. `newest` has each line's newest rows,
    with which equal rows are shared. Raises: Damaged.
    """
    reader = _Reader(store)
    courses = [_Course(line, reader.changes(line), rows) for line, rows in zip(own, newest, strict=True)]
    count = 0
    uncommitted = (one for one in own for _ in one.uncommitted)
    for line in chain(order, uncommitted):
        course = courses[line.number]
        if not course.place:
            line.start = count
        if call := course.step():
            count += 1
            yield call
    for course in courses:
        yield course.next_call()


class _Course:
    """A line, read change by change: what its calls have seen so far, and what they have not."""

    def __init__(self, line: Line, changes: Iterator[Change], newest: Mapping[str, Row]) -> None:
        self._line = line
        self._changes = changes
        self._newest = newest
        self._read: dict[int, Change] = {}  # place → a change that is still needed
        self.place = 0  # of the next change
        self._end = 0  # of the changes read
        self._position = 0  # of the first change that no call has looked at
        self._unseen: list[_Unseen] = []
        self._ledger: Ledger | None = None

    def step(self) -> Call | None:
        """The call whose reply is in the next change; None if it has none."""
        place = self.place
        self.place += 1
        self._read_to(place + 1)
        change = self._read[place]
        if self._ledger is None:
            self._ledger = Ledger(meta=change.meta)
        sent = _sent(change)
        if sent is None:
            self._forget()
            return None
        self._look_to(place + 1 + max(sent.later, 0))
        last = int(sent.last[1:]) if sent.last else 0
        seen, self._unseen = _divided(self._unseen, last, range(place + sent.later, place))
        call = _call(self._line, change, self._ledger, seen)
        self._ledger = call.ledger
        self._forget()
        newest = self._ledger.last()
        return call._replace(ledger=up_to(self._ledger, sent.last)) if newest and newest.number > last else call

    def next_call(self) -> Call:
        """The call that would come next, after all changes."""
        self._look_to(self._end)
        assert self._ledger is not None
        return _call(self._line, None, self._ledger, self._unseen)

    def _read_to(self, end: int) -> None:
        while self._end < end and (change := next(self._changes, None)) is not None:
            self._read[self._end] = change._replace(rows=tuple(map(self._single, change.rows)))
            self._end += 1

    def _single(self, row: Row) -> Row:
        """The newest row if it is equal, to share it."""
        newest = self._newest.get(row.id, row)
        return newest if newest == row else row

    def _look_to(self, end: int) -> None:
        """Lets the next call see the changes before `end`."""
        self._read_to(end)
        for place in range(self._position, min(end, self._end)):
            change = self._read[place]
            self._unseen.append(_Unseen(place, change, change.rows))
        self._position = max(self._position, min(end, self._end))

    def _forget(self) -> None:
        for place in [place for place in self._read if place < min(self.place, self._position)]:
            del self._read[place]


def _divided(unseen: Iterable[_Unseen], last: int, between: Container[int]) -> tuple[list[_Unseen], list[_Unseen]]:
    """What a call with the newest block `last` saw, and the rest, with the changes `between` the call and its reply."""
    seen: list[_Unseen] = []
    unseen_still: list[_Unseen] = []
    for one in unseen:
        if one.place in between:
            unseen_still.append(one)
            continue
        early = tuple(row for row in one.rows if row.number <= last)
        seen.append(one._replace(rows=early))
        if len(early) < len(one.rows):
            late = tuple(row for row in one.rows if row.number > last)
            unseen_still.append(one._replace(rows=late, complete=False))
    return seen, unseen_still


def _call(line: Line, change: Change | None, ledger: Ledger, seen: Iterable[_Unseen]) -> Call:
    fresh: list[tuple[Row, Change]] = []
    groups: list[Group] = []
    changes: list[Change] = []
    meta = ledger.meta
    for one in seen:
        origin = one.change.bare()
        fresh += [(row, origin) for row in one.rows]
        if one.complete:
            changes.append(origin)
            groups += one.change.groups
            meta = one.change.meta
    after = ledger.with_rows(row for row, _ in fresh).with_groups(groups).with_meta(meta)
    reply = _reply(change) if change else ()
    return Call(line, change and change.bare(), reply, after, tuple(fresh), tuple(groups), tuple(changes))


def _reply(change: Change) -> tuple[Row, ...]:
    """The rows of a step that the model wrote."""
    step = change.meta.counters.step
    return tuple(row for row in change.rows if row.step == step and row.role == "assistant")


def _sent(change: Change) -> Sent | None:
    """The prompt of a change's reply: as its commit says, else everything before; None without a reply."""
    if change.op != "step":
        return None
    replies = [row.number for row in _reply(change)]
    if not replies:
        return None
    recorded = sent_prompt(change.entry.trailers.get(PROMPT, ""))
    return recorded or Sent("", f"B{min(replies) - 1}" if min(replies) > 1 else "")


class _Reader:
    """Reads what commits changed; content that they share is decoded once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._objects = Objects(store.repository)
        self._contents = Contents(self._objects, segments=_SEGMENTS)

    def changes(self, line: Line) -> Iterator[Change]:
        """A line's changes, read lazily; the first has everything that the line began with."""
        yield self._everything(line.entries[0])
        for before, entry in pairwise(line.entries):
            yield self._change(entry, before.commit)
        yield from line.uncommitted

    def _everything(self, entry: Entry) -> Change:
        """The whole ledger of a commit as a change."""
        ledger = self._store.reader.ledger(entry.commit)
        return Change(entry, ledger.meta, tuple(ledger.rows()), tuple(ledger.groups.values()))

    def _change(self, entry: Entry, parent: str) -> Change:
        """The difference from the parent's ledger. Raises: Damaged."""
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
