"""`model`: another model in mid-session, with its own thresholds, and rehearsed before anything changes."""

from __future__ import annotations

import json
from pathlib import Path

from ctxvc.cli.commands import demo
from ctxvc.session.session import Session
from tests.cli.conftest import Run
from tests.cli.test_compact import long

__all__ = ["long"]


def test_thresholds_follow_the_model_and_what_would_leave_is_rehearsed(long: Path, run: Run) -> None:
    before = json.loads(run("model", "claude-opus-4-5", "--json", folder=long).stdout)
    assert (before["former"], before["model"], before["window"]) == ("", "claude-opus-4-5", 200_000)
    tried = json.loads(run("model", "tiny", "--window", "12000", "--dry-run", "--json", folder=long).stdout)
    assert tried["clear"] == 12_000 * 0.6 and tried["leaving"] > 5 and tried["tokens_after"] < 12_000
    assert json.loads(run("model", "--json", folder=long).stdout)["model"] == "claude-opus-4-5", (
        "a rehearsal changed it"
    )
    switched = json.loads(run("model", "tiny", "--window", "12000", "--json", folder=long).stdout)
    assert switched == {**tried, "changed": True}
    with Session.open(long / ".ctxvc", "long", policy="default") as session:
        assert session.ledger().meta.model == "tiny" and session.budget.window == 12_000
        session.append({"role": "user", "content": "go on"})
        session.request()
        assert session.used() <= session.budget.guard


def test_a_model_that_the_prompt_cannot_fit_is_refused_and_nothing_changes(long: Path, run: Run) -> None:
    with Session.open(long / ".ctxvc", "long") as session:
        session.append({"role": "user", "content": "every word counts " * 1_000})
    refused = run("model", "tiny", "--window", "2000", folder=long)
    assert refused.exit_code == 1
    assert "tiny takes 2,000 tokens, but" in refused.stderr and "may not leave the prompt" in refused.stderr
    with Session.open(long / ".ctxvc", "long") as session:
        assert session.ledger().meta.model == ""


def test_what_is_not_recorded_of_the_prompt_makes_its_size_that_of_status(tmp_path: Path, run: Run) -> None:
    run("import", "--final", demo.SESSION, folder=tmp_path)
    answer, status = (json.loads(run(name, "--json", folder=tmp_path).stdout) for name in ("model", "status"))
    assert answer["unrecorded"] == status["unrecorded"] > 0
    assert answer["tokens"] + answer["unrecorded"] == status["used"] + sum(status["since"].values())
    assert "that are not recorded" in run("model", folder=tmp_path).stdout


def test_a_window_that_nobody_knows_is_called_a_guess(long: Path, run: Run) -> None:
    assert "200,000, a guess: set --window" in run("model", "nobody-knows-1", folder=long).stdout
    assert "a guess" not in run("model", "gpt-4o", folder=long).stdout


def test_a_guess_of_tokens_is_told_to_people_until_somebody_says_better(tmp_path: Path, run: Run) -> None:
    with Session.open(tmp_path / ".ctxvc", "local", model="nobody-knows-1", budget=32_000) as session:
        session.append({"role": "user", "content": "Look."})
        for at in range(5):
            session.append({"role": "assistant", "content": f"I look {at}."}, {"role": "user", "content": "And?"})
    guess = "vocabulary\tunknown: until a reply reports usage"
    assert guess in (shown := run("status", folder=tmp_path).stdout)
    assert "`ctxvc model NAME`" in shown and "`ctxvc model --tokens-per-count N`" in " ".join(shown.split())
    assert "vocabulary" not in run("status", "--text", folder=tmp_path).stdout, "it is for people"
    run("checkout", "local", "out", folder=tmp_path)
    assert "The model's vocabulary is unknown" in (tmp_path / "out" / "DASHBOARD.md").read_text()

    answer = json.loads(run("model", "--tokens-per-count", "1.25", "--json", folder=tmp_path).stdout)
    assert answer["tokens_per_count"] == 1.25 and answer["changed"]
    assert "vocabulary" not in run("status", folder=tmp_path).stdout
    assert run("model", "--tokens-per-count", "9", folder=tmp_path).exit_code == 1
