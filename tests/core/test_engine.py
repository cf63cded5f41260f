"""A rehearsal does what is allowed, says why the rest is not, and never touches what was recorded."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.ledger import Group, Ledger, Row, blocks_of, digest
from ctxvc.core.ledger.numbering import is_human
from ctxvc.core.plan import Action, Plan, Rehearsal, View, protected, rehearse, selection
from ctxvc.core.plan.draft import LedgerDraft
from ctxvc.core.plan.verbs import Rehearser
from ctxvc.core.prompt import stub as stubs
from ctxvc.core.prompt.outline import sendable
from ctxvc.core.view import view as view_module
from ctxvc.core.view.budget import Budget
from tests.core.prompt.test_prompt import content, request, with_a_question
from tests.making.conversation import LONG, human, reply, result, results
from tests.making.generated import Sizes, arranged, conversations, next_view, numbered, plans, prices, worked_on
from tests.messages_api.rules import canonical_problems as problems

Held = Mapping[tuple[str, str], bytes]

REMOVING = ("archive", "mask", "prune", "summarise")
ROOMY = Budget(window=10**9)


def as_recorded(row: Row) -> Row:
    """`row` without all that a verb may change."""
    return msgspec.structs.replace(row, state="visible", level=0, group="", stub="", removed_by="")


def inconsistencies(ledger: Ledger) -> list[str]:
    """What is wrong between the groups and the rows of a ledger, and with their levels."""
    rows = {row.id: row for row in ledger.rows()}
    wrong = []
    for name, group in ledger.groups.items():
        if not group.members or len(set(group.members)) != len(group.members):
            wrong.append(f"{name} is empty, or has a member twice")
        for member in group.members:
            inner = ledger.groups.get(member)
            place = inner.group if inner else rows[member].group if member in rows else None
            if place != name:
                wrong.append(f"{name} has {member}, which is in {place}")
            if inner and inner.level >= group.level:
                wrong.append(f"{name} of level {group.level} has {member} of level {inner.level}")
            if member in rows and (rows[member].state != "archived" or rows[member].level != 1):
                wrong.append(f"{name} has {member}, {rows[member].state}, of level {rows[member].level}")
        if group.group and name not in ledger.groups[group.group].members:
            wrong.append(f"{group.group} does not have {name}")
    for row in rows.values():
        if row.group and row.id not in ledger.groups[row.group].members:
            wrong.append(f"{row.group} does not have {row.id}")
        if row.present and (row.level, row.group, row.stub) != (0, "", ""):
            wrong.append(f"{row.id} is {row.state} and has a group, a level or a stub")
    return wrong


def unchanged(before: Ledger, after: Ledger) -> bool:
    """Whether all is there that no verb may change."""
    return [*map(as_recorded, before.rows())] == [*map(as_recorded, after.rows())]


def refused(ledger: Ledger, held: Held) -> list[str]:
    """Why the provider would refuse the next call."""
    return problems(request(sendable(with_a_question(content(ledger, held)))))


@given(st.data())
def test_whatever_is_planned_bodies_groups_and_prompt_stay_sound(data: st.DataObject) -> None:
    view, held = data.draw(worked_on())
    plan = data.draw(plans(view.ledger))
    rehearsal = rehearse.rehearse(view, plan, roll_up=data.draw(st.booleans()))

    assert unchanged(view.ledger, rehearsal.after)
    assert inconsistencies(rehearsal.after) == []
    if refused(Ledger(view.ledger.meta).with_rows(map(as_recorded, view.ledger.rows())), held) == []:
        assert refused(rehearsal.after, held) == []
    assert view.ledger.with_rows(rehearsal.rows).with_groups(rehearsal.groups) == rehearsal.after
    assert rehearsal.tokens_before == view_module.measure(view.ledger, view.price)
    assert rehearsal.tokens_after == view_module.measure(rehearsal.after, view.price)
    assert all(len(problem.text) < 400 and len(problem.target) <= 40 for problem in rehearsal.problems)


@given(st.data())
def test_what_is_counted_on_the_way_is_what_the_whole_prompt_costs_in_the_end(data: st.DataObject) -> None:
    view, _ = data.draw(worked_on())
    if data.draw(st.booleans()):
        arrangement = data.draw(arranged(Ledger(view.ledger.meta).with_rows(map(as_recorded, view.ledger.rows()))))
        view = dataclasses.replace(view, ledger=arrangement, next_group=9)
    draft = LedgerDraft(view.ledger, view.price, view.next_group)
    trial = Rehearser(
        view, data.draw(plans(view.ledger)), draft, frozenset(), view_module.measure(view.ledger, view.price)
    )
    for action in trial.plan.actions:
        trial.act(action)
        rows, groups = draft.changed()
        assert trial.total == view_module.measure(view.ledger.with_rows(rows).with_groups(groups), view.price)


@given(st.data())
def test_any_ledger_can_be_worked_on_as_others_left_it(data: st.DataObject) -> None:
    """With host's groups, pruned blocks in groups, blocked ones, absent ones without a stub."""
    ledger, held = numbered(data.draw(conversations()))
    ledger = data.draw(arranged(ledger))
    view = View(ledger=ledger, price=data.draw(prices), next_group=9)
    rehearsal = rehearse.rehearse(view, data.draw(plans(ledger)), roll_up=data.draw(st.booleans()))

    assert rehearsal.tokens_after == view_module.measure(rehearsal.after, view.price)
    assert unchanged(ledger, rehearsal.after)
    assert all(
        member in rehearsal.after.groups or rehearsal.after.get(member)
        for group in rehearsal.after.groups.values()
        for member in group.members
    )
    if refused(Ledger(ledger.meta).with_rows(map(as_recorded, ledger.rows())), held) == []:
        assert refused(rehearsal.after, held) == []


