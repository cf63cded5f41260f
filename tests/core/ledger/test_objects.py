"""Names of context objects as people and models write them, in the short form and the long."""

from __future__ import annotations

import pytest

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.ledger import Ledger
from ctxvc.core.ledger.objects import alike, object_of, objects
from ctxvc.core.plan import selection
from tests.making.conversation import human
from tests.making.generated import numbered


def exchange(tool: str, call: str, arguments: str, result: str) -> list[Message]:
    """A reply with one call, and its result."""
    return [
        Message(role="assistant", parts=(wire.call_part(tool, call, arguments.encode()),)),
        Message(role="user", parts=(wire.result_part(result, call),)),
    ]


def ledger_of(*messages: Message) -> Ledger:
    return numbered(list(messages))[0]


#: B1 human; B2 call, B3 result; B4 human; B5 call, B6 skill; B7 call, B8 result, whose call has an address for an id.
LEDGER = ledger_of(
    human("Read the log"),
    *exchange("Read", "c1", '{"path":"a.log"}', "line " * 100),
    human("Make a PDF"),
    *exchange("Read", "c2", '{"path":"skills/pdf/SKILL.md"}', "how to " * 100),
    *exchange("sh", "function:Read:3", '{"command":"ls"}', "file " * 100),
)


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("conversation:user:1", "conversation:user:1"),
        ("user:2", "conversation:user:2"),
        ("turn:2", "conversation:user:2"),
        ("step:3", "conversation:step:3"),
        ("function:Read:3", "function:Read:3"),
        ("tool:Read:3", "function:Read:3"),
        ("read:3", "function:Read:3"),
        ("skill:pdf:6", "skill:pdf:6"),
        ("pdf:6", "skill:pdf:6"),
        ("Read:6", "skill:pdf:6"),
    ],
)
def test_an_object_has_its_whole_name_and_shorter_ones(name: str, full: str) -> None:
    one = object_of(LEDGER, name)
    assert one is not None and one.id == full
    names, problems = selection.expand(name, LEDGER)
    assert not problems
    assert set(names) == {row.id for row in one.rows}


@pytest.mark.parametrize(
    "name",
    [
        "user:3",
        "step:9",
        "Read:8",
        "Read:1",
        "function:user:1",
        "skill:Read:3",
        "Read",
        "Read:0",
        ":3",
        "a b:3",
        "B3:5",
    ],
)
def test_what_is_no_objects_name_is_none(name: str) -> None:
    assert object_of(LEDGER, name) is None


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("Raed:3", "function:Read:3"),
        ("skil:pdf:6", "skill:pdf:6"),
        ("conversation:user:9", "conversation:user:1"),
        ("zzzz:3", ""),
        ("Read", ""),
    ],
)
def test_an_unknown_name_gets_a_suggestion_where_one_is_like_it(name: str, meant: str) -> None:
    guess = alike(LEDGER, name)
    assert guess.rpartition(":")[0] == meant.rpartition(":")[0]
    names, (problem,) = selection.expand(f"B3 {name}", LEDGER)
    assert names == ("B3",)
    assert (f"did you mean {guess}?" in problem.text) == bool(guess)


def test_names_stand_beside_ids_and_mean_no_call_and_no_human() -> None:
    assert selection.expand("user:1, B6-B8 Read:3", LEDGER)[0] == ("B2", "B3", "B6", "B7", "B8")
    assert selection.expand("function:Read:3", LEDGER)[0] == ("B3",)
    assert selection.of_calls(LEDGER)["function:Read:3"].id == "B8"
    assert {row.id for one in objects(LEDGER).values() for row in one.rows}.isdisjoint({"B1", "B4"})
