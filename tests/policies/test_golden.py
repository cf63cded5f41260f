"""The plans of heuristics and compositions on a recorded session, kept as they were: any change of them is seen."""

from __future__ import annotations

import re

import pytest

from ctxvc.core.plan.rehearse import rehearse
from ctxvc.policies import parse
from ctxvc.policies.run import ask_plan
from tests.policies.test_baselines import compare, running, transcript

HEURISTICS = ("oldest_turn", "tool_prune", "tool_mask_prune", "hybrid")
COMPOSED = (
    "layered+episodes",
    "scoped+layered",
    "planned+default",
    "mask:age=4,batch=4+clear+window",
    "episodes+tool_prune",
)


@pytest.mark.parametrize("words", [*HEURISTICS, *COMPOSED])
def test_a_plan_on_a_recorded_session_is_what_it_was(pytestconfig: pytest.Config, words: str) -> None:
    policy = parse(words)
    view = running(*transcript()).view(6_000)
    plan = ask_plan(policy, view)
    tried = rehearse(view, plan)

    assert plan.actor == policy.actor
    assert plan.actions and tried
    compare(pytestconfig, re.sub(r":[^+]*", "", words), plan, tried)
