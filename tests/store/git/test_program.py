"""git on a project: what it says, and no process where it can only say that there is no repository."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ctxvc.store.git import program
from tests.making.store import git


@pytest.fixture
def places(tmp_path: Path) -> Path:
    """Repositories of every kind, and what only resembles one."""
    subprocess.run(["git", "init", "-q", tmp_path / "project"], check=True)
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *identity, "commit", "-q", "--allow-empty", "-m", "x"], cwd=tmp_path / "project", check=True)
    (tmp_path / "project" / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to("project/a")
    git(tmp_path / "project" / ".git", "worktree", "add", "-q", str(tmp_path / "linked"))
    subprocess.run(["git", "init", "-q", "--bare", tmp_path / "bare"], check=True)
    (tmp_path / "gone").mkdir()
    (tmp_path / "gone" / ".git").write_text("gitdir: nowhere\n")
    (tmp_path / "plain" / "a").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize(
    "name",
    [
        *("project", "project/a/b", "link/b", "project/.git/refs", "linked", "bare", "bare/objects"),
        *("gone", "plain", "plain/a", "nowhere"),
    ],
)
def test_a_repository_is_found_where_git_finds_one(places: Path, name: str) -> None:
    folder = places / name
    arguments = ["rev-parse", "--absolute-git-dir"]
    expected = (
        subprocess.run(["git", *arguments], cwd=folder, capture_output=True, check=False).stdout or None
        if folder.exists()
        else None
    )

    assert program.of_project(folder, *arguments) == expected
    assert (expected is None) == name.startswith(("gone", "plain", "nowhere"))


def test_where_there_is_no_repository_no_process_is_started(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(places / "plain")
    monkeypatch.setattr(subprocess, "run", None)

    assert program.of_project(Path("a"), "diff") is None
    assert program.own_repository(places / "plain") is None
    with pytest.raises(TypeError):
        program.of_project(places / "project" / "a", "diff")


def test_a_repository_that_is_named_needs_none_around(places: Path) -> None:
    at = ("--git-dir", os.fspath(places / "project" / ".git"))

    assert program.of_project(places / "plain", "log", "--format=%s", at=at) == b"x\n"


def test_a_repository_that_the_tests_copy_is_what_git_makes(tmp_path: Path) -> None:
    arguments = ["init", "--quiet", "--bare", "--template=", "--object-format=sha1", "--initial-branch=main"]
    subprocess.run(["git", *arguments, tmp_path / "real"], env=program.environment(), check=True)
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        program.run(None, *arguments, str(tmp_path / name))

    def content(folder: Path) -> list[tuple[str, int, bytes]]:
        return sorted(
            (str(path.relative_to(folder)), path.stat().st_mode, path.read_bytes() if path.is_file() else b"")
            for path in folder.rglob("*")
        )

    assert content(tmp_path / "real") == content(tmp_path / "first") == content(tmp_path / "second")
