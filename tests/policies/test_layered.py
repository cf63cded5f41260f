"""The layers, each against its paragraph of "Growth and its limits", and against what goes wrong where it is used."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.ledger import Group
from ctxvc.core.ledger.numbering import is_human
from ctxvc.core.plan import Action, Plan, Rehearsal, View, admission
from ctxvc.core.plan.rehearse import rehearse
from ctxvc.core.policy import Answer
from ctxvc.core.prompt.request import request
from ctxvc.core.prompt.stub import is_summary
from ctxvc.core.view.budget import Budget, Ladder
from ctxvc.policies.layered import Layered
from ctxvc.policies.summaries import EXTRACTIVE
from tests.making.conversation import human, injected, step, steps
from tests.policies.laws import BUDGETS, check, check_generated, settled
from tests.policies.recorded import Run, gone, running, states, trajectories
from tests.policies.recorded import run as recorded

GOOD = "Intent: go on\nDecisions: none\nArtifacts: none\nNext steps: none"


def output(tokens: int, line: str = "a line of output") -> str:
    """A result of about so many tokens, as the tests count."""
    return "\n".join([line] * (tokens * 4 // (len(line) + 1)))


def proposed(run: Run, budget: int | Budget = 100_000, policy: Layered | None = None) -> Rehearsal:
    """The plan, rehearsed; the laws hold."""
    return check(policy or Layered(), run.view(budget), run)


def verbs(rehearsal: Rehearsal) -> set[str]:
    return {action.verb for action in rehearsal.done}


def summaries_of(rehearsal: Rehearsal) -> list[Group]:
    return [group for group in rehearsal.after.groups.values() if is_summary(group.stub)]


# --- "Eviction of a large single result"


def test_a_single_result_over_the_threshold_leaves_and_its_two_ends_stay_to_be_seen() -> None:
    lines = [f"line {number}: {'x' * 40}" for number in range(2_000)]
    run = running(human("go"), *step(1, "\n".join(lines)), *step(2, "done"))
    (row,) = proposed(run, 400_000).rows
    assert row.state == "archived"
    assert row.stub.startswith(f"[archived {row.handle}, 25,")
    assert row.stub.splitlines()[1:] == [*lines[:5], "[1,990 lines left out]", *lines[-5:]]


def test_the_threshold_is_exceeded_not_reached() -> None:
    run = running(human("go"), *step(1, "x" * (4 * 19_999 + 3)), *step(2, "x" * (4 * 20_000)), *step(3, "done"))
    view = run.view(400_000)
    assert [view.price.body(run.ledger[block]) for block in ("B3", "B5")] == [20_000, 20_001]
    assert gone(proposed(run, 400_000)) == ["B5"]


def test_what_came_just_now_stays_until_the_model_has_seen_it() -> None:
    run = running(human("go"), *step(1, output(30_000)))
    assert not proposed(run, 400_000)
    run.append(*step(2, "done"))
    assert gone(proposed(run, 400_000)) == ["B3"]


@pytest.mark.parametrize("lines", [0, 1, 5, 10, 11, 20, 5_000])
@pytest.mark.parametrize("width", [3, 999, 1_000, 1_001, 5_000])
def test_a_preview_is_five_and_five_lines_of_at_most_a_thousand_characters(lines: int, width: int) -> None:
    given = [f"{number % 1_000:0{width}}" for number in range(lines)]
    shown = admission.preview("\n".join(given)).splitlines()
    left_out = [line for line in shown if line.endswith("lines left out]")]
    assert len(left_out) == (lines > 10)
    kept = [line for line in shown if line not in left_out]
    assert len(kept) == min(lines, 10)
    for line in kept:
        assert len(re.sub(r" \[[0-9,]+ characters left out\] ", "", line)) == min(width, 1_000)


def test_with_offload_off_a_large_result_waits_for_clearing() -> None:
    run = running(human("go"), *step(1, output(30_000)), *step(2, "done"))
    assert not proposed(run, 400_000, Layered(offload=False))


# --- "Clearing of old tool results"


def test_below_the_threshold_nothing_is_cleared_and_the_reason_has_the_numbers() -> None:
    rehearsal = proposed(running(human("go"), *steps(12)))
    assert not rehearsal
    assert re.fullmatch(r"10,\d{3} of 100,000 tokens: clearing starts above 60,000", rehearsal.plan.reason)


@pytest.mark.parametrize(("budget", "keep", "visible"), [(100_000, {}, 6), (99_999, {}, 3), (100_000, {"keep": 2}, 2)])
def test_old_results_leave_and_the_newest_six_stay_or_three_in_a_small_window_or_as_many_as_are_to_be_kept(
    budget: int, keep: dict[str, int], visible: int
) -> None:
    run = running(human("go"), *steps(20, output(4_000)))
    rehearsal = proposed(run, budget, Layered(low_water=0.0, **keep))
    assert states(rehearsal.after) == ["archived"] * (20 - visible) + ["visible"] * visible


def test_errors_and_what_is_never_to_be_cleared_are_not_cleared() -> None:
    """§3.6.3"""
    run = running(human("go"), *step(1, output(8_000), tool="record_attempt"), *steps(20, output(4_000), first=2))
    rehearsal = proposed(run, 100_000, Layered(low_water=0.0, exclude=("record_attempt",)))
    assert rehearsal.after["B3"].state == "visible"
    assert states(rehearsal.after).count("archived") == 14
    assert proposed(run, 100_000, Layered(low_water=0.0)).after["B3"].state == "archived"
    run = running(human("go"), *step(1, output(4_000), error=True), *steps(20, output(4_000), first=2))
    assert proposed(run, 100_000, Layered(low_water=0.0)).after["B3"].state == "visible"


# --- "Summarization"


#: As it was where the numbers of a test come from.
LOW = Layered(low_water=0.4)


def long_talk(turns: int = 10, words: int = 2_000) -> Run:
    """Turns that have no results to clear: what the model said is what costs."""
    run = Run()
    for turn in range(turns):
        run.append(human(f"question {turn}"))
        for number in range(4):
            run.append(*step(100 * turn + number, "ok", words=output(words, f"reasoning {turn}.{number}. And more")))
    return run


def test_above_the_second_threshold_old_turns_become_summaries_and_the_newest_stay_verbatim() -> None:
    run = long_talk()

    rehearsal = proposed(run, 90_000)

    assert verbs(rehearsal) == {"summarise"}
    newest = [row for row in rehearsal.after.rows() if row.kind == "assistant" and row.present]
    assert newest == [row for row in run.ledger.rows() if row.kind == "assistant"][-len(newest) :]
    assert 36_000 - 12_000 < rehearsal.tokens_after <= 36_000, "it stops at the low-water mark"
    for group in summaries_of(rehearsal):
        told = group.stub.splitlines()
        assert re.fullmatch(rf"\[archived {group.id}@[0-9a-f]{{6}}, steps \d+–\d+: \d+ blocks, [0-9.]+k\]", told[0])
        assert told[1] == EXTRACTIVE
        assert [line for line in told if line in ("Intent:", "Decisions:", "Artifacts:", "Next steps:")]


def test_a_second_compact_does_not_summarise_the_newest_turn() -> None:
    """The window is then as small as the prompt, and a tenth of it is less than one reply."""
    run = long_talk(turns=2)
    first = proposed(run, run.view(90_000).used)
    run.ledger = first.after
    again = proposed(run, max(1, run.view(90_000).used), Layered(verbatim=0.01))
    assert first and summaries_of(first)
    newest = [row.id for row in run.ledger.rows() if row.kind == "assistant"][-2:]
    assert all(again.after[block].present for block in newest)


def test_human_words_stay_where_they_were_between_the_summaries() -> None:
    run = long_talk()
    rehearsal = proposed(run, 90_000, LOW)
    assert all(row.present for row in rehearsal.after.rows() if is_human(row.role, row.origin))
    sent = "\n".join(str(message) for message in request(rehearsal.after, run.held(), None, None).messages)
    marks = [sent.index(f"'question {turn}'") for turn in range(10)]
    stubs = [sent.index(f"[archived {group.id}@") for group in summaries_of(rehearsal)]
    assert len(stubs) == 7
    assert all(first < stub < second for first, stub, second in zip(marks, stubs, marks[1:], strict=False))


def test_a_summary_is_left_where_what_follows_it_is_summarised() -> None:
    run = running(human("go"), *working(range(40)))
    settled(Layered(), run, 90_000)
    run.append(*working(range(40, 80)))
    rehearsal = settled(Layered(), run, 90_000)
    first, second = summaries_of(rehearsal)
    assert (first.group, second.group) == ("", "")
    assert first.id not in second.members


def working(steps: range) -> list[Message]:
    """Steps in one turn, in which words are what costs."""
    return [message for at in steps for message in step(at, "ok", words=output(2_000, f"reasoning {at}. And more"))]


def test_what_a_host_summarised_is_not_summarised_again() -> None:
    run = long_talk()
    rows = [row for row in run.ledger.rows() if row.number < 20 and not is_human(row.role, row.origin)]
    run.append(Message(role="user", parts=(wire.text_part("the host's summary", "user", "client"),)))
    summary = f"B{run.ledger.meta.counters.block}"
    run.append(*step(999, "ok"))
    absent = [msgspec.structs.replace(row, state="archived", level=1, group="G1", removed_by="host") for row in rows]
    members = tuple(row.id for row in rows)
    group = Group(id="G1", members=members, summary=(summary,), before="B20", removed_by="host")
    run.ledger = run.ledger.with_rows(absent).with_groups([group])
    run.next_group = 2

    rehearsal = proposed(run, 70_000)

    assert verbs(rehearsal) == {"summarise"}
    assert rehearsal.after.groups["G1"] == group
    assert rehearsal.after[summary].present


def test_notes_pins_instructions_and_named_tools_stay_out_of_summaries() -> None:
    run = running(human("go"))
    run.append(*step(1, "obey the linter", words="x " * 3_000))
    instructions = [Message(role="assistant", parts=(wire.call_part("Read", "r1", b'{"file_path":"/a/AGENTS.md"}'),))]
    instructions.append(Message(role="user", parts=(wire.result_part("obey", "r1"),)))
    run.append(*instructions, *step(3, "1 of 2 passed", tool="record_attempt"))
    run.append(Message(role="user", parts=(wire.text_part("a note", "user", "model", kind="note"),)))
    run.append(Message(role="system", parts=(wire.text_part("Obey the linter.", "system", "client"),)))
    run.append(*working(range(10, 40)))
    run.ledger = run.ledger.with_rows([msgspec.structs.replace(run.ledger["B3"], state="pinned")])

    rehearsal = proposed(run, 60_000, Layered(exclude=("record_attempt",)))

    kept = {"note": 1, "Read": 2, "record_attempt": 2}
    present = [row for row in rehearsal.after.rows() if row.present]
    assert sum(row.kind == "note" for row in present) == kept["note"]
    assert sum(row.role == "system" for row in present) == 1
    assert sum(row.tool == "Read" for row in present) == kept["Read"]
    assert sum(row.tool == "record_attempt" for row in present) == kept["record_attempt"]
    assert (rehearsal.after["B3"].state, rehearsal.after["B4"].state) == ("pinned", "visible")
    assert len(summaries_of(rehearsal)) >= 1


def test_agents_groups_go_into_a_summary_whole() -> None:
    run = long_talk()
    plan = Plan(actions=(Action(verb="archive", targets=("B2", "B3", "B4"), index="a look"),), actor="agent")
    rehearsal = rehearse(run.view(90_000), plan)
    run.ledger, run.next_group = rehearsal.after, 2
    rehearsal = proposed(run, 85_000)
    assert rehearsal.after.groups["G1"].group in {group.id for group in summaries_of(rehearsal)}


# --- with a model


class Model:
    """A model that gives each part the same summary."""

    def __init__(self, words: str = GOOD, only: int = 10**6) -> None:
        self.words = words
        self.only = only
        self.asked: list[tuple[View, str]] = []

    def __call__(self, view: View, words: str) -> Answer:
        self.asked.append((view, words))
        parts = list(dict.fromkeys(re.findall(r"^- (B\d+-B\d+): ", words, re.MULTILINE)))[: self.only]
        text = "\n".join(f'<summary of="{part}">{self.words}</summary>' for part in parts)
        return Answer(text, tokens=700)


def test_the_model_is_asked_once_behind_the_live_prompt_and_what_it_took_is_in_the_plan() -> None:
    run, model = long_talk(), Model()
    view = run.view(90_000)
    plan = Layered(ask=model).propose(view)
    ((seen, _),) = model.asked
    assert seen.ledger is view.ledger
    assert plan.cost == 700
    assert {action.index for action in plan.actions} == {GOOD}
    assert "by the model" in plan.reason


def test_a_part_that_the_model_gave_no_summary_of_stays() -> None:
    run = long_talk()
    rehearsal = proposed(run, 90_000, Layered(ask=Model(only=3), low_water=0.4))
    assert len(summaries_of(rehearsal)) == 3
    assert "3 of 7 parts summarised" in rehearsal.plan.reason


def test_history_is_never_replaced_without_the_summariser() -> None:
    """systems.md, §3.6.5: no fixed words stand in for a summary that was not made."""
    run = long_talk()
    for text in ("", "I cannot do that.", "Intent: x"):
        rehearsal = proposed(run, 90_000, Layered(ask=Model(text)))
        assert not rehearsal
        assert "no summary in the requested form" in rehearsal.plan.reason


def test_the_model_is_not_asked_where_it_would_not_be_worth_it() -> None:
    model = Model()
    run = running(human(output(85_000)), *(message for n in range(8) for message in step(n, "ok", words=output(600))))
    plan = Layered(ask=model, low_water=0.4).propose(run.view(100_000))
    assert not model.asked
    assert re.search(r"summaries would free only about \d+ and wait until they free 10,000", plan.reason)


# --- what stays longest


def test_the_current_turn_is_untouched_while_older_things_remain() -> None:
    """It used to lose its own lookups while the texts of older turns stood in the prompt."""
    run = long_talk(turns=4, words=1_500)
    run.append(human("and now?"), *steps(12, output(1_000), first=900))
    lookups = [row.id for row in run.ledger.rows() if row.kind == "tool_result"][-12:]
    used = run.view(90_000).used
    before = proposed(run, used * 100 // 70)  # past clearing, not past summaries
    assert all(before.after[block].present for block in lookups)

    rehearsal = proposed(run, used * 100 // 88)
    assert summaries_of(rehearsal) and all(rehearsal.after[block].present for block in lookups)

    run.ledger = rehearsal.after
    run.append(*steps(30, output(1_000), first=950))
    assert all(proposed(run, run.view(90_000).used * 100 // 70).after[block].present for block in lookups)
    last = proposed(run, run.view(90_000).used * 100 // 88)
    assert not last.after[lookups[0]].present, "once nothing older is left"


def test_over_the_guard_the_current_turn_is_not_spared() -> None:
    run = long_talk(turns=2, words=600)
    run.append(human("and now?"), *steps(20, output(2_000), first=900))
    rehearsal = proposed(run, run.view(90_000).used * 100 // 99)
    assert rehearsal.plan.pressure
    assert any(not row.present for row in rehearsal.after.rows() if row.turn == run.ledger.meta.counters.turn)


def test_what_a_focus_touches_is_neither_cleared_nor_summarised_and_the_model_is_told() -> None:
    run = running(human("go"))
    for number in range(40):
        about = f"the Login page of {number}\n" if number % 8 == 3 else ""
        run.append(*step(number, about + output(80), words=output(1_500, f"I read file {number}. And more")))
    run.append(human("next"), *steps(2, "ok", first=90))
    model = Model()
    touched = {row.id for row in run.ledger.rows() if "Login" in run.words(row)}
    policy = Layered(ask=model, focus=("login",))
    rehearsal = proposed(run, run.view(90_000).used * 100 // 90, policy)

    assert len(touched) == 5 and all(rehearsal.after[block].present for block in touched)
    assert rehearsal.after["B4"].state == "archived"
    assert model.asked, rehearsal.plan.reason
    assert "Dwell on what has to do with: login." in model.asked[0][1]
    usual = proposed(run, run.view(90_000).used * 100 // 90, Layered(ask=Model()))
    assert not all(usual.after[block].present for block in touched)


# --- what goes wrong elsewhere (reference: systems.md, §3.6)


def test_summaries_come_only_where_clearing_was_not_enough() -> None:
    """§3.6.1: a window of 100k, clearing at 60k, ten results of 10k: 30k are left, and nothing is summarised."""
    run = running(human("go"), *steps(10, output(9_990)))
    rehearsal = proposed(run, 100_000, Layered(keep=3))
    assert rehearsal.tokens_before > 85_000
    assert verbs(rehearsal) == {"archive"}
    assert rehearsal.tokens_after < 42_000


def test_clearing_comes_in_batches_and_does_not_slide_by_one() -> None:
    """§3.6.2: each batch breaks the cached prefix; between two, the prompt grows by a good part of the budget."""
    run = running(human("go"))
    batches: list[int] = []
    for number in range(80):
        run.append(*step(number, output(3_000)))
        rehearsal = settled(LOW, run, 100_000)
        if rehearsal:
            batches.append(number)
            assert len(rehearsal.done) >= 6
            assert rehearsal.tokens_after <= 40_000
    assert len(batches) >= 5
    assert all(second - first >= 6 for first, second in pairwise(batches))


def test_a_batch_that_would_free_little_waits_and_says_so() -> None:
    run = running(
        human(output(58_000)), *step(1, output(2_000)), *steps(6, "ok", first=2), *steps(3, output(1_000), first=9)
    )
    rehearsal = proposed(run, 100_000, LOW)
    assert not rehearsal
    assert re.search(r"clearing would free only [\d,]+ and waits until it frees 10,000", rehearsal.plan.reason)


def test_over_the_guard_whatever_helps_is_done() -> None:
    run = running(
        human(output(95_000)), *step(1, output(2_000)), *steps(6, "ok", first=2), *steps(3, output(1_000), first=9)
    )
    rehearsal = proposed(run, 100_000)
    assert rehearsal.plan.pressure
    assert gone(rehearsal) == ["B3"]


def test_a_parallel_batch_is_kept_whole() -> None:
    """§3.6.3: keep counts results, but does not split those of one step."""
    run = running(human("go"), *steps(8, output(6_000)), *step(20, *[output(4_000)] * 5), *steps(2, "ok", first=30))
    rehearsal = proposed(run, 100_000, Layered(keep=3, low_water=0.0))
    assert states(rehearsal.after) == ["archived"] * 8 + ["visible"] * 7


def test_a_result_that_does_not_follow_its_call_at_once_is_cleared_too() -> None:
    """§3.6.3"""
    call, result = step(1, output(9_000), output(9_000))
    late = [msgspec.structs.replace(result, parts=(part,)) for part in result.parts]
    run = running(human("go"), call, late[0], injected("wait"), late[1], *steps(16, output(4_000), first=2))
    results = [row.id for row in run.ledger.rows() if row.kind == "tool_result" and row.step == 1]
    assert len(results) == 2
    rehearsal = proposed(run, 100_000, Layered(low_water=0.0))
    assert [rehearsal.after[block].state for block in results] == ["archived"] * 2


# --- the whole


def test_where_the_budget_cannot_be_met_the_reason_says_by_how_much_and_why() -> None:
    run = running(human(output(20_000)), *steps(2))
    rehearsal = proposed(run, 12_000)
    assert re.search(
        r"[\d,]+ over the budget: 0 are system prompt and tools, 19,\d{3} are human text", rehearsal.plan.reason
    )


def test_thresholds_are_the_ladders_or_the_knobs_in_tokens_as_the_provider_counts_them() -> None:
    run = running(human("go"), *steps(20, output(2_500)))

    assert not Layered().propose(run.view(100_000)).actions
    assert Layered().propose(run.view(100_000, calibration=(1_500, 0))).actions
    assert Layered().propose(run.view(100_000, overhead=20_000)).actions
    assert Layered().propose(run.view(Budget(100_000, 0, Ladder(clear=0.4)))).actions
    assert Layered(clear=0.4, low_water=0.3).propose(run.view(100_000)).actions
    assert Layered(clear=0.4, summarise=0.7).terms().ladder == {"clear": 0.4, "summarise": 0.7}
    assert Layered().terms().ladder == {}
    for window in (4_000, 12_000, 32_000, 1_000_000):
        assert proposed(running(human("go"), *steps(20, output(window // 16))), window), window


@given(st.data())
def test_the_laws_hold_with_a_model_on_whatever_is_said(data: st.DataObject) -> None:
    check_generated(Layered(ask=Model(), keep=1, low_water=0.1, verbatim=0.05), data)


@pytest.mark.skipif(not trajectories(), reason="CTXVC_TEST_DATA names no folder of recordings")
def test_a_model_is_asked_for_the_newest_turn_in_the_same_plan_where_older_ones_are_not_enough() -> None:
    """It was asked with the next call, so the policy took more when it was applied again."""
    (file,) = (file for file in trajectories() if file.name.startswith("deer-flow-5aa47db1."))
    for budget in BUDGETS:
        run = recorded(file)
        check(Layered(ask=Model()), run.view(budget), run)


@pytest.mark.slow
@pytest.mark.parametrize("file", trajectories(), ids=lambda file: file.name)
def test_the_laws_hold_with_a_model_on_every_recorded_run(file: Path) -> None:
    for budget in BUDGETS:
        run = recorded(file)
        check(Layered(ask=Model()), run.view(budget), run)
