"""`run` and `ask` as a person starts them, on a provider of ours: windows and budgets, failures, scripts."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ctxvc.cli.main import cli
from ctxvc.session.session import Session
from tests.cli.conftest import Run, Serving
from tests.messages_api import Refusal, call, script
from tests.messages_api.script import endless

SONNET, HAIKU, OPUS = "claude-sonnet-5-5", "claude-haiku-4-5", "claude-opus-5-5"


def session_of(folder: Path, name: str = "run-1") -> Session:
    return Session.open(folder / ".ctxvc", name)


def ran(run: Run, folder: Path, *arguments: str) -> Result:
    result = run("run", *arguments, "--yes", folder=folder)
    assert result.exit_code == 0, result.stderr
    return result


# --- windows and budgets


def test_the_window_is_the_models_own_and_another_models_takes_its_place(
    serving: Serving, run: Run, tmp_path: Path
) -> None:
    with serving(endless(["One.", "Two."]), **{SONNET: 700_000, HAIKU: 150_000}) as api:
        ran(run, tmp_path, "first")
        with session_of(tmp_path) as session:
            assert session.budget.window == 700_000
        # Whoever looks is another process, which has asked nobody.
        status = json.loads(run("status", "--json", folder=tmp_path).stdout)
        assert (status["window"], status["limit"]) == (700_000, 700_000 - 16_000)
        ran(run, tmp_path, "and on", "--resume", "run-1", "--model", HAIKU)
        with session_of(tmp_path) as session:
            assert session.budget.window == 150_000
            assert session.ledger().meta.budget == 0  # nobody gave one
        assert [body["model"] for body in api.bodies] == [SONNET, HAIKU]


def test_the_projects_notes_are_shown_only_where_asked_and_as_far_as_they_fit(
    serving: Serving, run: Run, tmp_path: Path
) -> None:
    with serving(endless(["Well."])) as api:
        ran(run, tmp_path, "look at the tenant")
        for text in ("the tenant is part of the key", "the tests need a database"):
            run("note", "--project", "-m", text, folder=tmp_path)
        ran(run, tmp_path, "look at the tenant")
        ran(run, tmp_path, "look at the tenant", "--project-notes", "500")
        ran(run, tmp_path, "look at the zebra", "--project-notes", "500")
        told = [json.dumps(body["messages"]) for body in api.bodies]
    assert ["part of the key" in text for text in told] == [False, False, True, False]
    assert not any("a database" in text for text in told)


def test_what_a_reply_may_have_is_kept_free_of_the_window(serving: Serving, run: Run, tmp_path: Path) -> None:
    with serving(endless(["Well."])) as api:
        ran(run, tmp_path, "first", "--budget", "20000")
        with session_of(tmp_path) as session:
            assert (session.budget.window, session.budget.reserve) == (20_000, 5_000)
        ran(run, tmp_path, "more", "--resume", "run-1", "--budget", "200000")
        with session_of(tmp_path) as session:
            assert (session.budget.window, session.budget.reserve) == (200_000, 16_000)
        ran(run, tmp_path, "more", "--resume", "run-1")
        assert [body["max_tokens"] for body in api.bodies] == [5_000, 16_000, 16_000]


def test_the_budget_that_a_person_gave_stays_with_another_model(serving: Serving, run: Run, tmp_path: Path) -> None:
    with serving(endless(["Well."])):
        ran(run, tmp_path, "first", "--budget", "50000")
        ran(run, tmp_path, "more", "--resume", "run-1", "--model", HAIKU)
        with session_of(tmp_path) as session:
            assert session.budget.window == 50_000


def test_a_budget_above_what_the_model_takes_is_refused(serving: Serving, run: Run, tmp_path: Path) -> None:
    with serving(endless(["Well."]), **{HAIKU: 150_000}) as api:
        ran(run, tmp_path, "first", "--budget", "300000")
        result = run("run", "more", "--resume", "run-1", "--model", HAIKU, folder=tmp_path)
        assert result.exit_code == 1
        assert "claude-haiku-4-5 takes 150,000 tokens" in result.stderr
        assert "--budget" in result.stderr
        assert len(api.bodies) == 1
        with session_of(tmp_path) as session:
            assert session.ledger().meta.model == SONNET
        ran(run, tmp_path, "more", "--resume", "run-1", "--model", HAIKU, "--budget", "100000")


def test_the_person_says_what_a_model_takes_that_nobody_knows(serving: Serving, run: Run, tmp_path: Path) -> None:
    """Where the provider or the table knows it, their word counts."""
    said = tmp_path / "said.json"
    said.write_text('[{"content": "Well."}]')
    ran(run, tmp_path, "first", "--model", "own-model", "--window", "30000", "--script", str(said))
    with session_of(tmp_path) as session:
        assert session.budget.window == 30_000
    ran(run, tmp_path, "second", "--resume", "run-1", "--script", str(said))
    with session_of(tmp_path) as session:
        assert session.budget.window == 30_000
    ran(run, tmp_path, "first", "--model", HAIKU, "--window", "30000", "--script", str(said))
    with session_of(tmp_path, "run-2") as session:
        assert session.budget.window == 200_000
    with serving(endless(["Well."]), **{HAIKU: 150_000}):
        ran(run, tmp_path, "first", "--model", HAIKU, "--window", "30000")
        with session_of(tmp_path, "run-3") as session:
            assert session.budget.window == 150_000


def test_a_window_that_was_learned_leaves_the_prompt_its_part_when_a_run_goes_on(run: Run, tmp_path: Path) -> None:
    """Of a budget of 60,000 a reply gets 15,000; of a window of 20,000 that would be most."""
    said = tmp_path / "said.json"
    said.write_text('[{"content": "Well."}]')
    ran(run, tmp_path, "first", "--model", "own-model", "--budget", "60000", "--script", str(said))
    with session_of(tmp_path) as session:
        session.too_long(window=20_000)
        assert (session.budget.window, session.budget.reserve) == (20_000, 5_000)
    ran(run, tmp_path, "second", "--resume", "run-1", "--script", str(said))
    with session_of(tmp_path) as session:
        assert (session.budget.window, session.budget.reserve) == (20_000, 5_000)


def test_a_question_leaves_room_for_its_answer_and_fits_the_model(serving: Serving, run: Run, tmp_path: Path) -> None:
    with serving(endless(["It cites nothing."]), **{HAIKU: 30_000}) as api:
        ran(run, tmp_path, "first")
        run("ask", "run-1", "Why?", "--model", HAIKU, folder=tmp_path)
        assert api.bodies[-1]["max_tokens"] == 7_500
    with session_of(tmp_path, "ask-1") as session:
        assert (session.budget.window, session.budget.reserve) == (30_000, 7_500)


# --- what goes wrong


@pytest.mark.parametrize("words", [["run", "mend it"], ["ask", "run-1", "Why?"]], ids=" ".join)
def test_without_a_key_or_a_network_nothing_begins(
    words: list[str], serving: Serving, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(endless(["Well."])):
        ran(run, tmp_path, "first")
        before = run("sessions", folder=tmp_path).stdout
        monkeypatch.delenv("ANTHROPIC_API_KEY")
        result = run(*words, folder=tmp_path)
        assert (result.exit_code, "no key is set" in result.stderr) == (1, True)
        assert "set ANTHROPIC_API_KEY" in result.stderr and "OPENAI_BASE_URL" in result.stderr
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test")
    result = run(*words, folder=tmp_path)  # nobody serves any more
    assert (result.exit_code, "cannot be reached" in result.stderr) == (1, True)
    assert run("sessions", folder=tmp_path).stdout == before


def test_without_a_key_there_is_not_even_a_store(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    assert run("run", "mend it", folder=tmp_path).exit_code == 1
    assert list(tmp_path.iterdir()) == []


def test_a_provider_that_fails_on_the_way_is_told_of_with_the_way_on(
    serving: Serving, run: Run, tmp_path: Path
) -> None:
    busy = Refusal(529, "overloaded_error", "Overloaded", {"x-should-retry": "false"})
    with serving(script("Well.", busy, busy)):
        ran(run, tmp_path, "first")
        result = run("run", "second", "--name", "mine", folder=tmp_path)
        assert "wait a little; `ctxvc run --resume mine` continues from there" in result.stderr
        result = run("ask", "mine", "Why?", folder=tmp_path)
        assert "ask again; what was read so far is in session ask-1" in result.stderr


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project in which a run has ended well, to be copied."""
    folder = tmp_path_factory.mktemp("first")
    (folder / "said.json").write_text('[{"content": "Well."}]')
    arguments = ["-C", str(folder), "run", "first", "--name", "first", "--yes", "--script", str(folder / "said.json")]
    assert CliRunner().invoke(cli, arguments).exit_code == 0
    return folder


