"""The tools of `ctxvc run`: what they give, and what they refuse."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ctxvc.agent import shell, workspace
from ctxvc.agent.workspace import CHARS, DEFINITIONS, HITS, Outcome, Workspace

ENV = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}


@pytest.fixture
def space(tmp_path: Path) -> Workspace:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.py").write_text("one\ntwo\nthree\n")
    (folder / "src").mkdir()
    (folder / "src" / "b.py").write_text("def two():\n    return 2\n")
    return Workspace(folder, env=ENV)


def said(outcome: Outcome) -> str:
    return outcome.output.decode("utf-8", "replace")


def test_a_command_runs_in_the_folder_and_its_failure_is_an_outcome(space: Workspace) -> None:
    result = space.run("bash", {"command": "pwd; ls; echo oops >&2; exit 3"})

    assert said(result) == f"{space.root}\na.py\nsrc\noops\n[exit code 3]\n"
    assert result.error
    assert space.run("bash", {"command": "true"}) == Outcome(b"[no output]")


def test_a_command_that_takes_too_long_is_stopped_with_all_that_it_started(space: Workspace) -> None:
    late = f"touch late-{os.getpid()}"  # another run of the tests may have one, too
    result = space.run("bash", {"command": f"sh -c 'echo begun; sleep 60; {late}' & wait", "timeout": 1})

    assert result.error
    assert said(result) == "begun\n[stopped after 1 seconds]\n"
    time.sleep(0.2)
    running = subprocess.run(["pgrep", "-f", late], capture_output=True, check=False)
    assert not running.stdout


def test_a_person_who_says_no_is_obeyed_and_the_model_is_told(space: Workspace) -> None:
    texts: list[str] = []
    space.approve = lambda command: bool(texts.append(command))

    result = space.run("bash", {"command": "touch made"})

    assert texts == ["touch made"]
    assert result.error
    assert "did not allow" in said(result)
    assert not (space.root / "made").exists()


def test_of_progress_the_last_state_is_shown_and_everything_is_kept(space: Workspace) -> None:
    result = space.run("bash", {"command": r"for i in 1 2 3; do printf '\r%s%%' $i; done; echo"})

    assert said(result) == "\r1%\r2%\r3%\n"
    assert result.shown == "3%"


def test_of_a_long_output_the_tail_is_shown_and_everything_is_kept(space: Workspace) -> None:
    result = space.run("bash", {"command": "seq 1 100000"})

    assert result.output.startswith(b"1\n2\n")
    assert result.shown is not None
    assert result.shown.endswith("\n99999\n100000")
    assert len(result.shown) < CHARS + 100
    assert "left out" in result.shown.partition("\n")[0]


def test_of_an_output_that_is_too_long_both_ends_are_kept_and_that_is_said(
    space: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "KEPT", 1_000)
    outcome = space.run("bash", {"command": "yes | head -c 5000; echo the end"})
    said = b"[4,008 bytes in the middle of the output were not kept]\n"
    assert outcome.output == b"y\n" * 250 + b"\n[4,008 bytes were not kept]\n" + b"y\n" * 246 + b"the end\n" + said
    assert (outcome.shown or "").endswith("\nthe end\n" + said.decode().rstrip())
    assert not outcome.error


@pytest.mark.parametrize("shift", range(4))
def test_no_character_of_it_is_cut_in_two(space: Workspace, monkeypatch: pytest.MonkeyPatch, shift: int) -> None:
    monkeypatch.setattr(shell, "KEPT", 1_000)
    (space.root / "faces").write_text("x" * shift + "\N{GRINNING FACE}" * 700)
    assert space.run("bash", {"command": "cat faces"}).output.decode()
    (space.root / "bytes").write_bytes(b"\x80" * 3_000)
    assert space.run("bash", {"command": "cat bytes"}).output.count(b"\x80") == 1_000


def test_a_command_that_writes_without_end_is_stopped(space: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "WRITTEN", 1 << 20)
    outcome = space.run("bash", {"command": "yes"})
    assert outcome.error
    assert len(outcome.output) < shell.KEPT + 500
    assert "[stopped: its output exceeded 1,048,576 bytes]" in (outcome.shown or "")


def test_files_are_read_with_line_numbers_and_in_parts(space: Workspace) -> None:
    assert said(space.run("read_file", {"path": "a.py"})) == "     1\tone\n     2\ttwo\n     3\tthree"
    assert said(space.run("read_file", {"path": "a.py", "first": 2, "lines": 1})) == "     2\ttwo\n[1 more lines]"
    assert said(space.run("read_file", {"path": "a.py", "first": 9})) == "a.py has 3 lines"


def test_of_a_giant_file_the_beginning_is_read_and_that_is_said(
    space: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace, "KEPT", 8)
    assert said(space.run("read_file", {"path": "a.py"})) == "     1\tone\n     2\ttwo\n[6 more bytes are not read]"


def test_what_is_no_file_is_not_read(space: Workspace) -> None:
    os.mkfifo(space.root / "pipe")
    for tool, more in (("read_file", {}), ("edit_file", {"old": "a", "new": "b"})):
        for path in ("pipe", "src"):
            assert said(space.run(tool, {"path": path, **more})) == f"{path} is not a file"


def test_files_are_written_and_edited_whole_or_not_at_all(space: Workspace) -> None:
    assert not space.run("write_file", {"path": "new/c.txt", "content": "a a b"}).error
    assert said(space.run("edit_file", {"path": "new/c.txt", "old": "a", "new": "x"})).startswith(
        "the text occurs 2 times"
    )
    assert said(space.run("edit_file", {"path": "new/c.txt", "old": "zz", "new": "x"})).startswith("the text is not in")
    assert (space.root / "new" / "c.txt").read_text() == "a a b"
    assert not space.run("edit_file", {"path": "new/c.txt", "old": "a", "new": "x", "all": True}).error
    assert (space.root / "new" / "c.txt").read_text() == "x x b"
    assert [each.name for each in (space.root / "new").iterdir()] == ["c.txt"]


def test_an_edited_file_keeps_its_mode_and_bytes_that_are_no_text(space: Workspace) -> None:
    script = space.root / "run.sh"
    script.write_bytes(b"#!/bin/sh\r\necho \xff old\r\n")
    script.chmod(0o755)

    space.run("edit_file", {"path": "run.sh", "old": "old", "new": "new"})

    assert script.read_bytes() == b"#!/bin/sh\r\necho \xff new\r\n"
    assert script.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        ("a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", "x\r\ny\r\nz\r\nc\r\n"),
        ("a\r\nb\r\n", "a\r\nb\r\n", "x\r\n", "x\r\n"),
        ("a\r\nb\r\n", "b", "x\ny", "a\r\nx\r\ny\r\n"),
        ("a\r\nb\r\n", "\nb", "", "a\r\n"),
        ("a\nb\n", "a\r\nb", "x\ny", "x\ny\n"),
        ("a\nb\n", "b", "x\r\ny", "a\nx\r\ny\n"),
        ("a\nb\nc\r\n", "b\nc", "x\ny", "a\nx\ny\r\n"),
        ("a\r\n.\r\n", "a\n.\n", "\\1\n", "\\1\r\n"),
    ],
)
def test_an_edit_means_any_line_end_and_keeps_the_files_own(
    space: Workspace, before: str, old: str, new: str, after: str
) -> None:  # fmt: skip
    (space.root / "a.txt").write_bytes(before.encode())
    assert not space.run("edit_file", {"path": "a.txt", "old": old, "new": new}).error
    assert (space.root / "a.txt").read_bytes() == after.encode()


def test_all_places_of_an_edit_are_replaced(space: Workspace) -> None:
    (space.root / "a.txt").write_bytes(b"a\r\nb\r\na\r\nb\r\na\r\n")
    assert said(space.run("edit_file", {"path": "a.txt", "old": "a\nb\n", "new": "x\n", "all": True})).startswith(
        "replaced 2 places"
    )
    assert (space.root / "a.txt").read_bytes() == b"x\r\nx\r\na\r\n"


def test_a_line_ends_with_a_newline_and_with_nothing_else(space: Workspace) -> None:
    (space.root / "a.txt").write_bytes("a\u2028b\x0bc\x0cd\x85e\rf\r\nlast\r\n\r\n".encode())
    read = "     1\ta\u2028b\x0bc\x0cd\x85e\rf\n     2\tlast\n     3\t"
    assert said(space.run("read_file", {"path": "a.txt"})) == read
    assert said(space.run("search_files", {"pattern": "last$"})) == "a.txt:2: last"
    (space.root / "a.txt").write_bytes(b"")
    assert said(space.run("read_file", {"path": "a.txt"})) == "[the file is empty]"


def test_files_that_git_ignores_are_neither_listed_nor_searched(space: Workspace) -> None:
    for command in (["init", "-q"],):
        subprocess.run(["git", "-C", str(space.root), *command], check=True, env=ENV)
    (space.root / ".gitignore").write_text("build/\n*.log\n")
    (space.root / "build").mkdir()
    (space.root / "build" / "two.py").write_text("two")
    (space.root / "x.log").write_text("two")

    assert said(space.run("list_files", {})).splitlines() == [".gitignore", "a.py", "src/b.py"]
    assert said(space.run("list_files", {"pattern": "**/*.py"})).splitlines() == ["a.py", "src/b.py"]
    assert said(space.run("search_files", {"pattern": r"\btwo"})).splitlines() == [
        "a.py:2: two",
        "src/b.py:1: def two():",
    ]
    assert said(space.run("search_files", {"pattern": "two", "path": "src", "glob": "*.ts"})) == "[no hits]"


@pytest.mark.parametrize(
    ("pattern", "files"),
    [
        ("src/**/*.py", "src/b.py src/x/c.py src/x/y/d.py"),
        ("src/**", "src/b.py src/x/c.py src/x/y/d.py"),
        ("src/**/y/**/*.py", "src/x/y/d.py"),
        ("**/x/**", "src/x/c.py src/x/y/d.py"),
        ("**/*.py", "a.py src/b.py src/x/c.py src/x/y/d.py"),
        ("*.py", "a.py src/b.py src/x/c.py src/x/y/d.py"),
        ("./src/*.py", "src/b.py"),
        ("src/*/*.py", "src/x/c.py"),
        ("x/*.py", ""),
        ("**", "a.py src/b.py src/x/c.py src/x/y/d.py"),
        ("**/" * 40 + "no", ""),
    ],
)
def test_in_a_glob_two_stars_are_any_folders_or_none(space: Workspace, pattern: str, files: str) -> None:
    (space.root / "src" / "x" / "y").mkdir(parents=True)
    for name in ("src/x/c.py", "src/x/y/d.py"):
        (space.root / name).write_text("def two")

    assert said(space.run("list_files", {"pattern": pattern})).split() == files.split()
    found = space.run("search_files", {"pattern": "two", "glob": pattern})
    assert [line.partition(":")[0] for line in said(found).splitlines() if line != "[no hits]"] == files.split()


def test_a_folder_without_git_is_listed_too(space: Workspace) -> None:
    (space.root / ".hidden").write_text("two")
    assert said(space.run("list_files", {})).splitlines() == ["a.py", "src/b.py"]


def test_a_folder_without_git_has_its_gitignore_too_and_repositories_inside_have_theirs(space: Workspace) -> None:
    (space.root / ".gitignore").write_text("*.log\nbuilt/\n")
    for folder in ("built", "src/built", "lib/built", "lib/src"):
        (space.root / folder).mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(space.root / "lib")], check=True, env=ENV)
    (space.root / "lib" / ".gitignore").write_text("*.tmp\n")
    for name in ("x.log", "built/two.py", "src/built/two.py", "lib/y.log", "lib/z.tmp", "lib/src/c.py"):
        (space.root / name).write_text("two")

    assert said(space.run("list_files", {})).splitlines() == [
        "a.py",
        "lib/.gitignore",
        "lib/src/c.py",
        "lib/y.log",
        "src/b.py",
    ]
    assert said(space.run("list_files", {"path": "src"})) == "src/b.py"


def test_no_command_that_the_folders_git_settings_name_is_run(space: Workspace) -> None:
    subprocess.run(["git", "init", "-q", str(space.root)], check=True, env=ENV)
    made = space.root.parent / "made"
    subprocess.run(
        ["git", "-C", str(space.root), "config", "core.fsmonitor", f"touch {made}; false"], check=True, env=ENV
    )

    assert said(space.run("list_files", {})).splitlines() == ["a.py", "src/b.py"]
    assert not made.exists()


def test_the_repository_of_the_folder_is_meant_whatever_the_environment_says(
    space: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = space.root.parent / "other"
    for folder in (space.root, other):
        subprocess.run(["git", "init", "-q", str(folder)], check=True, env=ENV)
    (other / "theirs.txt").write_text("x")
    subprocess.run(["git", "-C", str(other), "add", "."], check=True, env=ENV)
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    space.env = dict(os.environ)

    assert said(space.run("list_files", {})).splitlines() == ["a.py", "src/b.py"]


@pytest.mark.parametrize("tool", ["list_files", "search_files"])
def test_a_folder_that_is_not_there_is_an_error(space: Workspace, tool: str) -> None:
    result = space.run(tool, {"path": "nowhere", **({"pattern": "x"} if tool == "search_files" else {})})
    assert result.error
    assert said(result) == "no nowhere in the working folder"


def test_of_a_file_or_a_list_all_is_shown_not_its_end(space: Workspace) -> None:
    """What is too much for the context is admitted with both its ends, as any result is."""
    (space.root / "long.txt").write_text("".join(f"line {number}\n" for number in range(3_000)))
    for number in range(300):
        (space.root / f"file-{number:03}.txt").write_text("line 7\n")

    read = space.run("read_file", {"path": "long.txt"})
    assert read.shown is None
    assert said(read).splitlines()[0] == "     1\tline 0"
    assert said(read).splitlines()[-2:] == ["  2000\tline 1999", "[1,000 more lines]"]
    for tool, more in (("list_files", {}), ("search_files", {"pattern": "line 7$"})):
        result = space.run(tool, more)
        assert result.shown is None
        assert len(said(result).splitlines()) > 200


def test_hits_are_bounded(space: Workspace) -> None:
    (space.root / "many.txt").write_text("hit\n" * 5_000)
    lines = said(space.run("search_files", {"pattern": "hit"})).splitlines()
    assert len(lines) == HITS + 1


def test_of_endless_progress_the_end_is_shown_and_all_is_kept(space: Workspace) -> None:
    (space.root / "log").write_bytes(b"begun\n" + b"\rstep 1 of 2" * 200_000 + b"\rstep 2 of 2\n")

    result = space.run("bash", {"command": "cat log"})

    assert result.shown == "begun\nstep 2 of 2"
    assert len(result.output) == (space.root / "log").stat().st_size


def test_text_that_no_encoding_takes_is_read_as_it_is_and_refused_of_a_model(space: Workspace) -> None:
    (space.root / "half.txt").write_bytes(b"\xed\xa0\x80 half\n")

    assert space.run("read_file", {"path": "half.txt"}).output == b"     1\t\xed\xa0\x80 half"
    assert space.run("search_files", {"pattern": "half"}).output == b"half.txt:1: \xed\xa0\x80 half"
    for tool, more in (
        ("write_file", {"path": "x", "content": "\ud800"}),
        ("edit_file", {"path": "half.txt", "old": "half", "new": "\udcff"}),
        ("bash", {"command": "echo \ud800"}),
        ("bash", {"command": "echo \0"}),
    ):
        assert space.run(tool, more).error
    assert (space.root / "half.txt").read_bytes() == b"\xed\xa0\x80 half\n"


@pytest.mark.parametrize("pattern", [".", "/", "[", "\0"])
def test_a_glob_of_nothing_fits_nothing(space: Workspace, pattern: str) -> None:
    assert said(space.run("list_files", {"pattern": pattern})) == ""


_text = st.text(max_size=20) | st.text(st.characters(min_codepoint=0xD7F0, max_codepoint=0xE010), max_size=3)
_values = st.none() | st.booleans() | st.integers() | _text | st.lists(st.integers(), max_size=2)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from([tool["name"] for tool in DEFINITIONS if tool["name"] != "bash"] + ["nothing"]),
    st.dictionaries(
        st.sampled_from(["path", "pattern", "glob", "content", "old", "new", "first", "lines", "x"]),
        _values,
        max_size=4,
    ),
)
def test_whatever_a_model_asks_is_answered(space: Workspace, name: str, asked: Mapping[str, Any]) -> None:
    result = space.run(name, asked)
    assert isinstance(result, Outcome)
    if result.error:
        assert 0 < len(result.output) < 400
