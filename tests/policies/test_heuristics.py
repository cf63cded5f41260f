"""The heuristics that Self-GC is compared with (section "Baselines"): what each takes, in which order, and the laws."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxvc.core.plan import Plan
from ctxvc.core.plan.rehearse import rehearse
from ctxvc.core.policy import Policy
from ctxvc.policies import POLICIES as SHIPPED
from ctxvc.policies.heuristics import Heuristic, Hybrid, OldestTurn, ToolMaskPrune, ToolPrune
from tests.policies.cases import Talk, rows, survives
from tests.policies.laws import BUDGETS, check, drive
from tests.policies.recorded import Run, messages, run, trajectories
from tests.policies.test_baselines import on_generated, sample

POLICIES: tuple[Heuristic, ...] = (OldestTurn(), ToolPrune(), ToolMaskPrune(), Hybrid())
by_name = pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)


def working(turns: int = 4) -> Run:
    """Turns of four calls with 900 tokens each: turn 1 has B1 asked, B2 to B9 done, B10 answered; and so on."""
    talk = Talk()
    talk.works(turns)
    return talk.run


def growing() -> Run:
    """Two turns with results of growing size, B3, B5, B7 and B10, B12; and a third that is only talk."""
    talk = Talk()
    for sizes in ((50, 100, 300), (200, 150)):
        talk.says("Go on")
        for size in sizes:
            talk.does("Bash", f"look {size}", rows(size))
    talk.says("And?")
    talk.answers("That is all.")
    return talk.run


def names(plan: Plan) -> list[tuple[str, tuple[str, ...]]]:
    return [(action.verb, action.targets) for action in plan.actions]


def test_oldest_turn_folds_whole_turns_chronologically_and_keeps_the_latest() -> None:
    plan = OldestTurn(target=0.3).propose(working().view(20_000))

    assert names(plan) == [("archive", tuple(f"B{n}" for n in range(first, first + 9))) for first in (2, 12, 22)]
    assert [action.index for action in plan.actions] == ["Now record 0.", "Now record 1.", "Now record 2."]
    assert plan.reason == "13,800 of 20,000 tokens: down to 3,525"


def test_tool_prune_takes_the_largest_results_first_and_no_more_than_it_has_to() -> None:
    held = growing()

    assert (
        names(ToolPrune(target=0.1).propose(held.view(4_000)))
        == [("prune", (block,)) for block in ("B7", "B10", "B12", "B5", "B3")][:4]
    )
    assert names(ToolPrune(target=0.59).propose(held.view(4_000))) == [("prune", ("B7",))]


def test_tool_mask_prune_masks_before_it_prunes() -> None:
    held = growing()
    some = names(ToolMaskPrune(target=0.5).propose(held.view(4_000)))
    every = names(ToolMaskPrune(target=0.06).propose(held.view(4_000)))

    assert some == [("mask", ("B7",)), ("mask", ("B10",))]
    assert [verb for verb, _ in every] == ["mask"] * 4 + ["prune"] * (len(every) - 4)
    assert len(every) > 4


def test_hybrid_folds_the_older_turns_and_prunes_in_the_others() -> None:
    plan = Hybrid(target=0.3).propose(working(turns=5).view(25_000))
    verbs = [verb for verb, _ in names(plan)]

    assert verbs[:2] == ["archive", "archive"] and set(verbs[2:]) == {"prune"}
    assert names(plan)[2][1] == ("B23",)


def test_hybrid_folds_and_prunes_no_block_twice() -> None:
    plan = Hybrid(target=0.05).propose(working(turns=5).view(25_000))
    verbs = [verb for verb, _ in names(plan)]
    taken = [block for _, targets in names(plan) for block in targets]

    assert verbs[:2] == ["archive", "archive"] and verbs[-2:] == ["archive", "archive"] and "prune" in verbs
    assert len(taken) == len(set(taken))


@pytest.mark.parametrize("policy", [kind() for kind in SHIPPED], ids=lambda policy: policy.name)
@pytest.mark.parametrize("budget", [4_000, 9_000, 20_000])
def test_a_policy_of_ours_plans_nothing_that_is_left_out(policy: Policy, budget: int) -> None:
    made = [working(turns=9), growing(), *(run(file) for file in sample())]
    for held in made:
        view = held.view(budget)
        assert rehearse(view, policy.propose(view)).problems == ()


@by_name
def test_the_latest_turn_stays_until_it_is_tight_and_its_latest_step_always(policy: Policy) -> None:
    held = working(turns=1)

    assert policy.propose(held.view(4_200)).actions == ()
    plan = policy.propose(held.view(4_000))
    taken = {target for action in plan.actions for target in action.targets}
    assert taken and not taken & {"B1", "B10"}
    assert rehearse(held.view(4_000), plan).tokens_after < 4_000 * 0.6


def test_the_older_steps_of_a_long_turn_leave_in_batches() -> None:
    talk = Talk()
    talk.says("Work")
    for step in range(40):
        talk.does("Bash", f"look {step}", rows(50))
    view = talk.run.view(10_000)
    plan = OldestTurn(target=0.5).propose(view)

    assert 1 < len(plan.actions) < 4
    assert plan.actions[0].targets[0] == "B2"


@by_name
def test_what_is_left_is_told_where_it_is_too_much(policy: Policy) -> None:
    talk = Talk()
    talk.says("word " * 4_000)
    talk.does("Bash", "ls", rows(100))
    talk.answers("Yes.")
    plan = policy.propose(talk.run.view(4_000))

    assert "as no more of it may leave" in plan.reason and "are over the budget" in plan.reason


@by_name
def test_the_case_studies_survive_here_too(policy: Policy) -> None:
    """The paper's heuristics lose them: here a human's words and contract files are protected from everybody."""
    assert any(done for done in survives(policy))


@pytest.mark.parametrize("kind", [type(policy) for policy in POLICIES])
def test_knobs_that_make_no_sense_are_refused(kind: type[Heuristic]) -> None:
    with pytest.raises(ValueError, match="target < trigger"):
        kind(target=0.9)


@by_name
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_the_laws_hold_on_generated_conversations(policy: Policy, data: st.DataObject) -> None:
    on_generated(policy, data)


@by_name
@pytest.mark.parametrize("file", sample(), ids=lambda file: file.name)
def test_the_laws_hold_on_a_few_recorded_runs(policy: Policy, file: Path) -> None:
    held = run(file)
    for budget in BUDGETS[:2]:
        check(policy, held.view(budget), held)


@by_name
def test_a_recorded_run_played_under_the_policy_keeps_the_laws(policy: Policy) -> None:
    for file in sample()[:2]:
        drive(policy, messages(file), 12_000)


@pytest.mark.slow
@pytest.mark.parametrize("file", trajectories(), ids=lambda file: file.name)
def test_the_laws_hold_on_every_recorded_run(file: Path) -> None:
    held = run(file)
    for policy in POLICIES:
        for budget in BUDGETS:
            check(policy, held.view(budget), held)
