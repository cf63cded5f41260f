"""`plan` and `policies`: what a policy would do, done on request, left to wait, dropped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ctxvc.policies import POLICIES
from tests.cli.conftest import Run

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "stale_reads.py"
SESSION = Path(__file__).parents[1] / "data" / "claude-code" / "20-02395c1048-0.jsonl"
OLD = "clear:trigger=0.1,keep=1"


@pytest.fixture
def project(run: Run, tmp_path: Path) -> Path:
    """A project with a recorded session of some 8,000 tokens."""
    done = run("import", SESSION, "--name", "demo", "--final", folder=tmp_path)
    assert done.exit_code == 0, done.output
    return tmp_path


def answer(run: Run, project: Path, *words: str) -> Any:
    done = run(*words, "--json", folder=project)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def states(run: Run, project: Path) -> dict[str, str]:
    return {item["id"]: item["status"] for item in answer(run, project, "status")["items"]}


def test_a_plan_is_shown_and_nothing_is_changed(run: Run, project: Path) -> None:
    before = states(run, project)
    planned = answer(run, project, "plan", "--policy", OLD, "--budget", "20000")

    assert planned["policy"] == OLD
    assert planned["window"] == 20_000
    assert planned["items"]
    assert planned["tokens_after"] < planned["tokens_before"]
    assert sum(item["freed"] for item in planned["items"]) == planned["tokens_before"] - planned["tokens_after"]
    assert not planned["committed"]
    assert planned["moment"]
    assert states(run, project) == before

    shown = run("plan", "--policy", OLD, "--budget", "20000", folder=project)
    assert "nothing was changed: --commit makes it true" in shown.stdout


def test_a_plan_is_committed_on_request_as_its_policys(run: Run, project: Path) -> None:
    planned = answer(run, project, "plan", "--policy", OLD, "--budget", "20000", "--commit")

    assert planned["committed"]
    newest = answer(run, project, "log", "-n", "1")["items"][0]
    assert newest["actor"] == "policy:clear"
    assert newest["trailers"]["Ctxvc-Reason"] == planned["reason"]
    assert run("plan", "--policy", OLD, "--budget", "20000", folder=project).stdout.count("nothing to do") == 1
    assert run("undo", folder=project).exit_code == 0


def test_a_plan_waits_is_listed_and_dropped(run: Run, project: Path) -> None:
    before = states(run, project)
    waits = answer(run, project, "plan", "--policy", OLD, "--budget", "20000", "--wait")["waits"]

    (held,) = answer(run, project, "plan", "--pending")["items"]
    assert (held["id"], held["actor"]) == (waits, "policy:clear")
    assert states(run, project) == before
    assert waits in run("plan", "--pending", folder=project).stdout

    assert answer(run, project, "plan", "--drop", waits) == {
        "schema": "ctxvc.plans/1", "session": "demo", "scope": "main", "dropped": [waits], "items": [],
    }  # fmt: skip
    again = run("plan", "--drop", waits, folder=project)
    assert again.exit_code == 1
    assert f"no plan {waits} waits here" in again.stderr


def test_a_persons_own_policy_is_planned_with(run: Run, project: Path) -> None:
    done = run("plan", "--policy", f"{EXAMPLE}:StaleReads:least=1", folder=project)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("stale_reads:least=1: ")


def test_without_a_policy_the_usual_one_plans(run: Run, project: Path) -> None:
    assert answer(run, project, "plan")["policy"] == "default"


def test_policies_are_listed_with_their_columns_and_one_with_its_knobs(run: Run, project: Path) -> None:
    listed = answer(run, project, "policies")["items"]
    assert [item["name"] for item in listed] == [kind.name for kind in POLICIES]
    assert all(item["decides"] and item["sees"] and item["recovers"] and item["source"] for item in listed)

    (one,) = answer(run, project, "policies", "layered")["items"]
    assert one["knobs"]["offload"] == "on"
    assert "  keep=0" in run("policies", "layered", folder=project).stdout
    wrong = run("policies", "layred", folder=project)
    assert wrong.exit_code == 1
    assert "there are: default" in wrong.stderr