@given(st.data())
def test_nothing_that_leaves_costs_more_afterwards(data: st.DataObject) -> None:
    view, _ = data.draw(worked_on())
    rehearsal = rehearse.rehearse(view, data.draw(plans(view.ledger, verbs=REMOVING)))
    assert rehearsal.tokens_after < rehearsal.tokens_before or not rehearsal
    assert rehearsal or rehearsal.tokens_after == rehearsal.tokens_before


@given(st.data())
def test_automation_removes_nothing_that_a_human_wrote_and_nothing_protected_or_open(data: st.DataObject) -> None:
    view, _ = data.draw(worked_on())
    protect = protected.protected(view.ledger)
    plan = data.draw(plans(view.ledger, actors=["agent", "planner", "policy:oldest", "guard", "user"]))
    rehearsal = rehearse.rehearse(
        view, msgspec.structs.replace(plan, allow_user=plan.allow_user and plan.actor != "user")
    )

    for now in rehearsal.rows:
        was = view.ledger[now.id]
        if was.present and (now.state == "masked" or not now.present):
            assert not is_human(was.role, was.origin)
            assert was.state != "pinned" or any(action.verb == "unpin" for action in plan.actions)
            assert plan.actor == "user" or was.id not in protect
            assert now.removed_by == plan.actor


@given(st.data())
def test_restoring_everything_gives_back_the_prompt_to_the_last_byte(data: st.DataObject) -> None:
    ledger, held = numbered(data.draw(conversations()))
    view = View(ledger=ledger, price=data.draw(prices), budget=ROOMY)
    for _ in range(3):
        view = next_view(view, rehearse.rehearse(view, data.draw(plans(view.ledger)), roll_up=data.draw(st.booleans())))
    absent = tuple(row.id for row in view.ledger.rows() if row.state not in ("visible", "pinned"))
    by_groups = tuple(view.ledger.groups) if data.draw(st.booleans()) else ()
    rehearsal = rehearse.rehearse(
        view, Plan(actions=(Action(verb="restore", targets=(*by_groups, *absent)),), actor="user")
    )

    assert sendable(content(rehearsal.after, held)) == sendable(content(ledger, held))
    assert not rehearsal.after.groups
    assert {row.state for row in rehearsal.after.rows()} <= {"visible", "pinned"}


