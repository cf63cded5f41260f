"""Stubs alone never fill a budget: whole steps of them become groups, and no human word goes with them."""

from __future__ import annotations

import dataclasses
import re

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.ledger import Group, Ledger, Row
from ctxvc.core.ledger.numbering import is_human
from ctxvc.core.ledger.wire import call_part, result_part, text_part
from ctxvc.core.plan import Action, Plan, View, rehearse
from ctxvc.core.prompt.outline import outline
from ctxvc.core.view import view as view_module
from ctxvc.core.view.budget import Budget, Ladder
from tests.core.test_engine import Words, act, after, inconsistencies, refused
from tests.making.generated import next_view, numbered, plans, worked_on

OUTPUT = "a line of output\n" * 60


def roll_up(view: View) -> tuple[tuple[Row, ...], tuple[Group, ...]]:
    """The rows and groups that change if only stubs are rolled up."""
    rehearsal = rehearse.rehearse(view, Plan(actions=(), actor="guard"), roll_up=True)
    return rehearsal.rows, rehearsal.groups


def worked(*turns: int, notes: tuple[int, ...] = (), look: str = "I look.") -> View:
    """Turns of so many steps each, every result but the newest step's archived. A note stands before those steps.
    Each step says `look`, and calls a tool."""
    messages: list[Message] = []
    number = 0
    for turn in turns:
        messages.append(Message(role="user", parts=(text_part("Go on.", "user", "human"),)))
        for _ in range(turn):
            number += 1
            if number in notes:
                messages.append(Message(role="user", parts=(text_part("Keep.", "user", "model", kind="note"),)))
            said, call = [text_part(look, "assistant", "model")] if look else [], f"c{number}"
            messages.append(Message(role="assistant", parts=(*said, call_part("Bash", call, b'{"command":"ls"}'))))
            messages.append(Message(role="user", parts=(result_part(OUTPUT, call),)))
    ledger, _ = numbered(messages)
    view = View(ledger=ledger, price=Words())
    results = [row.id for row in ledger.rows() if row.kind == "tool_result"]
    actions = tuple(Action(verb="archive", targets=(block,)) for block in results)
    return next_view(view, rehearse.rehearse(view, Plan(actions=actions, actor="policy:oldest")))


def stub_cost(view: View, ledger: Ledger | None = None) -> int:
    slots = outline(ledger or view.ledger)
    return sum(view.price.text(slot.text) for slot in slots if slot.show == "text" and slot.text)


def sized(view: View, share: float) -> View:
    """The view with a budget of which stubs take that share."""
    return dataclasses.replace(view, budget=Budget(window=int(stub_cost(view) / share)))


def rolled(view: View) -> Ledger:
    rows, groups = roll_up(view)
    return view.ledger.with_rows(rows).with_groups(groups)


def test_stubs_may_cost_a_twentieth_of_the_size_that_a_prompt_is_wanted_to_have() -> None:
    view = worked(40)
    assert roll_up(sized(view, 0.05)) == ((), ())
    assert roll_up(sized(view, 0.055)) != ((), ())
    view = sized(worked(40), 0.055)
    wide = Budget(window=10 * view.budget.window)
    bounded = Budget(window=wide.window, ladder=Ladder(soft_limit=view.budget.effective))
    assert roll_up(dataclasses.replace(view, budget=wide)) == ((), ())
    assert roll_up(dataclasses.replace(view, budget=bounded)) == roll_up(view)


def test_the_oldest_steps_become_one_group_until_stubs_cost_three_percent() -> None:
    view = sized(worked(40), 0.055)
    ledger = rolled(view)
    (group,) = ledger.groups.values()

    assert stub_cost(view, ledger) <= view.budget.effective * 0.03
    assert group.members == tuple(f"B{number}" for number in range(2, 2 + len(group.members)))
    assert (group.level, group.removed_by) == (2, "guard")
    assert len(group.members) % 3 == 0, "whole steps: text, call and result"
    assert len(group.members) < 40 * 3 - 30, "no more than is needed"
    assert {ledger[f"B{number}"].state for number in (2, 3, 4)} == {"archived"}
    assert ledger["B4"].removed_by == "policy:oldest"
    assert ledger["B1"].present


def test_what_a_human_wrote_notes_and_pins_end_a_run() -> None:
    view = sized(worked(12, 12, notes=(6,)), 0.5)
    (note,) = [row for row in view.ledger.rows() if row.kind == "note"]
    (pinned,) = [row for row in view.ledger.rows() if row.step == 9 and row.kind == "tool_use"]
    assert note.step == 5, "the note stands behind its result"
    view = after(view, "pin", pinned.id)
    ledger = rolled(view)

    assert all(row.present for row in ledger.rows() if is_human(row.role, row.origin) or row.kind == "note")
    assert ledger[pinned.id].state == "pinned"
    spans = [[ledger[block].step for block in group.members] for group in ledger.groups.values()]
    assert [(span[0], span[-1]) for span in spans] == [(1, 5), (6, 8), (10, 12), (13, 23)]


def test_a_later_roll_up_takes_the_group_of_an_earlier_one_in() -> None:
    view = sized(worked(200), 0.12)
    view = dataclasses.replace(view, ledger=rolled(view), next_group=2)
    view = sized(view, 0.3)
    ledger = rolled(view)
    assert ledger.groups["G1"].group == "G2"
    assert ledger.groups["G2"].members[0] == "G1"
    assert ledger.groups["G2"].level == ledger.groups["G1"].level + 1
    assert stub_cost(view, ledger) <= view.budget.effective * 0.05


