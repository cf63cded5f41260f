"""Names of spans: what they stand for, and that they stay (Self-GC, "Indexed Context Objects" and Listing 1)."""

from __future__ import annotations

import dataclasses

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.ledger import Ledger
from ctxvc.core.ledger.numbering import is_human
from ctxvc.core.ledger.objects import BULKY, objects
from ctxvc.core.plan import Action, Plan, View, rehearse
from ctxvc.core.plan.protected import protected
from ctxvc.core.scope import first_counters, inherited
from ctxvc.policies.candidates import movable, results
from tests.making.generated import Sizes, conversations, next_view, numbered, worked_on


def said(words: str, origin: str = "human") -> Message:
    return Message(role="user", parts=(wire.text_part(words, "user", origin),))  # type: ignore[arg-type]


def called(*calls: tuple[str, str]) -> list[Message]:
    """A reply that calls tools, given as (tool, arguments), and their results."""
    ids = [f"{tool}-{number}" for number, (tool, _) in enumerate(calls)]
    parts = [wire.call_part(tool, name, words.encode()) for name, (tool, words) in zip(ids, calls, strict=True)]
    text = wire.text_part("I look.", "assistant", "model")
    answers = tuple(wire.result_part("found " * 200, name) for name in ids)
    return [Message(role="assistant", parts=(text, *parts)), Message(role="user", parts=answers)]


def ledger(*messages: Message) -> Ledger:
    return numbered(list(messages))[0]


def test_listing_1_a_request_is_a_turn_and_a_result_is_a_span() -> None:
    """The paper counts results by themselves (`function:read:1`); here they have the number of their block."""
    found = objects(ledger(said("What does this file do?"), *called(("read", '{"path":"src/main.py"}'))))
    assert list(found) == ["conversation:user:1", "conversation:step:1", "function:read:4"]
    assert found["conversation:user:1"].label == "What does this file do?"
    assert [row.id for row in found["function:read:4"].rows] == ["B4"]
    assert found["function:read:4"].label == "read: src/main.py"


def test_a_turn_is_all_that_was_done_about_a_request_but_never_what_a_human_wrote() -> None:
    note = Message(role="user", parts=(wire.text_part("Mind.", "user", "model", kind="note"),))
    thought = wire.part({"type": "thinking", "thinking": "Hm.", "signature": "s"}, "assistant", "model")
    held = ledger(
        said("Do it"),
        said("Today is Friday.", "client"),
        Message(role="assistant", parts=(thought, wire.text_part("Yes.", "assistant", "model"))),
        note,
        said("Go on"),
        *called(("sh", "{}"), ("sh", "{}")),
    )
    found = objects(held)

    assert [row.id for row in found["conversation:user:1"].rows] == ["B2", "B4"]
    assert [row.id for row in found["conversation:user:2"].rows] == ["B7", "B8", "B9", "B10", "B11"]
    assert [name for name in found if name.startswith("function")] == ["function:sh:10", "function:sh:11"]


def test_a_bulky_call_belongs_to_its_tool_and_the_envelope_of_another_does_not() -> None:
    held = ledger(said("Do it"), *called(("Write", '{"text":"%s"}' % ("x" * BULKY)), ("sh", '{"command":"ls"}')))
    found = objects(held)
    assert [row.id for row in found["function:Write:5"].rows] == ["B3", "B5"]
    assert [row.id for row in found["function:sh:6"].rows] == ["B6"]


def test_a_tools_name_cannot_break_out_of_its_objects_name() -> None:
    assert list(objects(ledger(said("Do it"), *called(('a b:"<&\n', "{}"))))) == [
        "conversation:user:1",
        "conversation:step:1",
        "function:a_b_:4",
    ]
    lonely = Message(role="user", parts=(wire.result_part("out", "nobody"),))
    assert "function:tool:1" in objects(ledger(lonely))


