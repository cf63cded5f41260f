"""The journal file: what was acknowledged is read back, whatever a crash or a bad disk did to the rest."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxvc import policies
from ctxvc.core.ledger.ledger import Counters
from ctxvc.core.plan.plan import Action, Plan
from ctxvc.errors import Damaged, NotFound, Refused
from ctxvc.recording import log
from ctxvc.session.session import Session
from ctxvc.store import files
from ctxvc.store.log.journal import (
    FRAME_SIZE,
    Change,
    Head,
    Journal,
    Record,
    encode_head,
    encode_record,
    frame,
    parse,
    reference,
)
from ctxvc.store.log.memory import MemorySession
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store, create
from ctxvc.tokens.meter import Meter
from tests.making.conversation import LONG, human, reply, result, results
from tests.making.store import afresh, contents, littered, opened

HEAD = Head(1, "0123456789abcdef", 0, 0, 0)


def record(text: str | bytes) -> Record:
    body = text.encode() if isinstance(text, str) else text
    return Record(changes=(Change("main", "step", "agent", Counters(block=1), bodies=(("B1", "", body),)),))


def written(*texts: str | bytes) -> list[bytes]:
    """The frames of a journal: its head, then a record for each text."""
    return [encode_head(HEAD), *(encode_record(seq, record(text)) for seq, text in enumerate(texts, 1))]


def journal(tmp_path: Path, *texts: str) -> Journal:
    made = Journal(tmp_path / "demo")
    made.rewrite(HEAD, [])
    made.append(written(*texts)[1:])
    return made


def texts_of(opened: Journal) -> list[str]:
    _, records, _, _ = opened.read()
    return [each.changes[0].bodies[0][2].decode() for _, each in records]


@given(st.lists(st.binary(max_size=300), max_size=6))
def test_what_was_appended_is_read_back(bodies: list[bytes]) -> None:
    frames, tail = parse(b"".join(written(*bodies)))

    assert [frame.payload for frame in frames[1:]] == [found[FRAME_SIZE:] for found in written(*bodies)[1:]]
    assert [frame.seq for frame in frames] == list(range(len(bodies) + 1))
    assert tail.size == 0


def test_a_file_cut_anywhere_holds_the_records_before_the_cut(tmp_path: Path) -> None:
    frames = written("one", "two", "three")
    data = b"".join(frames)
    ends = list(itertools.accumulate(map(len, frames)))

    for cut in range(ends[0], len(data)):
        (tmp_path / "demo").write_bytes(data[:cut])
        opened = Journal(tmp_path / "demo")
        _, records, _, tail = opened.read()
        whole = sum(end <= cut for end in ends) - 1
        assert [seq for seq, _ in records] == list(range(1, whole + 1))

        opened.cut_tail(tail)
        opened.append([encode_record(whole + 1, record("next"))])
        assert texts_of(Journal(tmp_path / "demo")) == [*["one", "two", "three"][:whole], "next"]
        opened.close()

    assert [found.name for found in tmp_path.iterdir()] == ["demo"], "a torn write is nothing to keep"


@given(
    st.lists(st.binary(max_size=60), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255)), min_size=1, max_size=4),
)
def test_damage_anywhere_costs_only_what_is_told(bodies: list[bytes], flips: list[tuple[int, int]]) -> None:
    frames = written(*bodies)
    data = bytearray(b"".join(frames))
    for at, bits in flips:
        data[at % len(data)] ^= bits

    found, tail = parse(bytes(data))

    intact = [each for each in frames if each in [frame(one.seq, one.payload) for one in found]]
    assert [frame(each.seq, each.payload) for each in found] == intact, "no record is made up, none is out of order"
    assert tail.size == 0, "flipped bits never look like a torn write"
    told = {at for piece in tail.damage for at in range(piece.start, piece.start + len(piece.data))}
    for part, start, end in _places(frames):
        assert part in intact or told.issuperset(range(start, end)), "what is not read is told, to the last byte"


def _places(parts: list[bytes]) -> list[tuple[bytes, int, int]]:
    ends = list(itertools.accumulate(map(len, parts)))
    return [(part, end - len(part), end) for part, end in zip(parts, ends, strict=True)]


@given(st.binary(max_size=200))
def test_any_bytes_at_all_are_a_journal_or_a_clear_error(data: bytes) -> None:
    for head in (b"", encode_head(HEAD)):
        frames, tail = parse(head + data)
        pieces = sum(frame.end - frame.start for frame in frames) + sum(len(piece.data) for piece in tail.damage)
        assert pieces + tail.size == len(head + data)


KEPT = b"".join(written("kept"))
SHORT = encode_record(2, record("x" * 100))


def zeroed(text: str, sectors: int) -> bytes:
    """A record behind `KEPT` of which nothing was written, or what stands before the end of so many sectors."""
    whole = encode_record(2, record(text))
    assert not sectors or len(KEPT) <= 512 * sectors < len(KEPT) + len(whole) - 512
    return whole[: max(0, 512 * sectors - len(KEPT))].ljust(len(whole), b"\0")


TORN = [
    encode_record(2, record(b"".join(written("somebody printed the journal", "and a tool read it"))))[:-3],
    *(zeroed("x" * 900 + "y" * 512 * lost, sectors) for lost in (1, 2) for sectors in (0, 1, 2)),
]
#: Zeros that begin inside a sector, which no disk leaves, and old bytes of the disk: what was acknowledged may have
#: stood there.
DAMAGED = [
    *(SHORT[:size].ljust(len(SHORT), b"\0") for size in (3, FRAME_SIZE, FRAME_SIZE + 5)),
    bytes(range(1, 256))[: len(SHORT)],
]


@pytest.mark.parametrize(
    ("behind", "is_torn"), [*((data, True) for data in TORN), *((data, False) for data in DAMAGED)]
)
def test_what_a_crash_or_a_power_cut_leaves_is_a_torn_tail_or_damage(behind: bytes, is_torn: bool) -> None:
    found, tail = parse(KEPT + behind)

    assert [each.seq for each in found] == [0, 1]
    expected = (len(behind), []) if is_torn else (0, [behind])
    assert (tail.size, [piece.data for piece in tail.damage]) == expected


@pytest.mark.parametrize("spoilt", [(4, 5, 6, 17), (0, 1, 2, 3, 9, 10, 18), tuple(range(24))])
@pytest.mark.parametrize("last", [False, True])
def test_a_journal_that_a_damaged_record_quotes_is_never_taken_for_its_own(spoilt: tuple[int, ...], last: bool) -> None:
    """Its header is gone, so that where it ends has to be looked for."""
    quoted = b"".join(encode_record(seq, record("somebody else's")) for seq in range(90, 99))
    frames = [*written("one", quoted), *([] if last else [encode_record(3, record("three"))])]
    hit = bytearray(frames[2])
    for at in spoilt:
        hit[at] ^= 0x55
    data = b"".join([*frames[:2], hit, *frames[3:]])

    found, tail = parse(data)

    assert [each.seq for each in found] == ([0, 1] if last else [0, 1, 3])
    assert [piece.data for piece in tail.damage] == [hit]


def test_two_damaged_records_side_by_side_are_two(tmp_path: Path) -> None:
    frames = written("one", "two", "three", "four")
    hits = [bytearray(frame) for frame in frames]
    hits[1][6] ^= 1
    hits[2][-3] ^= 1

    found, tail = parse(b"".join(hits))

    assert [each.seq for each in found] == [0, 3, 4]
    assert [(piece.data, piece.seq) for piece in tail.damage] == [(hits[1], 0), (hits[2], 2)]


def test_what_stands_before_a_given_byte_is_not_read_again(tmp_path: Path) -> None:
    """Sectors are those of the file, not of what was read."""
    frames = written("a" * 700, "b" * 700)
    data = b"".join(frames)
    begins = len(data) - len(frames[-1])

    _, tail = parse(data[begins:1024].ljust(len(data) - begins, b"\0"), begins)

    assert (tail.start, tail.size, tail.damage) == (begins, len(frames[-1]), ())


def test_one_flipped_bit_of_the_head_is_put_right(tmp_path: Path) -> None:
    frames = written("one", "two")
    for bit in range(len(frames[0]) * 8):
        hit = bytearray(frames[0])
        hit[bit // 8] ^= 1 << bit % 8
        (tmp_path / "demo").write_bytes(bytes(hit) + b"".join(frames[1:]))
        opened = Journal(tmp_path / "demo")

        head, records, _, tail = opened.read()

        assert (head, [seq for seq, _ in records]) == (HEAD, [1, 2])
        assert [piece.data for piece in tail.damage] == [hit]
        opened.close()


def test_a_journal_whose_head_is_gone_or_newer_is_refused_not_begun_anew(tmp_path: Path) -> None:
    (tmp_path / "demo").write_bytes(b"\xff" * 40)
    with pytest.raises(Damaged, match="head"):
        Journal(tmp_path / "demo").read()

    (tmp_path / "demo").write_bytes(encode_head(Head(4, "j", 0, 0, 0)))
    with pytest.raises(Refused, match="format 4") as refusal:
        Journal(tmp_path / "demo").read()
    assert "update" in refusal.value.hint


def test_a_journal_that_another_process_rewrote_or_cut_is_seen_to_have_moved(tmp_path: Path) -> None:
    # ext4 gives a freed inode to the next file: its number alone does not tell one journal from the next.
    writer, reader = journal(tmp_path, "one"), Journal(tmp_path / "demo")
    reader.read()
    for _ in range(40):
        writer.rewrite(HEAD, [])
        assert reader.moved()

    reader.read()
    assert not reader.moved()
    os.truncate(tmp_path / "demo", reader.size - 5)
    assert reader.moved()
    reader.close()
    writer.close()


def test_a_reader_that_waited_through_many_flushes_reads_them_all(path: Path) -> None:
    with opened(path) as waiting, opened(path) as busy:
        for number in range(6):
            for _ in range(2):
                busy.append(human(f"question {number}"), reply(f"answer {number}"))
            waiting.refresh()
            assert contents(waiting) == contents(busy)


def test_writers_that_replace_one_file_at_once_leave_one_of_theirs_whole(tmp_path: Path) -> None:
    target = tmp_path / "HEAD"
    texts = [f"ref: refs/heads/s{number}/main\n".encode() * 50 for number in range(4)]
    target.write_bytes(texts[0])

    def replace_often(text: bytes) -> None:
        for _ in range(60):
            files.replace(target, text)

    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(replace_often, text) for text in texts]
        while not all(one.done() for one in running):
            assert target.read_bytes() in texts

    assert [one.exception() for one in running] == [None] * 4
    assert littered(tmp_path) == []


# --- changes that refer to others, and other versions' changes


def test_a_reference_is_a_commit_or_a_change_of_a_scope() -> None:
    origins = {"": ("", 0), "a" * 40: ("", 0), "main/7": ("main", 7), "main/0": ("main", 0)}
    assert {origin: reference(origin) for origin in origins} == origins
    for origin in ("main/", "main/x", "main/-1", "main/²", "main/7/"):
        with pytest.raises(Damaged, match="refers to"):
            reference(origin)


def test_a_change_of_an_older_version_has_defaults_and_a_newer_one_s_more_is_passed_over(tmp_path: Path) -> None:
    change = Change("main", "archive", "user", Counters(block=3), subject="archive B1")
    elements = msgspec.msgpack.decode(msgspec.msgpack.encode(change))
    payloads = [msgspec.msgpack.encode([[each], ""]) for each in (elements[:12], [*elements, "more", 7])]
    file = tmp_path / "demo"
    frames = [frame(number, payload) for number, payload in enumerate(payloads, 1)]
    file.write_bytes(b"".join([encode_head(HEAD), *frames]))

    _, records, _, _ = Journal(file).read()
    assert [record.changes for _, record in records] == [(change,), (change,)]


# --- a file with a second name


def test_a_backup_by_hard_links_stays_as_it_is_and_recording_goes_on(tmp_path: Path, path: Path) -> None:
    with Store(path) as store, StoredSession.open(store, "demo") as session:
        session.append(human("before"))
        for number, text in enumerate(("first", "second")):
            backup = tmp_path / f"backup{number}"
            shutil.copytree(path, backup, copy_function=os.link)
            was = (backup / "ctxvc" / "journal" / "demo").read_bytes()
            session.append(human(text))  # the second time by a handle that is open already

            assert (backup / "ctxvc" / "journal" / "demo").read_bytes() == was
    assert list(afresh(path).values()) == [b"before", b"first", b"second"]
    assert list(afresh(tmp_path / "backup1").values()) == [b"before", b"first"]
    with Store(tmp_path / "backup1") as store, StoredSession.open(store, "demo") as session:
        session.append(human("there"))
    assert list(afresh(tmp_path / "backup1").values()) == [b"before", b"first", b"there"]
    assert list(afresh(path).values()) == [b"before", b"first", b"second"]
    assert list(afresh(tmp_path / "backup0").values()) == [b"before"]


def test_the_log_of_a_backup_by_hard_links_stays_as_it_is(tmp_path: Path, path: Path) -> None:
    log.note(path, "Stop", "before")
    os.link(log.file(path), tmp_path / "backup")
    log.note(path, "Stop", "after")

    assert [line.split(": ")[1] for line in log.entries(path)] == ["before", "after"]
    assert "after" not in (tmp_path / "backup").read_text()


# --- a session in memory makes what a stored one makes


def _filled(stored: StoredSession) -> Session:
    """A session with messages, verbs, a note, and a scope that was left again."""
    session = Session(stored, policy=policies.parse("scoped"), now=lambda: 0.0, meter=Meter(None))
    session.set(budget=20_000, calibration=(1000, 0))
    session.begin()
    session.append(human("question"))
    for number in range(4):
        session.request()
        session.append(reply(f"look {number}", f"c{number}"), results(result(f"c{number}", f"{number}\n{LONG}")))
    session.archive("B4", "the first result")
    session.note("it is the third", fold=True)
    session.propose(Plan(actions=(Action(verb="archive", targets=("B8",)),), actor="planner"))
    session.open_scope("aside", "look elsewhere")
    session.append(human("and there?"))
    session.request()
    session.append(reply("nothing"))
    session.goto("main", "nothing there")
    session.append(human("go on"))
    session.request()
    return session


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[Session, Session]]:
    with create(tmp_path / ".ctxvc") as store:
        store.redaction.keep_exact("session")
        store.create_session("session", system="be brief")
        with _filled(StoredSession.open(store, "session")) as stored:
            yield stored, _filled(MemorySession(system="be brief"))


def test_prompts_rows_and_numbers_are_those_of_a_stored_session(both: tuple[Session, Session]) -> None:
    stored, memory = both

    assert memory.scopes() == stored.scopes() == ["main", "aside"]
    for scope in stored.scopes():
        assert list(memory.ledger(scope).rows()) == list(stored.ledger(scope).rows())
        assert memory.ledger(scope).groups == stored.ledger(scope).groups
        assert memory.ledger(scope).meta.counters == stored.ledger(scope).meta.counters
    assert memory.prompt().digest == stored.prompt().digest
    assert memory.notes() == stored.notes()
    assert memory.body("B4") == stored.body("B4")


def test_plans_wait_as_in_a_store(both: tuple[Session, Session]) -> None:
    plan = Plan(actions=(Action(verb="mask", targets=("B6",)),), actor="planner")
    for session in both:
        first = session.propose(plan)
        assert session.propose(plan).id == first.id
        assert [pending.id for pending in session.pending()] == [first.id]
        assert session.drop(first.id) == (first.id,)
        assert session.pending() == ()


def test_an_error_leaves_no_trace() -> None:
    with Session(MemorySession(), meter=Meter(None)) as session:
        session.append(human("question"))
        before = session.ledger()
        with pytest.raises(NotFound):
            session.goto("nowhere", "try")
        with pytest.raises(ZeroDivisionError), session.stored.writing() as transaction:
            transaction.verb("main", op="note", actor="agent", subject="lost")
            raise ZeroDivisionError
        assert session.ledger() == before
        session.open_scope("aside", "look")
        with pytest.raises(Refused):
            session.open_scope("main", "again")


def test_operations_are_counted_by_actor() -> None:
    with Session(MemorySession(), meter=Meter(None)) as session:
        session.append(human("question"), reply("look", "c"), results(result("c", LONG)), reply("and", "d"))
        session.archive("B3-B4", "a result")
        assert isinstance(session.stored, MemorySession)
        assert session.stored.operations["archive", "agent"] == 1
        assert session.stored.operations["step", "agent"] > 0
