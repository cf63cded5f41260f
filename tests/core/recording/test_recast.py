"""A prompt that a plugin gives back: its messages are the blocks that they were."""

from __future__ import annotations

from itertools import count

import pytest

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message, Part
from ctxvc.core.ledger.ledger import Ledger, Row
from ctxvc.core.prompt import formats
from ctxvc.core.prompt.outline import Bodies, outline, pieces
from ctxvc.core.recording.recast import applied, recast
from ctxvc.store.verify.ledger import disagreements
from tests.core.hosts.test_match import Recorded, call, reply, result, user

PLUGIN = "plugin:lossless"
LINES = count()


def recorded() -> Recorded:
    return Recorded(
        user("Find the bug."),
        reply(wire.text_part("Where?", "assistant", "model", kind="thinking"), "I look.", call("t1")),
        result("t1", "one\ntwo\nthree"),
        reply("It is in two.", call("t2", "cat two")),
        result("t2", "the second"),
        reply("Found."),
        user("Mend it."),
    )


def given(*parts: Part) -> list[Message]:
    """What a plugin gives back, in a message each, as its host writes it down."""
    return [Message(role=part.role, parts=(part,), key=f"line-{next(LINES)}") for part in parts]


FIND = wire.text_part("Find the bug.", "user", "human")
LOOK = wire.text_part("I look.", "assistant", "client")
FIRST, FIRST_RESULT = call("t1"), wire.result_part("one\ntwo\nthree", "t1")
STUBBED = wire.result_part("[left out]", "t1")
TWO = wire.text_part("It is in two.", "assistant", "client")
SECOND, SECOND_RESULT = call("t2", "cat two"), wire.result_part("the second", "t2")
FOUND = wire.text_part("Found.", "assistant", "client")
MEND = wire.text_part("Mend it.", "user", "human")
ALL = (FIND, LOOK, FIRST, STUBBED, TWO, SECOND, SECOND_RESULT, FOUND, MEND)
TOLD = wire.text_part("Earlier work, in short.", "user", "client")


def after(was: Recorded, *parts: Part, group: int = 1) -> Ledger:
    """The ledger after a plugin gave these parts back; new bodies are added to those recorded."""
    changes = recast(was.ledger, given(*parts), was.body)
    number = max((row.number for row in was.ledger.rows()), default=0)
    added: list[tuple[str, list[Row]]] = []
    ledger = was.ledger
    for message, before in changes.additions:
        made = Recorded(message)
        rows = []
        for row in made.ledger.rows():
            number += 1
            was.bodies[f"B{number}"] = made.bodies[row.id]
            rows.append(row.__class__(**{**_fields(row), "id": f"B{number}", "msg": 100 + number}))
        ledger = ledger.with_rows(rows)
        added.append((before, rows))
    changed = applied(ledger, changes, added, PLUGIN, group)
    rows_now = {row.id: (was.ledger.get(row.id), row) for row in changed.rows()}
    assert not list(disagreements(was.ledger.groups, changed.groups, changed.groups.keys(), rows_now, changed.get))
    return changed


def _fields(row: Row) -> dict[str, object]:
    return {name: getattr(row, name) for name in row.__struct_fields__}


def prompt(was: Recorded, ledger: Ledger) -> list[str]:
    reader = Bodies(was.body, lambda *_: b"")
    sent = formats.anthropic(formats.Prompt(pieces=pieces(outline(ledger), reader)))["messages"]
    return [_said(block) for message in sent for block in message["content"]]


def _said(block: dict[str, object]) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "tool_result", "content": [{"text": str(text)}]}:
            return text
        case {"id": str(name)}:
            return name
    return str(block["type"])


SENT = ["Find the bug.", "I look.", "t1", "[left out]", "It is in two.", "t2", "the second", "Found.", "Mend it."]


