"""Where each policy begins and stops: what the table says against what the policies themselves do."""

from __future__ import annotations

import pytest

from ctxvc.core.policy import Policy
from ctxvc.policies import POLICIES, parse
from ctxvc.replay.measures.water_marks import WaterMarks, water_marks, worked

SHIPPED = {
    "default": (0.98, 0.6),
    "self_managed": (0.98, 0.9),
    "planned": (0.85, 0.6),
    "layered": (0.6, 0.5),
    "episodes": (0.98, 0.784),
    "scoped": (0.98, 0.98),
    "oldest_turn": (0.6, 0.4),
    "tool_prune": (0.6, 0.4),
    "tool_mask_prune": (0.6, 0.4),
    "hybrid": (0.6, 0.4),
    "keep": (0.98, 0.9),
    "window": (0.98, 0.9),
    "clear": (0.6, 0.55),
    "mask": (0.98, 0.98),
    "skeleton": (0.85, 0.6),
    "summary": (0.85, 0.77),
}


def test_every_policy_that_ships_is_here() -> None:
    assert list(SHIPPED) == [policy.name for policy in POLICIES]


@pytest.mark.parametrize("name", SHIPPED)
def test_the_marks_of_a_policy_as_it_ships(name: str) -> None:
    assert water_marks(parse(name)) == pytest.approx(SHIPPED[name])


@pytest.mark.parametrize(
    ("spec", "high", "low"),
    [
        ("default:low_water=0.5", 0.98, 0.5),
        ("default:trigger=0.8,low_water=0.7", 0.8, 0.7),
        ("window:low_water=0.6", 0.98, 0.6),
        ("window:low_water=1", 0.98, 0.98),
        ("layered:clear=0.8,low_water=0.7", 0.8, 0.7),
        ("self_managed:low_water=0.5", 0.98, 0.5),
        ("self_managed:agent=off", 0.98, 0.6),
        ("self_managed:archive=off", 0.98, 0.9),
        ("planned:trigger=0.7,target=0.5", 0.7, 0.5),
        ("hybrid:trigger=0.8,target=0.5", 0.8, 0.5),
        ("clear:trigger=0.9,least=0", 0.9, 0.9),
        ("skeleton:trigger=0.9,low_water=0.3", 0.9, 0.3),
        ("summary:least=0.3,room=0.1", 0.85, 0.65),
        ("episodes:low_water=0.5", 0.98, 0.49),
        ("scoped+default", 0.98, 0.6),
        ("layered:low_water=0.3+clear", 0.6, 0.3),
        ("clear+layered:low_water=0.3", 0.6, 0.3),
        ("mask+keep", 0.98, 0.9),
        ("default+layered:clear=0.8,low_water=0.7", 0.8, 0.7),
    ],
)
def test_knobs_move_the_marks_and_several_policies_have_those_of_the_first_to_act(
    spec: str, high: float, low: float
) -> None:
    assert water_marks(parse(spec)) == pytest.approx((high, low))


def test_a_ceiling_in_tokens_is_a_share_of_a_budget() -> None:
    episodes = parse("episodes")
    assert water_marks(episodes, 80_000) == pytest.approx((0.98, 0.784))
    assert water_marks(episodes, 160_000) == pytest.approx((0.5, 0.4))
    assert water_marks(parse("episodes:ceiling=30000"), 100_000) == pytest.approx((0.3, 0.24))


def test_a_policy_of_ones_own_has_the_marks_of_its_knobs() -> None:
    class Own(Policy, frozen=True, kw_only=True):
        name = "own"

        trigger: float = 0.7
        low_water: float = 0.5

    class Other(Policy, frozen=True, kw_only=True):
        name = "other"

    assert water_marks(Own()) == (0.7, 0.5)
    assert water_marks(Other()) == (0.98, 0.98)


def test_a_run_that_stays_above_its_low_mark_is_compared_there() -> None:
    # Of 10,000: up to 78 %, down to 52 and 62 %, so 57 % in the mean; both rounded up to steps of 5 %.
    totals = [4_000, 7_800, 5_200, 7_000, 6_200, 6_000]
    assert worked(WaterMarks(0.6, 0.4), totals, 10_000) == WaterMarks(0.8, 0.6)
    assert worked(WaterMarks(0.9, 0.7), totals, 10_000) == WaterMarks(0.9, 0.7)  # never below what it declares
    assert worked(WaterMarks(0.6, 0.4), [1_000, 2_000], 10_000) == WaterMarks(0.6, 0.4)
    assert worked(WaterMarks(0.98, 0.98), [9_990, 9_999], 10_000) == WaterMarks(0.98, 0.98)
    assert worked(WaterMarks(0.6, 0.4), [], 10_000) == WaterMarks(0.6, 0.4)
