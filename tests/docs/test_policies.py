"""docs/policies.md: it names every policy, and its example is a policy like any other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ctxvc.cli.options.policy_and_model import parsed
from ctxvc.errors import BadInput
from ctxvc.policies import POLICIES
from tests.policies.laws import check, drive
from tests.policies.recorded import messages, run, trajectories

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "policies.md").read_text()
EXAMPLE = DOCS / "examples" / "stale_reads.py"
TRAJECTORY = next((Path(__file__).parents[1] / "data" / "trajectory").glob("*.jsonl*"))


def test_every_policy_is_named_and_no_other() -> None:
    table = PAGE.partition("\n## Which one\n")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert {name for cell in cells for name in re.findall(r"`(\w+)`", cell)} == {kind.name for kind in POLICIES}


def test_the_page_leads_to_the_example_which_is_short() -> None:
    assert "](examples/stale_reads.py)" in PAGE
    assert len([line for line in EXAMPLE.read_text().splitlines() if line.strip()]) <= 40


def test_the_example_keeps_the_laws() -> None:
    policy = parsed("examples/stale_reads.py:StaleReads:least=200", DOCS)
    done = 0
    for file in (TRAJECTORY, *trajectories()[::9]):
        recorded = run(file)
        done += bool(check(policy, recorded.view(32_000), recorded, for_budget=False))
    assert done or not trajectories()
    drive(policy, messages(TRAJECTORY), 12_000, for_budget=False)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("nowhere.py:X", "no such Python file"),
        ("examples/stale_reads.py:Nothing", "has no policy 'Nothing'"),
        ("examples/stale_reads.py:StaleReads:more=1", "has no knob 'more'"),
        ("examples/stale_reads.py:StaleReads:least=x", "Expected `int`"),
        ("nothing", "no policy 'nothing'"),
        ("layered:keep", "is not KNOB=VALUE"),
    ],
)
def test_what_is_no_policy_is_refused_with_a_way_on(words: str, told: str) -> None:
    with pytest.raises(BadInput, match=re.escape(told)) as refused:
        parsed(words, DOCS)
    assert refused.value.hint
