"""Files below a folder: links, races, and the names that other file systems take for a repository's."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from ctxvc.agent import footholds
from ctxvc.agent.files import Tree
from ctxvc.agent.workspace import Workspace
from ctxvc.errors import BadInput


@pytest.fixture
def space(tmp_path: Path) -> Workspace:
    (tmp_path / "project" / "src").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("theirs")
    return Workspace(tmp_path / "project", env={"PATH": os.environ["PATH"]})


def refused(space: Workspace, path: str) -> bool:
    """Whether neither of the tools that write does, and nothing is there afterwards that was not."""
    before = sorted(space.root.rglob("*"))
    wrote = space.run("write_file", {"path": path, "content": "x"})
    edited = space.run("edit_file", {"path": path, "old": "ref", "new": "x"})
    return wrote.error and edited.error and sorted(space.root.rglob("*")) == before


# --- links


def test_a_link_inside_is_followed_and_stays_a_link(space: Workspace) -> None:
    (space.root / "src" / "a").write_text("one")
    (space.root / "link").symlink_to("src/../src/a")
    (space.root / "whole").symlink_to(space.root / "src")

    assert not space.run("edit_file", {"path": "link", "old": "one", "new": "two"}).error
    assert not space.run("write_file", {"path": "whole/new/b", "content": "b"}).error
    assert not space.run("write_file", {"path": str(space.root / "c"), "content": "c"}).error
    assert (space.root / "link").is_symlink()
    assert [(space.root / name).read_text() for name in ("src/a", "src/new/b", "c")] == ["two", "b", "c"]


@pytest.mark.parametrize(
    "path",
    [
        *("link/file", "far/file", "src/../../outside/file", "deep/er/file", "dangling", "far/../outside/new"),
        *("../outside/file", "/etc/passwd", "round", "a\0b"),
    ],
)
def test_a_link_that_leads_out_is_not_followed(space: Workspace, path: str) -> None:
    (space.root / "link").symlink_to("../outside")
    (space.root / "far").symlink_to(space.root.parent / "outside")
    (space.root / "deep").mkdir()
    (space.root / "deep" / "er").symlink_to("../src/../../outside")
    (space.root / "dangling").symlink_to("../outside/new")
    (space.root / "round").symlink_to("round")

    assert refused(space, path)
    assert all(space.run(tool, {"path": path}).error for tool in ("read_file", "list_files"))
    assert [item.name for item in (space.root.parent / "outside").iterdir()] == ["file"]
    assert (space.root.parent / "outside" / "file").read_text() == "theirs"


def test_a_race_between_the_look_and_the_write_does_not_lead_out(space: Workspace) -> None:
    """Somebody swaps a folder for a link out of the project, as often as there is time for."""
    over = threading.Event()
    (space.root / "inside").mkdir()
    (space.root / "out").symlink_to("../outside")
    here = space.root / "d"

    def swap() -> None:
        while not over.is_set():
            for name in ("inside", "out"):
                try:
                    (space.root / name).rename(here)
                    here.rename(space.root / name)
                except OSError:  # a write has made the folder, since nothing was there
                    shutil.rmtree(here, ignore_errors=True)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        outcome = [space.run("write_file", {"path": f"d/{number}", "content": "x"}).error for number in range(1_500)]
    finally:
        over.set()
        swapping.join()
    assert not all(outcome), "no write ever came through: nothing was tried"
    assert [item.name for item in (space.root.parent / "outside").iterdir()] == ["file"]


@pytest.mark.parametrize("tool", ["write_file", "edit_file", "read_file"])
@pytest.mark.parametrize("name", ["d", "file"])
def test_what_takes_a_names_place_after_it_was_looked_at_is_not_followed(
    space: Workspace, monkeypatch: pytest.MonkeyPatch, tool: str, name: str
) -> None:
    """A link to a folder outside for `d`, one to a file outside for `file`: at the worst moment there is."""
    (space.root / "d").mkdir()
    (space.root / "d" / "file").write_text("ours")
    target = {"d": space.root.parent / "outside", "file": space.root.parent / "outside" / "file"}[name]
    place = {"d": space.root / "d", "file": space.root / "d" / "file"}[name]
    looked = os.stat

    def stat(path: str, *given: object, **more: object) -> os.stat_result:
        seen = looked(path, *given, **more)  # type: ignore[arg-type]
        if path == name and not place.is_symlink():
            place.rename(space.root / "aside")
            place.symlink_to(target)
        return seen

    monkeypatch.setattr("ctxvc.agent.files.os.stat", stat)
    more = {"write_file": {"content": "x"}, "edit_file": {"old": "ours", "new": "x"}, "read_file": {}}[tool]
    outcome = space.run(tool, {"path": "d/file", **more})
    monkeypatch.undo()
    assert place.is_symlink() or tool == "write_file"
    assert b"theirs" not in outcome.output
    assert (space.root.parent / "outside" / "file").read_text() == "theirs"


def test_the_folder_is_the_one_that_was_there_at_the_start(space: Workspace) -> None:
    space.root.rename(space.root.with_name("moved"))
    space.root.symlink_to("outside")
    space.run("write_file", {"path": "new", "content": "x"})
    assert not (space.root.parent / "outside" / "new").exists()
    assert (space.root.parent / "moved" / "new").read_text() == "x"


def test_a_link_through_itself_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(f"{tmp_path}/a/../b")
    (tmp_path / "b").write_text("x")
    with pytest.raises(OSError, match="symbolic links"), Tree(tmp_path).place("a"):
        pass


_name = st.sampled_from(["a", "b", "c"])
_path = st.lists(_name | st.sampled_from(["..", "."]), min_size=1, max_size=5).map("/".join)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(_path, st.none() | _path | _path.map("/{}".format)), max_size=8), _path)
def test_a_path_leads_where_the_system_says_or_nowhere(
    tmp_path: Path, result: list[tuple[str, str | None]], path: str
) -> None:  # fmt: skip
    """Folders (None) and links, some to an absolute path that begins at the top; a path that leads out is refused."""
    root = tmp_path / "made" / "root"
    shutil.rmtree(tmp_path / "made", ignore_errors=True)
    root.mkdir(parents=True)
    for name, target in result:
        place = root / name
        if target is None and place.parent.is_dir() and not place.is_symlink():
            place.mkdir(exist_ok=True)
        elif target and place.parent.is_dir() and not os.path.lexists(place):
            place.symlink_to(f"{root}{target}" if target.startswith("/") else target)
    tree = Tree(root)
    real = Path(os.path.realpath(root / path))
    try:
        with tree.place(path) as place:
            assert root.joinpath(*place.parts) == real
            assert (place.status() is not None) == real.exists()
    except BadInput:
        # It was outside on its way, if it does not end there.
        assume(real.is_relative_to(root))
        assert ".." in path or any(".." in (target or "") for _, target in result)
    except OSError:  # links that go round
        assume(False)


# --- places from which code runs later


@pytest.mark.parametrize(
    "path",
    [
        ".git/hooks/pre-commit", ".GIT/config", ".git /config", ".git. ./config", ".Git./x", "src/.git", "GIT~1/config",
        "git~2/x", ".g\u200cit/config", ".gi\ufefft/x", "\uff0egit/config", ".git::$INDEX_ALLOCATION/config", ".git:x",
        "src\\.git\\config", ".claude/settings.json", ".claude/settings.local.json", ".Claude/hooks/x.sh",
        "src/.claude/agents/x.md", "CLAUDE~1/settings.json", ".mcp.json", "part/.MCP.JSON", "MCP~1.JSO",
        ".husky/pre-commit", ".githooks/pre-push", ".ctxvc/config", ".CTXVC/ctxvc/journal/x", "tools/hooks/pre-commit",
        "link/config", "bare/config", "bare/hooks/x", "bare/new/x", "half/HEAD", "nearly/refs/x", "nearly/refs",
    ],
)  # fmt: skip
def test_what_would_run_code_later_is_not_written(space: Workspace, path: str) -> None:
    for name, target in (("bare", "HEAD"), ("nearly", "HEAD"), ("half", "config")):
        (space.root / name / "objects").mkdir(parents=True)
        (space.root / name / target).write_text("ref: refs/heads/main\n")
    for name in ("bare", "half"):
        (space.root / name / "refs").mkdir()
    subprocess.run(["git", "init", "-q", str(space.root)], check=True)
    subprocess.run(["git", "-C", str(space.root), "config", "core.hooksPath", "tools/hooks"], check=True)
    (space.root / "link").symlink_to(".git")

    assert refused(space, path)
    assert b"must not be written" in space.run("write_file", {"path": path, "content": "x"}).output


def test_nor_where_a_command_has_just_put_a_repository_or_its_hooks(space: Workspace) -> None:
    space.run("bash", {"command": "true"})
    made = "git init -q; git init -q part; git init -q --bare bare; mkdir tools; git config core.hooksPath tools"
    space.run("bash", {"command": made})
    for path in (".git/config", "part/.git/config", "bare/hooks/update", "tools/pre-push"):
        assert refused(space, path)


@pytest.mark.parametrize("path", ["HEAD", "objects/x", "gitignore", ".gitignore", "git", "claude.md", "mcp.json", "~1"])
def test_what_only_looks_like_it_is_written(space: Workspace, path: str) -> None:
    assert not space.run("write_file", {"path": path, "content": "x"}).error


_signs = st.sampled_from([*".gGiItT ~1:\\", "\u200c", "\u200d", "\ufeff", "\u0131", "\u017f"])


@given(
    st.lists(_signs, max_size=3), st.sampled_from([".git", ".GIT", "git~1", ".g\u200cit"]), st.lists(_signs, max_size=3)
)
def test_what_git_takes_for_a_repository_is_refused_as_well(before: list[str], name: str, after: list[str]) -> None:
    path = "".join([*before, name, *after])
    assume("\0" not in path and path.strip("."))
    blob = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
    config = ["-c", "core.protectHFS=true", "-c", "core.protectNTFS=true"]
    question = ["git", *config, "update-index", "--add", "--cacheinfo", f"100644,{blob},{path}/x"]
    outcome = subprocess.run(question, cwd=_repository(), capture_output=True, check=False)
    if outcome.returncode:
        assert footholds.reason((path, "x"), lambda _depth, _name: False)


_made: list[Path] = []


def _repository() -> Path:
    """An empty repository for this process."""
    if not _made:
        import tempfile

        _made.append(Path(tempfile.mkdtemp()))
        subprocess.run(["git", "init", "-q", str(_made[0])], check=True)
    return _made[0]


def test_of_a_project_with_many_folders_a_second_look_is_cheap(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"d{number // 10}" / f"e{number}").mkdir(parents=True)
    watch = footholds.Footholds(tmp_path)
    assert watch.changes() == []
    (tmp_path / "d3" / "e30" / ".claude").mkdir()
    (tmp_path / "d3" / "e30" / ".claude" / "settings.json").write_text("{}")
    assert watch.changes() == ["d3/e30/.claude/settings.json (new)"]
    (tmp_path / "d3" / "e30" / ".claude" / "settings.json").write_text("{ }")
    assert watch.changes() == ["d3/e30/.claude/settings.json (changed)"]
    shutil.rmtree(tmp_path / "d3")
    assert watch.changes() == ["d3/e30/.claude/settings.json (removed)"]
    assert watch.changes() == []


def test_where_there_are_too_many_folders_it_is_told_once(space: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footholds, "FOLDERS", 1)
    outcome = space.run("bash", {"command": "true"})
    assert outcome.alarm == "beyond 1 folders the deepest are not watched for files that run code later"
    assert space.run("bash", {"command": "true"}).alarm == ""
    (space.root / ".claude").mkdir()
    (space.root / ".claude" / "settings.json").write_text("{}")
    assert space.run("bash", {"command": "true"}).alarm == "this may run code later: .claude/settings.json (new)"


def test_a_line_that_a_pattern_takes_too_long_for_costs_its_file_alone(
    space: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctxvc.core.patterns.TOOL_SECONDS", 60.0)
    for name, text in (("a", "a" * 40), ("b", "the needle"), ("c", "c")):
        (space.root / name).write_text(text)

    listed = space.run("search_files", {"pattern": r"needle|(?:a|a)+b(?=x)"}).output.decode()

    assert "b:1: the needle" in listed and listed.endswith("these were not searched further: a]")
