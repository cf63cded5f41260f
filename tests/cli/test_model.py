"""`model`: another model in mid-session, with its own thresholds, and rehearsed before anything changes."""

from __future__ import annotations

import json
from pathlib import Path

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


def test_a_window_that_nobody_knows_is_called_a_guess(long: Path, run: Run) -> None:
    assert "200,000, a guess: set --window" in run("model", "nobody-knows-1", folder=long).stdout
    assert "a guess" not in run("model", "gpt-4o", folder=long).stdout
