"""`--all-projects`: what a person recorded on this machine, whichever project it is in."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.wire import text_part
from ctxvc.core.recording.events import Opened, Said
from ctxvc.session.session import Session
from ctxvc.store.ingest import ingest
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.project.locate import FOLDER
from ctxvc.store.store import Store, create
from ctxvc.store.trust import identity, known_stores
from tests.cli.conftest import Run


def recorded(folder: Path, text: str) -> Path:
    """A project with one session of one question, and a note."""
    folder.mkdir()
    human = Message(role="user", parts=(text_part(text, "user", "human"),), key="1")
    with create(folder / FOLDER) as store:
        ingest(store, [Opened(format="pi", source="s", name="s"), Said(message=human, end=1)], final=True)
        with Session(StoredSession.open(store, "s")) as session:
            session.note(f"learned of {text}")
    return folder


@pytest.fixture
def projects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two projects, in a home where there are no others."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    recorded(tmp_path / "one", "the login fails")
    recorded(tmp_path / "two", "the login is slow")
    (tmp_path / "elsewhere").mkdir()
    return tmp_path


def test_sessions_of_all_projects_are_listed_from_anywhere(run: Run, projects: Path) -> None:
    answer = json.loads(run("sessions", "--all-projects", "--json", folder=projects / "elsewhere").stdout)
    assert {Path(item["project"]).name: item["prompt"] for item in answer["items"]} == {
        "one": "the login fails",
        "two": "the login is slow",
    }
    here = json.loads(run("sessions", "--json", folder=projects / "one").stdout)
    assert [item["project"] for item in here["items"]] == [""]


def test_all_projects_are_searched(run: Run, projects: Path) -> None:
    result = run(
        "grep", "login (is|fails)", "--all-projects", "--kind", "user", "--json", folder=projects / "elsewhere"
    )
    items = json.loads(result.stdout)["items"]
    assert [(Path(item["project"]).name, item["address"]) for item in items] == [
        ("one", "s/main:B1"),
        ("two", "s/main:B1"),
    ]

    lines = run("grep", "login", "--all-projects", "-n", "1", folder=projects / "two").stdout.splitlines()
    assert lines[1].startswith(f"{projects / 'two'}\ts/main:B1\t"), "the project that one is in comes first"
    assert run("grep", "nowhere", "--all-projects", folder=projects / "elsewhere").exit_code == 1
    assert run("grep", "login", "--all-projects", "--scope", "main", folder=projects / "one").exit_code == 2


def test_a_ranked_search_shows_another_project_only_where_asked(run: Run, projects: Path) -> None:
    here = json.loads(run("grep", "--rank", "login slow", "--all", "--json", folder=projects / "one").stdout)
    assert {item["project"] for item in here["items"]} == {""}
    assert all("slow" not in item["text"] for item in here["items"])

    def asked(*options: str, code: int = 0) -> list[tuple[str, str]]:
        result = run("grep", "--rank", *options, "--all-projects", "--json", folder=projects / "elsewhere")
        assert result.exit_code == code, result.output
        return [(Path(item["project"]).name, item["address"]) for item in json.loads(result.stdout)["items"]]

    everywhere = asked("login slow")
    assert everywhere[0][0] == "two", "the rare word is there"
    assert {project for project, _ in everywhere} == {"one", "two"}
    assert {project for project, _ in asked("login", "--project", "one")} == {"one"}
    assert asked("login", "--project", "three", code=1) == []
    assert asked("login", "--agent", "codex", code=1) == []
    assert run("grep", "login", "--project", "one", folder=projects / "one").exit_code == 2


def test_notes_of_all_projects(run: Run, projects: Path) -> None:
    run("scope", "try", "-m", "another way", folder=projects / "one")
    answer = json.loads(run("notes", "--all-projects", "--json", folder=projects / "elsewhere").stdout)
    notes = [(Path(item["project"]).name, item["scope"], item["text"]) for item in answer["items"]]
    assert ("two", "main", "learned of the login is slow") in notes
    assert [scope for _, scope, text in notes if text == "learned of the login fails"] == ["main"], "inherited: once"
    shown = run("notes", "--all-projects", folder=projects / "elsewhere").stdout
    assert f"{projects / 'two'}: s\nmain:B2  step 1" in shown
    assert run("notes", "main", "--all-projects", folder=projects / "one").exit_code == 2


def test_what_is_gone_is_forgotten_and_what_moved_comes_back_with_its_first_use(run: Run, projects: Path) -> None:
    shutil.move(projects / "one", projects / "moved")
    assert known_stores.paths() == [projects / "two" / FOLDER]
    assert len(list((identity.data_folder() / known_stores.STORES).iterdir())) == 1
    assert run("sessions", folder=projects / "moved").exit_code == 0
    assert known_stores.paths() == [projects / "moved" / FOLDER, projects / "two" / FOLDER]


def test_a_copy_does_not_take_the_place_of_its_original(projects: Path) -> None:
    shutil.copytree(projects / "one", projects / "copy")
    known_stores.remember_used(projects / "copy" / FOLDER)
    assert projects / "copy" / FOLDER not in known_stores.paths()
    assert projects / "one" / FOLDER in known_stores.paths()


def test_a_path_that_is_another_store_by_now_is_not_taken_for_it(projects: Path) -> None:
    shutil.rmtree(projects / "one" / FOLDER)
    (projects / "one" / FOLDER).symlink_to(projects / "two" / FOLDER)
    assert known_stores.paths() == [projects / "two" / FOLDER]


def test_a_store_that_cannot_be_opened_costs_only_itself(run: Run, projects: Path) -> None:
    config = projects / "one" / FOLDER / "config"
    config.write_text(config.read_text().replace("format = 2", "format = 99"))
    with pytest.raises(Exception, match="format 99"):
        Store(projects / "one" / FOLDER)
    result = run("sessions", "--all-projects", folder=projects / "elsewhere")
    assert result.exit_code == 1
    assert "the login is slow" in result.stdout
    assert "format 99" in result.stderr