def test_a_group_that_lies_on_both_sides_of_a_human_text_stays_where_it_is() -> None:
    view = worked(6, 6)
    across = [row.id for row in view.ledger.rows() if row.kind == "tool_result" and row.step in (3, 4, 5, 8, 9, 10)]
    view = sized(after(view, "archive", *across, index="far apart"), 0.5)
    ledger = rolled(view)
    assert ledger.groups["G1"].group == ""
    assert inconsistencies(ledger) == []


def test_results_too_small_for_a_stub_do_not_end_a_run_and_larger_ones_do() -> None:
    def run(small: str) -> View:
        view = worked(12)
        rows = [msgspec.structs.replace(view.ledger["B13"], state="visible", stub="", level=0, bytes=len(small))]
        return sized(dataclasses.replace(view, ledger=view.ledger.with_rows(rows)), 0.9)

    assert list(rolled(run("ok")).groups) == ["G1"]
    assert rolled(run("ok"))["B13"].group == "G1"
    assert list(rolled(run(OUTPUT)).groups) == ["G1", "G2"]
    assert rolled(run(OUTPUT))["B13"].present


def test_a_summary_is_not_rolled_up_and_is_no_stub_to_be_counted() -> None:
    view = worked(12)
    early = [row.id for row in view.ledger.rows() if row.step in (3, 4, 5) and row.role == "assistant"]
    view = after(view, "summarise", *early, *(f"B{number}" for number in (10, 13, 16)), index="It looked.\n" + "x" * 90)
    summary = view.ledger.groups["G1"]
    assert roll_up(sized(view, 0.055)) == ((), ())

    ledger = rolled(sized(view, 0.9))
    assert ledger.groups["G1"] == summary
    assert {ledger[group.members[0]].step for group in ledger.groups.values()} == {
        3,
        6,
    }  # the first two would save nothing


def test_a_step_leaves_as_a_whole_also_where_a_group_binds_it_to_a_later_one() -> None:
    view = worked(40)
    far = [row.id for row in view.ledger.rows() if row.kind == "tool_result" and row.step in (2, 3, 4, 28, 29, 30)]
    ledger = rolled(sized(after(view, "archive", *far, index="far apart"), 0.12))
    assert ledger.groups["G1"].group == "G2"
    left = {row.step for row in ledger.rows() if row.group in ("G1", "G2")}
    assert left == set(range(1, max(left) + 1)) and max(left) >= 30
    assert not any(row.present for row in ledger.rows() if row.step in left and row.role == "assistant")


def test_a_step_with_an_open_call_stays_whoever_protects_it() -> None:
    view = sized(after(worked(4), "archive", "B13", actor="user"), 0.9)
    calls = tuple(call_part("Bash", call, b"{}") for call in ("d1", "d2"))
    messages = [Message(role="assistant", parts=calls), Message(role="user", parts=(result_part("ok", "d1"),))]
    ledger, _ = numbered(messages, view.ledger)
    view = dataclasses.replace(view, ledger=ledger)
    rehearsal = rehearse.rehearse(view, Plan(actions=(), actor="guard"), protect=frozenset(), roll_up=True)
    assert rehearsal.rolled
    assert all(row.present for row in rehearsal.after.rows() if row.step == 5)


def test_a_plan_rolls_up_where_stubs_stand_side_by_side_and_cost_enough() -> None:
    plan = Plan(actions=(), actor="policy:oldest", rolls_up=True)

    def rolled_up(view: View, share: float) -> tuple[str, ...]:
        return rehearse.rehearse(sized(view, share), plan).rolled

    silent = worked(40, look="")
    assert rolled_up(silent, 0.12) == ("G1",)
    assert not rolled_up(silent, 0.01)
    assert not rolled_up(worked(40), 0.12), "texts stand between the stubs"


def test_the_rehearsal_says_what_was_rolled_up() -> None:
    view = sized(worked(40), 0.12)
    done = act(view, "pin", "B3", actor="guard")
    assert not done.rolled

    plan = Plan(actions=(), actor="agent")
    done = rehearse.rehearse(view, plan, roll_up=True)
    assert done.rolled == ("G1",)
    assert done.after.groups["G1"].removed_by == "agent"
    assert done.freed > 0
    assert done.tokens_after == view_module.measure(done.after, view.price)
    assert re.match(r"\[archived G1@[0-9a-f]{6}, steps 1–\d+: .*; \d+ blocks, ", done.after.groups["G1"].stub)


@given(worked_on(), st.sampled_from([50, 300, 2000]), st.data())
def test_whatever_is_rolled_up_saves_and_stays_sound(worked_view: object, window: int, data: st.DataObject) -> None:
    view, held = worked_view  # type: ignore[misc]
    view = dataclasses.replace(view, budget=Budget(window=window))
    view = next_view(view, rehearse.rehearse(view, data.draw(plans(view.ledger, ("archive", "mask"), ("agent",)))))
    ledger = rolled(view)

    assert inconsistencies(ledger) == []
    new = ledger.groups.keys() - view.ledger.groups.keys()
    assert bool(new) == (ledger != view.ledger)
    assert not new or view_module.measure(ledger, view.price) < view_module.measure(view.ledger, view.price)
    for row in ledger.rows():
        was = view.ledger[row.id]
        if was.present and not row.present:
            assert not is_human(was.role, was.origin) and was.kind != "note" and was.state != "pinned"
    if refused(view.ledger, held) == []:
        assert refused(ledger, held) == []
