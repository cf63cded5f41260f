"""Damage in a journal: what it hits is told and kept aside, its numbers stay used, and the rest goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from ctxvc.errors import CtxvcError, Damaged
from ctxvc.store.log import aside, repair
from ctxvc.store.log.journal import Frame, Record, frame, parse
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.purge import purge
from ctxvc.store.store import Store, create
from ctxvc.store.verify.verify import verify
from tests.making.conversation import human, reply, result, results
from tests.making.damage import leave_as_group, picture
from tests.making.store import afresh, archive, complaints, contents, littered, never_due, unflushed

from .faulty import Disk

Blocks = dict[tuple[str, str], bytes]


def blocks(store: Store) -> Blocks:
    """(scope, block) → body, of all scopes, as somebody reads them who opens the session now."""
    reader = StoredSession.open(store, "demo")
    try:
        return {(scope, block): body for scope in reader.scopes() for block, body in contents(reader, scope).items()}
    finally:
        reader.leave()


def converse(session: StoredSession) -> None:
    """More than twenty records of all kinds, each of which needs some of those before it."""
    session.append(human("fix the login"))
    session.append(reply("", "a", "b"))
    session.append(results(result("a", "out a")))
    session.append(results(result("b", "out b")))
    session.append(human("go on"), reply("I look", "c"))
    archive(session, "B4")
    session.append(results(result("c", "out c " * 40)))
    leave_as_group(session, "B5", "B3", name="G1")
    session.note("the token is read twice")
    session.append(human("and the test?"), reply("", "d"))
    session.open_scope("fix", "a second line")
    session.append(results(result("d", "out d")))
    session.append(human("in here"), reply("", "e"))
    session.append(results(result("e", "out e")), reply("done"))
    session.goto("main", "it was the cache")
    session.append(human("good"), reply("", "show"))
    session.append(results(picture("show")))
    leave_as_group(session, "B1", "B2", name="G2")
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
        with unflushed(), StoredSession.open(self.store, "demo") as session:
            converse(session)
            self.numbers = session._state.block, session._state.group
        self.journal = self.store.journal_path("demo")
        self.data = self.journal.read_bytes()
        self.blocks = blocks(self.store)

    def records(self) -> list[Frame]:
        frames, _ = parse(self.data)
        assert len(frames) > 21
        return frames[-20:]

    def places(self) -> list[int]:
        return [at for record in self.records() for at in range(record.start, record.end)]

    def flipped(self, at: int, bit: int, behind: bytes = b"") -> bytes:
        data = bytearray(self.data + behind)
        data[at] ^= 1 << bit
        self.reset()
        self.journal.write_bytes(data)
        return bytes(data)

    def reset(self) -> None:
        for found in self.journal.parent.iterdir():
            found.unlink()

    def zero_tails(self) -> Iterator[bytes]:
        """What a power cut leaves of a last record: nothing but zeros, or its first sectors and zeros."""
        torn = frame(self.records()[-1].seq + 1, bytes(range(1, 250)) * 20)
        yield bytes(len(torn))
        yield torn[: 1024 - len(self.data) % 512].ljust(len(torn), b"\0")


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Case]:
    made = Case(tmp_path, monkeypatch)
    yield made
    made.store.close()


def one_bit(case: Case, at: int, bit: int, behind: bytes = b"") -> None:
    """Nothing is missing without a word, no number is given out again, and everybody sees the same afterwards."""
    data = case.flipped(at, bit, behind)
    _, tail = parse(data)
    (piece,) = tail.damage
    assert piece.start <= at < piece.start + len(piece.data)

    before = blocks(case.store)

    assert {key: body for key, body in case.blocks.items() if key in before} == before, "what is read is what was said"
    told = aside.notices(case.store, "demo", tail.damage)
    assert len(told) == 1
    lost = set(_blocks_at(case, piece.start))
    for scope, block in case.blocks.keys() - before.keys():
        # What a scope has from another is lost to it with the record that made it; in the other it still is.
        assert block in lost or (scope == "fix" and ("main", block) in before)
    with unflushed(), StoredSession.open(case.store, "demo", "main") as session:
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


#: Every so many bytes of the last twenty records: ordinarily about 45 of them, in a campaign each.
STRIDES = [0, pytest.param(1, marks=(pytest.mark.faults, pytest.mark.timeout(3600)))]


@pytest.mark.parametrize("stride", STRIDES)
def test_one_flipped_bit_costs_what_is_told_and_no_more(case: Case, stride: int) -> None:
    places = case.places()
    for turn, at in enumerate(places[:: stride or len(places) // 45]):
        one_bit(case, at, turn % 8)


@pytest.mark.parametrize("stride", STRIDES)
def test_a_tail_of_zeros_costs_no_record_behind_a_damaged_one(case: Case, stride: int) -> None:
    """Ordinarily in each record's header, and its payload."""
    some = [at for turn, hit in enumerate(case.records()) for at in (hit.start + turn, (hit.start + hit.end) // 2)]
    for number, behind in enumerate(case.zero_tails()):
        for turn, at in enumerate(case.places() if stride else some[number::2]):
            one_bit(case, at, turn % 8, behind)


@pytest.mark.parametrize("number", range(0, 20, 4))
def test_a_store_with_a_lost_record_commits_the_rest_and_is_whole_again(case: Case, number: int) -> None:
    hit = case.records()[number]
    case.flipped(hit.end - 9, 2)
    before = blocks(case.store)
    with StoredSession.open(case.store, "demo", "main") as session:
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
    (accepted,) = repair.accept(case.store)
    assert verify(case.store).damaged is False
    assert aside.notices(case.store, "demo") == []
    assert case.store.journal_path(f"{accepted.file}.accepted").stat().st_mode & 0o077 == 0
    assert blocks(case.store) == after


# --- several processes, and crashes


def test_a_writer_that_read_a_record_before_it_was_hit_commits_it(case: Case) -> None:
    with StoredSession.open(case.store, "demo", "main") as early:
        case.journal.write_bytes(b"")  # the same file, spoilt under its hands
        hit = case.records()[-3]
        data = bytearray(case.data)
        data[hit.end - 9] ^= 4
        case.journal.write_bytes(data)

        early.append(human("after it"), reply("I see"))
        early.flush()

    after = blocks(case.store)
    assert case.blocks.items() <= after.items(), "it knew the record, and made a commit of it"
    assert aside.notices(case.store, "demo") == []


def test_a_second_writer_goes_on_from_what_the_first_left(case: Case) -> None:
    """Both have the session open; one of them finds the damage, and replaces the journal under the other's hands."""
    hit = case.records()[-4]
    with StoredSession.open(case.store, "demo", "main") as second:
        known = contents(second)
        case.flipped(hit.end - 9, 4)
        with unflushed(), StoredSession.open(case.store, "demo", "main") as first:
            (one,) = first.append(human("the first's"))
            (two,) = second.append(human("the second's"))
            (three,) = first.append(human("the first's again"))
            assert len({one, two, three, *known}) == len(known) + 3
            first.refresh()
            second.refresh()
            assert contents(first) == contents(second)
    bodies = afresh(case.store.path)
    assert [bodies[block] for block in (one, two, three)] == [b"the first's", b"the second's", b"the first's again"]


@pytest.mark.parametrize("call", ["write", "fdatasync", "replace", "fsync", "open"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["full", "killed"])
def test_a_crash_while_it_is_set_aside_costs_nothing_more(case: Case, call: str, error: BaseException) -> None:
    """At each step: the journal is the old one or the new one, and its bytes are in one file, whole."""
    hit = case.records()[8]
    for nth in range(1, 8):
        data = case.flipped(hit.end - 9, 4)
        piece = data[hit.start : hit.end]
        before = blocks(case.store)
        disk = Disk(call, nth, error)
        with unflushed(), pytest.MonkeyPatch.context() as failing:
            session = StoredSession.open(case.store, "demo", "main")
            disk.put_in(failing)
            try:
                session.append(human("after it"))
            except (CtxvcError, KeyboardInterrupt):
                pass
        session.leave()
        now = blocks(case.store)
        assert before.items() <= now.items() and len(now) - len(before) in (0, 1)
        with unflushed(), StoredSession.open(case.store, "demo", "main") as again:
            (block,) = again.append(human("again"))
            assert int(block[1:]) > case.numbers[0]
        kept = [path for path in case.journal.parent.iterdir() if "~unreadable-" in path.name and path.name[0] != "."]
        assert [path.read_bytes() for path in kept] == [piece]
        assert now.items() <= blocks(case.store).items()
        if not disk.failed:
            return
    raise AssertionError("the fault never came to an end")


def test_a_committed_record_that_is_hit_before_the_journal_is_rewritten_frees_no_number(case: Case) -> None:
    """A crash between the branches and the journal leaves records that are committed too; the last one is spoilt."""
    with StoredSession.open(case.store, "demo", "main") as session:
        session.append(reply("said"))
        data = case.data + session._state.frames[-1][2] if session._state.frames else case.data
        session.flush()
    committed = blocks(case.store)
    case.reset()
    spoilt = bytearray(data)
    spoilt[case.records()[-1].start + 7] ^= 1
    case.journal.write_bytes(spoilt)

    with StoredSession.open(case.store, "demo", "main") as session:
        (block,) = session.append(human("new"))
        assert session.body(session.ledger()[block]) == b"new"
    after = blocks(case.store)
    assert ("main", block) not in committed
    assert committed.items() <= after.items() and after[("main", block)] == b"new"


def test_what_was_set_aside_also_by_an_earlier_version_is_accepted_and_searched_by_a_purge(case: Case) -> None:
    case.flipped(case.records()[-1].start + 6, 4)  # the header: the words are whole
    with StoredSession.open(case.store, "demo", "main") as session:
        session.append(reply("so be it"))
    earlier = case.store.journal_path("demo.unreadable-12ab")
    earlier.write_bytes(b"the word is plum-harbour")
    (first, second) = sorted(notice.file for notice in aside.notices(case.store, "demo"))
    assert first == earlier.name and "~unreadable-" in second
    assert sorted(notice.file for notice in repair.accept(case.store)) == [first, second]
    data = b"".join(path.read_bytes() for path in case.journal.parent.iterdir())
    assert b"last word" in data and b"plum-harbour" in data

    purge.purge(case.store, purge.PurgeRequest(texts=("last word", "plum-harbour")))

    data = b"".join(path.read_bytes() for path in case.journal.parent.iterdir())
    assert b"last word" not in data and b"plum-harbour" not in data


@pytest.mark.parametrize("name", ["notes.unreadable-part", "demo.unreadable-0", "demo.unreadable-0.accepted"])
def test_no_session_is_taken_for_what_was_set_aside_of_another(tmp_path: Path, name: str) -> None:
    with create(tmp_path / ".ctxvc") as store:
        for session in ("demo", name):
            store.create_session(session)
        with StoredSession.open(store, name) as session:
            session.append(human("the word is plum-harbour"), reply("", "a"))
            session.note("a step is open")
            session.leave()
            count = len(session.ledger())

        assert aside.notices(store, "demo") == []
        assert not [finding for finding in verify(store).findings if finding.level != "note"]
        assert repair.accept(store) == []
        purge.purge(store, purge.PurgeRequest(texts=("plum-harbour",)))

        with StoredSession.open(store, name) as session:
            assert len(session.ledger()) == count


def test_no_link_of_a_store_is_followed_to_say_that_there_is_damage(case: Case, tmp_path: Path) -> None:
    case.flipped(case.records()[-1].end - 9, 4)
    outside = tmp_path / "outside"
    outside.mkdir()
    (case.store.cache_path / "notices").symlink_to(outside)
    with StoredSession.open(case.store, "demo", "main") as session:
        assert len(aside.new_notices(case.store, "demo", session.damage)) == 1
        assert len(aside.new_notices(case.store, "demo", session.damage)) == 1
        session.leave()

    (case.store.cache_path / "notices").unlink()
    with StoredSession.open(case.store, "demo", "main") as session:
        assert len(aside.new_notices(case.store, "demo", session.damage)) == 1
        assert aside.new_notices(case.store, "demo", session.damage) == []

    assert list(outside.iterdir()) == []


# --- a head that is lost


def _behead(case: Case, size: int = 8) -> None:
    data = bytearray(case.journal.read_bytes())
    data[4 : 4 + size] = bytes(255 - byte for byte in data[4 : 4 + size])
    case.journal.write_bytes(data)


@pytest.mark.parametrize("flushed", ["nothing", "all but the open step"])
def test_a_journal_without_its_head_keeps_its_records_once_repaired(case: Case, flushed: str) -> None:
    if flushed != "nothing":
        with StoredSession.open(case.store, "demo") as session:
            session.append(reply("", "open"))
            session.flush()
            session.leave()
        with unflushed(), StoredSession.open(case.store, "demo") as session:
            session.append(results(result("open", "out")))
            session.append(human("and then?"))
    before = blocks(case.store)
    _behead(case)
    with pytest.raises(Damaged, match="the header is unreadable"):
        StoredSession.open(case.store, "demo")

    (notice,) = repair.accept(case.store)

    assert notice.size < 200, "no record was set aside"
    assert blocks(case.store) == before
    with StoredSession.open(case.store, "demo", "main") as session:
        (block,) = session.append(human("after it"))
        assert int(block[1:]) > case.numbers[0]
        session.flush()
    assert before.items() <= blocks(case.store).items()
    assert verify(case.store).damaged is False
    assert repair.accept(case.store) == []


def test_a_lost_head_and_record_cost_that_record(case: Case) -> None:
    case.reset()
    _, first, *_ = parse(case.data)[0]
    data = bytearray(case.data)
    data[4 : first.start + 40] = bytes(255 - byte for byte in data[4 : first.start + 40])
    case.journal.write_bytes(data)

    (notice,) = repair.accept(case.store)

    assert notice.size == first.end
    kept = blocks(case.store)
    assert {key: body for key, body in case.blocks.items() if key in kept} == kept
    assert {block for _, block in case.blocks.keys() - kept.keys()} == {"B1"}
    with StoredSession.open(case.store, "demo", "main") as session:
        session.append(human("after it"))
        session.flush()
        assert session.flush_failure is None
    assert verify(case.store).damaged is False


def test_records_of_what_is_committed_are_not_taken_in_again(case: Case) -> None:
    """They are of another journal than the commits name, so only their blocks tell that they are committed."""
    with StoredSession.open(case.store, "demo") as session:
        session.flush()
    case.store.journal_path("demo").unlink()
    with StoredSession.open(case.store, "demo") as session:
        session.append(human("in a new journal"))
        session.append(reply("yes"))
        session.flush()
    before = blocks(case.store)
    case.journal.write_bytes(case.data)
    _behead(case)

    (notice,) = repair.accept(case.store)

    assert notice.size == len(case.data)
    assert blocks(case.store) == before
    assert verify(case.store).damaged is False
