"""`note --project` and `notes --project`: kept for all sessions, replaced by name, marked once their file changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ctxvc.store.store import create
from tests.cli.conftest import Run, answer


def test_a_note_outlives_its_session_and_says_where_it_was_learned(run: Run, project: Path) -> None:
    (project / "src").mkdir()
    (project / "src" / "app.py").write_text("one")
    before = answer(run, project, "sessions")["current"]
    run("note", "--project", "--name", "entry", "-l", "map", "-m", "src/app.py begins it all", folder=project)
    (item,) = answer(run, project, "notes", "--project")["items"]
    assert (item["name"], item["files"], item["stale"], item["labels"]) == ("entry", ["src/app.py"], [], ["map"])
    assert (item["session"], item["scope"]) == ("demo", "main") and item["step"] > 0
    shown = run("show", item["address"], folder=project)
    assert "src/app.py begins it all" in shown.stdout, "its address leads to it"
    assert answer(run, project, "sessions")["current"] == before

    (project / "src" / "app.py").write_text("two")
    assert "changed since: src/app.py" in run("notes", "--project", folder=project).stdout
    (project / "src" / "app.py").unlink()
    assert answer(run, project, "notes", "--project")["items"][0]["stale"] == ["src/app.py"]

    run("note", "--project", "--name", "entry", "-m", "now it is src/main.py", folder=project)
    (item,) = answer(run, project, "notes", "--project")["items"]
    assert (item["text"], item["files"]) == ("now it is src/main.py", [])
    assert answer(run, project, "notes", "--project", "-l", "map")["items"] == []
    assert run("verify", folder=project).exit_code == 0


def test_notes_that_fit_come_first(run: Run, project: Path) -> None:
    for text in ("the tests need a database", "the tenant is part of the key"):
        run("note", "--project", "-m", text, folder=project)
    found = answer(run, project, "notes", "--project", "--about", "which tenant?")["items"]
    assert [item["text"] for item in found] == ["the tenant is part of the key"]


def test_a_secret_in_a_note_is_a_mark(run: Run, project: Path) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    run("note", "--project", "-m", f"the token is {secret}", folder=project)
    assert "[REDACTED:" in json.dumps(answer(run, project, "notes", "--project"))


def test_the_session_of_the_notes_is_listed_only_where_asked(run: Run, project: Path) -> None:
    before = [item["name"] for item in answer(run, project, "sessions")["items"]]
    run("note", "--project", "-m", "the tests need a tag\x1b[31m", folder=project)
    assert [item["name"] for item in answer(run, project, "sessions")["items"]] == before
    assert "project-notes" not in run("sessions", folder=project).stdout
    every = {item["name"]: item for item in answer(run, project, "sessions", "--all")["items"]}
    (name,) = every.keys() - set(before)
    assert name.startswith("project-notes-") and every[name]["title"] == "notes of the project"
    listed = run("sessions", "--all-projects", folder=project).stdout
    assert "project-notes" not in listed and before[0] in listed


def test_notes_alone_are_no_session(run: Run, tmp_path: Path) -> None:
    create(tmp_path / ".ctxvc").close()
    run("note", "--project", "-m", "make -j2", folder=tmp_path)
    listed = answer(run, tmp_path, "sessions")
    assert (listed["current"], listed["items"]) == ("", [])


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("note", "--project", "--fold", "-m", "x"), 2, "leave out --fold"),
        (("note", "--name", "x", "-m", "x"), 2, "--name and --file require --project"),
        (("note", "--project", "-m", " "), 1, "a note needs text"),
        (("note", "--project", "-m", "x" * 4001), 1, "4,000 are allowed"),
        (("note", "--project", "--name", "a b", "-m", "x"), 1, "cannot be a note's name"),
        (("note", "--project", "--file", "../x", "-m", "x"), 1, "is no file below"),
        (("notes", "--project", "main"), 2, "leave out SCOPE"),
        (("notes", "--about", "x"), 2, "--about requires --project"),
    ],
)
def test_what_makes_no_sense_is_refused(
    run: Run, project: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    result = run(*arguments, folder=project)
    assert result.exit_code == code and message in result.output
    assert answer(run, project, "notes", "--project")["items"] == []
