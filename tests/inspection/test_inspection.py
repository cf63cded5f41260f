"""grep, bisect and blame, on real stores: all is found, wherever it stands, and whoever touched it is named."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxvc.core.ledger.block import Message, Part
from ctxvc.core.ledger.ledger import Group, Row
from ctxvc.core.ledger.wire import part
from ctxvc.core.patterns import compiled
from ctxvc.core.prompt.outline import outline
from ctxvc.errors import Damaged
from ctxvc.inspection import bisect, blame, grep, history
from ctxvc.inspection.bodies import bodies, read
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.log.transaction import AdmittedEntry
from ctxvc.store.read import revision
from ctxvc.store.store import Store, create
from tests.making.conversation import exchange, human, injected, raw, reply, results
from tests.making.store import summary, unflushed


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with create(tmp_path / ".ctxvc") as made:
        made.create_session("demo", system="Be careful with the rate limit.")
        yield made


@pytest.fixture
def session(store: Store) -> Iterator[StoredSession]:
    with StoredSession.open(store, "demo") as opened:
        yield opened


def change(
    session: StoredSession, op: str, *names: str, actor: str = "user", trailers: Any = None, **fields: Any
) -> None:
    """A verb: these fields of these rows are otherwise."""
    rows = [msgspec.structs.replace(session.ledger()[name], **fields) for name in names]
    session.change(subject=f"{op} {' '.join(names)}", op=op, actor=actor, rows=rows, trailers=trailers)


def archive(session: StoredSession, *names: str, **fields: Any) -> None:
    change(session, "archive", *names, **{"state": "archived", "removed_by": "user", **fields})


def restore(session: StoredSession, *names: str) -> None:
    change(session, "restore", *names, state="visible", removed_by="", stub="", group="", level=0)


def found(session: StoredSession, pattern: str, *others: StoredSession, **options: Any) -> list[tuple[str, int, str]]:
    """The first place, line and text of each hit."""
    held = bodies(((each, each.scopes()) for each in (session, *others)), lambda _: True)
    hits = grep.Search(read(session.store, held), compiled(pattern, **options))
    return [(hit.places[0].address, hit.line, hit.text) for hit in hits]


# --- grep


def test_a_body_is_found_wherever_it_stands_now_also_in_no_commit_yet(session: StoredSession) -> None:
    session.append(*exchange(1), *exchange(2), reply("done"))
    archive(session, "B1", stub="[gone]")
    change(session, "delete", "B4", state="deleted")

    assert found(session, "question|^out 1") == [
        ("demo/main:B1", 1, "question 1"),
        ("demo/main:B4", 1, "out 1"),
        ("demo/main:B5", 1, "question 2"),
    ]

    session.append(human("an open question"))
    assert session.waiting()
    assert found(session, "open") == [("demo/main:B10", 1, "an open question")]


def test_equal_bodies_are_searched_once_and_all_their_places_are_told(session: StoredSession, store: Store) -> None:
    store.create_session("other")
    session.append(human("the same"), reply("the same"), human("another"))
    with StoredSession.open(store, "other") as other:
        other.append(human("the same"))
        session.open_scope("aside", "to look", with_messages=True)

        held = bodies([(session, ["main", "aside"]), (other, ["main"])], lambda _: True)
        (hit,) = grep.Search(read(store, held), compiled("same"))

    assert [place.address for place in hit.places] == [
        "demo/main:B1", "demo/main:B2", "demo/aside:B1", "demo/aside:B2", "other/main:B1",
    ]  # fmt: skip


def test_strings_in_json_are_searched_as_what_they_say(session: StoredSession) -> None:
    command = {"type": "tool_use", "id": "c1", "name": "sh", "input": {"cmd": 'cd /\necho "hi" \\o/\nls', "n": ["é"]}}
    content = [{"type": "text", "text": 'a\n"quoted"'}, {"type": "text", "text": "b"}]
    answer = {"type": "tool_result", "tool_use_id": "c1", "content": content}
    session.append(human("go"), Message(role="assistant", parts=(part(command, "assistant", "model"),)))
    session.append(results(part(answer, "user", "tool")))

    assert found(session, '"hi" \\o/', fixed=True) == [("demo/main:B2", 2, 'echo "hi" \\o/')]
    assert found(session, '^"quoted"$') == [("demo/main:B3", 2, '"quoted"')]
    assert found(session, "é", fixed=True) == [("demo/main:B2", 1, "é")]
    assert [line for _, line, _ in found(session, '"cmd":')] == [1]
    assert [words for _, _, words in found(session, "echo|é|ls")] == ['echo "hi" \\o/', "ls", "é"]


def test_bytes_that_are_no_text_are_searched_too_and_images_are_not(session: StoredSession) -> None:
    session.append(raw(b"\0\xff needle \xe9"))
    for ext in ("png", "bin"):
        image = Part(kind="image", role="user", origin="human", body=b"needle", ext=ext)
        session.append(Message(role="user", parts=(image,)))
    assert found(session, "needle") == [("demo/main:B1", 1, "\0\ufffd needle \ufffd")]


@given(st.lists(st.text('ab\\"\nX', max_size=8), min_size=1, max_size=5), st.text('ab\\"X', min_size=1, max_size=3))
def test_a_fixed_text_is_found_where_it_is_and_nowhere_else(texts: list[str], wanted: str) -> None:
    class Held(msgspec.Struct):
        places: list[Any]

    class Place(msgspec.Struct):
        row: Row

    row = Row(id="B1", kind="user", role="user", origin="human", msg=1, step=1, turn=1, bytes=1, sha256="0")
    read_bodies: Any = [(Held([Place(row)]), text.encode()) for text in texts]

    hits = [hit.line for hit in grep.Search(read_bodies, compiled(wanted, fixed=True))]

    assert hits == [at for text in texts for at, line in enumerate(text.split("\n"), 1) if wanted in line]


def test_a_body_that_is_missing_is_damage_and_its_block_is_named(session: StoredSession, store: Store) -> None:
    session.append(human("one"), reply("two"))
    session.close()
    held = bodies([(session, ["main"])], lambda _: True)
    gone = msgspec.structs.replace(held[0], blob=b"\1" * 20)
    with pytest.raises(Damaged, match="demo/main:B1"):
        list(read(store, [gone]))


# --- bisect


def moves(session: StoredSession, words: str) -> list[tuple[str, str, str]]:
    """What bisect tells, each commit by its step, or its subject up to a colon."""
    told = bisect.of_address(session, "main", words) if words[1:].isdigit() else bisect.of_text(session, "main", words)
    subjects = {
        move.commit: summary(session.store.commit(move.commit).message).partition(":")[0]
        for move in told
        if move.commit
    }
    return [(move.move, move.id, subjects.get(move.commit, "")) for move in told]


def test_a_block_that_comes_and_goes_is_followed(session: StoredSession) -> None:
    """Restoring gives back the very row that was: the ledger's file is the same before and after."""
    session.append(*exchange(1), *exchange(2), reply("done"))
    archive(session, "B4")
    restore(session, "B4")
    session.append(*exchange(3), reply("done"))
    archive(session, "B4", "B3")

    assert moves(session, "B4") == [
        ("entered", "B4", "step 1"),
        ("left", "B4", "archive B4"),
        ("entered", "B4", "restore B4"),
        ("left", "B4", "archive B4 B3"),
    ]


