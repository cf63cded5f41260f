"""`kill -9`, of the writer and of its git child: every acknowledged append is there, and the next flush works."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ctxvc.errors import Conflict
from ctxvc.store.files import locked
from ctxvc.store.git import fast_import
from ctxvc.store.git import program as programs
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from tests.faults.summary import Tell, Times, line
from tests.making.conversation import exchange, human, reply
from tests.making.store import afresh, archive, commits, complaints, contents, git, go, killed, littered, start

from .writer import beginning


def in_order(path: Path, acknowledged: dict[str, str]) -> None:
    """What every store must be after a crash: all acknowledged blocks are there, a flush works, git finds no fault."""
    with Store(path) as store, StoredSession.open(store, "demo") as session:
        held = contents(session)
        assert {block: beginning(held.get(block, b"(lost)")) for block in acknowledged} == acknowledged
        session.finish()
        assert session.flush_failure is None, str(session.flush_failure)
        assert session.waiting() == 0
    settle(path)
    assert complaints(path) == ""


def settle(path: Path) -> None:
    """Waits until no process works on the store: a killed writer's `git repack` ends a moment later than it."""
    name = os.fsencode(path)
    for _ in range(200):
        if not any(name in _command(found) for found in Path("/proc").glob("[0-9]*/cmdline")):
            return
        time.sleep(0.05)
    raise AssertionError("a git process is still there")


def _command(found: Path) -> bytes:
    try:
        return found.read_bytes()
    except OSError:
        return b""


# --- the writer is killed


def kill_writers(path: Path, times: int, seed: int) -> int:
    """Starts a writer and kills it at a random moment, again and again on one store. Gives what was acknowledged."""
    chance = random.Random(seed)
    acknowledged: dict[str, str] = {}
    for number in range(times):
        steps = chance.choice([1, 1, 2, 8, 32])
        writer = start("writer.py", path, "demo", "main", f"w{number}", 0, steps)
        for output in killed(writer, chance.uniform(0.0, 0.12), late=bool(number % 2)):
            block, text = output.split(" ", 1)
            assert block not in acknowledged, "a number was given twice"
            acknowledged[block] = text
        in_order(path, acknowledged)
    assert acknowledged
    settle(path)
    for found in path.rglob("*.new"):
        os.utime(found, (0, 0))
    with Store(path) as store:
        store.clean_up()
    assert littered(path) == []
    return len(acknowledged)


#: How often it is tried: ordinarily, and in a campaign.
OFTEN = [6, pytest.param(200, marks=(pytest.mark.faults, pytest.mark.timeout(3_600)))]


@pytest.mark.parametrize("count", OFTEN)
def test_writers_killed_at_random_moments_lose_nothing_acknowledged(
    path: Path, count: int, seed: int, times: Times, tell: Tell
) -> None:
    if count == 6:
        kill_writers(path, 6, seed=1)
        return
    blocks = kill_writers(path, times(count), seed)
    tell(line("writers killed at random times", cases=times(count), seed=seed, acknowledged_blocks=blocks, missing=0))


# --- its git child is killed


