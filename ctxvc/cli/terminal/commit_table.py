"""Commits and what changed in them, as tables."""

from __future__ import annotations

from ctxvc.cli.answers import shared as answers
from ctxvc.cli.answers.shared import SHORT, struct_of
from ctxvc.cli.output import Cell, Column, Styled, Timestamp, iso
from ctxvc.core.ledger.ledger import Meta
from ctxvc.inspection.captions import label_of
from ctxvc.inspection.diff import BlockChange, StubChange, difference
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read.address import Resolved
from ctxvc.store.read.revision import Entry, Snapshot
from ctxvc.store.store import Store
from ctxvc.tokens.meter import Meter


def log_item(store: Store, entry: Entry) -> answers.LogItem:
    """A commit as an item of JSON answers and of lists."""
    return log_item_of(entry, store.reader.meta(entry.commit))


def log_item_of(entry: Entry, meta: Meta) -> answers.LogItem:
    """A commit as an item of JSON answers; `meta` is its `ctxvc.json`, already read."""
    return struct_of(
        answers.LogItem,
        entry,
        scope=meta.scope,
        step=meta.counters.step,
        turn=meta.counters.turn,
        time=iso(entry.time),
        actor=entry.trailers.get("Ctxvc-Actor", entry.actor),
    )


def changes(store: Store, old: Snapshot, new: Snapshot) -> list[answers.Change]:
    """The differences between two snapshots, each with its tokens."""
    meter = Meter(store, new.ledger.meta.tokenizer)
    differences = difference(old.ledger, new.ledger)
    blocks = [change for change in differences if isinstance(change, BlockChange)]
    in_new = meter.bodies(((change.row, new.bodies) for change in blocks if change.now), new.ledger.meta.model)
    in_old = meter.bodies(((change.row, old.bodies) for change in blocks if not change.now), old.ledger.meta.model)
    return [
        _change(
            change,
            tokens=(in_new if change.now else in_old)[change.row.id],
            label=label_of(change.row, new if change.now else old),
        )
        if isinstance(change, BlockChange)
        else _stub_change(change, meter.count(change.text))
        for change in differences
    ]


def _change(change: BlockChange, *, tokens: int, label: str) -> answers.Change:
    row = change.row
    return struct_of(
        answers.Change,
        change,
        id=row.id,
        type=row.kind,
        tokens=tokens,
        group=row.group,
        removed_by=row.removed_by,
        label=label,
    )


def _stub_change(change: StubChange, tokens: int) -> answers.Change:
    group = change.group
    return struct_of(
        answers.Change, group, move=change.move, type="group", tokens=tokens, was=change.was, now=change.now
    )


#: The columns of a commit in a table.
COMMIT_COLUMNS = (
    Column("commit"),
    Column("step", right=True),
    Column("time"),
    Column("actor", least=8),
    Column("subject", least=24),
)


def commit_cells(item: answers.LogItem | None) -> list[Cell]:
    """The cells of a commit under `COMMIT_COLUMNS`; None is a change that is not committed yet."""
    if item is None:
        return ["", None, "", "", "not committed yet"]
    return [Styled(item.commit[:SHORT], "yellow"), item.step, Timestamp(item.time), item.actor, item.subject]


def stored_of(stored: StoredSession, resolved: Resolved) -> StoredSession:
    """The session that an address was resolved in."""
    if resolved.snapshot.session == stored.name:
        return stored
    other = StoredSession.open(stored.store, resolved.snapshot.session, resolved.snapshot.scope)
    other.leave()
    return other