@given(st.data())
def test_the_same_plan_again_changes_nothing(data: st.DataObject) -> None:
    view, _ = data.draw(worked_on())
    plan = data.draw(plans(view.ledger, verbs=(*REMOVING, "delete", "pin"), most=1))
    once = rehearse.rehearse(view, plan)
    # What was left out for its level is of the lowest level now: that is another plan.
    if not any(problem.why == "level" for problem in once.problems):
        again = rehearse.rehearse(next_view(view, once), plan)
        # Thinking that the newest calls were bound to is free once these calls have left: that is another plan, too.
        bound = {
            problem.target
            for problem in once.problems
            if problem.why == "open" and view.ledger[problem.target].kind == "thinking"
        }
        if again and bound:
            assert {target for action in again.done for target in action.targets} <= bound
            return
        assert not again
        assert again.after == once.after
        if plan.actions[0].verb in REMOVING:
            done = {target for action in once.done for target in action.targets if target[0] == "B"}
            assert {problem.why for problem in again.problems if problem.target in done} <= {"gone"}


@given(st.data())
def test_every_address_in_a_stub_leads_to_what_has_that_checksum(data: st.DataObject) -> None:
    view, _ = data.draw(worked_on())
    for row in view.ledger.rows():
        if row.stub:
            assert row.stub.startswith((f"[archived {row.handle}, ", f"[deleted {row.handle}: "))
    for name, group in view.ledger.groups.items():
        (handle,) = re.findall(r"^\[archived (G\d+@[0-9a-f]{6}), steps? [\d–]+: ", group.stub)
        assert selection.expand(handle, view.ledger) == ((name,), ())
        blocks = [view.ledger[block] for block in blocks_of(view.ledger.groups, name)]
        assert handle == f"{name}@{digest(blocks)[:6]}"
        assert f" {len(blocks)} block{'' if len(blocks) == 1 else 's'}, " in group.stub


# --- one thing at a time


def said(*turns: Any) -> View:
    """A conversation of turns: text is a human's, a list is of results of calls of one step, `None` a bare reply."""
    messages: list[Message] = []
    for at, turn in enumerate(turns):
        if isinstance(turn, list):
            calls = [f"c{at}-{number}" for number in range(len(turn))]
            asked = (wire.call_part("Bash", call, b'{"command":"ls %s"}' % call.encode()) for call in calls)
            messages += [Message(role="assistant", parts=tuple(asked)), results(*map(result, calls, turn))]
        else:
            messages.append(human(turn) if turn else reply("Done."))
    return View(ledger=numbered(messages)[0], price=Words())


class Words(Sizes):
    """A token for four bytes."""

    def __init__(self) -> None:
        super().__init__([0])

    def body(self, row: Row) -> int:
        return row.bytes // 4 + 1


def act(view: View, verb: Any, *targets: str, actor: str = "agent", index: str = "", **plan: Any) -> Rehearsal:
    action = Action(verb=verb, targets=targets, index=index)
    return rehearse.rehearse(view, Plan(actions=(action,), actor=actor, **plan))


def after(view: View, verb: Any, *targets: str, **plan: Any) -> View:
    outcome = act(view, verb, *targets, **plan)
    assert outcome and not outcome.problems, outcome.problems
    return next_view(view, outcome)


def why(done: Rehearsal) -> dict[str, str]:
    return {problem.target: problem.why for problem in done.problems}


def session() -> View:
    """B1 asks; B2-B3, B4-B5, B6-B7 are calls with long results; B8 is a bare reply, B9 asks, B10-B11 is latest."""
    return said("Do it", [LONG], [LONG], [LONG], None, "Go on", [LONG])


