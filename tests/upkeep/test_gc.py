"""`gc` makes a store small, loses nothing that a ref reaches or a person keeps, and may be killed at any moment."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ctxvc.cli.main import cli
from ctxvc.core.plan import Plan
from ctxvc.errors import Conflict, CtxvcError, Damaged, Refused
from ctxvc.recording.files import import_paths
from ctxvc.session.session import Session
from ctxvc.store.checkout import checkout
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.project.locate import FOLDER
from ctxvc.store.store import Store, create
from ctxvc.store.upkeep import bundle, retention
from ctxvc.store.upkeep import gc as upkeep
from ctxvc.store.upkeep.gc import gc, sizes
from ctxvc.store.upkeep.retention import Limits, remove, survey
from ctxvc.store.verify.verify import verify
from tests.cli.test_import import transcript
from tests.conftest import Copied
from tests.making.conversation import exchange, human, reply
from tests.making.damage import found, object_at
from tests.making.processes import KILLED, ended
from tests.making.store import ROOT, afresh, complaints, contents, git
from tests.store.killed import removal_killed

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

    with full.shared():  # as a flush and its `git fast-import` hold it
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


@pytest.mark.parametrize("what", ["demo/main", "demo/main^{tree}", "demo/main:blocks/00/00/B9.txt"])
@pytest.mark.parametrize("flips", [True, False])
def test_a_damaged_store_is_left_as_it_is(loose: Store, what: str, flips: bool) -> None:
    damaged = object_at(loose, what)
    data = bytearray(damaged.read_bytes())
    damaged.unlink()
    if flips:
        data[-8] ^= 0x55
        damaged.write_bytes(data)
    before = objects(loose)

    with pytest.raises(Damaged, match="git repack failed") as failure:
        gc(loose)

    assert "ctxvc verify" in failure.value.hint and "nothing is lost" not in failure.value.hint
    assert objects(loose) == before


def test_a_gc_that_fails_for_another_reason_speaks_of_no_damage(loose: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "_REPACK", ("repack", "-q", "--no-such-option"))
    with pytest.raises(CtxvcError, match="git repack failed") as failure:
        gc(loose)
    assert failure.value.exit_code == 1 and "ctxvc verify" in failure.value.hint


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


# --- sessions that a person no longer keeps leave whole, and nothing else does


DAY = 86_400
TODAY = 1_800_000_000
#: The sessions of the store and how many days ago each changed.
AGES = {"older": 60, "old": 40, "new": 3}
SHARED = "what both were asked"


def at(day: int) -> int:
    return TODAY - day * DAY


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The store's time, which a test sets."""
    return _clock(monkeypatch)


def _clock(patch: pytest.MonkeyPatch) -> list[int]:
    times = [TODAY]
    patch.setattr(Store, "now", lambda _: times[0])
    patch.setattr(Store, "now_iso", lambda _: datetime.fromtimestamp(times[0], timezone.utc).isoformat())
    return times


@pytest.fixture
def aged(tmp_path: Path, clock: list[int], copied: Copied) -> Store:
    """A store with sessions of three ages. All have the shared question, each one an output of its own."""
    return Store(copied(_aged, tmp_path / FOLDER))


def _aged(path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch, create(path) as store:
        times = _clock(patch)
        for name, age in AGES.items():
            times[0] = at(age)
            store.create_session(name)
            with StoredSession.open(store, name) as session:
                session.append(human(SHARED), *exchange(1), reply(f"only in {name} " + os.urandom(20_000).hex()))


def names(chosen: tuple[retention.Leaving, ...] | tuple[retention.Staying, ...]) -> list[str]:
    return [one.session for one in chosen]


def texts(path: Path) -> str:
    """Everything that any object of the store has, reachable or not."""
    batch = "--batch-all-objects", "--batch", "--buffer"
    return subprocess.run(["git", f"--git-dir={path}", "cat-file", *batch], capture_output=True, check=True,
                          text=True, errors="replace").stdout  # fmt: skip


def test_old_sessions_leave_whole_and_the_others_stay_as_they_are(aged: Store, clock: list[int]) -> None:
    before, tips = afresh(aged.path, "new"), aged.tips("new")
    clock[0] = at(AGES["old"])
    with StoredSession.open(aged, "old") as session:
        session.open_scope("aside", "for a moment")  # where the session and the store then are
        session.propose(Plan(actions=(), actor="user"))
        rows = list(session.ledger("main").rows())
    clock[0] = TODAY
    assert {path.name for path in (aged.path / "refs" / "ctxvc" / "old").iterdir()} == {"HEAD", "plans"}
    seen = survey(aged, Limits(days=30))
    assert names(seen.leaving) == ["older", "old"]
    assert 0 < seen.freed < seen.size
    old = seen.leaving[1]
    assert (old.updated, old.blocks, old.bytes) == (at(AGES["old"]), len(rows), sum(row.bytes for row in rows))

    remove(aged, seen.leaving)

    assert Store(aged.path).all_tips() == {"new": tips}
    assert afresh(aged.path, "new") == before
    assert found(aged) == [] and complaints(aged.path) == ""
    everything = texts(aged.path)
    assert "only in old" not in everything and "only in new" in everything and SHARED in everything
    assert git(aged.path, "for-each-ref", "--format=%(refname)") == "refs/heads/new/main\n"
    assert aged.current_session() == "new"
    assert not list((aged.path / "ctxvc" / "journal").glob("old*"))
    assert not list((aged.path / "refs" / "ctxvc").glob("old/*"))


def test_a_survey_changes_nothing(aged: Store) -> None:
    def times() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in aged.path.rglob("*") if path.is_file()}

    before = times()
    survey(aged, Limits(days=30, size=1))
    assert times() == before