def test_names_stay_in_a_scope_that_inherits_the_block() -> None:
    held = ledger(said("One"), *called(("Read", "{}")), said("Two"), *called(("Read", "{}")))
    pinned = msgspec.structs.replace(held["B4"], state="pinned")
    held = held.with_rows([pinned])
    taken = [held[block] for block in inherited(held)]
    fresh = Ledger(meta=msgspec.structs.replace(held.meta, scope="other", counters=first_counters(held)))
    there, _ = numbered([*called(("Read", "{}"))], fresh.with_rows(taken))

    before, now = objects(held), objects(there)
    assert [row.id for row in now["function:Read:4"].rows] == [row.id for row in before["function:Read:4"].rows]
    assert now["conversation:user:2"].label == before["conversation:user:2"].label == "Two"
    shown = [name for name in now if ":step:" not in name]
    assert shown == ["conversation:user:1", "function:Read:4", "conversation:user:2", "function:Read:11"]


@given(st.data())
def test_names_are_told_by_what_was_recorded_whatever_left_since(data: st.DataObject) -> None:
    messages = data.draw(conversations())
    held, _ = numbered(messages)
    view = View(ledger=held, price=Sizes([900]))
    rows = tuple(row.id for row in held.rows())
    some = tuple(data.draw(st.lists(st.sampled_from(rows), max_size=9))) if rows else ()
    verb = data.draw(st.sampled_from(["archive", "prune", "mask", "pin"]))
    rehearsal = rehearse.rehearse(view, Plan(actions=(Action(verb=verb, targets=some),), actor="planner"))
    grown, _ = numbered([said("More")], rehearsal.after)

    before, now = objects(held), objects(grown)
    assert list(before) == [name for name in now if name in before]
    for name, one in before.items():
        assert [row.id for row in now[name].rows][: len(one.rows)] == [row.id for row in one.rows]
        assert not any(is_human(row.role, row.origin) for row in one.rows)
        assert not any(row.kind == "assistant" for row in one.rows if one.family == "function")


@given(st.data())
def test_what_can_be_moved_is_what_the_engine_lets_leave(data: st.DataObject) -> None:
    view, _ = data.draw(worked_on())
    movable_objects = movable(view, objects(view.ledger).values(), latest=True)
    blocks = tuple(dict.fromkeys(row.id for one in movable_objects for row in one.rows))
    dear = dataclasses.replace(view, price=Sizes([10**6]))
    prunes = tuple(Action(verb="prune", targets=(block,)) for block in blocks)
    rehearsal = rehearse.rehearse(dear, Plan(actions=prunes, actor="planner"))

    assert not protected(view.ledger) & set(blocks)
    assert all(one.tokens == sum(_cost(view, row.id) for row in one.rows) for one in movable_objects)
    assert {problem.why for problem in rehearsal.problems} <= {"no saving"}
    if not rehearsal.problems:
        assert not movable(next_view(dear, rehearsal), objects(rehearsal.after).values(), latest=True)


def _cost(view: View, block: str) -> int:
    row = view.ledger[block]
    return view.price.mask(row) if row.state == "masked" else view.price.body(row)


def test_the_latest_turn_comes_last_where_it_may_be_moved_at_all() -> None:
    held = ledger(
        said("One"),
        *called(("sh", "{}")),
        said("Two"),
        *called(("sh", "{}")),
        *called(("sh", "{}")),
        *called(("sh", "{}")),
    )
    view = View(ledger=held, price=Sizes([100]))
    older = movable(view, objects(held).values(), latest=False)
    every = movable(view, objects(held).values(), latest=True)

    assert [one.object.id for one in older] == ["conversation:user:1", "conversation:step:1", "function:sh:4"]
    assert [one.object.id for one in every if one.latest and not one.object.is_step] == [
        "conversation:user:2",
        "function:sh:8",
        "function:sh:11",
    ]  # B14 is of the latest step
    assert [one.object.id for one in results(every)] == ["function:sh:4", "function:sh:8", "function:sh:11"]


def test_what_came_in_since_the_latest_step_and_what_instructions_said_cannot_be_moved() -> None:
    held = ledger(
        said("One"),
        *called(("Read", '{"path":"/work/AGENTS.md"}'), ("sh", "{}")),
        said("Two"),
        *called(("sh", "{}")),
        said("A reminder.", "client"),
    )
    movable_objects = movable(View(ledger=held, price=Sizes([100])), objects(held).values(), latest=True)

    assert [one.object.id for one in movable_objects] == ["conversation:user:1", "conversation:step:1", "function:sh:6"]
    assert [row.id for row in movable_objects[0].rows] == ["B2", "B3", "B4", "B6"]
