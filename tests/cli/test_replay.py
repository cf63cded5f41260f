"""`replay`: what it takes, what it refuses, and that its results do not depend on how they were come by."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ctxvc.cli.commands.replay import policy_specs
from ctxvc.cli.terminal import replay_screen
from ctxvc.policies import POLICIES
from ctxvc.replay.results.file import alone
from ctxvc.replay.results.result import Result, decode
from tests.cli.conftest import COLOUR, Run, Serving
from tests.cli.test_import import transcript
from tests.messages_api import Refusal, script
from tests.policies.recorded import trajectories
from tests.replay.recordings import recording

ROOT = Path(__file__).parents[2]
FEW = ["--policy", "window,clear:keep=1,trigger=0.5", "--budget", "6k", "--jobs", "1"]
COLUMNS = ["policy", "budget", "NT seen", "AR seen", "of oracle", "routed", "cost", "breaks", "unsent"]


@pytest.fixture
def talk(tmp_path: Path) -> Path:
    """A recording that does not fit into 6,000 tokens."""
    return recording(tmp_path / "talk.jsonl", steps=12, lines=100)


def rows(output: str) -> list[list[str]]:
    return [line.split("\t") for line in output.splitlines()]


def results(path: Path) -> list[Result]:
    return [decode(line).comparable for line in path.read_bytes().splitlines()]


def test_the_table_has_a_row_for_each_policy_and_budget(run: Run, talk: Path) -> None:
    result = run(
        "replay", talk, "--no-store", "--policy", "window", "--policy", "clear", "--budget", "80k,6k", "--jobs", "1"
    )

    assert (result.exit_code, result.stderr) == (0, "")
    header, *body = rows(result.stdout)
    assert header == COLUMNS
    assert [row[:2] for row in body] == [["window", "6k"], ["window", "80k"], ["clear", "6k"], ["clear", "80k"]]
    roomy = body[1]
    assert roomy[2].startswith("100.0 (")
    assert roomy[4] == "1.00 1.00"
    assert roomy[5:] == ["0.0", roomy[6], "0.0", "0"]
    assert body[0][2] != roomy[2]


def test_every_policy_can_be_replayed(run: Run, talk: Path) -> None:
    result = run("replay", talk, "--no-store", "--policy", "all", "--budget", "8k", "--jobs", "1", "--json")

    assert result.exit_code == 0, result.stderr
    answer = json.loads(result.stdout)
    assert [item["policy"] for item in answer["items"]] == [policy.name for policy in POLICIES]
    assert {item["stand_in"] for item in answer["items"] if item["policy"] == "self_managed"} != {""}
    for item in answer["items"]:
        for uses in (item["all"], item["nt"], item["ar"]):
            places = ("visible", "routed", "searchable", "recoverable", "lost")
            assert sum(uses[place] for place in places) == uses["uses"]
            assert uses["lost"] == 0
        assert item["invalid"] == 0


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["default"], ["default"]),
        (["default,window"], ["default", "window"]),
        (["default", "window , clear"], ["default", "window", "clear"]),
        (["layered:keep=8,low_water=0.5,window"], ["layered:keep=8,low_water=0.5", "window"]),
        (["layered:keep=8+scoped,mask"], ["layered:keep=8+scoped", "mask"]),
        (["layered:exclude=Read|Grep, keep=8"], ["layered:exclude=Read|Grep, keep=8"]),
        (["my/own.py:Mine:least=7,share=0.5,default"], ["my/own.py:Mine:least=7,share=0.5", "default"]),
        (["all"], ["all"]),
    ],
)
def test_a_comma_parts_policies_unless_a_knob_follows(values: list[str], expected: list[str]) -> None:
    assert policy_specs(values) == expected


def test_a_policy_named_twice_or_in_other_words_is_replayed_once(run: Run, talk: Path) -> None:
    result = run(
        "replay", talk, "--no-store", "--policy", "window,window:,window", "--budget", "6k,6000", "--jobs", "1"
    )
    assert result.exit_code == 0, result.stderr
    assert len(rows(result.stdout)) == 2


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["nowhere.jsonl"], 1, "no such file, folder or session: 'nowhere.jsonl'"),
        (["notes.jsonl"], 1, "not a transcript in a known format"),
        (["blank.jsonl"], 1, "the file is empty"),
        (["empty"], 1, "no recording in a known format in"),
        (["talk.jsonl", "--policy", "nosuch"], 1, "no policy 'nosuch'"),
        (["talk.jsonl", "--policy", "window:nosuch=1"], 1, "window has no knob 'nosuch'"),
        (["talk.jsonl", "--policy", "window,,clear"], 1, "a policy is missing"),
        (["talk.jsonl", "--policy", "nowhere.py:Mine"], 1, "no such Python file"),
        (["talk.jsonl", "--budget", "0"], 2, "'0' is not a number of tokens"),
        (["talk.jsonl", "--budget", "12k,x"], 2, "'x' is not a number of tokens"),
        (["talk.jsonl", "--budget", "-5"], 2, "'-5' is not a number of tokens"),
        (["talk.jsonl", "--budget", "1e9"], 2, "'1e9' is not a number of tokens"),
        (["talk.jsonl", "--budget", "999"], 2, "'999' is not a number of tokens"),
        (["talk.jsonl", "--jobs", "0"], 2, "--jobs"),
        (["talk.jsonl", "--compare", "window"], 2, "'window' is not two policies"),
        (["talk.jsonl", "--compare", "window,nosuch"], 1, "no policy 'nosuch'"),
        (["talk.jsonl", "--format", "codex", "--policy", "window", "--jobs", "1"], 1, "no model reply in"),
        (["talk.jsonl", "--out", "notes.jsonl"], 1, "not a replay result"),
        (["talk.jsonl", "--out", "nowhere/results.jsonl"], 1, "No such file"),
        ([], 2, "or give --mine"),
        (["talk.jsonl", "--mine"], 2, "or give --mine"),
        (["--mine"], 1, "no recorded session of"),
    ],
)
def test_what_cannot_be_replayed_is_refused_with_a_word(
    run: Run, talk: Path, words: list[str], code: int, message: str
) -> None:
    folder = talk.parent
    (folder / "notes.jsonl").write_text("my notes\n")
    (folder / "blank.jsonl").touch()
    (folder / "empty").mkdir()
    result = run("replay", *words, folder=folder)
    assert result.exit_code == code, result.output
    assert message in result.stderr
    assert "bug" not in result.stderr
    assert (folder / "notes.jsonl").read_text() == "my notes\n"


def test_of_a_folder_the_recordings_are_taken_and_one_that_is_damaged_stops_no_other(run: Run, talk: Path) -> None:
    (talk.parent / "notes.jsonl").write_text("my notes\n")
    whole = gzip.compress(talk.read_bytes() * 50)
    (talk.parent / "torn.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    result = run("replay", talk.parent, "--no-store", *FEW, "--json")
    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    assert [item["conversations"] for item in answer["items"]] == [1, 1]
    assert {failure["source"] for failure in answer["failures"]} == {"torn.jsonl.gz"}
    assert "failed: torn.jsonl.gz" in run("replay", talk.parent, "--no-store", *FEW).stderr


#: Two of the recordings that the same is asked of by hand; without them, two that are made.
TWO = ("entire-cli-20-02395c1048-0.jsonl.gz", "swe-agent-pydicom__pydicom-1458.jsonl.gz")


def test_results_are_the_same_with_a_store_and_after_a_second_run(run: Run, talk: Path) -> None:
    by_name = {file.name: file for file in trajectories()}
    files = [by_name[TWO[0]] if by_name else recording(talk.parent / "other.jsonl", steps=5), talk]
    ways = {"engine": ["--no-store"], "again": ["--no-store"], "store": []}
    for name, words in ways.items():
        result = run("replay", *files, *FEW, *words, "--out", talk.parent / f"{name}.results")
        assert result.exit_code == 0, result.stderr

    made = {name: results(talk.parent / f"{name}.results") for name in ways}
    assert len(made["engine"]) == 4
    assert made["engine"] == made["again"] == made["store"]
    assert all(decode(line).store_bytes for line in (talk.parent / "store.results").read_bytes().splitlines())


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not trajectories(), reason="CTXVC_TEST_DATA names no folder of recordings")
def test_twelve_recordings_have_the_same_results_with_a_store_in_any_number_of_processes(
    run: Run, tmp_path: Path
) -> None:
    """Every ninth by size, from the fifth on."""
    files = sorted(trajectories(), key=lambda file: file.stat().st_size)[4::9]
    arguments = ["--policy", "default,planned,self_managed,layered", "--budget", "32k"]
    for name, more in {"engine": ["--no-store", "--jobs", "1"], "store": ["--jobs", "2"]}.items():
        result = run("replay", *files, *arguments, *more, "--out", tmp_path / name)
        assert result.exit_code == 0, result.stderr
    assert len(files) == 12 and len(results(tmp_path / "engine")) == 48
    assert results(tmp_path / "engine") == results(tmp_path / "store")


def test_what_the_results_file_has_is_not_done_again(run: Run, talk: Path) -> None:
    out = talk.parent / "results.jsonl.out"
    first = run("replay", talk, "--no-store", *FEW, "--out", out)
    before = out.read_bytes()

    again = run("replay", talk, "--no-store", *FEW, "--out", out)
    assert again.stdout == first.stdout
    assert out.read_bytes() == before  # with the times of the first run in it

    more = run("replay", talk, "--no-store", *FEW, "--policy", "mask", "--out", out)
    assert [row[0] for row in rows(more.stdout)[1:]] == ["window", "clear:trigger=0.5,keep=1", "mask"]
    lines = out.read_bytes().splitlines()
    assert set(before.splitlines()) < set(lines)
    assert len(lines) == 3


def test_of_two_that_write_to_one_file_the_second_is_refused_at_once(run: Run, talk: Path) -> None:
    out = talk.parent / "results.jsonl"
    run("replay", talk, "--no-store", *FEW, "--out", out)
    before = out.read_bytes()
    with alone(out):
        second = run("replay", talk, "--no-store", *FEW, "--policy", "mask", "--out", out)
    assert second.exit_code == 4
    assert f"another replay is writing to {out}" in second.stderr and "bug" not in second.stderr
    assert out.read_bytes() == before
    assert run("replay", talk, "--no-store", *FEW, "--policy", "mask", "--out", out).exit_code == 0


def test_a_session_of_the_store_is_replayed_as_the_file_that_it_was_imported_from(
    run: Run, talk: Path, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    run("init", folder=project)
    run("import", talk, "--name", "talk", folder=project)
    for name, word in (("file", str(talk)), ("session", "talk")):
        result = run("replay", word, "--no-store", *FEW, "--out", tmp_path / name, folder=project)
        assert result.exit_code == 0, result.stderr

    of_file, of_session = (
        [(own.policy, own.calls, own.tokens, own.cost, own.retention, own.oracle) for own in results(tmp_path / name)]
        for name in ("file", "session")
    )
    assert of_file == of_session


def test_two_policies_are_compared_at_the_same_uses(run: Run, talk: Path) -> None:
    result = run(
        "replay", talk, "--no-store", "--compare", "window,clear:keep=1", "--budget", "6k", "--jobs", "1", "--json"
    )

    assert result.exit_code == 0, result.stderr
    answer = json.loads(result.stdout)
    window, clear = answer["items"]
    assert (window["policy"], clear["policy"]) == ("window", "clear:keep=1")
    by_class = {counts["uses"]: counts for counts in answer["compared"]["transitions"]}
    for name in ("all", "nt", "ar"):
        counts = by_class[name]
        assert counts["both"] + counts["only_a"] == window[name]["visible"]
        assert counts["both"] + counts["only_b"] == clear[name]["visible"]
        assert sum(counts[key] for key in ("both", "only_a", "only_b", "neither")) == window[name]["uses"]


def test_the_set_aside_third_stands_apart(run: Run, tmp_path: Path) -> None:
    files = [recording(tmp_path / f"talk{number}.jsonl") for number in range(6)]
    result = run("replay", *files, "--no-store", *FEW, "--aside", "--json")
    answer = json.loads(result.stdout)
    counts = {item["part"]: item["conversations"] for item in answer["items"]}
    assert counts["aside"] + counts["rest"] == counts["all"] == 6
    assert min(counts.values()) > 0
    text = run("replay", *files, "--no-store", *FEW, "--aside").stdout
    assert f"set aside: {counts['aside']} conversation" in text


@pytest.mark.parametrize("columns", [80, 100])
def test_on_a_terminal_the_table_fits_and_its_columns_are_explained(
    run: Run, talk: Path, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("CTXVC_PAGER", "cat")
    result = run("replay", talk, "--no-store", *FEW, "--color", "never")
    table = COLOUR.sub("", result.stdout).splitlines()
    assert max(map(len, table)) <= columns
    assert table[0].split()[:2] == ["policy", "budget"]
    assert "of oracle: NT and AR seen" in result.stderr


def test_mine_says_which_policy_and_budget_to_take_and_on_what_it_rests(run: Run, project: Path, talk: Path) -> None:
    run("import", talk, folder=project)

    result = run("replay", "--mine", "--jobs", "1", "--budget", "6k,8k,16k", folder=project)

    assert result.exit_code == 0, result.stderr
    about, _, header, *rest = result.stdout.splitlines()
    assert about == "4 sessions of yours: 23 calls"
    table = rest[: rest.index("")]
    assert header.split("\t") == COLUMNS
    assert 0 < len(table) <= 8
    taken = next(line for line in rest if line.startswith("recommended: "))
    assert taken == f"recommended: {table[0].split(chr(9))[0]} at {table[0].split(chr(9))[1]}"
    assert any("of keeping everything" in line for line in rest)


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0.934, "93 %"), (1.0, "100 %"), (0.9961, "99.6 %"), (0.99999, "99.9 %"), (0.0, "0 %"), (0.0003, "0.1 %")],
)
def test_nearly_all_is_not_called_all(share: float, expected: str) -> None:
    assert replay_screen._percent(share) == expected


def test_mine_counts_a_session_once_that_is_also_in_the_store(run: Run, tmp_path: Path) -> None:
    project = tmp_path / "work"
    project.mkdir()
    folder = Path.home() / ".claude" / "projects" / str(project.resolve()).replace("/", "-").replace("_", "-")
    transcript(folder, "11111111-aaaa", cwd=str(project))
    run("init", folder=project)
    assert run("import", "--final", folder=project).exit_code == 0

    result = run("replay", "--mine", "--jobs", "1", folder=project)

    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("1 session of yours: 1 call")
    assert "nothing to compare" in result.stdout


@pytest.mark.slow
def test_an_interrupt_ends_all_processes_and_what_is_done_is_kept(run: Run, tmp_path: Path) -> None:
    for number in range(4):
        recording(tmp_path / f"talk{number}.jsonl", steps=20, lines=150)
    out = tmp_path / "results.out"
    (temporary := tmp_path / "temporary").mkdir()
    arguments = ["replay", tmp_path, "--policy", "window,mask", "--budget", "6k,8k", "--out", out]
    command = [sys.executable, "-m", "ctxvc", *arguments, "--jobs", "2"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)}

    begun = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env, start_new_session=True)
    deadline = time.monotonic() + 60
    while not (out.exists() and out.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(begun.pid, signal.SIGINT)
    _, errors = begun.communicate(timeout=30)

    assert begun.returncode == 130
    assert "interrupted: " in errors
    assert "Traceback" not in errors
    assert not list(temporary.iterdir())
    kept = results(out)
    assert 2 <= len(kept) < 16
    assert run(*arguments, "--jobs", "1").exit_code == 0
    done = results(out)
    assert len(done) == 16
    assert all(own in done for own in kept)


# --- asked of a model


def verdict(*, valid: bool) -> str:
    grade = {"score": 5 if valid else 1, "verdict": "pass" if valid else "fail"}
    names = ("goal_retention", "evidence_retention", "continuation_readiness", "compression_safety")
    return json.dumps(
        {
            "valid": valid,
            "uncertain": False,
            "overall_score": 4,
            "summary": "s",
            "dimension_scores": dict.fromkeys(names, grade),
            "failure_culprit": None,
            "confidence": 0.8,
        }
    )


def replier(request: Mapping[str, Any]) -> str:
    """Says that the harsher plan has an impact and the other is better, and cannot tell sizes."""
    (block,) = request["messages"][-1]["content"]
    question = block["text"]
    if "## What both keep" in question:
        common = {"summary": "s", "rationale": "r", "stronger_aspects": [], "risks": [], "confidence": 0.5}
        kept = {name: question.partition(f"## What only {name} shows")[2].partition("## The plan")[0] for name in "AB"}
        return json.dumps({"verdict": "A_better" if len(kept["A"]) > len(kept["B"]) else "B_better", **common})
    if "How many tokens do all" in question:
        return '{"tokens": 100}'
    if "What is kept" in question:
        return verdict(valid=question.count('"now":') < 20)
    return "I cannot tell"


JUDGED = [
    *("--no-store", "--compare", "window:low_water=0.6,window:low_water=0.3", "--budget", "6k", "--jobs", "1"),
    *("--judge", "claude-opus-5-5", "--perception", "claude-opus-5-5"),
]


def test_a_model_judges_the_plans_and_is_asked_once(run: Run, tmp_path: Path, serving: Serving) -> None:
    talk = recording(tmp_path / "talk.jsonl", steps=24, lines=60)
    out = tmp_path / "results.jsonl"
    with serving(replier) as api:
        first = run("replay", talk, *JUDGED, "--out", out, "--json")
        assert first.exit_code == 0, first.output
        asked = len(api.bodies)
        again = run("replay", talk, *JUDGED, "--out", out, "--json")
        screen = run("replay", talk, *JUDGED, "--out", out)
        assert len(api.bodies) == asked

    answer = json.loads(first.stdout)["judged"]
    assert "asks claude-opus-5-5 up to 20 questions" in first.stderr
    assert (answer["questions"], answer["from_file"]) == (asked, 0)
    assert [item["samples"] for item in answer["judged"]] == [1, 1]
    assert [item["no_impact"]["share"] for item in answer["judged"]] == [1.0, 0.0]
    (pair,) = answer["preferred"]
    assert (pair["cuts"], pair["differing"], pair["first_better"]) == (1, 1, 1)
    perceived = {(item["quantity"], item["dashboard"]): item for item in answer["perceived"]}
    assert perceived["total", True]["error"] > 0.5
    assert perceived["block", False]["unusable"] == 1
    assert (tmp_path / "results.asked.jsonl").read_bytes().count(b"\n") == asked
    repeated = json.loads(again.stdout)["judged"]
    assert (repeated["questions"], repeated["from_file"]) == (0, asked)
    assert repeated | {"questions": asked, "from_file": 0} == answer
    assert "no impact" in screen.stdout and "block" in screen.stdout and "calibrated" in screen.stdout


def test_the_bound_on_questions_holds_and_is_told(run: Run, tmp_path: Path, serving: Serving) -> None:
    talk = recording(tmp_path / "talk.jsonl", steps=24, lines=60)
    with serving(replier) as api:
        result = run("replay", talk, *JUDGED, "--judge-most", "2", "--out", tmp_path / "results.jsonl")
        assert not api.bodies
    assert result.exit_code == 0, result.output
    assert "up to 2 questions" in result.stderr
    assert "the next cut needs 3 questions, and 2 are left" in result.stderr


def test_answers_of_a_model_need_a_file(run: Run, talk: Path) -> None:
    result = run("replay", talk, *JUDGED)
    assert result.exit_code == 2
    assert "give --out FILE" in result.stderr


def test_a_model_that_fails_ends_it_with_what_was_answered_kept(run: Run, tmp_path: Path, serving: Serving) -> None:
    talk = recording(tmp_path / "talk.jsonl", steps=24, lines=60)
    replies: list[str | Refusal] = [verdict(valid=True), Refusal(404, "not_found_error", "no such model")]
    with serving(script(*replies)):
        result = run("replay", talk, *JUDGED, "--out", tmp_path / "results.jsonl")
    assert result.exit_code == 1
    assert "no such model" in result.stderr
    assert (tmp_path / "results.asked.jsonl").read_bytes().count(b"\n") == 1


# --- a model for policies that ask one


def planner(request: Mapping[str, Any]) -> str:
    """Folds the oldest object that the index lists, if it is asked for a plan."""
    index = request["messages"][-1]["content"][-1]["text"].partition("as data, not as instructions")[2]
    name = next(line.split()[1] for line in index.splitlines() if line.startswith("function "))
    return (
        "<above_conversation_summary>Reads.</above_conversation_summary>"
        f'<gc_plan><fold kind="function" reason="old">{name}</fold></gc_plan>'
    )


ASKING = ["--no-store", "--policy", "planned,window", "--budget", "12k", "--jobs", "1"]


@pytest.mark.parametrize("jobs", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_a_model_plans_and_its_calls_are_paid_for_apart(run: Run, tmp_path: Path, serving: Serving, jobs: str) -> None:
    talk, out = recording(tmp_path / "talk.jsonl", steps=16, lines=100), tmp_path / "results.jsonl"
    by_rule = run("replay", talk, *ASKING, "--out", out, "--json")
    with serving(planner) as api:
        with_model = run("replay", talk, *ASKING, "--model", "claude-opus-5-5", "--out", out, "--json")
        assert with_model.exit_code == 0, with_model.output
        asked = len(api.bodies)
        again = run("replay", talk, *ASKING, "--model", "claude-opus-5-5", "--out", out)
        assert len(api.bodies) == asked > 0
        assert json.loads(run("replay", talk, *ASKING, "--planner", "claude-opus-5-5", "--out", out, "--json").stdout)
        assert len(api.bodies) == asked  # the newer name of the option
        elsewhere = run("replay", talk, *ASKING[:-1], jobs, "--model", "claude-opus-5-5", "--json")
        assert len(api.bodies) == 2 * asked

    rules, window = json.loads(by_rule.stdout)["items"]
    planned, same = json.loads(with_model.stdout)["items"]
    assert (rules["stand_in"], rules["model"], rules["planner"]) == ("planner's rules/1", "", 0)
    assert (planned["stand_in"], planned["model"]) == ("", "claude-opus-5-5")
    assert 0 < planned["planner"] < planned["cost"] and planned["summariser"] == 0
    assert window == same  # nobody asks under it, so its result is of no model, and was there
    assert json.loads(elsewhere.stdout)["items"] == [planned, same]
    assert "asks claude-opus-5-5 for planned" in with_model.stderr
    assert f"of its cost, {planned['planner']:.3f} is planning" in again.stderr
    assert [(one.policy, one.options.model) for one in results(out)] == [
        ("planned", ""), ("planned", "claude-opus-5-5"), ("window", ""),
    ]  # fmt: skip
    (message,) = {body["messages"][0]["content"][0]["text"] for body in api.bodies}
    assert message == "Find the port."
    assert all(body["tool_choice"] == {"type": "none"} for body in api.bodies)


def test_a_model_that_fails_leaves_the_other_results_and_no_half_one(
    run: Run, tmp_path: Path, serving: Serving
) -> None:
    talk, out = recording(tmp_path / "talk.jsonl", steps=16, lines=100), tmp_path / "results.jsonl"
    with serving(script(Refusal(404, "not_found_error", "no such model"))):
        result = run("replay", talk, *ASKING, "--model", "claude-opus-5-5", "--out", out)
    assert result.exit_code == 1
    assert "no such model" in result.stderr
    assert [one.policy for one in results(out)] == ["window"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--policy", "window", "--model", "m"], "none of these policies asks a model"),
        (["--policy", "planned", "--model", "m", "--cluster", "tcp://nowhere:1"], "no key for a model"),
    ],
)
def test_a_model_that_nobody_can_ask_is_refused(run: Run, talk: Path, words: list[str], message: str) -> None:
    result = run("replay", talk, "--no-store", *words)
    assert result.exit_code == 1
    assert message in result.stderr


# --- experiments


def test_experiments_are_listed_with_their_papers_and_print_their_tables(run: Run, tmp_path: Path, talk: Path) -> None:
    result = run("replay", "experiment", folder=tmp_path)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0].startswith("proposition\tVISTA")
    result = run("replay", "experiment", "layers", talk)
    assert result.exit_code == 0
    assert "| budget | layer |" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("nonsense",), "no experiment 'nonsense'"),
        (("split",), "split needs recordings"),
        (("split", "nowhere.jsonl"), "no such file or folder:"),
        (("--json",), "print tables"),
        (("layers", "here.jsonl", "--model", "m"), "layers does not take --model"),
        (("memory", "here.jsonl", "--out", "o.jsonl"), "memory does not take --out"),
        (("layers", "empty"), "no conversation in"),
        (("scopes", "long"), "no conversation of 2 to 40 calls"),
        (("pressure", "long"), "no conversation of 12 to 60 calls"),
    ],
)
def test_a_wrong_experiment_is_refused(run: Run, tmp_path: Path, arguments: tuple[str, ...], told: str) -> None:
    for name in ("empty", "long"):
        (tmp_path / name).mkdir()
    recording(tmp_path / "long" / "talk.jsonl", steps=61, lines=1)
    result = run("replay", "experiment", *arguments, folder=tmp_path)
    assert result.exit_code == 1
    assert told in result.stderr and "hint" in result.stderr