def test_the_oldest_leave_until_the_rest_fits(aged: Store) -> None:
    seen = survey(aged, Limits(size=10**9))
    assert seen.leaving == ()
    most = seen.size - 5_000
    seen = survey(aged, Limits(size=most))
    assert names(seen.leaving) == ["older"]
    remove(aged, seen.leaving)
    assert sizes(aged).total <= most
    assert abs(sizes(aged).total - (seen.size - seen.freed)) < 4_000, "as the survey says, but for an index"


def test_with_both_limits_the_old_leave_and_then_the_oldest_of_the_others(aged: Store) -> None:
    assert names(survey(aged, Limits(days=50, size=10**9)).leaving) == ["older"]
    assert names(survey(aged, Limits(days=40)).leaving) == ["older"], "what is exactly so old stays"
    assert names(survey(aged, Limits(days=50, size=1)).leaving) == ["older", "old", "new"]


@pytest.mark.parametrize(
    ("reason", "why"),
    [
        ("pinned", "a block is pinned"),
        ("used", "`use` chose it"),
        ("checked out", "checked out in .*out"),
        ("at work", "it changed within a day"),
        ("damaged", "parts of its journal could not be read"),
    ],
)
def test_what_stays_in_any_case(aged: Store, tmp_path: Path, clock: list[int], reason: str, why: str) -> None:
    match reason:
        case "pinned":
            clock[0] = at(AGES["old"])
            with Session(StoredSession.open(aged, "old")) as session:
                session.pin(["B2"])
            clock[0] = TODAY
            assert names(survey(aged, Limits(days=30)).leaving) == ["older", "old"], "unless they are to be kept"
        case "used":
            aged.use("old")
        case "checked out":
            checkout(aged, "old", "main", tmp_path / "out", dashboard="")
        case "at work":
            with StoredSession.open(aged, "old") as session:
                session.append(human("once more"), reply("hello"))
        case "damaged":
            (aged.path / "ctxvc" / "journal" / "old~unreadable-00").write_bytes(b"lost")
    seen = survey(aged, Limits(days=30, size=1, pinned=True))
    assert names(seen.leaving) == ["older", "new"]
    assert names(seen.staying) == ["old"]
    assert re.fullmatch(why, seen.staying[0].why)


def test_a_session_that_changed_since_the_survey_stops_the_removal(aged: Store, clock: list[int]) -> None:
    seen = survey(aged, Limits(days=30))
    clock[0] = at(AGES["old"])
    with StoredSession.open(aged, "old") as session:
        session.append(human("I am back"), reply("hello"))
    with pytest.raises(Conflict, match="old changed"):
        remove(aged, seen.leaving)
    with StoredSession.open(aged, "old") as session:
        session.append(human("acknowledged, and in no commit yet"))
    clock[0] = TODAY
    with pytest.raises(Conflict, match="old changed"):
        remove(aged, survey(aged, Limits(days=30)).leaving)
    assert set(Store(aged.path).all_tips()) == set(AGES)


def test_an_open_step_leaves_with_its_session_and_another_of_its_name_is_no_heir(aged: Store, clock: list[int]) -> None:
    aged.redaction.keep_exact("old")
    clock[0] = at(AGES["old"])
    with StoredSession.open(aged, "old") as session:
        session.append(reply("wait", "open"))
    clock[0] = TODAY
    leaving = retention.closed(aged, survey(aged, Limits(days=30)).leaving)
    remove(aged, leaving)
    assert set(aged.all_tips()) == {"new"} and not aged.redaction.is_exact("old")

    aged.create_session("old")
    assert afresh(aged.path, "old") == {}, "nothing of the first one waits in a journal"


