"""What a new scope inherits, what a note says, and what it covers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.core import scope
from ctxvc.core.ledger.block import Message, Part
from ctxvc.core.ledger.ledger import Group, Ledger, Meta, Row
from ctxvc.core.ledger.numbering import Numbering
from ctxvc.core.ledger.wire import result_part, text_part
from ctxvc.core.prompt import formats
from ctxvc.core.prompt.outline import Piece, outline, pieces, sendable
from ctxvc.store.log.commits import apply_change
from ctxvc.store.log.journal import Change
from tests.making.conversation import human, reply
from tests.making.generated import arranged, bodies_of, conversations, numbered
from tests.messages_api.rules import canonical_problems as problems

EMPTY = Ledger(Meta(format=1, session="s", scope="main"))


def results(*calls: str) -> Message:
    return Message(role="user", parts=tuple(result_part(f"out {call}", call) for call in calls))


def beside(text: str, actor: str = "agent", **switch: str) -> Part:
    return scope.note(text, actor, **switch)


def ledger(*said: Message | Part) -> Ledger:
    """A scope in which this was said; a part is a note."""
    held = EMPTY
    numbering = Numbering(block=0)
    for each in said:
        if isinstance(each, Message):
            rows = [row for entry in numbering.add(each) for row in entry.rows]
        else:
            rows, _ = numbering.aside(Message(role="user", parts=(each,)))
        held = held.with_rows(rows)
    return held.with_meta(msgspec.structs.replace(held.meta, counters=numbering.counters(0)))


def stand(held: Ledger, **states: str) -> Ledger:
    return held.with_rows([msgspec.structs.replace(held[name], state=state) for name, state in states.items()])


def begun(held: Ledger) -> Ledger:
    """The scope that is opened on this one."""
    change = Change(
        "new",
        "scope",
        "agent",
        scope.first_counters(held),
        meta={"scope": "new", "parent": "main"},
        inherit=scope.inherited(held),
    )
    return apply_change(held, change)


# --- inside a turn or not


@pytest.mark.parametrize(
    ("said", "inside"),
    [
        ([], False),
        ([human("q")], True),
        ([human("q"), reply("a")], False),
        ([human("q"), reply("a", "c")], True),
        ([human("q"), reply("a", "c"), results("c")], True),
        ([human("q"), reply("a", "c"), results("c"), reply("done")], False),
        ([human("q"), reply("a"), human("r")], True),
        ([human("q"), reply("a"), beside("n")], False),
        ([beside("n", "user")], False),
        ([reply("hello", "c")], True),
    ],
)
def test_a_turn_goes_on_until_the_model_calls_nothing_more(said: list[Message | Part], inside: bool) -> None:
    assert scope.in_turn(ledger(*said)) is inside


def test_inside_a_turn_all_of_what_the_human_said_is_inherited() -> None:
    image = Part(kind="image", role="user", origin="human", body=b"png", ext="png")
    reminder = text_part("the date", "user", "client")
    message = Message(role="user", parts=(*human("look").parts, image, reminder))
    held = ledger(human("before"), reply("yes"), message, human("and this"), reply("", "c"), results("c"))
    assert scope.inherited(held) == ("B3", "B4", "B6")
    assert (begun(held).meta.counters.turn, begun(held).meta.counters.step) == (2, 3)


def test_pinned_blocks_come_with_the_other_half_of_their_pair_of_one_id_the_newer() -> None:
    held = ledger(human("q"), reply("a", "c1", "c2"), results("c1", "c2"), reply("done"))
    assert scope.inherited(held) == ()
    assert scope.inherited(stand(held, B3="pinned")) == ("B3", "B5")
    assert scope.inherited(stand(held, B6="pinned")) == ("B4", "B6")
    assert scope.inherited(stand(held, B6="pinned", B4="archived")) == ("B4", "B6")
    assert scope.inherited(stand(held, B1="pinned", B2="pinned", B7="pinned")) == ("B1", "B2", "B7")
    held = ledger(human("q"), reply("a", "c"), results("c"), reply("b", "c"), results("c"), reply("done"))
    assert scope.inherited(stand(held, B4="pinned")) == ("B3", "B4")
    assert scope.inherited(stand(held, B6="pinned")) == ("B6", "B7")


def test_notes_are_inherited_but_those_that_were_taken_away() -> None:
    said: list[Message | Part] = [human("q"), reply("a"), *(beside(f"n{n}") for n in range(5))]
    held = stand(ledger(*said), B4="archived", B5="pruned", B6="deleted", B7="pinned")
    assert scope.inherited(held) == ("B3", "B4", "B7")


@given(conversations(), st.data())
def test_a_new_scope_is_valid_and_goes_on_with_numbers_of_its_own(said: list[Message], data: st.DataObject) -> None:
    held, bodies = numbered(said)
    held = data.draw(arranged(held))
    new = begun(held)
    kept = set(scope.inherited(held))

    assert [row.id for row in new.rows()] == [row.id for row in held.rows() if row.id in kept]
    assert_groups_are_whole(new)
    question = Piece(message=1 << 40, role="user", kind="user", body=b"Go on.")
    shown = sendable([*pieces(outline(new), bodies_of(bodies)), question])
    messages: list[dict[str, Any]] = formats.anthropic(formats.Prompt(pieces=shown))["messages"]
    assert problems(messages) == []

    numbering = Numbering.of(new, 1000)
    (entry,) = numbering.add(reply("first"))
    assert entry.done and entry.step == held.meta.counters.step + 1
    assert not [row for row in new.rows() if row.step == entry.step]
    turn = entry.rows[0].turn
    humans = [row.id for row in new.rows() if row.turn == turn and (row.role, row.origin) == ("user", "human")]
    assert entry.rows[0].parent == (humans[0] if humans else "")


@given(conversations(), st.data())
def test_whatever_is_inherited_nothing_points_to_what_is_not(said: list[Message], data: st.DataObject) -> None:
    held = data.draw(arranged(numbered(said)[0]))
    left = data.draw(st.sets(st.sampled_from([row.id for row in held.rows()] or ["B1"]), max_size=4))
    kept = tuple(row.id for row in held.rows() if row.id not in left)
    new = apply_change(held, Change("new", "scope", "agent", held.meta.counters, inherit=kept))
    assert tuple(row.id for row in new.rows()) == kept
    assert_groups_are_whole(new)
    if not left:
        assert new.groups.keys() == {n for n, group in held.groups.items() if {*group.summary} <= {*kept}}


@pytest.mark.parametrize(("tail", "before"), [("B3", ""), ("B4", "B4")])
def test_a_group_stands_at_its_own_place_where_what_it_stood_before_stays_behind(tail: str, before: str) -> None:
    held = stand(ledger(beside("n1"), beside("n2"), human("q"), reply("a")), B1="archived", B2="archived", B4="pinned")
    held = held.with_rows([msgspec.structs.replace(held[name], group="G1") for name in ("B1", "B2")])
    held = held.with_groups([Group(id="G1", members=("B1", "B2"), summary=("B4",), before=tail)])
    assert begun(held).groups["G1"].before == before
    assert_groups_are_whole(begun(held))


def assert_groups_are_whole(held: Ledger) -> None:
    """Rows and groups point to each other, and to nothing that is not there."""
    inside = {row.id: row.group for row in held.rows()} | {name: group.group for name, group in held.groups.items()}
    for member, group in inside.items():
        assert not group or member in held.groups[group].members
    for name, each in held.groups.items():
        assert all(inside[member] == name for member in each.members)
        assert all(block in inside for block in (*each.summary, *filter(None, [each.before])))


# --- what a note says


def test_a_note_is_a_person_s_or_the_model_s() -> None:
    assert [(part.kind, part.role, part.origin) for part in (beside("x"), beside("x", "user"))] == [
        ("note", "user", "model"),
        ("note", "user", "human"),
    ]


@pytest.mark.parametrize(
    ("words", "first", "whole"),
    [
        ("it was the clock", "it was the clock", ""),
        ("  it was the clock \n", "it was the clock", ""),
        ("first\n\nsecond", "first", "first\n\nsecond"),
        ("a\tb", "a b", "a\tb"),
        ("\x1b[2J", "\\x1b[2J", ""),
        ("x" * 66, "x" * 66, ""),
        ("x" * 3000, "x" * 65 + "…", "x" * 3000),
    ],
)
def test_a_commit_tells_a_note_in_a_line_and_below_it_where_that_is_not_all(words: str, first: str, whole: str) -> None:
    assert scope.subject_and_text(words) == (first, whole)


def test_a_helper_s_report_has_not_arrived_until_a_note_tells_of_its_result() -> None:
    told = msgspec.structs.replace(result_part("done", "a"), extra={"ctxvc": {"report": ["helper", "B9"]}})
    held = ledger(human("go"), reply("", "a", "b"), Message(role="user", parts=(told, result_part("out", "b"))))
    assert [(row.id, *of) for row, *of in scope.unarrived(held)] == [("B4", "helper", "B9")]
    note, _ = Numbering(block=99).aside(Message(role="user", parts=(beside("it is done", of="B4"),)))
    assert scope.unarrived(held.with_rows(note)) == []


def test_a_change_of_scope_is_told_with_an_arrow() -> None:
    assert scope.departure("fix", "why") == "[→ fix] why"
    assert scope.arrival("main", "so") == "[← main] so"


# --- what a note covers


def test_a_note_covers_the_steps_since_the_last_one_or_the_newest_question_but_not_its_own() -> None:
    held = ledger(human("q"), reply("a", "c1"), results("c1"), reply("b", "c2"), results("c2"))
    assert scope.span(held) == ("B2", "B3", "B4", "B5", "B6", "B7")

    noted = ledger(human("q"), reply("a", "c1"), results("c1"), beside("n"), reply("b", "c2"), results("c2"))
    assert scope.span(noted) == ("B6", "B7", "B8")

    said: list[Message | Part] = [human("q"), reply("a", "c1"), results("c1"), reply("b", "note")]
    assert scope.span(ledger(*said)) == ("B2", "B3", "B4")

    later = [*said, beside("n"), results("note"), reply("c", "c3"), results("c3")]
    assert scope.span(ledger(*later)) == ("B5", "B6", "B8", "B9", "B10", "B11")

    said: list[Message | Part] = [human("q"), reply("a", "c1"), results("c1")]
    told = [beside("[→ x] why", to="x"), beside("[← x] so", left="x")]
    assert scope.span(ledger(*said, *told)) == ("B2", "B3", "B4")
    assert scope.span(ledger(*said, beside("[→ x] said by the model"))) == ()

    said = [human("q"), reply("a"), human("r"), reply("b", "c"), results("c")]
    assert scope.span(ledger(*said)) == ("B4", "B5", "B6")


def test_what_must_stay_is_not_covered() -> None:
    reminder = Message(role="user", parts=(text_part("the date", "user", "client"),))
    said = [human("q"), reply("a", "c1", "c2"), results("c1", "c2"), reminder, reply("b")]
    held = ledger(*said)
    assert scope.span(held) == ("B2", "B3", "B4", "B5", "B6", "B7", "B8")
    assert scope.span(stand(held, B5="pinned", B2="archived", B8="masked")) == ("B4", "B6", "B7", "B8")


@given(conversations(), st.data())
def test_what_a_note_covers_may_leave(said: list[Message], data: st.DataObject) -> None:
    held = data.draw(arranged(numbered(said)[0]))
    covered: list[Row] = [held[name] for name in scope.span(held)]
    assert all(row.present and row.state != "pinned" and row.kind not in ("note", "dashboard") for row in covered)
    assert not [row for row in covered if row.origin == "human" and row.role == "user"]
    open_calls = Numbering.of(held, 0).calls
    assert not [row for row in covered if row.call in open_calls and row.step == held.meta.counters.step]
