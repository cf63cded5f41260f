"""`verify` finds nothing wrong with stores that are in order, also while others write."""

from __future__ import annotations

import threading

import msgspec
import pytest

from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from ctxvc.store.verify.verify import verify
from tests.making.conversation import exchange
from tests.making.damage import found, messages
from tests.making.store import start


def test_a_new_store_has_nothing_wrong_with_it(store: Store) -> None:
    assert found(store) == []


def test_a_store_with_everything_in_it_has_nothing_wrong_with_it(full: Store) -> None:
    report = verify(full)

    assert report.findings == ()
    assert (report.sessions, report.scopes, report.commits) == (1, 2, 13)
    assert report.blocks == 32  # 24 + 4 in main, 4 in side; those of the open step are in no commit yet
    assert verify(full, deep=False).findings == ()


def test_it_stays_in_order_through_every_verb(store: Store) -> None:
    store.create_session("demo")
    with StoredSession.open(store, "demo") as session:
        for number in range(3):
            session.append(*exchange(number))
            assert found(store) == []
        session.change(subject="pin", op="pin", actor="user", rows=[_with(session, "B1", state="pinned")])
        session.change(subject="mask", op="mask", actor="user", rows=[_with(session, "B4", state="masked", reads=2)])
        session.change(subject="cut", op="mask", actor="user", meta={"cuts": (1, 2)})

    assert found(store) == []


def _with(session: object, block: str, **fields: object) -> object:
    return msgspec.structs.replace(session.ledger()[block], **fields)  # type: ignore[attr-defined]


def test_eight_hundred_blocks_are_counted_and_in_order(store: Store) -> None:
    store.create_session("demo")
    with StoredSession.open(store, "demo") as session:
        session.append(*messages(200))
        before = verify(store)
    told: list[tuple[int, int]] = []

    report = verify(store, lambda done, total: told.append((done, total)))

    assert before.findings == report.findings == ()
    assert (report.blocks, report.commits) == (800, 201)
    assert told[-1] == (201, 201) and [done for done, _ in told] == sorted(done for done, _ in told)


def test_a_body_is_read_once_however_often_it_moved(full: Store) -> None:
    bytes_of_bodies = verify(full).bytes
    with StoredSession.open(full, "demo") as session:
        for number in range(6):
            state = "archived" if number % 2 else "visible"
            session.change(subject="x", op="archive", actor="user", rows=[_with(session, "B2", state=state)])  # type: ignore[list-item]

    assert verify(full).bytes == bytes_of_bodies


@pytest.mark.slow
def test_nothing_seems_wrong_while_another_process_writes_and_merges_packs(store: Store) -> None:
    store.create_session("demo")
    with start("writer.py", store.path, "demo", "main", "w", 60, 1) as writer:
        assert writer.stdin is not None and writer.stdout is not None
        writer.stdout.readline()
        writer.stdin.write(b"\n")
        writer.stdin.flush()
        threading.Thread(target=writer.stdout.read).start()
        looked = 0
        while writer.poll() is None:
            assert found(store) == []
            looked += 1

    assert looked > 2
    assert verify(store).blocks == 240
