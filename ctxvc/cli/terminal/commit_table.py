"""Commits and what changed in them, as tables."""

from __future__ import annotations

from ctxvc.cli.answers.shared import SHORT, LogItem, struct_of
from ctxvc.cli.output import Cell, Column, Styled, Timestamp, iso
from ctxvc.core.ledger.ledger import Meta
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read.address import Resolved
from ctxvc.store.read.revision import Entry
from ctxvc.store.store import Store


def log_item(store: Store, entry: Entry) -> LogItem:
    """A commit as an item of JSON answers and of lists."""
    return log_item_of(entry, store.reader.meta(entry.commit))


def log_item_of(entry: Entry, meta: Meta) -> LogItem:
    """A commit as an item of JSON answers; `meta` is its `ctxvc.json`, already read."""
    return struct_of(
        LogItem,
        entry,
        scope=meta.scope,
        step=meta.counters.step,
        turn=meta.counters.turn,
        time=iso(entry.time),
        actor=entry.trailers.get("Ctxvc-Actor", entry.actor),
    )


#: The columns of a commit in a table.
COMMIT_COLUMNS = (
    Column("commit"),
    Column("step", right=True),
    Column("time"),
    Column("actor", least=8),
    Column("subject", least=24),
)


def commit_cells(item: LogItem | None) -> list[Cell]:
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
