"""What a run is told of the skills of its project."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from ctxvc.agent import start
from ctxvc.agent.skills import Skill, skills
from ctxvc.policies import parse
from ctxvc.session.session import Session
from tests.making.provider import MODEL


def skill(folder: Path, name: str, head: str, body: str = "Do as follows.") -> Path:
    path = folder / name / "SKILL.md"
    path.parent.mkdir(parents=True)
    path.write_text(f"---\n{head}\n---\n\n{body}\n" if head else body)
    return path


def begun(tmp_path: Path, name: str = "run-1", window: int = 60_000) -> Session:
    (tmp_path / "project").mkdir(exist_ok=True)
    place = tmp_path / "project" / ".ctxvc"
    return start.begin(place, name, model=MODEL, policy=parse("default"), window=window, folder=tmp_path / "project")


def client_texts(session: Session) -> list[str]:
    rows = [row for row in session.ledger().rows() if row.origin == "client" and row.state == "pinned"]
    return [session.body(row.id).decode() for row in rows]


def test_skills_are_listed_by_name_and_description_and_their_bodies_are_not(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    skill(folder / ".claude/skills", "pdf", "name: pdf-forms\ndescription: Fill PDF forms.", "SECRET BODY")
    skill(folder / "skills", "sql", 'description: "Ask the database"')
    skill(folder / ".agents/skills", "long", "name: long\ndescription: >-\n  First line,\n  second line.\nlicense: MIT")
    skill(folder / "skills", "plain", "", "No head at all.")
    assert skills(folder) == [
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
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    inner = tmp_path / "inner"
    skill(tmp_path / "skills", "a", "name: a\ndescription: far")
    skill(inner / "skills", "a", "name: a\ndescription: near")
    skill(tmp_path / "skills", "b", "name: b\ndescription: far")
    assert skills(inner) == [
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
    assert skills(tmp_path / "project") == []


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
