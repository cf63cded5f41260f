"""Disks that fail, git that fails, processes that are killed: told clearly and undone; what was acknowledged stays."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ctxvc.errors import Conflict, CtxvcError
from ctxvc.store import files
from ctxvc.store import store as stores
from ctxvc.store.files import locked
from ctxvc.store.git import fast_import
from ctxvc.store.git import program as programs
from ctxvc.store.log import state as known
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from ctxvc.store.upkeep import leftovers
from tests.faults.summary import Tell, Times, line
from tests.making.conversation import exchange, human, raw, reply, result, results
from tests.making.store import (
    add_scope,
    afresh,
    archive,
    commits,
    complaints,
    contents,
    git,
    killed,
    littered,
    opened,
    start,
)

from .faulty import Chopping, Disk
from .writer import beginning

Operation = Callable[[StoredSession], object]

OPERATIONS: dict[str, Operation] = {
    "append that ends a turn": lambda session: session.append(reply("new")),
    "append of several": lambda session: session.append(human("new"), reply("", "y"), results(result("y", "z"))),
    "verb": lambda session: archive(session, "B1"),
    "finish": lambda session: session.finish(),
    "import": lambda session: add_scope(session, "side"),
}
FAULTS = [
    ("write", errno.ENOSPC), ("fdatasync", errno.EIO), ("fsync", errno.EIO), ("replace", errno.EACCES),
    ("open", errno.EMFILE), ("ftruncate", errno.EIO),
]  # fmt: skip


def state(path: Path) -> dict[str, tuple[str, bytes]]:
    """Block id → state and body, as a fresh process reads them."""
    with Store(path) as store, StoredSession.open(store, "demo", "main") as session:
        return {row.id: (row.state, session.body(row)) for row in session.ledger().rows()}


def half_way(path: Path) -> None:
    """A session with a committed step, an open one, and a journal that is not empty."""
    with Store(path) as store, StoredSession.open(store, "demo") as session:
        session.append(*exchange(1))
        session.append(human("do it"), reply("", "x"))


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize(("call", "error"), FAULTS, ids=lambda value: errno.errorcode.get(value, str(value)))
def test_a_disk_that_fails_at_any_write_leaves_what_was_there_or_all_of_the_new(
    path: Path, tmp_path: Path, name: str, call: str, error: int
) -> None:
    operation = OPERATIONS[name]
    half_way(path)
    before = state(path)
    shutil.copytree(path, tmp_path / "whole")
    with Store(tmp_path / "whole") as store, StoredSession.open(store, "demo") as session:
        operation(session)
    after = state(tmp_path / "whole")

    for nth in range(1, 30):
        trial = tmp_path / f"trial-{nth}"
        shutil.copytree(path, trial)
        disk = Disk(call, nth, OSError(error, os.strerror(error)))
        with Store(trial) as store:
            session = StoredSession.open(store, "demo")
            with pytest.MonkeyPatch.context() as failing:
                disk.put_in(failing)
                try:
                    operation(session)
                    told = False
                except CtxvcError as failure:
                    assert failure.hint
                    told = True
            allowed = [after] if not told else [before] if name.startswith("append") else [before, after]
            assert state(trial) in allowed
            session.append(human("works again"))
            session.append(reply("yes"))
            session.close()
        assert [body for _, body in state(trial).values()][-2:] == [b"works again", b"yes"]
        if told:
            assert complaints(trial) == ""
        assert littered(trial) == []
        shutil.rmtree(trial)
        if not disk.failed:
            return
    raise AssertionError("the fault never came to an end")


def test_an_append_that_failed_added_nothing(
    session: StoredSession, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.append(human("before"))
    with monkeypatch.context() as full:
        Disk("write", 1, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))).put_in(full)
        with pytest.raises(CtxvcError, match="No space left on device; nothing was added") as failure:
            session.append(human("lost"))

    assert failure.value.hint == "free some space"
    assert contents(session) == afresh(path) == {"B1": b"before"}
    assert session.append(human("after")) == ["B2"]


def test_writes_that_take_a_few_bytes_at_a_time_are_finished(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "os", Chopping())
    with Store(path) as store, StoredSession.open(store, "demo") as session:
        session.append(human("a long story " * 30))
        session.append(reply("ok"))
        expected = contents(session)
    assert afresh(path) == expected


# --- git that fails


def stand_in(tmp_path: Path, script: str) -> str:
    """A program in git's place, with `$REAL` as the real one."""
    program = tmp_path / "git"
    program.write_text(f"#!/bin/sh\nREAL='{programs.program()}'\n{script}\n")
    program.chmod(0o755)
    return str(program)


