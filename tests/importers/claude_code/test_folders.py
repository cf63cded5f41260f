"""How transcripts are known, and where they lie."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ctxvc.importers import claude_code
from tests.importers.claude_code.lines import REAL, prompt, queue


def test_a_transcript_is_known_by_its_first_lines() -> None:
    snapshot = {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}}
    long = json.dumps(prompt("u1", None, "x" * 100_000), separators=(",", ":")).encode()

    assert claude_code.sniff(REAL.read_bytes()[:65536])
    assert claude_code.sniff(json.dumps(snapshot).encode())
    assert claude_code.sniff(json.dumps(queue("enqueue", "x")).encode() + b"\n")
    assert claude_code.sniff(long[:65536])


def test_the_folder_of_a_project_is_its_path_with_dashes(tmp_path: Path) -> None:
    projects = tmp_path / ".claude" / "projects"

    assert claude_code.folders(Path("/home/me/my_app\U0001f600"), tmp_path, {}) == [projects / "-home-me-my-app--"]


def test_the_environment_can_move_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "config" / "projects" / "mine"
    env = {"CLAUDE_CONFIG_DIR": str(tmp_path / "config"), "CLAUDE_CODE_PROJECT_DIR_NAME": "mine"}

    assert claude_code.folders(Path("/anywhere"), Path("/nobody"), env) == [folder]


@pytest.mark.parametrize(
    ("cwd", "is_of"),
    [("/work/app", True), ("/work/app/inner", True), ("/work-app", False), ("/work/app2", False), (None, True)],
)
def test_sessions_of_two_projects_in_one_folder_are_told_apart(cwd: str | None, is_of: bool) -> None:
    head = json.dumps(prompt("u1", None, 'say "cwd":"/elsewhere"', **({"cwd": cwd} if cwd else {})))

    assert claude_code.is_of_project((head if cwd else '{"type":"mode"}').encode(), "/work/app") is is_of


def test_of_a_very_long_path_every_folder_that_begins_like_it_is_found(tmp_path: Path) -> None:
    project = Path("/" + "x" * 300)
    found = tmp_path / ".claude" / "projects" / f"-{'x' * 199}-1a2b3c"
    found.mkdir(parents=True)
    (found.parent / f"-{'x' * 199}").mkdir()

    assert claude_code.folders(project, tmp_path, {}) == [found]