@pytest.fixture
def mortal(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Every fast-import of this process is killed at a random moment; gives how many were."""
    chance = random.Random(7)
    deaths: list[int] = []
    timers: list[threading.Timer] = []

    class Mortal(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, command: Any, *rest: Any, **named: Any) -> None:
            super().__init__(command, *rest, **named)
            self._mortal = "fast-import" in command
            if self._mortal and len(timers) % 2:
                # A timer may be late where the machine is busy, and the child done by then: each second one dies here,
                # before it has got anything.
                os.kill(self.pid, signal.SIGKILL)
            if self._mortal:
                timers.append(threading.Timer(chance.uniform(0.0, 0.012), self.kill))
                timers[-1].start()

        def wait(self, timeout: float | None = None) -> int:
            code = super().wait(timeout)
            if self._mortal and code == -signal.SIGKILL and self.pid not in deaths:
                deaths.append(self.pid)
            return code

    monkeypatch.setattr(fast_import.subprocess, "Popen", Mortal)
    yield deaths
    for timer in timers:
        timer.join()


def kill_children(path: Path, times: int, deaths: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    expected: dict[str, bytes] = {}
    with Store(path) as store, StoredSession.open(store, "demo") as session:
        number = 0
        while len(deaths) < times:
            number += 1
            for block in session.append(human(f"question {number}")):
                expected[block] = f"question {number}".encode()
            for block in session.append(reply(f"answer {number}")):
                expected[block] = f"answer {number}".encode()
            if number % 5 == 0:
                archive(session, f"B{2 * number - 1}")
            assert contents(session) == expected
            assert number < 40 * times
        monkeypatch.undo()
    assert complaints(path) == ""


@pytest.mark.parametrize("count", OFTEN)
def test_a_git_child_killed_at_random_moments_costs_nothing(
    path: Path, count: int, mortal: list[int], monkeypatch: pytest.MonkeyPatch, times: Times, tell: Tell
) -> None:
    kill_children(path, 6 if count == 6 else times(count), mortal, monkeypatch)
    in_order(path, {})
    if count > 6:
        tell(line("git children killed at random times", cases=len(mortal), missing=0))


def traceable() -> bool:
    strace = shutil.which("strace")
    if strace is None:
        return False
    return subprocess.run([strace, "-o", os.devnull, "true"], capture_output=True, check=False).returncode == 0


#: System calls by which a flush changes the store or what it holds open.
CALLS = (
    "openat,write,pwrite64,rename,renameat,renameat2,link,linkat,unlink,unlinkat,"
    "fsync,fdatasync,ftruncate,mkdir,chmod,fchmod,close"
)


@pytest.mark.faults
@pytest.mark.skipif(not traceable(), reason="strace is not installed, or may not trace here")
@pytest.mark.timeout(3_600)
def test_a_git_child_killed_at_every_system_call_costs_nothing(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tell: Tell
) -> None:
    with Store(path) as store, StoredSession.open(store, "demo") as session:
        session.append(*exchange(1))
    log = tmp_path / "calls"
    points: list[tuple[str, int]] = []
    deaths = 0

    def flushed(place: Path, *tracing: str) -> None:
        """A flush whose first fast-import is traced; those after it are left alone."""
        armed = [("strace", "-f", "-qq", "-o", str(log), *tracing)]
        command = programs.command
        with monkeypatch.context() as traced:
            traced.setattr(
                programs,
                "command",
                lambda *arguments, **named: [
                    *(armed.pop() if "fast-import" in arguments and armed else ()),
                    *command(*arguments, **named),
                ],
            )
            with Store(place) as store, StoredSession.open(store, "demo") as session:
                session.append(human("question"), reply("answer"))
                assert contents(session)["B6"] == b"answer"
                session.flush()
                assert session.waiting() == 0
                session.append(human("more"), reply("and more"))
                assert session.waiting() == 0

    shutil.copytree(path, tmp_path / "counted")
    flushed(tmp_path / "counted", "-e", f"trace={CALLS}")
    seen: dict[str, int] = {}
    for name in re.findall(r"^\d+ +(\w+)\(", log.read_text(), re.MULTILINE):
        seen[name] = seen.get(name, 0) + 1
        points.append((name, seen[name]))
    assert len(points) > 40

    for number, (call, nth) in enumerate(points):
        trial = tmp_path / f"trial-{number}"
        shutil.copytree(path, trial)
        flushed(trial, "-e", f"inject={call}:signal=KILL:when={nth}")
        deaths += "killed by SIGKILL" in log.read_text()
        assert len(commits(trial)) == 3, (call, nth)
        assert list(afresh(trial).values())[4:] == [b"question", b"answer", b"more", b"and more"], (call, nth)
        assert complaints(trial) == "", (call, nth)
        with Store(trial) as store:
            store.clean_up()
        assert littered(trial) == [], (call, nth)
        shutil.rmtree(trial)
    tell(line("git children killed at each system call", cases=deaths, missing=0))
    assert deaths > len(points) * 0.9


# --- the writer is killed and its child lives on


def orphan(path: Path, when: str) -> int:
    """The process id of a stopped git child whose parent was killed in the middle of a flush."""
    with start("dying.py", path, when) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
    assert parent.returncode == -signal.SIGKILL
    return child


def gone(process: int, path: Path) -> None:
    """Waits until the child has let go of its locks."""
    os.kill(process, signal.SIGCONT)
    with locked(path / "ctxvc" / "lock" / "demo", timeout=20), locked(path / "ctxvc" / "store.lock", timeout=20):
        pass


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_child_that_outlives_its_parent_keeps_the_locks_and_nothing_is_committed_twice(path: Path, when: str) -> None:
    """It had not got everything, and moves no ref; or it had, and finishes."""
    tip = git(path, "rev-parse", "demo/main")
    child = orphan(path, when)
    try:
        for lock in ("lock/demo", "store.lock"):
            with pytest.raises(Conflict), locked(path / "ctxvc" / lock, timeout=0.2):
                pass
    finally:
        gone(child, path)

    assert (git(path, "rev-parse", "demo/main") == tip) is (when == "before")
    assert len(commits(path)) == int(when == "after")
    assert list(afresh(path).values()) == [b"question", b"answer"]
    assert len(commits(path)) == 1
    in_order(path, {})


def test_a_session_that_was_opened_before_such_a_child_finished_takes_what_it_did(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "now", lambda _: 1_700_000_000)  # else the same commit may be made twice, unnoticed
    child = orphan(path, "after")
    with Store(path) as store, StoredSession.open(store, "demo") as session:
        assert session.waiting() == 2
        waking = threading.Timer(0.1, os.kill, (child, signal.SIGCONT))
        waking.start()

        session.flush()

        waking.join()
        assert session.waiting() == 0
        session.append(human("more"), reply("and more"))
    assert len(commits(path)) == 2
    assert list(afresh(path).values()) == [b"question", b"answer", b"more", b"and more"]


def test_a_writer_killed_while_it_waits_for_a_lock_leaves_it_free(path: Path) -> None:
    with locked(path / "ctxvc" / "lock" / "demo"):
        with start("writer.py", path, "demo", "main", "w", 0) as writer:
            go(writer)
            time.sleep(0.05)
            writer.kill()
    in_order(path, {})
