"""A store with thousands of sessions, made in seconds: one that was recorded, under as many names."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from ctxvc.store.project.locate import FOLDER
from tests.benchmarks.making import store_of

_BLOCKS = 7
_RECORDED = f"made-{_BLOCKS}"
_BRANCH = f"refs/heads/{_RECORDED}/main"
_META = re.compile(rb"^M 100644 ([0-9a-f]{40}) ctxvc\.json$", re.MULTILINE)
_DATA = re.compile(rb"^data (\d+)\n", re.MULTILINE)
_TIME = re.compile(rb"> (\d+) \+0000$", re.MULTILINE)
_MARK = re.compile(rb"^(mark|from) :(\d+)$", re.MULTILINE)


def make(folder: Path, count: int) -> Path:
    """A project with the sessions `s00000`, `s00001`, …, each a minute older than the one before."""
    with store_of(folder, _BLOCKS) as store:
        project = store.path.parent
    git_dir, marks = project / FOLDER, folder / "marks"
    git = ["git", "--git-dir", str(git_dir)]
    exported = subprocess.run([*git, "fast-export", "--no-data", _BRANCH], capture_output=True, check=True).stdout
    template = _META.sub(lambda meta: _inline(_read(git, meta[1].decode())), exported)
    commits = len(re.findall(rb"^mark :", template, re.MULTILINE))
    with subprocess.Popen(
        [*git, "fast-import", "--quiet", "--force", "--done", f"--export-marks={marks}"], stdin=subprocess.PIPE
    ) as writing:
        assert writing.stdin
        for number in range(count):
            writing.stdin.writelines(_session(template, number, commits))
        writing.stdin.write(b"done\n")
    assert writing.returncode == 0
    ids = dict(line.split() for line in marks.read_text().splitlines())
    subprocess.run([*git, "update-ref", "-d", _BRANCH], check=True)
    tips = [f"{ids[f':{(number + 1) * commits}']} refs/heads/{_name(number)}/main\n" for number in range(count)]
    # Git itself would write, and synchronise, a file a branch first.
    (git_dir / "packed-refs").write_text("".join(["# pack-refs with: peeled fully-peeled sorted \n", *tips]))
    subprocess.run([*git, "symbolic-ref", "HEAD", f"refs/heads/{_name(0)}/main"], check=True)
    return project


def _name(number: int) -> str:
    return f"s{number:05d}"


def _read(git: list[str], blob: str) -> bytes:
    return subprocess.run([*git, "cat-file", "blob", blob], capture_output=True, check=True).stdout


def _inline(data: bytes) -> bytes:
    return b"M 100644 inline ctxvc.json\ndata %d\n%s" % (len(data), data)


def _session(template: bytes, number: int, commits: int) -> Iterator[bytes]:
    """The commands that make the template's commits once more, as this session; all are made on one branch."""
    first, *pieces = _DATA.split(template)  # then, by turns, how long the data are, and they with what follows
    yield _commands(first, number, commits)
    for length, rest in zip(pieces[::2], pieces[1::2], strict=True):
        data = rest[: int(length)].replace(_RECORDED.encode(), _name(number).encode())
        yield b"data %d\n%s" % (len(data), data)
        yield _commands(rest[int(length) :], number, commits)


def _commands(template: bytes, number: int, commits: int) -> bytes:
    earlier = _TIME.sub(lambda time: b"> %d +0000" % (int(time[1]) - 60 * number), template)
    return _MARK.sub(lambda mark: b"%s :%d" % (mark[1], int(mark[2]) + number * commits), earlier)
