"""A store from anywhere is only data: whatever stands in it, nothing outside is touched and no program is run but git.

The cases, and what is watched, are in `hostile.py`. The campaign takes minutes: `pytest -m faults`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.making.store import ROOT
from tests.store import hostile

#: What a child of ctxvc may be: git, what git starts of itself, and ourselves.
_OWN_PROGRAMS = re.compile(r"(?:.*/)?(?:git(?:-[a-z-]+)?|python[0-9.]*)")


def _place(tmp_path: Path) -> Path:
    """Where a world is made: in memory where that is possible, since everything is brought to the disk so often."""
    memory = Path("/dev/shm")
    return memory / f"ctxvc-{os.getpid()}-{tmp_path.name}" if os.access(memory, os.W_OK) else tmp_path / "world"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    made = _place(tmp_path)
    yield made
    subprocess.run(["rm", "-rf", str(made)], check=True)


def _judged(place: Path, *arguments: str) -> tuple[list[dict[str, object]], dict[str, object]]:
    """What was wrong, and what was done, as told by an interpreter of its own."""
    result = subprocess.run(
        [sys.executable, "-m", "tests.store.hostile", str(place), *arguments],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    *findings, last = [json.loads(line) for line in result.stdout.splitlines()] or [{}]
    assert "cases" in last, result.stderr[-3000:]
    return findings, last


def test_there_are_500_cases_and_a_seed_makes_the_same_ones() -> None:
    names = [case.name for case in hostile.cases()]

    assert len(names) == len(set(names)) >= 500
    assert names == [case.name for case in hostile.cases()] != [case.name for case in hostile.cases(seed=1)]
    whole = [case.name for case in hostile.cases(1 << 20)]
    for file in (*hostile.FILES, *hostile.FOLDERS):
        assert sum(name.startswith(f"{file}: ") for name in whole) >= len(hostile.LINKS)


def test_a_sample_of_hostile_stores_touches_nothing_outside(place: Path) -> None:
    findings, done = _judged(place, "--quick", "--last", "9", "--each", "5")

    assert not findings, json.dumps(findings, indent=1)
    assert done["cases"] == 2


@pytest.mark.faults
@pytest.mark.timeout(7200)
def test_no_hostile_store_touches_anything_outside(place: Path) -> None:
    findings, done = _judged(place)

    assert not findings, json.dumps(findings, indent=1)
    assert done["cases"] == hostile.COUNT


# --- real processes, with every system call that counts

_CALLS = "execve,open,openat,creat,unlink,unlinkat,rename,renameat,renameat2,mkdir,mkdirat,rmdir,link,linkat,symlink,\
symlinkat,truncate,chmod,fchmodat,mknod,mknodat,chdir"
_LINE = re.compile(r"^(?:\d+ +)?(\w+)\((.*)\) += (-?\d+)")
_PATH = re.compile(r'(?:AT_FDCWD(?:<([^>]*)>)?|\d+<([^>]*)>)?(?:, )?"((?:[^"\\]|\\.)*)"')


def _touched(trace: str, start: str) -> Iterator[tuple[str, str]]:
    """Call and full path of what a process started, or changed or made by name."""
    here: dict[str, str] = {}
    last = start
    for line in trace.splitlines():
        found = _LINE.match(line)
        if not found or found[3].startswith("-"):
            continue
        call, words, process = found[1], found[2], line.split(" ")[0]
        if call == "chdir":
            last = here[process] = os.path.normpath(os.path.join(here.get(process, last), words.strip('"')))
            continue
        if call in ("open", "openat") and not re.search(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC", words):
            continue
        for at in _PATH.finditer(words.split("[")[0] if call == "execve" else words):
            yield call, os.path.normpath(os.path.join(at[1] or at[2] or here.get(process, last), at[3]))


@pytest.mark.faults
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed: system calls cannot be watched")
def test_real_processes_touch_nothing_outside_by_their_system_calls(place: Path, tmp_path: Path) -> None:
    sample = hostile.cases()
    assert len(sample[:: len(sample) // 20][:20]) == 20
    code = "from pathlib import Path; import sys; from tests.store import hostile; hostile.prepared(Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", code, str(place)], cwd=ROOT, check=True)
    world = hostile.World(place)
    env = {"PATH": os.environ["PATH"], "HOME": str(world.home), "TMPDIR": str(world.temporary)}
    own = (f"{world.store}/", f"{world.scratch}/", f"{world.temporary}/", f"{world.home}/.local/share/ctxvc", "/dev/")
    made = (str(world.store), f"{world.home}/.local", f"{world.home}/.local/share", f"{world.home}/.cache")
    log = tmp_path / "trace"
    for case in sample[:: len(sample) // 20][:20]:
        for arguments in (("status",), ("note", "-m", "x"), ("checkout",), ("gc",), ("hook", "Stop")):
            world.fresh()
            case.make(world)
            before = world.snapshot()
            event = {"hook_event_name": "Stop", "transcript_path": str(world.transcript), "cwd": str(world.project)}
            result = subprocess.run(
                ["strace", "-f", "-y", "-s", "4096", "-o", str(log), "-e", f"trace={_CALLS}",
                 sys.executable, "-B", "-m", "ctxvc", *arguments],
                cwd=world.project, env={**env, "PYTHONPATH": str(ROOT), "CTXVC_RECORDING": "off"},
                input=json.dumps(event).encode(), capture_output=True, check=False, timeout=120,
            )  # fmt: skip
            trace = log.read_text(errors="replace")
            assert "execve(" in trace
            assert result.returncode in (0, 1, 2, 3, 4) and b"Traceback" not in result.stderr, (
                case,
                arguments,
                result.stderr,
            )
            for call, path in _touched(trace, str(world.project)):
                if call == "execve":
                    assert _OWN_PROGRAMS.fullmatch(path), (case, arguments, path)
                else:
                    assert path.startswith((*own, "pipe:")) or path in made, (case, arguments, call, path)
            assert world.snapshot() == before, (case, arguments)
