"""The heuristics that Self-GC is compared with (section "Baselines"): what each takes, in which order, and the laws."""

from __future__ import annotations

import pytest

from ctxvc.core.plan import Plan
from ctxvc.core.plan.rehearse import rehearse
from ctxvc.core.policy import Policy
from ctxvc.policies.heuristics import Heuristic, Hybrid, OldestTurn, ToolMaskPrune, ToolPrune
from tests.policies.cases import Talk, growing, rows, working

POLICIES: tuple[Heuristic, ...] = (OldestTurn(), ToolPrune(), ToolMaskPrune(), Hybrid())
by_name = pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)


def names(plan: Plan) -> list[tuple[str, tuple[str, ...]]]:
    return [(action.verb, action.targets) for action in plan.actions]


def test_oldest_turn_folds_whole_turns_chronologically_and_keeps_the_latest() -> None:
    plan = OldestTurn(target=0.3).propose(working().view(20_000))
    assert names(plan) == [("archive", tuple(f"B{n}" for n in range(first, first + 9))) for first in (2, 12, 22)]
    assert {action.index for action in plan.actions} == {""}, "its stub says what was done"
    assert plan.reason == "13,800 of 20,000 tokens: down to 3,614"


def test_tool_prune_takes_the_largest_results_first_and_no_more_than_it_has_to() -> None:
    run = growing()
    assert (
        names(ToolPrune(target=0.1).propose(run.view(4_000)))
        == [("prune", (block,)) for block in ("B7", "B10", "B12", "B5", "B3")][:4]
    )
    assert names(ToolPrune(target=0.59).propose(run.view(4_000))) == [("prune", ("B7",))]


def test_tool_mask_prune_masks_before_it_prunes() -> None:
    run = growing()
    some = names(ToolMaskPrune(target=0.5).propose(run.view(4_000)))
    every = names(ToolMaskPrune(target=0.06).propose(run.view(4_000)))
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
    assert "since no more may leave" in plan.reason and "over the budget" in plan.reason