# --- killed


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_at_any_moment_a_session_is_there_in_full_or_gone(aged: Store, tmp_path: Path, step: int) -> None:
    whole = {name: afresh(aged.path, name) for name in AGES}
    outcomes = set()
    for count in range(0, 40, step):
        copy = Path(shutil.copytree(aged.path, tmp_path / f"copy-{count}", symlinks=True))
        code = ended(removal_killed, str(copy), count, TODAY)
        store = Store(copy)
        left = set(store.all_tips())
        assert left in ({"new"}, set(AGES)), "both are gone, or none is"
        assert {name: afresh(copy, name) for name in left} == {name: whole[name] for name in left}
        store.clean_up()
        assert found(store) == []
        outcomes.add((code, len(left)))

        remove(store, survey(store, Limits(days=30)).leaving)
        assert set(store.all_tips()) == {"new"}
        if code == 0:
            break
    assert outcomes == {(KILLED, 3), (KILLED, 1), (0, 1)}


# --- the recordings of what was removed


def test_a_removed_recording_comes_back_when_it_changed_or_is_asked_for(store: Store, tmp_path: Path) -> None:
    path = transcript(tmp_path / "recorded", "11111111-aaaa")
    os.utime(path, (at(400), at(400)))
    list(import_paths(store, [path], final=True))
    remove(store, survey(store, Limits(days=20)).leaving)
    assert store.sessions() == []
    removed = retention.removed_recordings(store)
    assert list(removed) == [("claude-code", "11111111-aaaa")]

    assert list(import_paths(store, [path], final=True, removed=removed)) == []
    (one,) = import_paths(store, [path], final=True)
    assert one.created and retention.removed(store) == []

    remove(store, survey(store, Limits(days=20)).leaving)
    os.utime(path)
    (one,) = import_paths(store, [path], final=True, removed=retention.removed_recordings(store))
    assert one.created, "it grew"


@pytest.mark.parametrize("line", [b"[]", b"\xff", b'{"session":"s","sources":[["pi","x"]],"updated":"","time":"2026"}'])
def test_a_list_of_another_machine_keeps_nothing_out(store: Store, line: bytes) -> None:
    (store.path / retention.REMOVED).write_bytes(line + b"\n")
    assert retention.removed(store) == []


# --- bundles


def test_a_bundle_has_all_of_the_sessions_and_takes_no_files_place(aged: Store, tmp_path: Path) -> None:
    target = tmp_path / "old.bundle"
    assert bundle.write(aged, target, {name: aged.tips(name) for name in ("old", "older")}) == target.stat().st_size
    assert target.stat().st_mode & 0o077 == 0
    with pytest.raises(Refused, match="exists"):
        bundle.write(aged, target, {"new": aged.tips("new")})
    with pytest.raises(Exception, match="nowhere"):
        bundle.write(aged, tmp_path / "nowhere" / "old.bundle", {"old": aged.tips("old")})
    assert not list(tmp_path.glob("*.new"))

    before = afresh(aged.path, "old")
    remove(aged, survey(aged, Limits(days=30)).leaving)
    git(aged.path, "fetch", "-q", str(target), "refs/heads/*:refs/heads/*")
    assert afresh(aged.path, "old") == before


# --- the command


@pytest.fixture
def project(aged: Store) -> Path:
    return aged.path.parent


def run(*arguments: str, folder: Path) -> Result:
    return CliRunner().invoke(cli, ["-C", str(folder), *arguments])


def test_with_a_yes_the_sessions_go_into_the_bundle_and_leave_and_without_one_nothing_does(project: Path) -> None:
    result = run("gc", "--keep-days", "30", "--dry-run", folder=project)
    assert result.exit_code == 0
    assert [line.split("\t")[0] for line in result.stdout.splitlines()] == ["session", "older", "old"]
    assert "would remove 2 sessions: " in result.stderr
    result = run("gc", "--keep-days", "30", folder=project)
    assert result.exit_code == 1 and "nothing was removed; add --yes" in result.stderr
    arguments = ("gc", "--keep-days", "30", "--bundle", "old.bundle", "--yes", "--json")
    (project / "old.bundle").write_text("mine")
    assert run(*arguments, folder=project).exit_code == 1
    assert set(Store(project / FOLDER).all_tips()) == set(AGES) and (project / "old.bundle").read_text() == "mine"

    (project / "old.bundle").unlink()
    answer = json.loads(run(*arguments, folder=project).stdout)
    assert (answer["removed"], [item["session"] for item in answer["items"]]) == (True, ["older", "old"])
    assert answer["bundle"] == str(project / "old.bundle")
    assert set(Store(project / FOLDER).all_tips()) == {"new"}
    result = run(*arguments, folder=project)
    assert result.exit_code == 0 and json.loads(result.stdout)["items"] == []


@pytest.mark.parametrize(
    ("words", "code"),
    [("--keep-days 0", 2), ("--max-size much", 2), ("--max-size -3MB", 2), ("--yes", 2), ("--keep-pinned", 2),
     ("--max-size 1.5gb -n", 0), ("--max-size 100000 -n", 0)],
)  # fmt: skip
def test_sizes_and_days(project: Path, words: str, code: int) -> None:
    result = run("gc", *words.split(), folder=project)
    assert result.exit_code == code, result.output