def test_what_is_not_committed_yet_is_told_without_a_commit(session: StoredSession) -> None:
    session.append(*exchange(1), human("open"))
    assert moves(session, "B5") == [("entered", "B5", "")]
    assert moves(session, "open") == [("entered", "B5", "")]


def test_a_text_is_followed_through_bodies_masks_and_stubs(session: StoredSession) -> None:
    session.append(human("x" * 500 + " needle " + "x" * 500), reply("one"), human("needle"), reply("two"))
    change(session, "mask", "B1", state="masked")
    archive(session, "B3", stub="[archived B3: the needle]")
    change(session, "prune", "B3", state="pruned", stub="")

    assert moves(session, "needle") == [
        ("entered", "B1", "step 1"),
        ("entered", "B3", "step 2"),
        ("left", "B1", "mask B1"),
        ("left", "B3", "prune B3"),  # its stub had the text, too
    ]


def test_a_text_in_the_stub_of_a_group_is_in_the_prompt_while_the_group_is_outermost(session: StoredSession) -> None:
    session.append(*exchange(1), reply("done"))
    rows = [
        msgspec.structs.replace(session.ledger()[name], state="archived", group="G1", level=1) for name in ("B3", "B4")
    ]
    inner = Group(id="G1", members=("B3", "B4"), stub="[archived G1: needle]")
    session.change(subject="group", op="archive", actor="user", rows=rows, groups=[inner])
    outer = Group(id="G2", members=("G1",), level=2, stub="[archived G2]")
    inside = msgspec.structs.replace(inner, group="G2")
    session.change(subject="group again", op="archive", actor="user", groups=[inside, outer])

    change(session, "nothing", "B3", stub="[archived B3: needle]")  # a member's own stub is not shown

    assert moves(session, "needle") == [("entered", "G1", "group"), ("left", "G1", "group again")]
    assert moves(session, "G2") == [("entered", "G2", "group again")]