def archived(*targets: str, index: str = "") -> View:
    return after(session(), "archive", *targets, index=index)


def small() -> View:
    return said("Do it", ["ok"], None)


def told() -> View:
    """A session that a person's long text begins."""
    return said("Do it\n" * 200, [LONG], None, "Go on", None)


def opened() -> View:
    """A session whose newest step, B5 to B7, waits for a result."""
    view = said("Do it", [LONG], None)
    asked = Message(role="assistant", parts=tuple(wire.call_part("Bash", f"d{n}", b"{}") for n in (1, 2)))
    return dataclasses.replace(view, ledger=numbered([asked, results(result("d1", LONG))], view.ledger)[0])


def thought(*cuts: int) -> View:
    """A session of a long thought, B2, and a text after it; with these cuts."""
    thinking = wire.part({"type": "thinking", "thinking": LONG, "signature": "s"}, "assistant", "model")
    texts = Message(role="assistant", parts=(thinking, *reply("So.").parts)), reply("So.")
    ledger, _ = numbered([human("Do it"), *texts])
    return View(ledger=ledger.with_meta(msgspec.structs.replace(ledger.meta, cuts=cuts)), price=Words())


def left() -> View:
    """Of the session B3 was deleted and B5 pruned."""
    return after(after(session(), "delete", "B3", index="wrong"), "prune", "B5")


def mixed() -> View:
    return after(archived("B2", "B3"), "archive", "B5")


def pinned() -> View:
    return after(session(), "pin", "B3")


EVERYBODY = ("agent", "planner", "policy:oldest", "guard")


@pytest.mark.parametrize(
    ("view", "verb", "targets", "plan", "reasons"),
    [
        (lambda: archived("B2", "B3"), "archive", "B3", {}, {"B3": "gone"}),
        (lambda: archived("B2", "B3"), "archive", "B2 B3", {"index": "look"}, {"B2": "gone", "B3": "gone"}),
        (lambda: archived("B2", "B3", index="look"), "archive", "G1", {"index": "look"}, {"G1": "gone"}),
        (lambda: archived("B2", "B3"), "archive", "B2 B5", {}, {"B2": "gone"}),
        (mixed, "archive", "G1 B5 B7", {}, {"G1": "level", "B5": "level"}),
        (lambda: said("Do it", ["a short line of output"], None), "archive", "B3", {}, {"B3": "no saving"}),
        (small, "prune", "B3", {}, {"B3": "no saving"}),
        (session, "mask", "B2", {}, {"B2": "no saving"}),
        (lambda: thought(3), "prune", "B2", {}, {"B2": "no saving"}),  # a cut took it away: it costs nothing
        (session, "delete", "B3", {"index": " "}, {"B3": "not allowed"}),
        (session, "summarise", "B3", {"index": ""}, {"B3": "not allowed"}),
        (left, "restore", "B3 B5", {}, {"B3": "not allowed"}),
        (left, "restore", "B3 B5", {"actor": "policy:oldest"}, {"B3": "not allowed", "B5": "not allowed"}),
        (pinned, "prune", "B3", {"actor": "user"}, {"B3": "pinned"}),
        (pinned, "pin", "B3", {}, {"B3": "not allowed"}),
        (told, "archive", "B1", {}, {"B1": "human"}),
        (told, "archive", "B1", {"allow_user": True}, {"B1": "human"}),
        (told, "archive", "B1", {"actor": "user"}, {"B1": "human"}),
        *((session, "archive", "B11", {"actor": actor}, {"B11": "protected"}) for actor in EVERYBODY),
        *((opened, "archive", "B5 B7", {"actor": actor, "allow_user": True}, {"B5": "open", "B7": "open"})
          for actor in (*EVERYBODY, "user")),
    ],
)  # fmt: skip
def test_what_is_not_done_says_why(
    view: Callable[[], View], verb: str, targets: str, plan: dict[str, Any], reasons: dict[str, str]
) -> None:
    outcome = act(view(), verb, *targets.split(), **plan)
    assert why(outcome) == reasons
    assert {target for action in outcome.done for target in action.targets} == {*targets.split()} - {*reasons}


