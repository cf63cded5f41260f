"""`replay --policy oracle`: a bound beside policies, which is none itself; and how uses went by kind and loss."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.replay.recordings import recording

FEW = ["--no-store", "--budget", "6k", "--jobs", "1"]


@pytest.fixture
def talk(tmp_path: Path) -> Path:
    return recording(tmp_path / "talk.jsonl", steps=12, lines=100)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("oracle+window", "the oracle cannot be combined"),
        ("oracle:marks=oracle", "marks must be those of a policy"),
        ("oracle:marks=windw", "did you mean window?"),
    ],
)
def test_what_is_no_bound_is_refused(run: Run, talk: Path, words: str, message: str) -> None:
    result = run("replay", talk, *FEW, "--policy", words)
    assert result.exit_code == 1 and message in result.stderr


def test_a_policy_of_ones_own_is_compared_with_the_bound_beside_it(run: Run, talk: Path) -> None:
    own = (
        "from ctxvc.policies.baselines import Window\n\n"
        "class Mine(Window, frozen=True, kw_only=True):\n    name = 'mine'\n"
        "    def propose(self, view):\n        return super().propose(view)\n"
    )
    (talk.parent / "mine.py").write_text(own)
    pair = "mine.py:Mine,oracle:marks=mine.py:Mine"

    result = run("replay", talk, *FEW, "--compare", pair, "--json", folder=talk.parent)

    answer = json.loads(result.stdout)
    mine, oracle = answer["items"]
    of_nt = next(own for own in answer["compared"]["transitions"] if own["uses"] == "nt")
    assert mine["nt"]["oracle"] == oracle["nt"]["visible"] == of_nt["both"] + of_nt["only_b"]


def test_the_oracle_alone_is_nothing_to_recommend(run: Run) -> None:
    result = run("replay", "--mine", "--policy", "oracle")
    assert result.exit_code == 2 and "cannot be recommended" in result.stderr


@pytest.mark.parametrize(("by", "column", "number"), [("kind", "path", "1"), ("loss", "locator", "2")])
def test_how_the_uses_went_is_shown_by_kind_and_by_loss(
    run: Run, talk: Path, by: str, column: str, number: str
) -> None:
    """Of the path and the id in the last reply the oracle keeps the blocks, and `window` does not."""
    result = run("replay", talk, *FEW, "--policy", "window,oracle:marks=window", "--by", by)
    assert result.exit_code == 0, result.stderr
    _, _, table = result.stdout.partition("NT seen, in percent")
    header, window, oracle, uses = (line.split("\t") for line in table.splitlines()[1:])
    at = header.index(column)
    assert (window[at], oracle[at], uses[at]) == ("0.0", "100.0", number)


def test_the_answer_has_what_each_line_of_the_results_has(run: Run, talk: Path) -> None:
    (item,) = json.loads(run("replay", talk, *FEW, "--policy", "clear:keep=1", "--json").stdout)["items"]
    assert item["events"] == {"prune": {"policy:clear": 3}} and item["dropped"] == {}
    assert sum(own["nt"]["visible"] + own["nt"]["routed"] for own in item["kinds"].values()) == item["nt"]["uses"]
    assert sum(own["nt"]["routed"] for own in item["failures"].values()) == item["nt"]["routed"]
