"""Numbers are given out once, in order, and alike whether or not the program was away in between."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message, Part
from ctxvc.core.ledger.ledger import Ledger, Meta, Row
from ctxvc.core.ledger.numbering import Entry, Numbering, is_human, speaks, turn_answers
from ctxvc.core.ledger.segments import Segments
from ctxvc.store import format as fmt
from tests.making.generated import conversations, wild_messages

EMPTY = Ledger(Meta(format=1, session="s", scope="main"))

anything = conversations() | wild_messages()


def entries(messages: list[Message]) -> list[Entry]:
    numbering = Numbering(block=0)
    return [entry for message in messages for entry in numbering.add(message)]


def rows(messages: list[Message]) -> list[Row]:
    return [row for entry in entries(messages) for row in entry.rows]


@given(anything)
def test_every_number_ascends_and_none_is_given_twice(messages: list[Message]) -> None:
    made = rows(messages)
    assert [row.number for row in made] == list(range(1, len(made) + 1))
    for field in ("msg", "step", "turn"):
        numbers = [getattr(row, field) for row in made]
        assert numbers == sorted(numbers)
        assert set(numbers) in (set(), set(range(1, len(set(numbers)) + 1)))


@given(anything)
def test_every_part_becomes_one_row_with_its_bytes(messages: list[Message]) -> None:
    made = entries(messages)
    bodies = [(block, data) for entry in made for block, suffix, data in entry.bodies if not suffix]
    recorded = [row for entry in made for row in entry.rows if "interrupted" not in wire.own_metadata(row.extra)]

    assert [row.id for entry in made for row in entry.rows] == [block for block, _ in bodies]
    assert sorted((row.kind, dict(bodies)[row.id]) for row in recorded) == sorted(
        (part.kind, part.body) for message in messages for part in message.parts
    )
    for entry in made:
        assert {(row.id, suffix) for row in entry.rows for suffix in ("", *row.files)} == {
            (block, suffix) for block, suffix, _ in entry.bodies
        }


@given(conversations(unique_calls=True))
def test_every_call_of_a_complete_step_has_one_result(messages: list[Message]) -> None:
    made = entries(messages)
    open_calls: set[str] = set()
    answered: dict[str, str] = {}
    for entry in made:
        for row in entry.rows:
            if row.kind == "tool_use":
                open_calls.add(row.id)
            elif row.kind == "tool_result" and row.parent in open_calls:
                open_calls.remove(row.parent)
                assert answered.setdefault(row.parent, row.id) == row.id
                assert row.tool == "sh"
        assert not (entry.done and open_calls)
        replied = any(row.role == "assistant" for each in made for row in each.rows if row.step == entry.step)
        assert entry.done <= replied


@given(anything)
def test_the_parent_is_the_call_or_what_opened_the_turn(messages: list[Message]) -> None:
    made = rows(messages)
    by_id = {row.id: row for row in made}
    for row in made:
        opener = next((each.id for each in made if each.turn == row.turn and is_human(each.role, each.origin)), "")
        expected = {opener if opener and by_id[opener].number < row.number else ""}
        if row.kind == "tool_result":
            expected |= {
                each.id for each in made if each.kind == "tool_use" and each.call == row.call and each.step == row.step
            }
        assert row.parent in expected


@given(anything, st.data())
def test_going_on_after_any_message_gives_the_same_numbers(messages: list[Message], data: st.DataObject) -> None:
    """Also where a host put something in between."""
    asides = data.draw(st.sets(st.integers(0, len(messages)), max_size=2))
    cut = data.draw(st.integers(0, len(messages)))
    straight = Numbering(block=0)
    resumed = Numbering(block=0)
    ledger = EMPTY
    for at, message in enumerate(messages):
        if at in asides:
            aside = messages[(at * 7) % len(messages)]
            expected, _ = straight.aside(aside)
            assert resumed.aside(aside)[0] == expected
            ledger = ledger.with_rows(expected)
        if at == cut:
            ledger = written_and_read(ledger.with_meta(meta(straight)))
            resumed = Numbering.of(ledger, straight.block)
        wanted = straight.add(message)
        assert resumed.add(message) == wanted
        assert resumed.counters(0) == straight.counters(0)
        assert (resumed.complete, list(resumed.calls.items())) == (straight.complete, list(straight.calls.items()))
        ledger = ledger.with_rows(row for entry in wanted for row in entry.rows)


def meta(numbering: Numbering) -> Meta:
    return msgspec.structs.replace(EMPTY.meta, counters=numbering.counters(0))


def written_and_read(ledger: Ledger) -> Ledger:
    segments = {key: fmt.decode_rows(fmt.encode_rows(rows), "here") for key, rows in ledger.segments.items()}
    return Ledger(fmt.decode_meta(fmt.encode_meta(ledger.meta), "here"), Segments(segments))


@given(anything)
def test_interrupting_answers_every_open_call_and_then_nothing(messages: list[Message]) -> None:
    numbering = Numbering(block=0)
    for message in [*messages, reply("c8", "c9")]:
        numbering.add(message)
    waiting = list(numbering.calls)
    (entry,) = numbering.interrupt("2026-01-01T00:00:00Z")
    assert [(row.call, row.error, row.bytes, row.origin) for row in entry.rows] == [
        (call, True, 0, "client") for call in waiting
    ]
    assert numbering.interrupt() == []


# --- the rules, one by one


def said(role: Any, *parts: Part, key: str = "") -> Message:
    return Message(role=role, parts=parts, key=key)


def human(text: str = "do it", key: str = "") -> Message:
    return said("user", wire.text_part(text, "user", "human"), key=key)


def client(text: str = "reminder", key: str = "") -> Message:
    return said("user", wire.text_part(text, "user", "client"), key=key)


def reply(*calls: str, key: str = "") -> Message:
    asked = (wire.call_part("sh", call, b"{}") for call in calls)
    return said("assistant", wire.text_part("ok", "assistant", "model"), *asked, key=key)


def results(*calls: str, key: str = "") -> Message:
    return said("user", *(wire.result_part("out", call) for call in calls), key=key)


def table(*messages: Message) -> list[tuple[str, int, int, str]]:
    """Kind, step, turn and parent of each row."""
    return [(row.kind, row.step, row.turn, row.parent) for row in rows(list(messages))]


def test_a_step_is_what_came_in_the_reply_and_its_results_and_a_turn_begins_with_what_humans_said() -> None:
    assert table(client(), human(), reply("c1"), results("c1"), reply()) == [
        ("user", 1, 1, ""),
        ("user", 1, 1, ""),
        ("assistant", 1, 1, "B2"),
        ("tool_use", 1, 1, "B2"),
        ("tool_result", 1, 1, "B4"),
        ("assistant", 2, 1, "B2"),
    ]

    assert [row[2] for row in table(human(), human(), reply(), human(), client(), human(), reply())] == [
        1, 1, 1, 2, 2, 2, 2,
    ]  # fmt: skip

    assert [row[1:] for row in table(human(), reply(), client(), reply())] == [
        (1, 1, ""), (1, 1, "B1"), (2, 1, "B1"), (2, 1, "B1"),
    ]  # fmt: skip


def test_results_of_parallel_calls_come_in_any_number_of_messages() -> None:
    made = entries([human(), reply("c1", "c2"), results("c2"), client(), results("c1")])
    assert [(entry.step, entry.done) for entry in made] == [(1, False)] * 4 + [(1, True)]
    assert [row.parent for entry in made[2:] for row in entry.rows] == ["B4", "B1", "B3"]


def test_a_human_message_interrupts_what_is_open() -> None:
    made = rows([human(), reply("c1", "c2"), results("c2"), human("stop")])
    assert [(row.kind, row.call, row.step, row.turn, row.error) for row in made[4:]] == [
        ("tool_result", "c2", 1, 1, False),
        ("tool_result", "c1", 1, 1, True),
        ("user", "", 2, 2, False),
    ]
    assert wire.own_metadata(made[5].extra) == {"interrupted": True}


def test_a_message_with_results_and_more_is_one_message_in_two_steps() -> None:
    both = said("user", wire.text_part("and", "user", "human"), wire.result_part("out", "c1"), key="k")
    for key in ("k", ""):
        made = rows([human(), reply("c1"), msgspec.structs.replace(both, key=key)])
        assert [(row.kind, row.msg, row.step, row.turn) for row in made[3:]] == [
            ("tool_result", 3, 1, 1),
            ("user", 3, 2, 2),
        ]
        assert [wire.own_metadata(row.extra).get("key", "") for row in made[3:]] == [key, key]


def test_a_second_result_for_a_call_is_no_answer() -> None:
    assert table(human(), reply("c1"), results("c1", "c1"), results("c9"))[3:] == [
        ("tool_result", 1, 1, "B3"),
        ("tool_result", 2, 1, "B1"),
        ("tool_result", 2, 1, "B1"),
    ]


def test_a_message_without_parts_leaves_everything_as_it_was() -> None:
    nothing = [said("assistant"), said("user", key="k")]
    assert rows([human(), reply("c1"), *nothing, results("c1"), *nothing, human()]) == rows(
        [human(), reply("c1"), results("c1"), human()]
    )


def test_what_a_host_puts_in_opens_neither_step_nor_turn() -> None:
    numbering = Numbering(block=10)
    for message in (human(), reply()):
        numbering.add(message)
    before = numbering.counters(0)
    (row,), bodies = numbering.aside(client("summary", key="s1"))
    assert (row.id, row.step, row.turn, row.msg, row.parent) == ("B13", 1, 1, 3, "B11")
    assert bodies == [("B13", "", b"summary")]
    assert numbering.counters(0) == msgspec.structs.replace(before, block=13, msg=3)


def test_a_call_that_a_host_put_in_before_the_first_turn_is_still_open_later() -> None:
    numbering = Numbering(block=0)
    put_in, _ = numbering.aside(reply("c1"))
    added = [row for entry in numbering.add(client()) for row in entry.rows]
    ledger = EMPTY.with_rows([*put_in, *added]).with_meta(meta(numbering))
    assert Numbering.of(ledger, 3).calls == numbering.calls == {"c1": ("B2", "sh")}


@pytest.mark.parametrize("name", ["é", "c\ud800"])
def test_a_result_finds_its_call_whatever_the_id(name: str) -> None:
    made = rows([human(), reply(name), results(name)])
    assert made[-1].parent == made[-2].id
    assert fmt.decode_rows(fmt.encode_rows(made), "here") == tuple(made)


# --- what stands aside


def aside(kind: Any = "note", origin: Any = "human") -> Part:
    return wire.text_part("by the way", "user", origin, kind=kind)


@pytest.mark.parametrize("origin", ["human", "model", "client"])
@pytest.mark.parametrize("kind", ["note", "dashboard"])
def test_notes_and_dashboards_open_neither_step_nor_turn(kind: str, origin: str) -> None:
    beside = said("user", aside(kind, origin))

    assert table(beside, human(), reply("c1"), beside, results("c1"), beside, reply(), beside, human(), beside) == [
        (kind, 0, 0, ""),
        ("user", 1, 1, ""),
        ("assistant", 1, 1, "B2"),
        ("tool_use", 1, 1, "B2"),
        (kind, 1, 1, "B2"),
        ("tool_result", 1, 1, "B4"),
        (kind, 1, 1, "B2"),
        ("assistant", 2, 1, "B2"),
        (kind, 2, 1, "B2"),
        ("user", 3, 2, ""),
        (kind, 3, 2, "B10"),
    ]


def test_what_stands_aside_interrupts_no_call_and_is_committed_with_the_next_step() -> None:
    made = entries([human(), reply("c1"), said("user", aside())])
    assert [(entry.done, len(entry.rows)) for entry in made] == [(False, 1), (False, 2), (False, 1)]
    made = entries([human(), reply(), said("user", aside("dashboard", "client")), reply()])
    assert [(entry.step, entry.done) for entry in made] == [(1, False), (1, True), (1, False), (2, True)]
    both = said("user", aside("dashboard", "client"), wire.text_part("do it", "user", "human"))
    assert table(human(), reply(), both)[2:] == [("dashboard", 2, 2, ""), ("user", 2, 2, "")]
    note = aside()
    assert is_human(note.role, note.origin)
    assert not speaks(note.kind, note.role, note.origin)


@given(anything, st.lists(st.tuples(st.integers(0, 20), st.sampled_from(["note", "dashboard"]), st.booleans())))
def test_with_notes_between_all_else_has_the_same_steps_turns_and_parents(
    messages: list[Message], places: list[tuple[int, str, bool]]
) -> None:
    """Put in by a verb or appended, also where the program was away behind each."""
    numbering = Numbering(block=0)
    ledger = EMPTY
    beside: set[str] = set()
    for at, message in enumerate(messages):
        for _, kind, appended in (place for place in places if place[0] == at):
            note = said("user", aside(kind))
            appended_rows = [row for entry in numbering.add(note) for row in entry.rows] if appended else []
            added = appended_rows or numbering.aside(note)[0]
            ledger = ledger.with_rows(added).with_meta(meta(numbering))
            beside |= {row.id for row in added}
            numbering = Numbering.of(ledger, numbering.block)
        added = [row for entry in numbering.add(message) for row in entry.rows]
        ledger = ledger.with_rows(added).with_meta(meta(numbering))
    others = [row for row in ledger.rows() if row.id not in beside]
    names = {row.id: f"B{number}" for number, row in enumerate(others, 1)}

    assert [(row.kind, row.step, row.turn, names.get(row.parent, "")) for row in others] == table(*messages)


@given(anything)
def test_a_message_can_be_taken_in_two_parts(messages: list[Message]) -> None:
    numbering = Numbering(block=0)
    made: list[Entry] = []
    for message in messages:
        settled, rest = numbering.settle(message)
        assert not settled or settled[-1].done or numbering.calls
        made += [*settled, *numbering.begin(rest)]
    assert made == entries(messages)


def test_a_turns_answer_is_its_last_text_unless_a_call_follows_it() -> None:
    messages = [human(), reply("c1"), results("c1"), reply(), human(), reply(), reply("c2"), results("c2")]
    made = rows(messages)
    ledger = Ledger(Meta(format=1, session="s", scope="main")).with_rows(made)
    texts = [row.id for row in made if row.kind == "assistant"]
    assert len(texts) == 4
    assert turn_answers(ledger) == {texts[1]}
