"""Commits in answers and tables, and what changed between the prompts of two, a row a block."""

from __future__ import annotations

from typing import Annotated

from ctxvc.cli.answers.shared import CommitId, Item, TimeText, described, short, struct_of
from ctxvc.cli.output import Cell, Column, Styled, Timestamp, Tokens, iso
from ctxvc.core.ledger.ledger import Meta
from ctxvc.inspection.captions import label_of
from ctxvc.inspection.diff import BlockChange, difference
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read.address import Resolved
from ctxvc.store.read.revision import Entry, Snapshot
from ctxvc.store.store import Store
from ctxvc.tokens.meter import Meter


class LogItem(Item, frozen=True, kw_only=True):
    """A commit. `log --jsonl` prints one of these a line, oldest first."""

    commit: CommitId
    scope: Annotated[str, described("scope in which it was made")]
    parents: list[str]
    step: Annotated[int, described("the scope's newest step in it")]
    turn: Annotated[int, described("the scope's newest turn in it")]
    time: TimeText
    actor: Annotated[str, described("who did it: agent, planner, policy:NAME, guard, user, host")]
    subject: Annotated[str, described("what it did, for people")]
    body: Annotated[str, described("the rest of the message, without trailers")]
    trailers: dict[str, str]


def log_item(store: Store, entry: Entry) -> LogItem:
    """A commit as an item of answers."""
    return log_item_of(entry, store.reader.meta(entry.commit))


def log_item_of(entry: Entry, meta: Meta) -> LogItem:
    """A commit as an item of answers; `meta` is its `ctxvc.json`, already read."""
    return struct_of(
        LogItem,
        entry,
        scope=meta.scope,
        step=meta.counters.step,
        turn=meta.counters.turn,
        time=iso(entry.time),
        actor=entry.trailers.get("Ctxvc-Actor", entry.actor),
    )


class OfCommit:
    """The columns of an item about a commit, `COMMIT`; the commit is None where it is not made yet."""

    COMMIT = "id step time actor subject"

    commit: LogItem | None

    @property
    def id(self) -> Annotated[Cell, Column("commit")]:
        return Styled(short(self.commit.commit), "yellow") if self.commit else ""

    @property
    def step(self) -> Annotated[int | None, Column("step", right=True)]:
        return self.commit.step if self.commit else None

    @property
    def time(self) -> Annotated[Cell, Column("time")]:
        return Timestamp(self.commit.time) if self.commit else ""

    @property
    def actor(self) -> Annotated[str, Column("actor", least=8)]:
        return self.commit.actor if self.commit else ""

    @property
    def subject(self) -> Annotated[str, Column("subject", least=24)]:
        return self.commit.subject if self.commit else "not committed yet"


def stored_of(stored: StoredSession, resolved: Resolved) -> StoredSession:
    """The session of the address, open for reading; `stored` itself if it is that session."""
    if resolved.snapshot.session == stored.name:
        return stored
    other = StoredSession.open(stored.store, resolved.snapshot.session, resolved.snapshot.scope)
    other.leave()
    return other


# --- changes

_MARKS = {"entered": ("+", "green"), "left": ("-", "red"), "changed": ("~", "yellow")}


def _mark(move: str) -> Cell:
    return Styled(*_MARKS[move])


class Change(Item, frozen=True, kw_only=True):
    """A block, or the stub of a group, that has changed."""

    TABLE = "move id tokens type was after label"

    move: Annotated[str, described("`entered` or `left` the prompt, or `changed` in place"), Column("move", cell=_mark)]
    id: Annotated[str, described("`B17`, `G3`"), Column("ID")]
    type: Annotated[str, described("the kind of block, or `group`"), Column("type", rank=1)]
    tokens: Annotated[int, described("of the body, or of the group's stub"), Column("~tokens", right=True, cell=Tokens)]
    was: Annotated[
        str,
        described("state before, `cut` if a cut had taken it out, `stub`; empty if it did not exist"),
        Column("was"),
    ]
    now: Annotated[str, described("state after, with the same values; empty if it does not exist")]
    group: str
    removed_by: str
    label: Annotated[str, Column("label", least=24)]

    @property
    def after(self) -> Annotated[str, Column("now", least=12)]:
        """The state after, with its group and who removed it."""
        by = self.removed_by and f"by {self.removed_by}"
        return " ".join(filter(None, [self.now, self.group and f"in {self.group}", by]))


def changes(store: Store, old: Snapshot, new: Snapshot) -> list[Change]:
    """The differences between two snapshots, each with its tokens."""
    meter = Meter(store, new.ledger.meta.tokenizer)
    differences = difference(old.ledger, new.ledger)
    blocks = [change for change in differences if isinstance(change, BlockChange)]
    in_new = meter.bodies(((change.row, new.bodies) for change in blocks if change.now), new.ledger.meta.model)
    in_old = meter.bodies(((change.row, old.bodies) for change in blocks if not change.now), old.ledger.meta.model)
    return [
        struct_of(
            Change,
            change,
            change.row,
            type=change.row.kind,
            tokens=(in_new if change.now else in_old)[change.row.id],
            label=label_of(change.row, new if change.now else old),
        )
        if isinstance(change, BlockChange)
        else struct_of(
            Change, change, change.group, type="group", tokens=meter.count(change.text), group=change.group.group
        )
        for change in differences
    ]
