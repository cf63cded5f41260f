"""What a run is told of its project: skills by name, notes of earlier runs, git's status where it changed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ctxvc.agent import orientation, start
from ctxvc.agent.orientation import Skill
from ctxvc.policies import parse
from ctxvc.session.session import Session
from tests.making.provider import MODEL


def skill(folder: Path, name: str, head: str, body: str = "Do as follows.") -> Path:
    path = folder / name / "SKILL.md"
    path.parent.mkdir(parents=True)
    path.write_text(f"---\n{head}\n---\n\n{body}\n" if head else body)
    return path


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@t", *arguments], cwd=folder, check=True, capture_output=True
    )


def begun(tmp_path: Path, name: str = "run-1", *, policy: str = "default", window: int = 60_000) -> Session:
    (tmp_path / "project").mkdir(exist_ok=True)
    place = tmp_path / "project" / ".ctxvc"
    return start.begin(place, name, model=MODEL, policy=parse(policy), window=window, folder=tmp_path / "project")


def client_texts(session: Session) -> list[str]:
    rows = [row for row in session.ledger().rows() if row.origin == "client" and row.state == "pinned"]
    return [session.body(row.id).decode() for row in rows]


def turn(session: Session) -> None:
    session.append({"role": "user", "content": "Look."}, {"role": "assistant", "content": "I look."})


# --- skills


def test_skills_are_listed_by_name_and_description_and_their_bodies_are_not(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    skill(folder / ".claude/skills", "pdf", "name: pdf-forms\ndescription: Fill PDF forms.", "SECRET BODY")
    skill(folder / "skills", "sql", 'description: "Ask the database"')
    skill(folder / ".agents/skills", "long", "name: long\ndescription: >-\n  First line,\n  second line.\nlicense: MIT")
    skill(folder / "skills", "plain", "", "No head at all.")
    assert orientation.skills(folder) == [
        Skill("long", "First line, second line.", ".agents/skills/long/SKILL.md"),
        Skill("pdf-forms", "Fill PDF forms.", ".claude/skills/pdf/SKILL.md"),
        Skill("plain", "", "skills/plain/SKILL.md"),
        Skill("sql", "Ask the database", "skills/sql/SKILL.md"),
    ]
    with begun(tmp_path) as session:
        (text,) = [text for text in client_texts(session) if text.startswith("Skills")]
        assert "- pdf-forms: Fill PDF forms. (.claude/skills/pdf/SKILL.md)" in text
        assert "SECRET BODY" not in str(session.add("x") and session.request().messages)


def test_a_skill_nearer_to_the_folder_replaces_one_of_its_name_further_up(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    inner = tmp_path / "inner"
    skill(tmp_path / "skills", "a", "name: a\ndescription: far")
    skill(inner / "skills", "a", "name: a\ndescription: near")
    skill(tmp_path / "skills", "b", "name: b\ndescription: far")
    assert orientation.skills(inner) == [
        Skill("b", "far", "../skills/b/SKILL.md"),
        Skill("a", "near", "skills/a/SKILL.md"),
    ]


def test_what_lies_elsewhere_or_cannot_be_read_is_no_skill(tmp_path: Path) -> None:
    elsewhere = skill(tmp_path / "elsewhere", "x", "name: x\ndescription: elsewhere")
    folder = tmp_path / "project" / "skills"
    folder.mkdir(parents=True)
    (folder / "link").symlink_to(elsewhere.parent)
    (folder / "file").write_text("no folder")
    (folder / "pipe").mkdir()
    os.mkfifo(folder / "pipe" / "SKILL.md")
    (folder / "nested" / "SKILL.md").mkdir(parents=True)
    assert orientation.skills(tmp_path / "project") == []


def test_hostile_heads_make_one_short_line_and_many_skills_a_short_list(tmp_path: Path) -> None:
    folder = tmp_path / "project" / "skills"
    skill(folder, "evil", "name: e\x1b[31mvil\ndescription: " + "words " * 5_000)
    for number in range(60):
        skill(folder, f"s{number:02}", f"name: s{number:02}\ndescription: " + "d" * 200)
    for window, longest in ((8_000, 900), (200_000, 4_500)):
        with begun(tmp_path, f"run-{window}", window=window) as session:
            (text,) = [text for text in client_texts(session) if text.startswith("Skills")]
        assert "\x1b" not in text
        assert len(text) < longest
        assert text.splitlines()[-1].startswith("(and ")
        assert max(map(len, text.splitlines())) < 600


# --- memory


def test_a_note_with_the_label_is_in_the_index_of_later_runs_and_can_be_read_there(tmp_path: Path) -> None:
    with begun(tmp_path) as session:
        assert any("no run has left a note yet" in text for text in client_texts(session))
        turn(session)
        session.note("Tests need a database: `make db` starts it.", labels=["memory"])
        session.note("Only for now.", labels=["decision"])
        wrong = session.note("The port is 1.", labels=["memory"]).block
        turn(session)
        session.note(
            "The port is 2, not 1. " + "It was moved. " * 20, labels=["memory"], supersedes=wrong, allow_user=True
        )
    with begun(tmp_path, "run-2") as session:
        (text,) = [text for text in client_texts(session) if text.startswith("Memory")]
        lines = text.splitlines()[1:-1]
        assert [line.split(" ", 2)[2][:20] for line in lines] == ["The port is 2, not 1", "Tests need a databas"]
        assert "Only for now" not in text
        assert "label memory" in text
        address = lines[-1].split(" ")[1]
        assert "`make db` starts it" in session.recover(address).text


def test_a_session_without_the_tool_note_has_no_index(tmp_path: Path) -> None:
    with begun(tmp_path, policy="keep") as session:
        assert ("note" in session.terms.tools) == any("Memory" in text for text in client_texts(session))


def test_a_deleted_note_is_forgotten(tmp_path: Path) -> None:
    with begun(tmp_path) as session:
        turn(session)
        block = session.note("Wrong.", labels=["memory"]).block
        turn(session)
        assert session.delete(block, "it was wrong")
    with begun(tmp_path, "run-2") as session:
        assert any("no run has left a note yet" in text for text in client_texts(session))


# --- git's status


def test_the_status_comes_where_it_changed_and_only_there(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    with begun(tmp_path) as session:
        assert orientation.status(session, folder) is None, "no repository"
        git(folder, "init", "-q", "-b", "main")
        (folder / ".gitignore").write_text(".ctxvc\n")
        git(folder, "add", ".")
        git(folder, "commit", "-qm", "one")

        def status() -> str:
            message = orientation.status(session, folder)
            if message is None:
                return ""
            session.append(message)
            return message.parts[0].body.decode()

        assert status() == "git status: ## main\nno changes"
        assert status() == ""
        (folder / "a\x1b[31m.py").write_text("x")
        assert status().startswith("git status: ## main\n?? ")
        assert "\x1b" not in "".join(session.body(row.id).decode() for row in session.ledger().rows())
        for number in range(60):
            (folder / f"f{number}").write_text("x")
        assert status().splitlines()[-1] == "(and 21 more)"
        assert {row.origin for row in session.ledger().rows() if "git status" in row.label} <= {"client"}


def test_git_status_runs_nothing_that_a_project_names(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    with begun(tmp_path) as session:
        git(folder, "init", "-q", "-b", "main")
        (folder / "hook").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
        (folder / "hook").chmod(0o755)
        git(folder, "config", "core.fsmonitor", str(folder / "hook"))
        assert orientation.status(session, folder)
    assert not (tmp_path / "ran").exists()


def test_a_run_gets_the_status_with_its_task(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from ctxvc.cli.main import cli

    git(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / "a.py").write_text("x")
    (tmp_path / "script.json").write_text('[{"content": "Done."}]')
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        for arguments in (["look"], ["--resume", "run-1", "again"]):
            result = CliRunner().invoke(
                cli, ["run", "--script", "script.json", *arguments], env={"HOME": str(tmp_path)}
            )
            assert result.exit_code == 0, result.output
    with Session.open(tmp_path / ".ctxvc", "run-1") as session:
        texts = [session.body(row.id).decode() for row in session.ledger().rows()]
    statuses = [at for at, text in enumerate(texts) if text.startswith("git status")]
    assert len(statuses) == 1, "it did not change"
    assert texts[statuses[0] - 1] == "look"
