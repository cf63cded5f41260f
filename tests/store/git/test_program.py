"""git on a project, its configuration files, and the packs that it is given."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ctxvc.core.ledger.ledger import SEGMENT, Ledger, Meta, Row
from ctxvc.store import format as fmt
from ctxvc.store.git import config_parser, program
from ctxvc.store.git.fast_import import Commit, PackWriter
from ctxvc.store.store import create
from tests.core.ledger.test_ledger import row
from tests.making.store import git, git_bytes


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


# --- configuration files: what is read from one is what git reads, and what is not certain is not read


ODD = st.sampled_from(
    ['"', '\\"', "\\\\", "\\n", "\\t", "\\", "#", ";", " ", "\t", "a", "é", "]", "[core]", "=", "\r", "\\\n"]
)
HEADERS = st.sampled_from(
    ["[core]", "[Re.mote]", '[remote "a b"]', '[a "x\\"]\\y"]', '[a  \t"B"] ', "[a]c=d", " [ core]", "[core"]
)
VALUES = st.lists(ODD, max_size=6).map("".join)
STARTS = st.sampled_from(["\t", "", "[x] "])
KEYS = st.sampled_from(["Bare", "a-1", "1x", "#b"])
EQUALS = st.sampled_from(["", " ", "=", " = ", "\t=\t"])
ENTRIES = st.builds("{}{}{}{}".format, STARTS, KEYS, EQUALS, VALUES)
TEXTS = st.lists(st.one_of(HEADERS, ENTRIES, ENTRIES), min_size=1, max_size=5).map(
    lambda lines: "\n".join(["[s]", *lines])
)


def of_git(data: bytes) -> list[tuple[str, str | None]] | None:
    """What git lists; None where it takes the file for broken."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "config")
        file.write_bytes(data)
        arguments = ["git", "config", "--file", str(file), "--no-includes", "--list", "-z"]
        result = subprocess.run(arguments, capture_output=True, check=False)
    if result.returncode:
        return None
    items = [item.partition("\n") for item in result.stdout.decode().split("\0")[:-1]]
    return [(key, value if equals else None) for key, equals, value in items]


@given(TEXTS)
@example('[core]\n\tfsmonitor = "a b" c # d\n\tbare\n[remote "x y"] url = https://example.org ; z')
@example("[core] a = b\\\n[include]\n path = c")
@example('[a "b\\\\c\\"d"]\ne = " f \\t g "  h')
def test_what_is_read_is_what_git_reads(text: str) -> None:
    data = text.encode()
    try:
        ours = [(setting.key, setting.value) for setting in config_parser.settings(data)]
    except ValueError:
        return  # narrower than git's grammar, never wider
    theirs = of_git(data)

    assert theirs is not None
    # What becomes of a tab between words differs from one git to the next.
    assert _spaced(ours) == _spaced(theirs)


def _spaced(items: list[tuple[str, str | None]]) -> list[tuple[str, str | None]]:
    return [(key, value and value.replace("\t", " ")) for key, value in items]


@pytest.mark.parametrize(
    "data", [b"[core]\n\ta = b\0c\n", b"[core]\n\xff = a\n", b"a = b\n", b"[core]\n\ta = b \\\n c\n"]
)
def test_what_is_not_certain_is_not_read(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"NUL|line \d"):
        list(config_parser.settings(data))


# --- what a pack has of a ledger is the ledger, whichever way it grew or changed


def _versions() -> list[Ledger]:
    """A ledger that grows over the ends of segments, then has a row in the place of another, and grows again."""
    newest = Ledger(Meta(format=fmt.FORMAT, session="s", scope="main"))
    versions = [newest]

    def add(*rows: Row) -> None:
        nonlocal newest
        newest = newest.with_rows(rows)
        versions.append(newest)

    for number in range(SEGMENT - 3, SEGMENT + 3):
        add(row(number))
    add(row(SEGMENT, reads=1))
    add(row(SEGMENT + 3), row(SEGMENT * 2), row(SEGMENT * 2 + 1))
    add(msgspec.structs.replace(row(SEGMENT - 2), state="archived"))
    add(row(SEGMENT * 2 + 2))
    return versions


def test_each_commit_has_the_rows_of_its_ledger(tmp_path: Path) -> None:
    path = tmp_path / ".ctxvc"
    create(path).close()
    versions = _versions()
    before: Ledger | None = None
    with PackWriter(path) as pack:
        for ledger in versions:
            known = {row.id for row in before.rows()} if before else set()
            bodies = tuple((row.id, "", row.id.encode()) for row in ledger.rows() if row.id not in known)
            pack.commit(
                Commit(
                    ref="refs/heads/s/main", before=before, after=ledger, bodies=bodies, message="m\n", actor="a",
                    time=1, now=1,
                )
            )  # fmt: skip
            before = ledger

    commits = git(path, "rev-list", "--reverse", "refs/heads/s/main").split()
    for commit, ledger in zip(commits, versions, strict=True):
        stored = git(path, "ls-tree", "-r", "--name-only", commit, "ledger/").split()
        assert stored == [fmt.segment_path(key) for key in ledger.segments]
        for key, rows in ledger.segments.items():
            assert git_bytes(path, "show", f"{commit}:{fmt.segment_path(key)}") == fmt.encode_rows(rows)
        assert {fmt.block_of_path(name) for name in git(path, "ls-tree", "-r", "--name-only", commit).split()} - {
            ""
        } == {row.id for row in ledger.rows()}
