"""Journals: torn tails, damaged records, bytes set aside."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from ctxvc.core.ledger.ledger import Counters
from ctxvc.store.log.journal import Change, Record, encode_record, frame, parse
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from tests.making.conversation import human
from tests.making.damage import damaged, flip, found
from tests.making.store import archive


def _journal(store: Store) -> Path:
    return store.journal_path("demo")


def test_a_verb_that_waits_for_an_open_step_is_in_order(full: Store) -> None:
    with StoredSession.open(full, "demo") as session:
        archive(session, "B9")
        archive(session, "B33")
        assert session.waiting() > 2

    assert found(full) == []


@pytest.mark.parametrize("origin", ["", ":1", "12" * 20])
def test_a_record_of_a_scope_from_nowhere_does_no_harm(full: Store, origin: str) -> None:
    with StoredSession.open(full, "demo") as session:
        rows = (session.ledger()["B1"],)
    _append(full, 1000, Change("new", "scope", "agent", Counters(block=35), rows=rows, origin=origin))

    assert all(finding.level == "damage" for finding in found(full))


def test_a_torn_tail_is_a_warning_that_names_the_last_good_record(full: Store) -> None:
    data = _journal(full).read_bytes()
    frames, _ = parse(data)
    _journal(full).write_bytes(data + data[frames[-1].start : frames[-1].end - 3])

    (finding,) = found(full)

    assert finding.level == "warning" and finding.where.session == "demo"
    assert f"a crash left {frames[-1].end - frames[-1].start - 3} bytes after record {frames[-1].seq}" in finding.what
    assert "(scope main, step 9, B33; scope main, step 9, B34-B35)" in finding.what


def test_a_whole_record_that_cannot_be_read_is_damage(full: Store) -> None:
    flip(_journal(full), -5)

    report = damaged(
        full, "which contained B33 of scope main, B34-B35 of scope main, cannot be read", path="ctxvc/journal/demo"
    )

    assert "after its beginning" in report.findings[0].what


def test_damage_in_the_middle_of_a_journal_names_the_record_before_it(full: Store) -> None:
    with StoredSession.open(full, "demo") as session:
        session.append(human("one more thing"), scope="side")
        session.append(human("and another"), scope="side")
    frames, _ = parse(_journal(full).read_bytes())
    assert len(frames) == 4
    flip(_journal(full), frames[2].end - 5)

    damaged(full, f"bytes after record {frames[1].seq} (scope main, step", path="ctxvc/journal/demo")


def test_a_journal_without_a_head_is_damage(full: Store) -> None:
    _journal(full).write_bytes(b"what is this?")

    damaged(full, "the header is unreadable", path="ctxvc/journal/demo")


def test_a_record_of_nonsense_is_damage(full: Store) -> None:
    with open(_journal(full), "ab") as stream:
        stream.write(frame(1000, b"\x93nonsense"))

    damaged(full, "record 1000", path="ctxvc/journal/demo")


def test_a_record_whose_body_is_another_is_damage(full: Store) -> None:
    with StoredSession.open(full, "demo") as session:
        row = session.ledger()["B1"]
    fresh = msgspec.structs.replace(row, id="B77")
    change = Change("main", "step", "agent", Counters(block=77), rows=(fresh,), bodies=(("B77", "", b"another"),))
    _append(full, 1000, change)
    damaged(full, "record 1000 has a body for B77 that does not match its row", block="B77")

    _append(full, 1001, msgspec.structs.replace(change, rows=(msgspec.structs.replace(row, id="B78"),), bodies=()))
    damaged(full, "record 1001 has the row of B78 but no body", block="B78")

    _append(full, 1001, msgspec.structs.replace(change, rows=(), bodies=()))
    damaged(full, "record 1001 comes after record 1001")


def _append(store: Store, seq: int, change: Change) -> None:
    with open(_journal(store), "ab") as stream:
        stream.write(encode_record(seq, Record(changes=(change,))))


def test_records_of_a_session_that_has_no_scope_are_damage(full: Store) -> None:
    shutil.copy(_journal(full), full.journal_path("lost"))

    damaged(full, "it has records, but the session has no scope", path="ctxvc/journal/lost")


def test_bytes_that_were_set_aside_are_damage_until_somebody_accepts_that(full: Store) -> None:
    names = {"demo~unreadable-120": "damage", "demo~unreadable-12ab.accepted": "warning"}
    names |= {"demo.unreadable-120": "damage", "demo.unreadable-12ab.accepted": "warning"}  # of an earlier version
    for name, level in names.items():
        path = full.journal_path(name)
        path.write_bytes(b"x")
        path.chmod(0o600)
        assert [(finding.level, finding.where.session) for finding in found(full)] == [(level, "demo")]
        path.unlink()