def test_a_changed_result_is_archived_with_the_text_for_its_stub_and_what_is_not_given_back_leaves_in_a_group() -> None:
    was = recorded()
    ledger = after(was, *ALL)

    (changed,) = (row for row in ledger.rows() if row.kind == "tool_result" and not row.present)
    assert (changed.call, changed.state, changed.stub, changed.removed_by) == ("t1", "archived", "[left out]", PLUGIN)
    assert len(ledger) == len(was.ledger)
    assert prompt(was, ledger) == SENT

    was = recorded()
    ledger = after(was, FIND, FOUND, MEND)

    (group,) = ledger.groups.values()
    assert (group.removed_by, group.stub, len(group.members)) == (PLUGIN, "", 7)
    assert prompt(was, ledger) == ["Find the bug.", "Found.", "Mend it."]


@pytest.mark.parametrize("times", [1, 2, 5])
def test_the_same_again_changes_nothing_but_the_keys(times: int) -> None:
    was = recorded()
    ledger = first = after(was, *ALL)
    for time in range(times):
        was.ledger = ledger
        ledger = after(was, *ALL, group=2 + time)
    assert [(row.id, row.state, row.stub, row.removed_by) for row in ledger.rows()] == [
        (row.id, row.state, row.stub, row.removed_by) for row in first.rows()
    ]
    assert prompt(was, ledger) == SENT


def test_history_that_the_host_appends_once_more_is_there_once() -> None:
    was = recorded()
    ledger = after(was, *ALL, *ALL)
    assert len(ledger) == len(was.ledger)
    assert prompt(was, ledger) == SENT


def test_what_left_and_is_given_back_stands_in_its_place_again() -> None:
    was = recorded()
    was.ledger = after(was, FIND, FOUND, MEND)
    ledger = after(was, FIND, LOOK, FIRST, FIRST_RESULT, FOUND, MEND, group=2)
    assert prompt(was, ledger) == ["Find the bug.", "I look.", "t1", "one\ntwo\nthree", "Found.", "Mend it."]
    restored = [row for row in ledger.rows() if row.call == "t1"]
    assert {(row.state, row.group, row.stub, row.removed_by) for row in restored} == {("visible", "", "", "")}


def test_a_stub_whose_call_leaves_later_leaves_with_it() -> None:
    was = recorded()
    was.ledger = after(was, *ALL)
    ledger = after(was, FIND, FOUND, MEND, group=2)
    assert prompt(was, ledger) == ["Find the bug.", "Found.", "Mend it."]


@pytest.mark.parametrize(
    "parts",
    [
        (TOLD, FOUND, MEND),
        (FIND, TOLD, FOUND, MEND),
        (FIND, FOUND, MEND, TOLD),
        (TOLD, FIND, wire.text_part("And more.", "assistant", "client"), FOUND, MEND),
    ],
)
def test_what_a_plugin_wrote_stands_where_it_put_it(parts: tuple[Part, ...]) -> None:
    was = recorded()
    ledger = after(was, *parts)
    assert prompt(was, ledger) == [part.body.decode() for part in parts]


def test_what_stays_goes_by_the_name_of_its_new_line() -> None:
    was = recorded()
    back = given(*ALL)
    changes = recast(was.ledger, back, was.body)
    assert set(changes.keys.values()) == {message.key for message in back if message.parts != (STUBBED,)}
    ledger = applied(was.ledger, changes, [], PLUGIN, 1)
    assert ledger["B1"].extra["ctxvc"]["key"] == back[0].key


def test_a_stub_of_ours_takes_out_the_block_that_it_names_unless_a_verb_has_decided_on_it() -> None:
    was = recorded()
    first = next(row for row in was.ledger.rows() if row.kind == "tool_result")
    words = f"[archived {first.handle}, 8 tokens]"
    parts = [wire.result_part(words, "t1") if part is STUBBED else part for part in ALL]
    taken_out = after(was, *parts)
    assert (taken_out[first.id].state, taken_out[first.id].stub) == ("archived", words)
    assert prompt(was, taken_out) == [words if text == "[left out]" else text for text in SENT]
    changes = recast(was.ledger, given(*parts), was.body, as_recorded=False)
    assert first.id in changes.keys and not changes.stubs


def test_a_stub_that_names_a_persons_words_does_not_take_them_out() -> None:
    was = recorded()
    person = next(row for row in was.ledger.rows() if row.kind == "user")
    stub = wire.text_part(f"[archived {person.handle}, 8 tokens]", "user", "client")
    ledger = after(was, stub, *ALL[1:])
    assert ledger[person.id].present