def test_thinking_leaves_with_a_cut(session: StoredSession) -> None:
    thought = Part(kind="thinking", role="assistant", origin="model", body=b"deep thought")
    message = Message(role="assistant", parts=(thought, reply("so").parts[0]))
    session.append(human("go"), message, human("on"), reply("yes"))
    session.change(subject="nothing", op="note", actor="user")
    session.change(subject="cut", op="cut", actor="user", meta={"cuts": (1,)})
    session.change(subject="cut again", op="cut", actor="user", meta={"cuts": (1, 3)})
    session.change(subject="nothing", op="note", actor="user")
    archive(session, "B2")
    assert moves(session, "deep") == [("entered", "B2", "step 1"), ("left", "B2", "cut again")]


def test_the_system_prompt_is_told_of(session: StoredSession) -> None:
    session.append(human("go"), reply("yes"))
    (move,) = bisect.of_text(session, "main", "rate limit")
    assert (move.id, move.move) == (bisect.REQUEST, "entered")


def test_a_scope_goes_back_to_where_it_came_from(session: StoredSession) -> None:
    session.append(human("before needle"), reply("yes"))
    session.open_scope("aside", "to look", with_messages=True)
    session.append(human("after needle"), reply("no"))
    told = bisect.of_text(session, "aside", "needle")
    subjects = [summary(session.store.commit(move.commit).message) for move in told]
    assert subjects[0].startswith("step 1")
    assert subjects[-1].startswith("step 2")