@pytest.mark.parametrize(
    ("view", "verb", "target", "plan"),
    [
        (session, "archive", "B11", {"actor": "user"}),
        (told, "archive", "B1", {"actor": "user", "allow_user": True}),
        (left, "restore", "B3", {"actor": "user"}),
        (left, "restore", "B5", {}),
        (lambda: after(pinned(), "unpin", "B3"), "archive", "B3", {}),
        (thought, "prune", "B2", {}),
        (session, "mask", "B3", {}),
    ],
)
def test_what_is_allowed_is_done(view: Callable[[], View], verb: str, target: str, plan: dict[str, Any]) -> None:
    states = {"archive": "archived", "prune": "pruned", "mask": "masked", "restore": "visible"}
    assert after(view(), verb, target, **plan).ledger[target].state == states[verb]


def test_a_block_leaves_a_stub_with_what_it_was_and_how_to_get_it_back() -> None:
    row = archived("B3", index="the tests fail").ledger["B3"]
    assert row.stub == f"[archived {row.handle}, 851 tokens; the tests fail]"
    assert (row.state, row.level, row.removed_by) == ("archived", 1, "agent")
    cut = msgspec.structs.replace(session().ledger["B3"], extra={"ctxvc": {"cut": True}})
    view = dataclasses.replace(session(), ledger=session().ledger.with_rows([cut]))
    assert after(view, "archive", "B3").ledger["B3"].stub.endswith("; the recorded output was cut]")


def test_several_blocks_leave_as_one_group_that_can_be_archived_again() -> None:
    view = archived("B3", "B2", "B5")
    inner = view.ledger.groups["G1"]
    assert (inner.members, inner.level) == (("B2", "B3", "B5"), 1)
    assert "3 blocks" in inner.stub and "1 tool_use, 2 tool_result" in inner.stub

    view = after(view, "archive", "G1", index="the first look")
    outer = view.ledger.groups["G2"]
    assert (outer.members, outer.level, outer.group) == (("G1",), 2, "")
    assert "the first look" in outer.stub
    assert view.ledger.groups["G1"] == msgspec.structs.replace(inner, group="G2")
    assert view.ledger["B3"].group == "G1"


def test_blocks_that_were_archived_singly_become_a_group_and_keep_their_stubs() -> None:
    blocks = [f"B{number}" for number in range(3, 31, 2)]
    view = said("Do it", *[[LONG]] * len(blocks), None, "Go on")
    for block in blocks:
        view = after(view, "archive", block)
    assert why(act(view, "archive", *blocks[:2])) == dict.fromkeys(blocks[:2], "no saving")
    grouped = after(view, "archive", *blocks).ledger
    assert (grouped.groups["G1"].members, grouped.groups["G1"].level) == (tuple(blocks), 2)
    assert all(grouped[block].stub == view.ledger[block].stub for block in blocks)


def test_a_member_that_is_listed_with_its_group_counts_once() -> None:
    outcome = act(archived("B2", "B3"), "archive", "B2", "G1", "B3", index="look")
    assert (outcome.done[0].targets, outcome.problems) == (("G1",), ())


def test_small_neighbours_leave_together_and_of_what_is_pruned_nothing_is_left() -> None:
    view = said("Do it", *[["a short line of output"]] * 20, None)
    assert act(view, "archive", *(f"B{number}" for number in range(2, 40))).freed > 0
    pruned = after(session(), "prune", "B3").ledger["B3"]
    assert (pruned.state, pruned.stub) == ("pruned", "")
    assert act(small(), "prune", "B3", "B2").done[0].targets == ("B3", "B2")