FAILING = {
    "at once": "exit 1", "with words": "echo 'fatal: something is wrong' >&2; head -c 300 >/dev/null; exit 128",
    "without reading": "exec sleep 0", "killed": "kill -9 $$",
    "killed after reading": "head -c 300 >/dev/null; kill -9 $$",
    "with success, but nothing done": "head -c 300 >/dev/null; exit 0", "not there": "",
}  # fmt: skip


@pytest.mark.parametrize("script", FAILING.values(), ids=FAILING)
def test_a_git_that_fails_costs_no_append_and_is_told_by_the_flush(
    session: StoredSession, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    broken = stand_in(tmp_path, f'case "$*" in *fast-import*) {script};; esac; exec "$REAL" "$@"')
    if not script:
        broken = str(tmp_path / "nowhere")
    session.append(*exchange(1))
    with monkeypatch.context() as failing:
        failing.setattr(programs, "program", lambda: broken)
        assert session.append(human("kept"), reply("too")) == ["B5", "B6"]
        assert session.flush_failure is not None
        assert session.append(human("and this")) == ["B7"]
        with pytest.raises(CtxvcError, match="git" if script else "cannot start git") as failure:
            session.flush()
        assert failure.value.hint
        assert commits(path) == []
        archive(session, "B1")
        session.append(reply("also"))

    session.flush()

    assert session.flush_failure is None
    subjects = [subject.split(",")[0] for subject in commits(path)]
    assert subjects == ["step 1: 4 blocks", "step 2: 2 blocks", "step 3: 2 blocks", "archive B1"]
    assert list(afresh(path).values())[4:] == [b"kept", b"too", b"and this", b"also"]
    assert littered(path) == []


def test_an_import_whose_git_fails_or_that_is_interrupted_leaves_the_store_as_it_was(
    session: StoredSession, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.append(human("one"), reply("two"))
    broken = stand_in(tmp_path, 'case "$*" in *fast-import*) head -c 10 >/dev/null; exit 1;; esac; exec "$REAL" "$@"')
    with monkeypatch.context() as failing:
        failing.setattr(programs, "program", lambda: broken)
        with pytest.raises(CtxvcError):
            add_scope(session, "side")
    with pytest.raises(KeyboardInterrupt), session.bulk():
        raise KeyboardInterrupt

    assert session.scopes() == ["main"]
    add_scope(session, "side")
    assert session.scopes() == ["main", "side"]
    assert session.append(human("three"), reply("four")) == ["B3", "B4"]
    assert list(afresh(path).values()) == [b"one", b"two", b"three", b"four"]


def test_a_merge_of_packs_that_fails_fails_nothing_else_and_is_tried_again(
    session: StoredSession, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = path / "objects" / "pack" / "tmp_pack_half"
    full = f"touch '{left}'; echo full >&2; exit 128"
    broken = stand_in(tmp_path, f'case "$*" in *repack*) {full};; esac; exec "$REAL" "$@"')
    store = session.store
    monkeypatch.setattr(stores, "MOST_PACKS", 0)
    monkeypatch.setattr(Store.merge_packs, "__defaults__", (0,))
    with monkeypatch.context() as failing:
        failing.setattr(programs, "program", lambda: broken)
        session.append(human("one"), reply("two"))
        assert session.flush_failure is None
        add_scope(session, "side")
        assert session.scopes() == ["main", "side"]
        assert store.merge_failure is not None and "full" in str(store.merge_failure)
        assert "retried" in store.merge_failure.hint
        assert littered(path) == [], "half a pack does not stay"
    packs = len(list((path / "objects/pack").glob("*.pack")))
    session.append(human("three"), reply("four"))
    assert len(list((path / "objects/pack").glob("*.pack"))) == packs + 1, "not at every flush"

    monkeypatch.setattr(stores, "MERGE_AGAIN", 0.0)
    store._merge_again = 0.0
    session.append(human("five"), reply("six"))

    assert store.merge_failure is None
    assert len(list((path / "objects/pack").glob("*.pack"))) == 1
    assert (len(commits(path)), len(afresh(path))) == (3, 6)


@pytest.mark.parametrize("call", ["write", "fdatasync", "replace", "fsync", "open"])
def test_an_append_that_ctrl_c_cut_short_is_whole_or_not_there_and_the_session_goes_on(
    session: StoredSession, path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    for nth in range(1, 6):
        before = contents(session)
        with monkeypatch.context() as interrupted:
            Disk(call, nth, KeyboardInterrupt()).put_in(interrupted)
            try:
                session.append(human("asked"), reply("answered"))
            except KeyboardInterrupt:
                pass
        session.refresh()
        added = len(contents(session)) - len(before)
        assert added in (0, 2)
        session.append(human("next"), reply("ok"))
        texts = list(contents(session).values())
        assert texts[: len(before)] == list(before.values())
        assert texts[len(before) + added :] == [b"next", b"ok"]
    assert contents(session) == afresh(path)
    assert complaints(path) == ""


def test_ctrl_c_between_the_disk_and_what_is_known_here_loses_nothing(
    session: StoredSession, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    session.append(human("before"))
    with monkeypatch.context() as interrupted:
        interrupted.setattr(known, "apply_change", interrupt)
        with pytest.raises(KeyboardInterrupt):
            session.append(human("on the disk"))

    assert session.append(human("after")) == ["B3"]
    assert list(contents(session).values()) == [b"before", b"on the disk", b"after"]
    assert contents(session) == afresh(path)


# --- what a killed git leaves


LEFT = [
    "refs/heads/demo/main.lock", "HEAD.lock", "packed-refs.lock", "objects/pack/tmp_pack_abc123",
    "objects/pack/tmp_idx_abc123", "objects/pack/.tmp-123-pack-abc.pack", "fast_import_crash_4711",
]  # fmt: skip


@pytest.mark.parametrize("name", LEFT)
def test_what_a_killed_git_left_does_not_stop_a_flush_or_an_import(
    session: StoredSession, path: Path, name: str
) -> None:
    session.append(human("one"), reply("two"))
    (path / name).write_bytes(b"")

    session.append(human("three"), reply("four"))
    session.flush()
    assert len(commits(path)) == 2
    (path / name.replace("demo/main", "demo/other")).write_bytes(b"")
    add_scope(session, "other")
    assert session.scopes() == ["main", "other"]

    session.store.clean_up()
    assert littered(path) == []
    assert complaints(path) == ""


def test_the_keep_of_a_killed_flush_does_not_stop_its_replay(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "now", lambda _: 1_700_000_000)
    monkeypatch.setattr(Store, "new_id", lambda _: "0123456789abcdef")
    monkeypatch.setattr(Store, "now_iso", lambda _: "2023-11-14T22:13:20Z")
    before = {pack.name for pack in path.glob("objects/pack/*.pack")}
    shutil.copytree(path, tmp_path / "twin")

    def flushed(place: Path) -> str:
        with opened(place) as session:
            session.append(human("one"), reply("two"))
            assert session.waiting() == 0
        (made,) = {pack.name for pack in place.glob("objects/pack/*.pack")} - before
        return made

    made = flushed(tmp_path / "twin")
    (path / "objects/pack" / made.replace(".pack", ".keep")).write_text("fast-import")
    assert flushed(path) == made, "the replay makes the same pack, else this tests nothing"
    assert littered(path) == []


def test_a_person_s_keep_and_a_living_writer_s_files_stay(session: StoredSession, path: Path) -> None:
    session.append(human("one"), reply("two"))
    (pack,) = list((path / "objects/pack").glob("*.pack"))[:1]
    pack.with_suffix(".keep").write_text("kept by hand\n")
    (path / "refs/heads/demo/main.lock").touch()
    (path / ".HEAD.0a1b2c3d.new").touch()

    session.append(human("three"), reply("four"))

    assert pack.with_suffix(".keep").exists()
    assert (path / ".HEAD.0a1b2c3d.new").exists(), "who writes HEAD holds no lock of the store"
    assert session.waiting() == 0


def test_old_temporary_files_of_ours_are_cleaned_up(store: Store) -> None:
    left = [
        store.path / "refs/ctxvc/demo/.HEAD.0a1b2c3d.new",
        store.path / ".HEAD.0a1b2c3d.new",
        store.path / "ctxvc/journal/.demo.0a1b2c3d.new",
        store.path / "objects/tmp_object_git2_a1b2c3",
        store.path / "objects/0a/tmp_obj_a1b2c3",
    ]
    for found in left:
        found.parent.mkdir(parents=True, exist_ok=True)
        found.touch()
        os.utime(found, (time.time() - 3600,) * 2)

    assert sorted(store.clean_up()) == sorted(str(found.relative_to(store.path)) for found in left)
    assert leftovers.leftovers(store.path) == []


def test_everything_in_a_store_is_private(path: Path, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with stores.create(tmp_path / "open" / ".ctxvc") as store:
            store.create_session("demo")
            with StoredSession.open(store) as session:
                session.append(*exchange(1))
                session.flush()
                add_scope(session, "side")
                session.append(human("open"))
            with store.exclusive():
                pass
            assert stat.S_IMODE(store.path.stat().st_mode) == 0o700
            exposed = [
                str(found.relative_to(store.path))
                for found in store.path.rglob("*")
                if stat.S_IMODE(found.stat().st_mode) & 0o077
            ]
    finally:
        os.umask(before)
    # git makes these folders as the umask says; the store's own, which nobody else can enter, keeps them private.
    folders = {"ctxvc", "objects", "objects/info", "objects/pack", "refs", "refs/heads", "refs/tags"}
    assert set(exposed) <= folders


# --- `kill -9`, of the writer and of its git child


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
OFTEN = [4, pytest.param(200, marks=(pytest.mark.faults, pytest.mark.timeout(3_600)))]


@pytest.mark.parametrize("count", OFTEN)
def test_writers_killed_at_random_moments_lose_nothing_acknowledged(
    path: Path, count: int, seed: int, times: Times, tell: Tell
) -> None:
    if count == 4:
        kill_writers(path, 4, seed=1)
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


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", place]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a file system of its own")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_disk_that_really_fills_up_loses_nothing_and_works_again_with_more_room(small_disk: Path) -> None:
    acknowledged: dict[str, bytes] = {}
    store = stores.create(small_disk / ".ctxvc")
    store.create_session("demo")
    session = StoredSession.open(store, "demo")
    failures: list[CtxvcError] = []
    for number in range(200):
        body = os.urandom(30_000)
        try:
            (block,) = session.append(raw(body))
            acknowledged[block] = body
            (block,) = session.append(reply(f"answer {number}"))
            acknowledged[block] = f"answer {number}".encode()
        except CtxvcError as failure:
            failures.append(failure)
            if len(failures) == 3:
                break

    assert [failure.hint for failure in failures] == ["free some space"] * 3
    assert contents(session) == acknowledged
    assert session.waiting()
    free = os.statvfs(small_disk)
    filler = small_disk / "filler"
    filler.write_bytes(bytes(free.f_bavail * free.f_frsize))
    with pytest.raises(CtxvcError, match=r"No space left|Out of diskspace|couldn't write"):  # as git says it
        session.flush()
    filler.unlink()
    subprocess.run(["mount", "-o", "remount,size=20m", small_disk], check=True)

    assert afresh(store.path) == acknowledged
    with StoredSession.open(store, "demo") as later:
        assert later.waiting() == 0
        later.append(human("more"), reply("room"))
    assert complaints(store.path) == ""
    store.clean_up()
    assert littered(store.path) == []
    session.close()
    store.close()