@settings(max_examples=2, deadline=None)
@given(st.integers(0, 2**32))
def test_every_change_of_every_block_is_found(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """Against all commits' ledgers, read whole."""
    chance = random.Random(seed)
    with create(tmp_path_factory.mktemp("any") / ".ctxvc") as store:
        store.create_session("demo")
        with StoredSession.open(store, "demo") as session:
            with unflushed():
                for number in range(16):
                    session.append(*exchange(number))
                    rows = list(session.ledger().rows())
                    for row in chance.sample(rows, min(2, len(rows))) if chance.random() < 0.5 else []:
                        (archive if row.present else restore)(session, row.id)
            session.flush()
            ids = [row.id for row in session.ledger().rows()]
            told = [
                (touch.commit, touch.id, touch.before, touch.after) for touch in history.touches(session, "main", ids)
            ]

            expected: list[Any] = []
            newer, commit = session.ledger(), ""
            for parent in [*store.first_parents(session.tip()), None]:
                older = store.reader.ledger(parent) if parent else None
                for name in ids:
                    before, after = None if older is None else older.get(name), newer.get(name)
                    if before != after:
                        expected.append((commit, name, before, after))
                if older is not None:
                    newer, commit = older, parent

    assert sorted(told, key=str) == sorted(expected, key=str)


def test_what_was_done_after_coming_back_is_found_too(session: StoredSession) -> None:
    session.append(*exchange(1), reply("done"))
    session.open_scope("aside", "to look")
    session.append(human("aside"), reply("yes"))
    session.goto("main", "back again")
    archive(session, "B1")
    session.open_scope("more", "to look")
    session.goto("main", "and back")
    restore(session, "B1")

    assert moves(session, "B1") == [
        ("entered", "B1", "step 1"),
        ("left", "B1", "archive B1"),
        ("entered", "B1", "restore B1"),
    ]


def test_a_text_in_many_blocks_is_followed_in_all_of_them(session: StoredSession) -> None:
    session.append(*(each(f"needle {number}") for number in range(300) for each in (injected, reply)))
    archive(session, "B1", "B450")
    told = moves(session, "needle")
    assert len(told) == 602
    assert told[-2:] == [("left", "B1", "archive B1 B450"), ("left", "B450", "archive B1 B450")]


# --- bisect by cost, and by judgement


def shown(store: Store, commit: str) -> int:
    """A cost: blocks in the prompt."""
    return len(outline(revision.at(store, commit).ledger))


@settings(max_examples=2, deadline=None)
@given(st.integers(0, 2**32))
def test_the_first_prompt_over_a_limit_is_the_first(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    chance = random.Random(seed)
    with create(tmp_path_factory.mktemp("any") / ".ctxvc") as store:
        store.create_session("demo")
        with StoredSession.open(store, "demo") as session:
            with unflushed():
                for number in range(14):
                    session.append(injected(f"{number}"), reply(f"answer {number}"))
                    if chance.random() < 0.3:
                        rows = [row for row in session.ledger().rows() if row.present]
                        archive(session, *(row.id for row in chance.sample(rows, len(rows) // 2)))
                    if chance.random() < 0.2:
                        restore(session, *(row.id for row in session.ledger().rows() if not row.present))
            session.flush()
            commits = list(store.first_parents(session.tip()))[::-1]
        costs = [shown(store, commit) for commit in commits]
        for most in range(max(costs) + 1):
            place = bisect.first_over(store, commits, lambda commit: shown(store, commit), most)
            assert place == next((at for at, cost in enumerate(costs) if cost > most), None)
            if place is not None:
                over = bisect.still_over(store, commits, lambda commit: shown(store, commit), most, place)
                assert over == (costs[-1] > most)


def test_a_cut_within_a_step_makes_a_prompt_smaller(session: StoredSession, store: Store) -> None:
    thoughts = [Part(kind="thinking", role="assistant", origin="model", body=b"%d" % number) for number in range(5)]
    session.append(injected("a"), Message(role="assistant", parts=(*thoughts, reply("b").parts[0])))
    with session.writing() as transaction:
        for scope, entry in session.number(transaction, session.redacted_messages([injected("c"), reply("d")])):
            transaction.append(scope, AdmittedEntry(entry, {"cuts": (7,)}))
        session.acknowledge(transaction)
    session.append(injected("e"), reply("f"))
    commits = list(store.first_parents(session.tip()))[::-1]

    assert [shown(store, commit) for commit in commits] == [0, 7, 4, 6]
    assert bisect.first_over(store, commits, lambda commit: shown(store, commit), 5) == 1
    assert bisect.first_over(store, commits, lambda commit: shown(store, commit), 6) == 1
    assert not bisect.still_over(store, commits, lambda commit: shown(store, commit), 6, 1)


def test_few_prompts_are_measured_where_a_session_only_grew(session: StoredSession, store: Store) -> None:
    session.append(*(each(f"{number}") for number in range(200) for each in (injected, reply)))
    commits = list(store.first_parents(session.tip()))[::-1]
    measured: list[str] = []

    def cost(commit: str) -> int:
        measured.append(commit)
        return shown(store, commit)

    assert bisect.first_over(store, commits, cost, 20) == 11
    assert len(measured) < 10


@given(st.integers(1, 200), st.data())
def test_halving_finds_the_first_bad_one(size: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, size - 1))
    asked: list[int] = []

    def good(place: int) -> bool:
        asked.append(place)
        return place < first

    assert bisect.first_bad(range(size), good) == first
    assert len(asked) <= size.bit_length()


@given(st.lists(st.booleans()))
def test_looking_at_all_finds_every_change(answers: list[bool]) -> None:
    turns = dict(bisect.changes(range(len(answers)), lambda place: answers[place]))
    state = True
    for place, answer in enumerate(answers):
        state = turns.get(place, state)
        assert state == answer


# --- blame


def stays(session: StoredSession, name: str) -> list[tuple[str, int, int]]:
    met = blame.events(session, "main", name)
    return [
        ("group" if isinstance(stay.item, Group) else stay.item.state, stay.first, stay.last)
        for stay in blame.stays(met, session.ledger())
        if stay.calls
    ]


def test_all_that_was_done_to_a_block_is_told_in_order(session: StoredSession) -> None:
    session.append(*exchange(1), *exchange(2), reply("done"))
    archive(session, "B4", actor="policy:old", trailers={"Ctxvc-Reason": "too large"}, stub="[archived B4]")
    change(session, "recover", "B4", actor="agent", reads=1)
    session.change(subject="recover B4 again", op="recover", actor="agent", trailers={"Ctxvc-Blocks": "B3 B4"})
    restore(session, "B4")
    change(session, "pin", "B4", state="pinned")
    change(session, "unpin", "B4", state="visible")
    change(session, "delete", "B4", state="deleted", reads=1)

    told = blame.events(session, "main", "B4")

    assert [event.what for event in told] == [
        "brought in", "archived", "read", "read", "restored", "pinned", "unpinned", "deleted",
    ]  # fmt: skip
    assert told[1].entry is not None
    assert told[1].entry.trailers["Ctxvc-Reason"] == "too large"
    assert told[1].entry.trailers["Ctxvc-Actor"] == "policy:old"
    assert told[1].step == 3


def test_the_calls_that_saw_a_block_are_those_between(session: StoredSession) -> None:
    session.append(*exchange(1), *exchange(2))  # B1 question, B2 reply, B3 call, B4 result; …
    archive(session, "B4", "B1")
    session.append(*exchange(3), *exchange(4))
    restore(session, "B4")
    session.append(*exchange(5))
    assert stays(session, "B1") == [("visible", 1, 2), ("archived", 3, 5)]  # the question was asked with the first call
    assert stays(session, "B4") == [("visible", 2, 2), ("archived", 3, 4), ("visible", 5, 5)]
    assert stays(session, "B17") == [("visible", 5, 5)]
    assert stays(session, "B20") == []  # nobody has asked again since its result came


def test_what_came_in_and_was_not_answered_yet_was_never_sent(session: StoredSession) -> None:
    session.append(*exchange(1), human("open"))
    assert stays(session, "B5") == []
    assert [event.what for event in blame.events(session, "main", "B5")] == ["brought in"]
    session.append(reply("", "c9"))
    assert stays(session, "B5") == [("visible", 2, 2)]


def test_a_note_is_sent_with_the_next_call(session: StoredSession) -> None:
    session.append(*exchange(1), *exchange(2))
    note = session.note("remember this")
    session.append(*exchange(3))
    assert stays(session, note) == [("visible", 3, 3)]


def test_what_waits_for_the_end_of_an_open_step_counts_from_the_next_call(session: StoredSession) -> None:
    session.append(*exchange(1), human("open"))
    archive(session, "B1")
    assert blame.events(session, "main", "B1")[-1].entry is None
    assert stays(session, "B1") == [("visible", 1, 1)]


def test_a_group_is_made_put_into_another_and_dissolved(session: StoredSession) -> None:
    session.append(*exchange(1), reply("done"))
    rows = [
        msgspec.structs.replace(session.ledger()[name], state="archived", group="G1", level=1) for name in ("B3", "B4")
    ]
    group = Group(id="G1", members=("B3", "B4"), stub="[archived G1]")
    session.change(subject="group", op="archive", actor="user", rows=rows, groups=[group])
    session.append(*exchange(2))
    outer = Group(id="G2", members=("G1",), level=2, stub="[archived G2]")
    session.change(
        subject="again", op="archive", actor="user", groups=[msgspec.structs.replace(group, group="G2"), outer]
    )

    assert [event.what for event in blame.events(session, "main", "B3")] == ["brought in", "archived in G1"]
    assert [event.what for event in blame.events(session, "main", "G1")] == ["made", "changed"]
    assert stays(session, "G1") == [("group", 3, 3)]


def test_a_group_that_comes_back_is_followed_past_the_time_when_it_was_gone(
    session: StoredSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StoredSession, "_unchanged", lambda *_: None)  # as an undo brings it back, under its old number
    session.append(*exchange(1), reply("done"))
    group = Group(id="G1", members=("B3", "B4"), stub="[archived G1]")
    for subject, members in (("group", group.members), ("restore", ()), ("undo", group.members)):
        changed = msgspec.structs.replace(group, members=members)
        session.change(subject=subject, op=subject, actor="user", groups=[changed])
    assert [event.what for event in blame.events(session, "main", "G1")] == ["made", "dissolved", "made"]
    assert moves(session, "G1") == [("entered", "G1", "group"), ("left", "G1", "restore"), ("entered", "G1", "undo")]
