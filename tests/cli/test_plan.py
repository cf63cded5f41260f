"""`plan` and `policies`: what a policy would do, done on request, left to wait, dropped."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ctxvc.cli.main import cli
from ctxvc.policies import POLICIES
from ctxvc.policies.planned.plan_text import Entry, write
from tests.cli.conftest import Run, Serving, answer
from tests.conftest import Copied
from tests.making.provider import MODEL
from tests.messages_api import script

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "stale_reads.py"
SESSION = Path(__file__).parents[1] / "data" / "claude-code" / "20-02395c1048-0.jsonl"
OLD = "clear:trigger=0.1,keep=1"


@pytest.fixture
def project(tmp_path: Path, copied: Copied) -> Path:
    """A project with a recorded session of some 8,000 tokens."""
    return copied(_recorded, tmp_path)


def _recorded(folder: Path) -> None:
    _import(folder, SESSION, "--final")


def _import(folder: Path, file: Path, *arguments: str) -> None:
    result = CliRunner().invoke(cli, ["-C", str(folder), "import", str(file), "--name", "demo", *arguments])
    assert result.exit_code == 0, result.output


def states(run: Run, project: Path) -> dict[str, str]:
    return {item["id"]: item["status"] for item in answer(run, project, "status")["items"]}


def test_a_plan_is_shown_and_nothing_is_changed(run: Run, project: Path) -> None:
    before = states(run, project)
    planned = answer(run, project, "plan", "--policy", OLD, "--budget", "20000")

    assert planned["policy"] == OLD
    assert planned["window"] == 20_000
    assert planned["items"]
    assert planned["tokens_after"] < planned["tokens_before"]
    freed = sum(item["freed"] for item in planned["items"]) + planned["tokens_cut"]
    assert freed == planned["tokens_before"] - planned["tokens_after"], "also of a recording whose counts are not ours"
    assert not planned["committed"]
    assert planned["moment"]
    assert states(run, project) == before

    shown = run("plan", "--policy", OLD, "--budget", "20000", folder=project)
    assert "nothing was changed: --commit applies the plan" in shown.stdout


def test_a_plan_is_committed_on_request_as_its_policys(run: Run, project: Path) -> None:
    planned = answer(run, project, "plan", "--policy", OLD, "--budget", "20000", "--commit")
    assert planned["committed"]
    newest = answer(run, project, "log", "-n", "1")["items"][0]
    assert newest["actor"] == "policy:clear"
    assert newest["trailers"]["Ctxvc-Reason"] == planned["reason"]
    assert run("plan", "--policy", OLD, "--budget", "20000", folder=project).stdout.count("nothing to do") == 1
    assert run("undo", folder=project).exit_code == 0


def test_what_a_plan_says_will_be_left_is_what_stands_once_it_is_committed(run: Run, project: Path) -> None:
    arguments = ("plan", "--policy", OLD, "--budget", "20000")
    planned = answer(run, project, *arguments)
    shown = run(*arguments, folder=project).stdout
    assert planned["tokens_cut"] > 0  # thinking leaves with it
    assert f"(~{planned['tokens_cut']:,} of them earlier thinking" in shown
    assert f"~{planned['tokens_after']:,} would be left" in shown

    done = answer(run, project, *arguments, "--commit")
    numbers = ("tokens_before", "tokens_after", "tokens_cut")
    assert [done[name] for name in numbers] == [planned[name] for name in numbers]
    status = answer(run, project, "status")
    assert status["used"] - status["unrecorded"] == planned["tokens_after"]


RECKONED = re.compile(
    r"[\d,]+ tokens fewer in the next (?:[\d,]+ calls|call) save [\d,]+, "
    r"rewriting [\d,]+ after the first edit costs ([\d,]+), planning cost 0"
)


@pytest.fixture
def longer(tmp_path: Path, copied: Copied) -> Path:
    """A project with a session of several turns, some 12,000 tokens, most of them results."""
    return copied(_longer, tmp_path)


def _longer(folder: Path) -> None:
    told: list[dict[str, Any]] = []
    for turn in range(4):
        told.append({"role": "user", "content": f"Now record {turn}."})
        for step in range(3):
            call = f"c{turn}-{step}"
            output = "\n".join(f"{turn} {step} row {row} of the table of records" for row in range(60 + 20 * step))
            use = {"type": "tool_use", "id": call, "name": "Bash", "input": {"command": f"enter {turn} {step}"}}
            told.append({"role": "assistant", "content": [use]})
            told.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": call, "content": output}]})
        told.append({"role": "assistant", "content": f"Record {turn} is entered."})
    file = folder / "talk.json"
    file.write_text(json.dumps({"messages": told}))
    _import(folder, file, "--format", "anthropic-messages")


@pytest.mark.parametrize(
    "policy", ["clear:trigger=0.1,keep=1", "scoped", "episodes", "window", "planned", "mask+scoped"]
)
def test_a_plan_says_what_it_would_cost_in_cache_under_every_policy(run: Run, longer: Path, policy: str) -> None:
    arguments = ("plan", "--policy", policy, "--budget", "9000")
    planned = answer(run, longer, *arguments)
    shown = run(*arguments, folder=longer).stdout

    assert planned["items"]
    told = RECKONED.search(planned["moment"])
    assert told, planned["moment"]
    assert planned["cost"] == int(told.group(1).replace(",", "")) > 0
    assert f"the cache: {planned['moment']}" in shown
    assert f"why: {planned['reason']}" in shown
    assert re.search(r"what\s+blocks\s+~tokens freed\s+~cache cost\s+why", shown)
    assert all(0 < item["cache"] <= planned["cost"] for item in planned["items"])
    first = min(planned["items"], key=lambda item: min(int(block[1:]) for block in item["targets"]))
    assert first["cache"] == max(item["cache"] for item in planned["items"])


def test_the_moment_of_a_policy_of_ones_own_is_reckoned_too(run: Run, longer: Path) -> None:
    own = longer / "own.py"
    own.write_text(
        "from ctxvc.core.plan.timing import CommitDecision\n"
        "from ctxvc.policies.baselines import Clear\n"
        "class Mine(Clear, frozen=True, kw_only=True):\n"
        '    name = "mine"\n'
        "    def moment(self, view, tried):\n"
        '        return CommitDecision(True, "it is time")\n'
    )
    planned = answer(run, longer, "plan", "--policy", "own.py:Mine:trigger=0.1,keep=1", "--budget", "9000")
    assert planned["moment"].startswith("it is time; ")
    assert RECKONED.search(planned["moment"])
    assert planned["cost"] > 0


@pytest.mark.parametrize("policy", ["tool_mask_prune:target=0.02,trigger=0.03", "hybrid:target=0.02,trigger=0.03"])
def test_a_block_that_two_actions_take_is_counted_once(run: Run, longer: Path, policy: str) -> None:
    planned = answer(run, longer, "plan", "--policy", policy, "--budget", "9000")
    freed = sum(item["freed"] for item in planned["items"]) + planned["tokens_cut"]
    assert freed == planned["tokens_before"] - planned["tokens_after"] > 0


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
    assert f"no pending plan {waits} here" in again.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("--commit", "--wait"),
        ("--wait", "--commit"),
        ("--pending", "--commit"),
        ("--wait", "--pending"),
        ("--drop", "P2", "--commit"),
        ("--drop", "P2", "--policy", "keep"),
        ("--pending", "--budget", "9000"),
    ],
)
def test_what_cannot_be_done_together_is_a_mistake_in_the_call(run: Run, project: Path, words: tuple[str, ...]) -> None:
    before = states(run, project)
    result = run("plan", *words, folder=project)
    assert result.exit_code == 2
    assert "either --commit or --wait" in result.stderr or "are for pending plans" in result.stderr
    assert states(run, project) == before


#: Rounds that begin where there is still room for a question.
EARLY = "planned:trigger=0.6,target=0.4"
PLAN = write(
    "a session of records",
    [Entry("fold", "conversation:user:1", "entered"), Entry("prune", "function:Bash:11", "done")],
)


def test_a_model_plans_where_one_is_named(run: Run, longer: Path, serving: Serving) -> None:
    with serving(script(PLAN)) as api:
        arguments = ("plan", "--policy", EARLY, "--budget", "14000")
        planned = answer(run, longer, *arguments, "--model", MODEL)
        (call,) = api.bodies

    assert call["model"] == MODEL
    assert "[context planner]" in call["messages"][-1]["content"][-1]["text"]
    assert "a session of records" in planned["reason"]
    assert [(item["verb"], item["index"].partition(";")[0]) for item in planned["items"]] == [
        ("archive", "entered"), ("prune", "done"),
    ]  # fmt: skip
    assert "the planning took 0" not in planned["moment"]
    calls = answer(run, longer, "log", "--usage")["items"]
    (taken,) = (item for item in calls if item["subject"] == "asked by planner")
    assert taken["model"] == MODEL
    assert taken["fresh"] + taken["written"] > 1_000
    assert "Made by fixed rules, without a model" in answer(run, longer, *arguments)["reason"]


def test_a_script_plays_the_model(run: Run, longer: Path) -> None:
    (longer / "said.json").write_text(json.dumps([{"content": PLAN}]))
    result = run("plan", "--policy", f"keep+{EARLY}", "--budget", "14000", "--script", "said.json", folder=longer)
    assert result.exit_code == 0, result.output
    assert "a session of records" in result.stdout
    assert "no model is asked" in result.stderr


@pytest.mark.parametrize("command", ["plan", "compact"])
def test_a_policy_that_asks_no_model_is_given_none(run: Run, project: Path, command: str) -> None:
    result = run(command, "--policy", "mask+keep", "--model", MODEL, folder=project)
    assert result.exit_code == 1
    assert "mask+keep does not use a model" in result.stderr
    assert "planned, layered and summary" in result.stderr


def test_compact_has_a_model_summarise(run: Run, longer: Path, serving: Serving) -> None:
    def assistant(request: Mapping[str, Any]) -> str:
        asked = request["messages"][-1]["content"][-1]["text"]
        parts = dict.fromkeys(re.findall(r"^- (\S+): \d+ blocks", asked, re.MULTILINE))
        sections = "Intent: records\nDecisions: none\nArtifacts: the table\nNext steps: go on"
        return "\n".join(f'<summary of="{part}">\n{sections}\n</summary>' for part in parts)

    policy = "layered:clear=0.3,low_water=0.29,summarise=0.31,verbatim=0,keep=9"
    arguments = ("compact", "--policy", policy, "--budget", "9000")
    with serving(assistant) as api:
        rehearsed = answer(run, longer, *arguments, "--model", MODEL, "--dry-run")
        done = answer(run, longer, *arguments, "--model", MODEL)
        assert len(api.bodies) == 2

    assert "summarised by the model" in rehearsed["reason"]
    assert done["committed"]
    assert any("records" in group["stub"] for group in done["groups"])


def test_a_persons_own_policy_is_planned_with(run: Run, project: Path) -> None:
    result = run("plan", "--policy", f"{EXAMPLE}:StaleReads:least=1", folder=project)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("stale_reads.py:StaleReads:least=1: ")


@pytest.mark.parametrize(
    ("words", "wrong", "hint"),
    [
        ("layered:keep=x", "keep cannot be 'x'", "keep is a number (results)"),
        ("layered:exclude=x,low_water=y", "low_water cannot be 'y'", "low_water is a number (share of the budget)"),
        ("self_managed:board=foo", "board cannot be 'foo'", "board is each or changes or thresholds or full or status"),
        ("self_managed:recover=maybe", "recover cannot be 'maybe'", "recover is on or off"),
    ],
)
def test_what_a_knob_takes_is_told(run: Run, project: Path, words: str, wrong: str, hint: str) -> None:
    result = run("plan", "--policy", words, folder=project)
    assert result.exit_code == 1
    assert wrong in result.stderr
    assert hint in result.stderr


def test_policies_are_listed_with_their_columns_and_one_with_its_knobs(run: Run, project: Path) -> None:
    listed = answer(run, project, "policies")["items"]
    assert [item["name"] for item in listed] == [kind.name for kind in POLICIES]
    assert all(item["decides"] and item["sees"] and item["recovers"] and item["source"] for item in listed)

    (one,) = answer(run, project, "policies", "layered")["items"]
    assert one["knobs"]["offload"] == "on"
    assert one["units"]["keep"] == "results"
    shown = run("policies", "layered", folder=project).stdout
    assert re.search(r"^  keep=0 +results$", shown, re.MULTILINE)
    assert re.search(r"^  low_water=0.5 +share of the budget$", shown, re.MULTILINE)
    assert "offload=on, keep=0, clear=0.0" in run("policies", folder=project).stdout
    (own,) = answer(run, project, "policies", f"{EXAMPLE}:StaleReads")["items"]
    assert own["knobs"]["least"]
    wrong = run("policies", "layred", folder=project)
    assert wrong.exit_code == 1
    assert "available: default" in wrong.stderr
