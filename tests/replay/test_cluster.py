"""Units on a Dask cluster: a scheduler and two workers on loopback, one of which is killed on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from ctxvc.errors import CtxvcError, Refused
from ctxvc.replay import work as replay_work
from ctxvc.replay.conversation import Conversation
from ctxvc.replay.results.file import code_version, line_of
from ctxvc.replay.results.result import Result
from ctxvc.replay.work import Setup, Source, of_file, outcomes, remaining, units
from tests.replay.recordings import recording, slow

ROOT = Path(__file__).parents[2]
SETUPS = [Setup(policy, budget) for policy in ("keep", "window", "clear") for budget in (32_000, 80_000)]


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """The scheduler's address, and two workers that know nothing of the recordings' folder."""
    pytest.importorskip("distributed", reason="the extra `cluster` is not installed")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "REPLAY_PROCESSES": str(tmp_path)}
    file = tmp_path / "scheduler.json"
    begin = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"]
    scheduler = subprocess.Popen([*begin, "--no-dashboard", "--scheduler-file", file], env=env, cwd=tmp_path)
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", str(file), "--no-nanny"]
    workers = [
        subprocess.Popen([*worker, "--nthreads", "1", "--no-dashboard"], env=env, cwd=tmp_path) for _ in range(2)
    ]
    deadline = time.monotonic() + 60
    while not file.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    yield json.loads(file.read_text())["address"], workers
    for process in (*workers, scheduler):
        process.kill()
        process.wait()


def test_a_worker_that_is_killed_loses_no_result_and_doubles_none(
    tmp_path: Path, machines: tuple[str, list[subprocess.Popen[bytes]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, (first, _) = machines
    monkeypatch.setenv("REPLAY_PROCESSES", str(tmp_path))
    folder = tmp_path / "recordings"
    folder.mkdir()
    sources = [of_file(recording(folder / f"talk{number}.jsonl", steps=number + 1)) for number in range(8)]
    work, version = units(remaining(sources, SETUPS, None), 1), code_version()
    here = [own for outcome in outcomes(work, slow, version, 1) for own in outcome.results]

    there = []
    for number, outcome in enumerate(replay_work.cluster_outcomes(address, work, slow, version)):
        assert outcome.error is None, outcome.error
        there += outcome.results
        if number == 1:
            first.send_signal(signal.SIGKILL)

    assert sorted(line_of(own.comparable) for own in there) == sorted(line_of(own.comparable) for own in here)


def die(conversation: Conversation, setups: Sequence[Setup]) -> Iterable[Result]:
    """Takes its worker along, where the conversation is of one step."""
    if len(conversation.calls) == 2:
        os._exit(1)
    return slow(conversation, setups)


@pytest.fixture
def no_second_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES", "0")


@pytest.mark.usefixtures("no_second_try", "machines")
def test_what_kills_its_workers_is_named_and_the_rest_is_done(
    tmp_path: Path, machines: tuple[str, list[subprocess.Popen[bytes]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPLAY_PROCESSES", str(tmp_path))
    (folder := tmp_path / "recordings").mkdir()
    sources = [of_file(recording(folder / f"talk{number}.jsonl", steps=number)) for number in (1, 2)]
    work = units(remaining(sources, SETUPS[:1], None), 1)

    done = {one.unit.source.name: one for one in replay_work.cluster_outcomes(machines[0], work, die, code_version())}

    assert "each worker that took it died" in str(done["talk1.jsonl"].error)
    assert len(done["talk2.jsonl"].results) == 1


def test_where_there_is_no_cluster_it_is_said(tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="the extra `cluster` is not installed")
    work = units(remaining([of_file(recording(tmp_path / "talk.jsonl"))], SETUPS, None), 1)

    with pytest.raises(CtxvcError, match="no cluster at"):
        list(replay_work.cluster_outcomes("tcp://127.0.0.1:9", work, slow, "1"))


def test_a_session_of_a_store_is_no_file_to_send(tmp_path: Path) -> None:
    work = units([(Source(tmp_path, "demo", "00", 1), tuple(SETUPS))], 1)

    with pytest.raises(Refused, match="session demo is in a store"):
        list(replay_work.cluster_outcomes("tcp://127.0.0.1:9", work, slow, "1"))


def test_code_of_another_version_makes_no_results(tmp_path: Path) -> None:
    (unit, *_) = units(remaining([of_file(recording(tmp_path / "talk.jsonl"))], SETUPS, None), 1)

    outcome = replay_work.outcome_of(unit, b"", slow, "0.0.1+abc")

    assert isinstance(outcome.error, Refused)
    assert "0.0.1+abc" in str(outcome.error)