def test_a_tombstone_gives_the_reason_and_stands_only_where_it_is_shorter() -> None:
    row = after(session(), "delete", "B3", index="wrong [machine]").ledger["B3"]
    assert row.stub == f"[deleted {row.handle}: wrong (machine)]"
    assert after(session(), "delete", "B8", index="no use").ledger["B8"].stub == ""


def test_a_restored_block_brings_the_other_half_of_its_pair_out_of_every_group() -> None:
    view = after(archived("B2", "B3", "B4", "B5"), "archive", "G1", index="look")
    restored = after(view, "restore", "B5").ledger
    assert restored.groups["G1"].members == ("B2", "B3")
    assert [restored.groups[name].stub.count("; 2 blocks, ") for name in ("G1", "G2")] == [1, 1]
    assert restored.groups["G2"].label == "look"
    assert {restored[block].state for block in ("B4", "B5")} == {"visible"}
    assert not after(view, "restore", "B5", "B3").ledger.groups


def test_restoring_a_group_restores_all_levels_of_it_and_a_mask_leaves_nothing() -> None:
    view = after(after(archived("B2", "B3"), "archive", "B4", "B5"), "archive", "G1", "G2")
    assert after(view, "restore", "G3").ledger == session().ledger
    assert after(after(session(), "mask", "B3"), "restore", "B3").ledger == session().ledger


def test_what_does_not_fit_is_not_restored_and_the_numbers_are_told() -> None:
    view = after(archived("B3"), "archive", "B5")
    tokens = view_module.measure(view.ledger, view.price)
    tight = dataclasses.replace(view, budget=Budget(window=tokens + 1000), overhead=100)
    outcome = act(tight, "restore", "B3", "B5")
    assert outcome.done[0].targets == ("B3",)
    assert why(outcome) == {"B5": "no room"}
    assert f"of {tokens + 1000:,}" in outcome.problems[0].text
    assert outcome.tokens_after <= tokens + 1000


def test_what_costs_less_in_the_prompt_than_out_of_it_comes_back_without_any_room() -> None:
    deleted = dataclasses.replace(after(small(), "delete", "B3", index="wrong"), budget=Budget(window=1))
    assert after(deleted, "restore", "B3", actor="user").ledger["B3"].present
    pruned = dataclasses.replace(after(deleted, "prune", "B2"), budget=Budget(window=1))
    assert why(act(pruned, "restore", "B2")) == {"B2": "no room"}


def test_a_refused_group_uses_up_no_number() -> None:
    targets = ("B8", "B9"), ("B2", "B3")
    actions = tuple(Action(verb="archive", targets=some, index="why " * 40) for some in targets)
    rehearsal = rehearse.rehearse(session(), Plan(actions=actions, actor="user", allow_user=True))
    assert why(rehearsal) == {"B8": "no saving", "B9": "no saving"}
    assert list(rehearsal.after.groups) == ["G1"]


def test_what_counts_against_the_budget_is_what_the_provider_would_count() -> None:
    tokens = view_module.measure(session().ledger, session().price)
    fits = dataclasses.replace(archived("B3"), budget=Budget(window=tokens), calibration=(1000, 0))
    assert act(fits, "restore", "B3")
    assert why(act(dataclasses.replace(fits, calibration=(1200, 0)), "restore", "B3")) == {"B3": "no room"}


def test_what_is_protected_is_what_the_caller_says() -> None:
    plan = Plan(actions=(Action(verb="archive", targets=("B11",)),), actor="guard")
    assert rehearse.rehearse(session(), plan, protect=frozenset())


def test_a_target_of_another_checksum_is_stale() -> None:
    checksums = {"B3": "000000", "B5": session().ledger["B5"].sha256[:6]}
    plan = Plan(actions=(Action(verb="archive", targets=("B3", "B5"), checksums=checksums),), actor="planner")
    rehearsal = rehearse.rehearse(session(), plan)
    assert (why(rehearsal), rehearsal.done[0].targets) == ({"B3": "stale"}, ("B5",))


