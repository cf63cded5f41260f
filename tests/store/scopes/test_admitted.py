"""What comes in may be recorded otherwise than it came."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

from ctxvc.core.ledger.block import Message
from ctxvc.errors import BadInput
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.log.transaction import AdmittedEntry
from ctxvc.store.store import Store
from tests.making.conversation import human, reply, result, results
from tests.making.store import afresh, git
from tests.store.scopes.looking import in_order


def test_entries_can_be_admitted_before_they_are_appended(session: StoredSession, path: Path) -> None:
    seen: list[tuple[int, int]] = []

    def append(*messages: Message) -> None:
        with session.writing() as transaction:
            for scope, entry in session.number(transaction, session.redacted_messages(messages)):
                seen.append((len(transaction.ledger(scope)), len(entry.rows)))
                assert all(sha256(transaction.bodies[row.id, ""]).hexdigest() == row.sha256 for row in entry.rows)
                rows = tuple(
                    msgspec.structs.replace(row, state="blocked", stub=f"[blocked {row.handle}]")
                    if row.bytes > 9
                    else row
                    for row in entry.rows
                )
                meta = {"refused": 1} if rows != entry.rows else {}
                admitted = msgspec.structs.replace(entry, rows=rows)
                transaction.append(scope, AdmittedEntry(admitted, meta, {"Ctxvc-Test": "admitted"}))
            session.acknowledge(transaction)

    append(human("go"), reply("", "a", "b"))
    append(results(result("a", "small")), results(result("b", "a large result")), reply("so"))

    assert seen == [(0, 1), (1, 2), (3, 1), (4, 1), (5, 1)]
    assert [row.state for row in session.ledger().rows()] == [
        "visible", "blocked", "blocked", "visible", "blocked", "visible",
    ]  # fmt: skip
    assert session.ledger().meta.refused == 1
    assert "Ctxvc-Test: admitted" in git(path, "log", "-1", "--format=%B", "demo/main").splitlines()
    assert afresh(path)["B5"] == b"a large result"
    assert "archive/00/00/B5.txt" in git(path, "ls-tree", "-r", "--name-only", "demo/main").split()
    in_order(path)


def test_what_is_numbered_and_not_acknowledged_is_nowhere(session: StoredSession, path: Path) -> None:
    messages = session.redacted_messages([human("go"), reply("", "a")])
    with session.writing() as transaction:
        for scope, entry in session.number(transaction, messages):
            transaction.append(scope, AdmittedEntry(entry))
    assert (afresh(path), session.waiting(), len(session.ledger())) == ({}, 0, 0)

    with pytest.raises(ZeroDivisionError), session.writing() as transaction:
        for scope, entry in session.number(transaction, messages):
            transaction.append(scope, AdmittedEntry(entry))
            raise ZeroDivisionError
    assert (afresh(path), session.waiting()) == ({}, 0)
    assert session.append(human("go"), reply("", "a")) == ["B1", "B2"]
    in_order(path)


def test_fields_that_make_no_sense_are_refused_before_they_are_recorded(session: StoredSession, path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be recorded"):
        session.change(subject="s", op="settings", actor="user", meta={"budget": "much"})
    with pytest.raises(BadInput, match="cannot be recorded"), session.writing() as transaction:
        for scope, entry in session.number(transaction, session.redacted_messages([human("x")])):
            transaction.append(scope, AdmittedEntry(entry, {"cuts": "B1"}))
    assert afresh(path) == {}


def test_fields_have_their_types_again_after_the_journal(session: StoredSession, path: Path) -> None:
    session.append(human("half"), reply("", "x"))
    session.change(subject="s", op="settings", actor="user", meta={"cuts": (3, 4), "calibration": (1200, 7)})
    with Store(path) as store, StoredSession.open(store, "demo") as later:
        assert (later.ledger().meta.cuts, later.ledger().meta.calibration) == ((3, 4), (1200, 7))
        assert later.waiting() == 3