NO_SCRIPTS = (
    "5",
    "[5]",
    "[null]",
    '[{"content": 5}]',
    '[{"content": ["x"]}]',
    '[{"content": null}]',
    '[{"role": 7, "content": "x"}]',
    '[{"content": "k", "usage": 5}]',
    '[{"content": "k", "stop_reason": []}]',
    '[{"content": "k", "stop_reason": {}}]',
    '[{"content": "\\ud800"}]',
    '["x"]',
    "{}",
    "",
    '[{"content": [{}]}]',
    '[{"content": [{"type": 5}]}]',
    '[{"content": [{"type": ["x"]}]}]',
    '[{"content": [{"type": "text", "text": 5}]}]',
    '[{"content": [{"type": "text"}]}]',
    '[{"content": [{"type": "tool_use", "name": 5}]}]',
    '[{"content": [{"type": "tool_use", "id": 5, "name": []}]}]',
    '[{"content": [{"type": "tool_use", "name": "bash", "input": "x", "id": 7}]}]',
    '[{"content": [{"type": "tool_use", "name": ["bash"], "input": []}]}]',
    '[{"content": "k", "usage": {"input_tokens": "x", "output_tokens": [1]}}]',
    '[{"content": "k", "usage": {"input_tokens": -5}}]',
)
RUN, ASK = ("run", "mend it"), ("ask", "first", "Why?")


