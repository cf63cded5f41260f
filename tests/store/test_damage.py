"""Damage in a journal: what it hits is told and kept aside, its numbers stay used, and the rest goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from ctxvc.core.ledger import Group
from ctxvc.store import aside
from ctxvc.store.check import verify
from ctxvc.store.journal import Frame, Record, parse
from ctxvc.store.store import Store, create
from ctxvc.store.writer import Writer
from tests.upkeep.making import picture

from .building import archive, archived, complaints, contents, human, littered, never_due, reply, result, results

Blocks = dict[tuple[str, str], bytes]


def blocks(store: Store) -> Blocks:
    """(scope, block) → body, of all scopes, as somebody reads them who opens the session now."""
    reader = store.writer("demo")
    try:
        return {(scope, block): body for scope in reader.scopes() for block, body in contents(reader, scope).items()}
    finally:
        reader.leave()


def as_group(session: Writer, name: str, *ids: str) -> None:
    rows = [archived(session.ledger()[block], stub="", group=name, level=1) for block in ids]
    group = Group(id=name, members=ids, stub=f"[archived {name}]", removed_by="user")
    session.change(subject=f"archive as {name}", op="archive", actor="user", rows=rows, groups=[group])


def converse(session: Writer) -> None:
    """More than twenty records of all kinds, each of which needs some of those before it."""
    session.append(human("fix the login"))
    session.append(reply("", "a", "b"))
    session.append(results(result("a", "out a")))
    session.append(results(result("b", "out b")))
    session.append(human("go on"), reply("I look", "c"))
    archive(session, "B4")
    session.append(results(result("c", "out c " * 40)))
    as_group(session, "G1", "B5", "B3")
    session.note("the token is read twice")
    session.append(human("and the test?"), reply("", "d"))
    session.open_scope("fix", "a second line")
    session.append(results(result("d", "out d")))
    session.append(human("in here"), reply("", "e"))
    session.append(results(result("e", "out e")), reply("done"))
    session.goto("main", "it was the cache")
    session.append(human("good"), reply("", "show"))
    session.append(results(picture("show")))
    as_group(session, "G2", "B1", "B2")
    session.append(human("what else?"))
    session.note("nothing else")
    session.append(reply("", "f", "g"))
    session.append(results(result("f", "out f")))
    archive(session, "B8")
    session.append(results(result("g", "out g")))
    session.append(human("last word"))


class Case:
    """A store whose journal holds all of it, and what it should say."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        never_due(monkeypatch)
        self.store = create(path / ".ctxvc")
        self.store.create_session("demo")
        with monkeypatch.context() as waiting:
            waiting.setattr(Writer, "_flush", lambda _: None)
            with self.store.writer("demo") as session:
                converse(session)
                self.numbers = session._known.block, session._known.group
        self.journal = self.store.journal_path("demo")
        self.data = self.journal.read_bytes()
        self.blocks = blocks(self.store)

    def records(self) -> list[Frame]:
        frames, _ = parse(self.data)
        assert len(frames) > 21
        return frames[-20:]

    def places(self) -> list[int]:
        return [at for found in self.records() for at in range(found.start, found.end)]

    def flipped(self, at: int, bit: int) -> bytes:
        data = bytearray(self.data)
        data[at] ^= 1 << bit
        self.reset()
        self.journal.write_bytes(data)
        return bytes(data)

    def reset(self) -> None:
        for found in self.journal.parent.iterdir():
            found.unlink()


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Case]:
    made = Case(tmp_path, monkeypatch)
    yield made
    made.store.close()


def one_bit(case: Case, at: int, bit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is missing without a word, no number is given out again, and everybody sees the same afterwards."""
    data = case.flipped(at, bit)
    _, tail = parse(data)
    (piece,) = tail.damage
    assert piece.start <= at < piece.end

    before = blocks(case.store)

    assert {key: body for key, body in case.blocks.items() if key in before} == before, "what is read is what was said"
    told = aside.notices(case.store, "demo", tail.damage)
    assert len(told) == 1
    lost = set(_blocks_at(case, piece.start))
    for scope, block in case.blocks.keys() - before.keys():
        # What a scope has from another is lost to it with the record that made it; in the other it still is.
        assert block in lost or (scope == "fix" and ("main", block) in before)
    with monkeypatch.context() as waiting:
        waiting.setattr(Writer, "_flush", lambda _: None)
        with case.store.writer("demo", "main") as session:
            (block,) = session.append(human("after it"))
            assert int(block[1:]) > case.numbers[0]
            assert int(session.next_group) > case.numbers[1]
    assert {key: body for key, body in blocks(case.store).items() if key != ("main", block)} == before
    assert case.store.journal_path(told[0].file).read_bytes() == piece.data
    assert parse(case.journal.read_bytes())[1].damage == ()


def _blocks_at(case: Case, start: int) -> Iterator[str]:
    """The blocks of the record that stood there."""
    (hit,) = [found for found in parse(case.data)[0] if found.start == start]
    for change in msgspec.msgpack.decode(hit.payload, type=Record).changes:
        yield from (row.id for row in change.rows)


def test_one_flipped_bit_costs_what_is_told_and_no_more(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of what the campaign does below."""
    places = case.places()
    for turn, at in enumerate(places[:: len(places) // 90]):
        one_bit(case, at, turn % 8, monkeypatch)


@pytest.mark.faults
@pytest.mark.timeout(1800)
def test_one_flipped_bit_in_each_byte_of_the_last_twenty_records(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    for turn, at in enumerate(case.places()):
        one_bit(case, at, turn % 8, monkeypatch)


@pytest.mark.parametrize("number", range(20))
def test_a_store_with_a_lost_record_commits_the_rest_and_is_whole_again(case: Case, number: int) -> None:
    hit = case.records()[number]
    case.flipped(hit.end - 9, 2)
    before = blocks(case.store)
    with case.store.writer("demo", "main") as session:
        session.append(human("after it"))
        session.append(reply("I see"))
        session.flush()
        assert session.flush_failure is None
        after = blocks(case.store)

    assert before.items() <= after.items()
    assert complaints(case.store.path) == ""
    assert littered(case.store.path) == []
    report = verify(case.store)
    assert [finding.level for finding in report.findings] == ["damage"], report.findings
    assert "set aside" in report.findings[0].what
    (accepted,) = aside.accept(case.store)
    assert verify(case.store).damaged is False
    assert aside.notices(case.store, "demo") == []
    assert case.store.journal_path(f"{accepted.file}.accepted").stat().st_mode & 0o077 == 0
    assert blocks(case.store) == after
