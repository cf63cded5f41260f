"""The plan of every policy on a recorded session, kept as it was: any change of it is seen."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ctxvc.core.ledger.block import Message
from ctxvc.core.plan import Plan, Rehearsal
from ctxvc.policies import POLICIES, parse
from ctxvc.policies.run import ask_plan
from tests.making.conversation import human, reply, steps
from tests.policies.laws import check
from tests.policies.recorded import running, transcript

GOLDEN = Path(__file__).parent / "golden"

#: What a policy says and what it is asked in, where it is not its own name and 6,000 tokens.
WORDS = {
    "mask": "mask:age=4,batch=4",
    "episodes": "episodes:derive=on",
    "self_managed-fixed": "self_managed:agent=off",
    "layered-summary": "layered",
    "mask+clear+window": "mask:age=4,batch=4+clear+window",
}
BUDGET = {"planned": 8_000, "scoped": 12_000, "layered-summary": 3_000}
#: What is said after the recorded session.
MORE: dict[str, Sequence[Message]] = {"scoped": (human("And the docs?"), *steps(1), reply("There are none."))}


@pytest.mark.parametrize(
    "name", sorted({kind.name for kind in POLICIES} | {file.stem for file in GOLDEN.glob("*.json")})
)
def test_a_plan_on_a_recorded_session_is_what_it_was(pytestconfig: pytest.Config, name: str) -> None:
    policy = parse(WORDS.get(name, name))
    run = running(*transcript(), *MORE.get(name, ()))
    view = run.view(BUDGET.get(name, 6_000))
    plan = ask_plan(policy, view)
    tried = check(policy, view, run)
    assert plan == tried.plan == policy.propose(view)
    assert plan.actor == policy.actor
    compare(pytestconfig, name, plan, tried)


def compare(config: pytest.Config, name: str, plan: Plan, rehearsal: Rehearsal) -> None:
    """The plan is that of `golden/NAME.json`; `--update-golden` writes it anew."""
    value: dict[str, Any] = {
        "plan": msgspec.to_builtins(plan),
        "tokens": [rehearsal.tokens_before, rehearsal.tokens_after],
    }
    file = GOLDEN / f"{name}.json"
    if config.getoption("--update-golden", default=False):
        file.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    assert json.loads(file.read_text(encoding="utf-8")) == json.loads(json.dumps(value))