def test_what_is_unknown_is_named_in_a_few_words() -> None:
    outcome = act(session(), "archive", "B99", "G7", "[archived B3@3fa9c1: x]" * 99, "B3")
    assert set(why(outcome).values()) == {"unknown"}
    assert all(len(problem.text) < 120 and "[" not in problem.text for problem in outcome.problems)
    assert outcome.done[0].targets == ("B3",)


def test_a_summary_stands_in_the_place_of_what_it_tells_and_stays_when_a_block_comes_back() -> None:
    view = after(archived("B3"), "archive", "B4", "B5")
    text = "It lists files.\n[archived B9@000000: mine]\nNext: fix them."
    group = after(view, "summarise", "B2", "B3", "G1", "B7", index=text).ledger.groups["G2"]
    first, rest = group.stub.split("\n", 1)
    assert re.fullmatch(r"\[archived G2@[0-9a-f]{6}, steps? [\d–]+: 5 blocks, [\d.k]+\]", first)
    assert rest == "It lists files.\n\\[archived B9@000000: mine]\nNext: fix them."
    assert (group.members, group.label) == (("B2", "B3", "G1", "B7"), stubs.display.one_line(text, 200))

    view = after(session(), "summarise", "B2", "B3", "B4", "B5", index="It lists files.")
    stub = after(view, "restore", "B3").ledger.groups["G1"].stub
    assert stub.endswith("\nIt lists files.") and ": 2 blocks, " in stub


def test_the_actions_of_a_plan_see_what_those_before_them_did() -> None:
    actions = (Action(verb="archive", targets=("B2", "B3")), Action(verb="restore", targets=("G1",)))
    rehearsal = rehearse.rehearse(session(), Plan(actions=actions, actor="agent"))
    assert not rehearsal and rehearsal.after == session().ledger
    assert [action.targets for action in rehearsal.done] == [("B2", "B3"), ("G1",)]


def test_the_costs_of_blocks_add_up_to_the_prompt() -> None:
    view = after(archived("B3"), "mask", "B5")
    costs = view_module.costs(view.ledger, view.price)
    assert sum(cost.shown for cost in costs.values()) == view_module.measure(view.ledger, view.price)
    assert costs["B3"].body == 851 and costs["B3"].shown < 60


def test_a_block_comes_out_of_a_hosts_group_whose_summary_stays() -> None:
    view, members = session(), ("B2", "B3", "B4", "B5")
    fields = {"state": "archived", "level": 1, "group": "G1", "removed_by": "host"}
    rows = [msgspec.structs.replace(view.ledger[block], **fields) for block in members]
    host = Group(id="G1", members=members, summary=("B8",), label="compacted", removed_by="host")
    view = dataclasses.replace(view, ledger=view.ledger.with_rows(rows).with_groups([host]), next_group=2)
    restored = after(view, "restore", "B3").ledger
    assert restored.groups["G1"] == msgspec.structs.replace(host, members=("B4", "B5"))


# --- what is protected


def test_protected_are_the_latest_step_what_was_asked_and_instructions() -> None:
    ledger = session().ledger
    assert protected.protected(ledger) == {"B1", "B9", "B10", "B11"}

    note = Message(role="user", parts=(wire.text_part("Mine.", "user", "human", kind="note"),))
    noted, _ = numbered([note, reply("Yes.")], ledger)
    assert noted["B12"].turn == ledger["B9"].turn
    assert "B12" not in protected.protected(noted)

    put_in = {"role": "user", "origin": "client", "label": "x", "extra": {"ctxvc": {"file": "AGENTS.md"}}}
    named = ledger.with_rows(
        [
            msgspec.structs.replace(ledger["B2"], label="Read: /src/CLAUDE.md"),
            msgspec.structs.replace(ledger["B4"], label="Read: /src/MY-CLAUDE.md"),
            msgspec.structs.replace(ledger["B8"], **put_in),
        ]
    )
    assert protected.protected(named) == {"B1", "B3", "B8", "B9", "B10", "B11"}
