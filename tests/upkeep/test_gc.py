"""`gc` makes a store small, loses nothing that a ref reaches, and may be killed at any moment."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest

from ctxvc.errors import CtxvcError
from ctxvc.store.checkout import checkout
from ctxvc.store.files import locked
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from ctxvc.store.upkeep import gc as upkeep
from ctxvc.store.upkeep.gc import gc, sizes
from ctxvc.store.verify.verify import verify
from tests.making.conversation import exchange, human, reply
from tests.making.damage import found, object_at
from tests.making.store import ROOT, afresh, contents, git

NOW = timedelta(0)


def packs(store: Store) -> list[str]:
    return sorted(path.name for path in (store.path / "objects" / "pack").glob("*.pack"))


def objects(store: Store) -> list[str]:
    return sorted(path.name for path in (store.path / "objects").rglob("*") if not path.name.startswith("tmp_"))


def test_many_packs_become_one_and_all_that_refs_reach_is_as_it_was(full: Store) -> None:
    with StoredSession.open(full, "demo") as session:
        before = contents(session)
    tips, reached = full.all_tips(), set(git(full.path, "rev-list", "--objects", "--all").split("\n"))

    report = gc(full, grace=NOW)

    assert report.packs_before > 3 and report.packs_after == 1 == len(packs(full))
    assert report.after_bytes < report.before_bytes
    assert afresh(full.path) == before
    assert Store(full.path).all_tips() == tips
    assert set(git(full.path, "rev-list", "--objects", "--all").split("\n")) == reached
    assert found(full) == []


def test_an_empty_store_stays_empty_and_a_missing_cache_is_made_again(store: Store) -> None:
    store.cache_path.rmdir()

    assert gc(store).packs_after == 0
    assert gc(store).packs_after == 0
    assert found(store) == []


def test_complete_steps_are_flushed_first_and_the_open_one_stays(store: Store) -> None:
    store.create_session("demo")
    session = StoredSession.open(store, "demo")
    session.append(*exchange(1), human("next"), reply("wait", "open"))
    assert session.waiting() > 1  # this process lives on and has not flushed

    gc(store)

    assert git(store.path, "log", "-1", "--format=%s", "demo/main") == "“question 1” · sh c1\n"
    session.append(human("never mind"))
    session.close()
    assert set(afresh(store.path).values()) >= {b"wait", b"never mind", b"out 1"}


def test_what_any_ref_or_checkout_reaches_is_kept(full: Store, tmp_path: Path) -> None:
    plan = full.repository.create_blob(b"a plan")
    git(full.path, "update-ref", "refs/ctxvc/demo/plans", str(plan))
    git(full.path, "tag", "mine", "demo/main~2")
    checkout(full, folder=tmp_path / "out")
    commit = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org", "commit", "-q", "--allow-empty", "-m", "own"]
    subprocess.run(["git", *commit], cwd=tmp_path / "out", check=True)
    own = (full.path / "worktrees" / "out" / "HEAD").read_text().strip()

    gc(full, grace=NOW)

    assert Store(full.path).repository[plan].read_raw() == b"a plan"
    assert git(full.path, "cat-file", "-t", "mine").strip() == git(full.path, "cat-file", "-t", own).strip() == "commit"


def test_what_no_ref_reaches_stays_for_a_while(full: Store) -> None:
    """A loose object, and a pack as a flush leaves it whose refs could not move."""
    lost = str(full.repository.create_blob(b"somebody is about to need this"))
    tip, before = git(full.path, "rev-parse", "demo/main", "demo/main~2").split()
    git(full.path, "update-ref", "-d", "refs/heads/demo/side")
    git(full.path, "update-ref", "refs/heads/demo/main", before)

    gc(full)
    assert [git(full.path, "cat-file", "-t", name).strip() for name in (lost, tip)] == ["blob", "commit"]

    gc(full, grace=NOW)
    for name in (lost, tip):
        with pytest.raises(subprocess.CalledProcessError):
            git(full.path, "cat-file", "-t", name)
    assert sizes(full).loose == 0


def test_what_killed_writers_left_is_removed_and_told(full: Store) -> None:
    packs = ("objects/pack/tmp_pack_x", "objects/pack/.tmp-1-pack-x.pack")
    left = [*packs, "refs/heads/demo/main.lock", "packed-refs.new"]
    for name in left:
        (full.path / name).write_bytes(b"")

    report = gc(full)

    assert sorted(report.removed) == sorted(left)
    assert not any((full.path / name).exists() for name in left)


def test_a_second_gc_has_nothing_to_compress(full: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, ...]] = []
    run = upkeep._git
    monkeypatch.setattr(
        upkeep, "_git", lambda store, lock, *arguments: [calls.append(arguments), run(store, lock, *arguments)]
    )

    def compressed() -> int:
        gc(full)
        return sum("--depth=50" in call for call in calls)

    assert [compressed(), compressed()] == [1, 1]
    with StoredSession.open(full, "demo") as session:
        session.append(*exchange(50))
    assert compressed() == 2
    assert found(full) == []


def test_a_step_that_is_flushed_while_it_compresses_is_kept(full: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    run = upkeep._git

    def meanwhile(store: Store, lock: int, *arguments: str) -> None:
        run(store, lock, *arguments)
        if "--depth=50" in arguments:
            with Store(full.path) as other, StoredSession.open(other, "demo") as session:
                session.append(human("meanwhile"), reply("done"))

    monkeypatch.setattr(upkeep, "_git", meanwhile)

    gc(full, grace=NOW)

    assert b"meanwhile" in afresh(full.path).values()
    assert found(full) == []


def test_it_exchanges_packs_only_when_no_writer_is_at_work(full: Store) -> None:
    event = threading.Event()

    def collect() -> None:
        with Store(full.path) as own:
            gc(own)
        event.set()

    with locked(full._store_lock, shared=True):  # as a flush and its `git fast-import` hold it
        worker = threading.Thread(target=collect)
        worker.start()
        assert not event.wait(1.0)
        assert len(packs(full)) > 1
    worker.join()
    assert len(packs(full)) == 1


def test_a_writer_goes_on_after_the_refs_were_packed(full: Store) -> None:
    gc(full)
    assert not (full.path / "refs/heads/demo/main").exists()

    with StoredSession.open(full, "demo") as session:
        session.append(*exchange(70))
    (full.path / "refs/heads/demo").mkdir(exist_ok=True)
    (full.path / "refs/heads/demo/main.lock").touch()
    with StoredSession.open(full, "demo") as session:
        session.append(*exchange(71))
        session.flush()

    assert {b"out 70", b"out 71"} <= set(afresh(full.path).values())
    assert git(full.path, "log", "-1", "--format=%s") == "“question 71” · sh c71\n"
    assert found(full) == []


def test_a_damaged_store_is_left_as_it_is(loose: Store) -> None:
    object_at(loose, "demo/main:blocks/00/00/B9.txt").unlink()
    before = objects(loose)

    with pytest.raises(CtxvcError, match="git repack failed") as failure:
        gc(loose)

    assert "ctxvc verify" in failure.value.hint
    assert objects(loose) == before


def test_sizes_say_where_the_bytes_are(full: Store) -> None:
    full.repository.create_blob(os.urandom(5000))
    (full.cache_path / "counts").write_bytes(b"x" * 700)

    found = sizes(full)

    assert found.packs == len(packs(full))
    assert found.loose > 5000 and found.cache == 700 and found.journal > 100 and found.packed > 2000
    assert found.total > found.packed + found.loose + found.journal + found.cache


_GC = """
import sys
from pathlib import Path
from ctxvc.store.store import Store
from ctxvc.store.upkeep.gc import gc
print("ready", flush=True)
gc(Store(Path(sys.argv[1])))
"""


@pytest.mark.slow
def test_it_may_be_killed_at_any_moment(store: Store) -> None:
    store.create_session("demo")
    with StoredSession.open(store, "demo") as session:
        session.append(*(said for number in range(100) for said in exchange(number)))
    chance = random.Random(3)
    for number in range(6):
        with Store(store.path) as other, StoredSession.open(other, "demo") as session:
            session.append(*exchange(1000 + number))
        command = [sys.executable, "-c", _GC, str(store.path)]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=env, start_new_session=True) as child:
            assert child.stdout is not None and child.stdout.readline() == b"ready\n"
            time.sleep(chance.uniform(0, 0.5))
            # Every other time its git children live on, and hold the lock for it.
            os.killpg(child.pid, signal.SIGKILL) if number % 2 else child.kill()
        with Store(store.path) as other:
            report = verify(other)
        assert not report.damaged, report.findings
        assert report.blocks == 4 * (101 + number)

    gc(store)
    assert found(store) == []
