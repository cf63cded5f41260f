"""The baselines: what each takes away, in batches, and that all of it can be had again (VISTA, appendix D)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.ledger import Row
from ctxvc.core.ledger.numbering import is_human
from ctxvc.core.plan import Action, Plan, View
from ctxvc.core.plan.rehearse import rehearse
from ctxvc.core.policy import Answer, Policy
from ctxvc.core.view.budget import Budget
from ctxvc.policies.baselines import Clear, Keep, Mask, Skeleton, Summary, Window
from ctxvc.policies.candidates import removable
from ctxvc.policies.composed import after
from tests.making.conversation import LONG, human, injected, reply, step, steps
from tests.policies.laws import check, settled
from tests.policies.recorded import gone, moved, running, states

POLICIES: tuple[Policy, ...] = (Keep(), Window(), Clear(), Mask(), Skeleton(), Summary())
by_name = pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)


@by_name
def test_what_stays_in_every_baseline(policy: Policy) -> None:
    """Human words, pins with their pairs, notes, what the host said, instructions, the latest step, what just came."""
    made = running(
        human("Do it"),
        *step(1, LONG, tool="Read"),
        Message(role="system", parts=(wire.text_part("Mind the linter. " * 300, "system", "client"),)),
        *step(2, LONG),
        Message(role="user", parts=(wire.text_part("It is slow. " * 300, "user", "model", kind="note"),)),
        *steps(30, first=3),
        human("And this\n" * 500),
        *step(40, LONG),
        injected("reminder " * 500),
    )
    call = made.ledger["B2"]
    made.ledger = made.ledger.with_rows(
        [
            msgspec.structs.replace(call, label="Read: /src/CLAUDE.md"),
            msgspec.structs.replace(made.ledger["B6"], state="pinned"),
        ]
    )
    view = made.view(8_000)
    tried = check(policy, view, made)
    touched = {row.id for row in tried.rows}
    stay = {"B1", "B2", "B3", "B4", "B5", "B6", "B7"}
    stay |= {row.id for row in made.ledger.rows() if row.number >= made.ledger["B7"].number + 61}
    assert not touched & stay
    assert bool(touched) == (policy.name != "keep")
    assert "too many" in policy.propose(made.view(500)).reason


def test_thinking_that_a_cut_took_away_is_nobodys_target() -> None:
    thought = wire.part({"type": "thinking", "thinking": LONG, "signature": "s"}, "assistant", "model")
    made = running(human("Do it"), Message(role="assistant", parts=(thought,)), *steps(15))
    assert [row.id for row in removable(made.view())][:2] == ["B2", "B3"]
    made.ledger = made.ledger.with_meta(msgspec.structs.replace(made.ledger.meta, cuts=(2,)))
    assert removable(made.view())[0].id == "B3"


# --- keep


def test_keep_takes_nothing_away_and_says_what_that_comes_to() -> None:
    made = running(human("Do it"), *steps(20))
    assert Keep().propose(made.view(100_000)).reason == "17,162 of 100,000 tokens: everything is kept"
    plan = Keep().propose(made.view(12_000))
    assert not plan.actions
    assert plan.reason.endswith("that is 5,162 too many, but this policy removes nothing")


# --- window


def test_the_window_truncates_the_oldest_replies_with_their_results() -> None:
    made = running(human("Do it"), injected("the rules"), *steps(20))
    whole = made.ledger
    assert made.view(12_000).used > 11_760
    rehearsal = settled(Window(), made, 12_000)
    assert gone(rehearsal) == [f"B{number}" for number in range(3, 3 + len(gone(rehearsal)))]
    assert {row.state for row in rehearsal.rows} == {"pruned"}
    assert rehearsal.tokens_after <= 10_800 < rehearsal.tokens_after + 900
    assert made.ledger["B2"].present
    back = Plan(actions=(Action(verb="restore", targets=tuple(gone(rehearsal))),), actor="agent")
    assert rehearse(made.view(100_000), back).after == whole


def test_at_a_low_water_mark_of_one_the_window_stops_as_soon_as_the_prompt_fits() -> None:
    made = running(human("Do it"), *steps(20))
    rehearsal = settled(Window(low_water=1), made, 12_000)
    assert 11_760 - 900 < rehearsal.tokens_after <= 11_760


def test_the_window_breaks_the_prefix_once_in_a_while_and_not_at_every_call() -> None:
    def truncations(policy: Window) -> int:
        made = running(human("Do it"), *steps(14))
        count = 0
        for number in range(20, 40):
            count += bool(settled(policy, made, 12_000))
            made.append(*step(number, LONG))
        return count

    assert truncations(Window(low_water=0.6)) <= 5 < truncations(Window(low_water=1))


# --- clear


def test_all_old_results_are_cleared_but_the_newest_three_and_with_pairs_their_calls() -> None:
    made = running(human("Do it"), *steps(9))
    rehearsal = settled(Clear(), made, 12_000)
    assert states(made.ledger) == ["pruned"] * 6 + ["visible"] * 3
    assert states(made.ledger, "tool_use") == ["visible"] * 9
    assert len(rehearsal.plan.actions) == 1
    made = running(human("Do it"), *steps(9))
    settled(Clear(pairs=True), made, 12_000)
    assert states(made.ledger) == states(made.ledger, "tool_use") == ["pruned"] * 6 + ["visible"] * 3


def test_below_the_trigger_or_where_no_more_are_there_than_are_kept_nothing_is_cleared() -> None:
    made = running(human("Do it"), *steps(7))
    assert not Clear().propose(made.view(12_000)).actions
    assert Clear(trigger=0.5).propose(made.view(12_000)).actions
    made = running(human("words " * 5_000), *steps(2), reply("Done."))
    assert not Clear(keep=3, least=0).propose(made.view(12_000)).actions
    assert Clear(keep=0, least=0).propose(made.view(12_000)).actions


def test_errors_and_excluded_tools_are_not_cleared_unless_asked_for() -> None:
    made = running(human("Do it"), *step(1, LONG, error=True), *step(2, LONG, tool="record"), *steps(8, first=3))
    view = made.view(12_000)
    assert [target for action in Clear(exclude=("record",)).propose(view).actions for target in action.targets] == [
        "B7", "B9", "B11", "B13", "B15",
    ]  # fmt: skip
    (action,) = Clear(errors=True).propose(view).actions
    assert action.targets[:2] == ("B3", "B5")


def test_parallel_results_stay_together() -> None:
    made = running(human("Do it"), *steps(4), *step(5, LONG, LONG, LONG, LONG), *step(6, LONG))
    settled(Clear(), made, 12_000)
    assert states(made.ledger) == ["pruned"] * 4 + ["visible"] * 5


def test_clearing_waits_until_a_batch_is_worth_it() -> None:
    def clearings(policy: Clear) -> int:
        made = running(human("Do it " * 4_000), *steps(9))
        count = 0
        for number in range(20, 40):
            count += bool(settled(policy, made, 12_000))
            made.append(*step(number, LONG[:1_000]))
        return count

    assert clearings(Clear(least=0.1)) < 8
    assert clearings(Clear(least=0)) > 15  # the original: one more result at each call


# --- mask


def test_old_results_are_masked_and_reasoning_and_calls_stay() -> None:
    made = running(human("Do it"), *(message for n in range(1, 26) for message in step(n, LONG, words="So. " * 300)))
    settled(Mask(), made, 128_000)
    assert states(made.ledger) == ["masked"] * 10 + ["visible"] * 15
    assert {*states(made.ledger, "assistant"), *states(made.ledger, "tool_use")} == {"visible"}


def test_masking_goes_in_batches_of_steps() -> None:
    made = running(human("Do it"), *steps(14))
    counts = []
    for number in range(20, 44):
        counts.append(len(settled(Mask(), made, 128_000).rows))
        made.append(*step(number, LONG))
    assert [count for count in counts if count] == [10, 10]


# --- skeleton


def test_old_steps_become_a_skeleton_of_calls_and_first_words() -> None:
    made = running(
        human("Find the leak"),
        *step(1, "pool.py\n" + LONG, words="I look at the files."),
        injected("Mind the time. " * 20),
        *step(2, "def take(): ...\n" + LONG),
        *steps(12, first=3),
    )
    rehearsal = settled(Skeleton(), made, 12_000)
    (group,) = made.ledger.groups.values()
    shown = group.stub.partition("\n")[2].splitlines()
    assert shown[:4] == [
        "what was done in steps 1 to 8, in short:",
        "- said: I look at the files.",
        "- sh: look c1-0 -> pool.py a line of output a line of output a line of output a line of output a l…",
        "- put in: Mind the time. Mind the time. Mind the time. Mind the time. Mind the time. Mind…",
    ]
    assert shown[4].startswith("- sh: look c2-0 -> def take(): ... a line")
    assert made.ledger["B1"].present and states(made.ledger)[-6:] == ["visible"] * 6
    assert rehearsal.tokens_after < 0.6 * 12_000


def test_a_skeleton_ends_with_its_turn_and_after_so_many_steps() -> None:
    made = running(human("Do it"), *steps(12), human("And that"), *steps(12, first=20))
    plan = Skeleton(chunk=5, low_water=0).propose(made.view(12_000))
    ends = [[made.ledger[action.targets[at]].step for at in (0, -1)] for action in plan.actions]
    assert ends == [[1, 5], [6, 10], [11, 12], [13, 17], [18, 18]]
    assert len(Skeleton(chunk=5).propose(made.view(12_000)).actions) < 5


def test_skeletons_wait_until_there_is_enough_to_tell() -> None:
    made = running(human("words " * 8_000), *steps(2), *step(3, "ok"), *steps(6, first=4))
    assert not Skeleton(least=0.3).propose(made.view(12_000)).actions
    assert "too little" in Skeleton(least=0.3).propose(made.view(12_000)).reason
    assert Skeleton().propose(made.view(12_000)).actions


# --- summary


def test_all_but_the_newest_part_becomes_one_summary_or_the_newest_share() -> None:
    made = running(human("Find the leak"), *step(1, LONG, words="The pool leaks."), *steps(14, first=2))
    rehearsal = settled(Summary(), made, 12_000)
    (group,) = made.ledger.groups.values()
    assert "The pool leaks." in group.stub
    assert made.ledger["B1"].present
    assert states(made.ledger) == ["archived"] * 14 + ["visible"]
    assert rehearsal.tokens_after < 2_500

    made = running(human("Find the leak"), *steps(15))
    settled(Summary(keep=0.5), made, 12_000)
    assert states(made.ledger) == ["archived"] * 8 + ["visible"] * 7


def test_a_summary_that_is_longer_than_what_it_tells_is_not_used() -> None:
    told = "Intent: x\nDecisions: y\nArtifacts: z\nNext steps: none\n" + LONG * 15
    made = running(human("Find the leak"), *steps(14))
    plan = Summary(ask=lambda *_: Answer(f'<summary of="B2-B27">\n{told}\n</summary>')).propose(made.view(12_000))
    assert not plan.actions and "gave no shorter summary" in plan.reason


def test_below_the_threshold_no_model_is_asked_and_above_it_once() -> None:
    texts: list[str] = []

    def ask(view: View, text: str) -> Answer:
        texts.append(text)
        name = f"{text.partition('- B')[2].partition(':')[0]}"
        told = "Intent: x\nDecisions: the pool leaks\nArtifacts: pool.py\nNext steps: none"
        return Answer(f'<summary of="B{name}">\n{told}\n</summary>', tokens=77)

    policy = Summary(ask=ask)
    few = running(human("Find the leak"), *steps(8))
    assert not policy.propose(few.view(12_000)).actions and not texts

    many = running(human("Find the leak"), *steps(14))
    plan = policy.propose(many.view(12_000))
    assert (len(texts), plan.cost) == (1, 77)
    assert plan.actions[0].index.startswith("Intent: x\nDecisions: the pool leaks")

    moved(many, rehearse(many.view(12_000), plan))
    assert not policy.propose(many.view(12_000)).actions and len(texts) == 1


@pytest.mark.parametrize("words", ["", "no tags", '<summary of="B2-B9">too short</summary>'])
def test_a_model_that_gives_no_summary_changes_nothing_and_its_cost_is_told(words: str) -> None:
    made = running(human("Find the leak"), *steps(14))
    plan = Summary(ask=lambda *_: Answer(words, 9)).propose(made.view(12_000))
    assert (plan.actions, plan.cost) == ((), 9)
    assert "gave no shorter summary" in plan.reason


def test_earlier_summaries_stay_and_a_few_new_blocks_are_no_reason_for_another() -> None:
    made = running(human("words " * 7_000), *steps(4))
    settled(Summary(), made, 12_000)
    before = dict(made.ledger.groups)
    made.append(*step(20, LONG[:1_000]), *step(21, LONG[:1_000]))
    assert "too little" in settled(Summary(), made, 12_000).plan.reason
    made.append(*steps(4, first=30))
    settled(Summary(), made, 12_000)
    assert len(made.ledger.groups) == 2 and made.ledger.groups["G1"] == before["G1"]


def test_what_left_by_itself_goes_into_the_summary_too() -> None:
    made = running(human("Find the leak"), *steps(16))
    moved(made, rehearse(made.view(12_000), Plan(actions=(Action(verb="archive", targets=("B3",)),), actor="agent")))
    settled(Summary(), made, 12_000)
    assert made.ledger["B3"].group == "G1"


# --- knobs


def test_tokens_are_compared_as_the_provider_counts_them() -> None:
    made = running(human("Do it"), *steps(9))
    for policy in (Window(), Clear(), Skeleton(), Summary()):
        assert not policy.propose(made.view(14_000)).actions
        assert policy.propose(made.view(14_000, calibration=(2000, 0))).actions
        assert policy.propose(made.view(14_000, overhead=6_200)).actions


def humans(rows: Sequence[Row]) -> list[str]:
    return [row.id for row in rows if is_human(row.role, row.origin)]


def test_a_prompt_of_human_words_alone_stays_and_the_reason_is_told() -> None:
    made = running(human("words " * 10_000), reply("Yes."), human("more " * 10_000), reply("Done."))
    for policy in POLICIES:
        tried = check(policy, made.view(Budget(12_000)), made)
        assert not humans(tried.rows) and "too many" in tried.plan.reason
        assert not after(made.view(12_000), tried.after).ledger.groups
