"""A managed session with everything that a page shows; and how a page is made of a session of a store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ctxvc.agent import run
from ctxvc.cli.main import cli
from ctxvc.cli.page.pages import session_page
from ctxvc.policies import parse
from ctxvc.recording.files import import_paths
from ctxvc.report import data
from ctxvc.session.session import Session
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.project.locate import FOLDER
from ctxvc.store.store import Store, create
from ctxvc.tokens.meter import Meter
from tests.making.project import build
from tests.making.watcher import Silent

DATA = Path(__file__).parents[1] / "data"
#: The files of five recordings, of five hosts.
RECORDINGS = {
    "claude": DATA / "claude-code" / "20-02395c1048-0.jsonl",
    "compacted": DATA / "claude-code" / "plugin-compaction-2.1.330.jsonl",
    "codex": next((DATA / "codex").glob("*.jsonl*")),
    "pi": next((DATA / "pi").glob("*.jsonl*")),
    "copilot": next((DATA / "copilot-cli").rglob("*.jsonl*")),
}
#: How often the managed session has all of its recording, so that it fills its budget.
_TIMES = 4


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with five imported recordings; and `managed`, the first of them played again within a budget."""
    project = tmp_path_factory.mktemp("recorded") / "project"
    project.mkdir()
    with create(project / FOLDER) as store:
        for name, file in RECORDINGS.items():
            (outcome,) = import_paths(store, [file], name=name, final=True)
            assert not outcome.error, outcome.error
        turns = run.recorded(Session(StoredSession.open(store, "claude")))
    with Session.open(
        project / FOLDER, "managed", model="claude-sonnet-4-5", budget=16_000, policy=parse("default")
    ) as session:
        for _ in range(_TIMES):
            run.play(session, turns, Silent())
        person = Session(session.stored, actor="user")
        departed = next(row.id for row in session.ledger().rows() if row.state == "archived")
        person.restore(departed)
        person.recover(next(row.id for row in session.ledger().rows() if row.state in ("archived", "blocked")))
        person.pin(session.ledger().last().id)  # type: ignore[union-attr]
        person.undo()
        person.open_scope("side", "look aside")
        person.note("it is the cache")
        person.goto("main", "back")
    return project


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project of the command line's tests: `demo`, `branched`, `hostile`."""
    project = tmp_path_factory.mktemp("built") / "project"
    build(project)
    return project


def paged(project: Path, name: str) -> data.Session:
    """The page of a session."""
    with Store(project / FOLDER) as store:
        stored = StoredSession.open(store, name)
        stored.leave()
        return session_page(stored, Meter(store, stored.ledger().meta.tokenizer))


def asked(project: Path, *arguments: str) -> Any:
    """The answer of a command as JSON."""
    result = CliRunner().invoke(cli, ["-C", str(project), *arguments, "--json"])
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)