@pytest.mark.parametrize(
    ("words", "said"), [*((RUN, said) for said in NO_SCRIPTS), *((ASK, said) for said in NO_SCRIPTS[::6])]
)
def test_a_script_that_is_none_is_an_error_and_no_bug(
    words: tuple[str, ...], said: str, first: Path, run: Run, tmp_path: Path
) -> None:
    project, script = shutil.copytree(first, tmp_path / "project", symlinks=True), tmp_path / "said.json"
    script.write_text(said)
    result = run(*words, "--script", str(script), "--max-steps", "2", folder=project)
    assert "bug" not in result.stderr, result.stderr
    assert result.exit_code in (0, 1)


def test_a_question_of_no_words_opens_nothing(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "said.json"
    script.write_text('[{"content": "Well."}]')
    ran(run, tmp_path, "first", "--name", "first", "--script", str(script))
    assert run("ask", "first", " ", "--script", str(script), folder=tmp_path).exit_code == 2
    assert "ask-1" not in run("sessions", folder=tmp_path).stdout


def test_a_result_of_one_line_is_counted_as_one(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "replies.json"
    call = {"type": "tool_use", "id": "toolu_1", "name": "write_file", "input": {"path": "a.txt", "content": "a"}}
    script.write_text(json.dumps([{"content": [call]}, {"content": "Done."}]))
    result = run("run", "write it", "--yes", "--script", str(script), folder=tmp_path)
    assert result.exit_code == 0 and "write_file: 1 line, " in result.stderr


# --- a model for plans and summaries


def planned_replies(request: Mapping[str, Any]) -> Any:
    """Long outputs, then a word; a plan that folds the oldest result of the index, where one is asked for."""
    content = json.dumps(request["messages"][-1]["content"][-1])
    if "gc_plan" in content:
        folded = re.findall(r"bash:\d+", content.partition("The objects,")[2])[0]
        return (
            "<above_conversation_summary>Counting.</above_conversation_summary>\n"
            f'<gc_plan>\n<fold kind="function" reason="counted">{folded}</fold>\n</gc_plan>'
        )
    steps = sum(message["role"] == "assistant" for message in request["messages"])
    return [call("bash", command=f"seq {steps}000 {steps}110")] if steps < 8 else "Counted."


EAGER = "planned:trigger=0.4,tight=0.45,target=0.2,least=500,share=0.01"


def test_a_planner_of_its_own_is_asked_for_plans_and_its_cost_is_shown_apart(
    serving: Serving, run: Run, on_screen: Run, tmp_path: Path
) -> None:
    arguments = ("count", "--budget", "12k", "--policy", EAGER, "--yes", "--planner")
    with serving(planned_replies) as api:
        result = run("run", *arguments, HAIKU, "--json", folder=tmp_path)
        assert result.exit_code == 0, result.stderr
        bodies = [*api.bodies]
        plans = [body for body in bodies if "gc_plan" in json.dumps(body["messages"][-1]["content"][-1])]
        again = run("run", *arguments, OPUS, folder=tmp_path)

    assert plans and {body["model"] for body in plans} == {HAIKU}
    assert {body["model"] for body in bodies if body not in plans} == {SONNET}
    ended = json.loads(result.stdout)
    asked = ended["planner"]
    assert 0 < asked["dollars"] < ended["dollars"]
    assert 0 < asked["prompt"] < ended["fresh"] + ended["written"] + ended["read"]
    assert re.search(
        r"done after 9 replies, \$0\.[0-9]{4} \(\$0\.[0-9]{4} of it for the policy's model\)", again.stderr
    )

    usage = json.loads(run("log", "--usage", "--json", "--session", "run-1", folder=tmp_path).stdout)
    by = {item["by"]: item["model"].rpartition("-2")[0] or item["model"] for item in usage["items"]}
    assert set(by) == {"agent", "planner"} and by["planner"].startswith(HAIKU)
    assert usage["planner_dollars"] == pytest.approx(asked["dollars"])
    shown = run("log", "--usage", "--session", "run-1", folder=tmp_path).stdout
    assert "of them for plans and summaries" in shown
    heading = on_screen("log", "--session", "run-2", folder=tmp_path).stdout
    assert re.search(r"\$0\.[0-9]{2} \(planner \$0\.[0-9]{2}\)", heading)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--policy", "window", "--planner", HAIKU), "window asks no model"),
        (("--policy", "planned", "--planner", HAIKU, "--budget", "300k"), "claude-haiku-4-5 takes 150,000 tokens"),
        (("--policy", "planned", "--planner", "nobody-1", "--max-cost", "1"), "no price is known for the model"),
    ],
)
def test_a_planner_that_could_not_plan_is_refused_before_anything_is_asked(
    serving: Serving, run: Run, tmp_path: Path, words: tuple[str, ...], why: str
) -> None:
    with serving(endless(["Well."]), **{SONNET: 700_000, HAIKU: 150_000}) as api:
        result = run("run", "first", *words, "--yes", folder=tmp_path)
        assert result.exit_code == 1
        assert why in result.stderr
        assert not api.bodies
