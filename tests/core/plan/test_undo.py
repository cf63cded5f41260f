"""Undo sets back what one verb did and nothing else, whatever has happened since."""

from __future__ import annotations

import dataclasses

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.ledger import Group, Ledger
from ctxvc.core.ledger.wire import text_part
from ctxvc.core.plan import View, rehearse
from ctxvc.core.plan.undo import inverse
from ctxvc.core.view.budget import Budget
from tests.core.plan.test_rollup import rolled, sized, worked
from tests.core.test_engine import after, inconsistencies, refused, session
from tests.making.generated import next_view, numbered, plans, worked_on


def undone(before: View, then: View, now: View) -> tuple[Ledger, list[str]]:
    rows, groups, problems = inverse(before.ledger, then.ledger, now.ledger)
    assert all(problem.why == "stale" and len(problem.text) < 120 for problem in problems)
    return now.ledger.with_rows(rows).with_groups(groups), [problem.target for problem in problems]


@given(st.data())
def test_undo_gives_back_rows_and_groups_as_they_were(data: st.DataObject) -> None:
    view, _ = data.draw(worked_on())
    rehearsal = rehearse.rehearse(view, data.draw(plans(view.ledger)), roll_up=data.draw(st.booleans()))
    assert undone(view, next_view(view, rehearsal), next_view(view, rehearsal)) == (view.ledger, [])


@given(st.data())
def test_undo_after_other_verbs_touches_only_its_rows_and_leaves_all_sound(data: st.DataObject) -> None:
    before, held = data.draw(worked_on())
    then = now = next_view(before, rehearse.rehearse(before, data.draw(plans(before.ledger))))
    for _ in range(data.draw(st.integers(1, 3))):
        now = next_view(now, rehearse.rehearse(now, data.draw(plans(now.ledger)), roll_up=data.draw(st.booleans())))
    ledger, stale = undone(before, then, now)

    assert inconsistencies(ledger) == []
    if refused(now.ledger, held) == []:
        assert refused(ledger, held) == []
    touched = {row.id for row in then.ledger.rows() if row != before.ledger[row.id]}
    assert {target for target in stale if target[0] == "B"} <= touched
    for row in ledger.rows():
        if row.id in touched and row.id not in stale:
            assert row == before.ledger[row.id]
        elif row != now.ledger[row.id]:
            assert row.present and now.ledger[row.id].group, "the other half of a pair, out of a later group"


def test_undo_keeps_what_was_appended_and_read_since() -> None:
    before = session()
    then = after(before, "archive", "B3")
    more, _ = numbered([Message(role="user", parts=(text_part("And now?", "user", "human"),))], then.ledger)
    read = msgspec.structs.replace(more["B3"], reads=3)
    ledger, stale = undone(before, then, dataclasses.replace(then, ledger=more.with_rows([read])))
    assert (ledger["B3"].state, ledger["B3"].reads, ledger["B3"].stub) == ("visible", 3, "")
    assert ledger["B12"] == more["B12"]
    assert ledger.meta == more.meta
    assert not stale


def test_what_was_changed_again_since_is_left_and_told() -> None:
    before = session()
    then = after(before, "archive", "B2", "B3", "B5")
    now = after(then, "prune", "G1")
    assert undone(before, then, now) == (now.ledger, ["B2", "B3", "B5"])
    now = after(then, "restore", "B5")
    ledger, stale = undone(before, then, now)
    assert stale == ["B5"]
    assert (ledger, ledger.groups) == (before.ledger, {})


def test_undoing_a_restore_puts_the_block_back_into_its_group() -> None:
    before = after(session(), "archive", "B2", "B3", "B4", "B5")
    then = after(before, "restore", "B3")
    assert undone(before, then, then)[0] == before.ledger
    emptied = after(then, "restore", "G1")
    ledger, stale = undone(before, then, emptied)
    assert not stale
    assert ledger.groups["G1"].members == ("B2", "B3")
    assert "2 blocks" in ledger.groups["G1"].stub
    assert inconsistencies(ledger) == []


def test_undo_does_not_stop_at_a_roll_up() -> None:
    early = worked(40)
    before = dataclasses.replace(early, ledger=early.ledger)
    before = after(dataclasses.replace(before, budget=Budget()), "restore", "B4")
    then = after(before, "archive", "B4")
    now = sized(then, 0.12)
    now = dataclasses.replace(now, ledger=rolled(now))
    assert now.ledger["B4"].group == "G1"
    ledger, stale = undone(before, then, now)

    assert not stale
    assert [ledger[block].state for block in ("B2", "B3", "B4")] == ["archived", "visible", "visible"]
    assert inconsistencies(ledger) == []
    assert "; " + str(len(ledger.groups["G1"].members)) + " blocks" in ledger.groups["G1"].stub


def test_undo_takes_a_block_or_group_out_of_one_that_came_later_which_tells_its_new_size() -> None:
    before = after(session(), "archive", "B2", "B3")
    then = after(before, "archive", "B4", "B5")
    now = after(then, "archive", "G1", "G2")
    ledger, stale = undone(before, then, now)

    assert not stale
    assert {ledger[block].state for block in ("B4", "B5")} == {"visible"}
    assert ledger.groups["G3"].members == ("G1",)
    assert "2 blocks" in ledger.groups["G3"].stub

    before = after(session(), "archive", "B3", index="what a long search for it gave " * 4)
    then = after(before, "archive", "B5", index="what another search for it gave " * 4)
    now = after(after(then, "archive", "B3", "B5", index="both of these together"), "archive", "G1", index="look")
    ledger, stale = undone(before, then, now)

    assert not stale
    assert [ledger.groups[name].stub.count("; 1 block, ") for name in ("G1", "G2")] == [1, 1]


def test_a_hosts_group_that_has_gone_since_is_there_again() -> None:
    inner = after(session(), "archive", "B2", "B3", "B5")
    group = msgspec.structs.replace(inner.ledger.groups["G1"], group="G2")
    host = Group(id="G2", members=("G1",), level=2, summary=("B8",), removed_by="host")
    before = dataclasses.replace(inner, ledger=inner.ledger.with_groups([group, host]), next_group=3)
    then = after(before, "restore", "B2")
    now = after(then, "restore", "G2")
    assert not now.ledger.groups

    ledger, stale = undone(before, then, now)
    assert not stale
    assert (ledger.groups["G1"].members, ledger.groups["G1"].group) == (("B2", "B3"), "G2")
    assert ledger.groups["G2"] == host


def test_what_was_undone_or_moved_since_stays_where_it_is() -> None:
    before = session()
    then = after(before, "archive", "B2", "B3")
    ledger, _ = undone(before, then, then)
    again, stale = undone(before, then, dataclasses.replace(then, ledger=ledger))

    assert again == ledger == before.ledger
    assert stale == ["B2", "B3"]

    before = after(session(), "archive", "B2", "B3")
    then = after(before, "archive", "G1", index="look")
    now = after(dataclasses.replace(before, next_group=3), "archive", "G1", index="read")

    assert undone(before, then, now) == (now.ledger, ["G1"])
