"""Units of work give the same results in one process, in several, and after a kill in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

import ctxvc
from ctxvc.errors import BadInput, CtxvcError
from ctxvc.replay.conversation import Conversation
from ctxvc.replay.results.file import ResultFile, line_of
from ctxvc.replay.results.result import Result
from ctxvc.replay.work import Setup, Source, Unit, in_order, of_file, outcomes, remaining, units
from tests.replay.recordings import count_only, recording

SETUPS = [Setup(policy, budget) for policy in ("keep", "window", "clear") for budget in (32_000, 80_000)]
ROOT = Path(ctxvc.__file__).parents[1]


def sources(folder: Path, number: int = 4) -> list[Source]:
    return [of_file(recording(folder / f"talk{at}.jsonl", steps=at + 1)) for at in range(number)]


def results(work: Sequence[Source], jobs: int) -> list[bytes]:
    made = [
        own
        for outcome in outcomes(units(remaining(work, SETUPS, None), jobs), count_only, "1", jobs)
        for own in outcome.results
    ]
    return sorted(line_of(own.comparable) for own in made)


def test_the_results_are_the_same_with_any_number_of_processes(tmp_path: Path) -> None:
    work = sources(tmp_path)

    one = results(work, 1)

    assert len(one) == len(set(one)) == 4 * len(SETUPS)
    assert results(work, 2) == one


@pytest.mark.parametrize(
    ("number", "jobs", "expected"), [(1, 1, 3), (1, 2, 6), (2, 2, 6), (3, 2, 6), (4, 2, 8), (4, 1, 4), (1, 8, 6)]
)
def test_a_few_files_are_spread_over_the_processes(tmp_path: Path, number: int, jobs: int, expected: int) -> None:
    made = units(remaining(sources(tmp_path, number), SETUPS, None), jobs)

    assert len(made) == expected
    done = [(unit.source.name, setup) for unit in made for setup in unit.setups]
    assert len(done) == len(set(done)) == number * len(SETUPS)


def test_a_result_names_the_version_and_how_many_conversations_its_file_has(tmp_path: Path) -> None:
    (outcome,) = outcomes(units(remaining(sources(tmp_path, 1), SETUPS[:1], None), 1), count_only, "7+abc", 1)

    assert [(own.version, own.conversations, own.calls) for own in outcome.results] == [("7+abc", 1, 2)]


def test_a_file_that_cannot_be_read_does_not_stop_the_others(tmp_path: Path) -> None:
    work = sources(tmp_path)
    work[1].path.unlink()
    work[1].path.mkdir()

    done = list(outcomes(units(remaining(work, SETUPS[:1], None), 1), count_only, "1", 1))

    assert sorted(outcome.unit.source.name for outcome in done if outcome.results) == [
        "talk0.jsonl",
        "talk2.jsonl",
        "talk3.jsonl",
    ]
    (error,) = [outcome.error for outcome in done if outcome.error]
    assert "talk1.jsonl" in str(error)


def test_only_what_has_no_result_is_done(tmp_path: Path) -> None:
    work, file = sources(tmp_path, 2), ResultFile(tmp_path / "results.jsonl", "1")
    for outcome in outcomes(units(remaining(work[:1], SETUPS[:2], None), 1), count_only, "1", 1):
        file.add(outcome.results)

    assert remaining(work, SETUPS[:3], file) == [(work[0], (SETUPS[2],)), (work[1], tuple(SETUPS[:3]))]
    assert remaining(work[:1], SETUPS[:2], file) == []


def test_results_come_in_the_order_of_sources_and_setups(tmp_path: Path) -> None:
    work = sources(tmp_path, 3)
    done = outcomes(units(remaining(work, SETUPS, None), 1), count_only, "1", 1)
    results = [own for outcome in done for own in reversed(outcome.results)]

    chosen = [work[2], work[0]]
    ordered = in_order(results, chosen, SETUPS[1:3])

    assert [(own.file, own.policy, own.budget) for own in ordered] == [
        (source.name, setup.policy, setup.budget) for source in chosen for setup in SETUPS[1:3]
    ]


def refuse(conversation: Conversation, setups: Sequence[Setup]) -> list[Result]:
    raise BadInput(f"{conversation.id} is refused", hint="try another")


def fail(conversation: Conversation, setups: Sequence[Setup]) -> list[Result]:
    raise ZeroDivisionError(conversation.id)


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_error_comes_from_another_process_whole(tmp_path: Path, jobs: int) -> None:
    (one, two) = outcomes(units(remaining(sources(tmp_path, 2), SETUPS[:1], None), jobs), refuse, "1", jobs)

    assert isinstance(one.error, BadInput)
    assert {str(one.error), str(two.error)} == {"talk0 is refused", "talk1 is refused"}
    assert one.error.hint == "try another"


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_bug_ends_the_run(tmp_path: Path, jobs: int) -> None:
    with pytest.raises(ZeroDivisionError):
        list(outcomes(units(remaining(sources(tmp_path, 2), SETUPS[:1], None), jobs), fail, "1", jobs))


def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.jsonl").write_text("my notes\n")
    (tmp_path / "empty.jsonl").write_text("")

    with pytest.raises(BadInput, match="not a transcript in a known format"):
        of_file(tmp_path / "notes.jsonl")
    with pytest.raises(BadInput, match="empty"):
        of_file(tmp_path / "empty.jsonl")
    with pytest.raises(CtxvcError, match="cannot read"):
        of_file(tmp_path / "nowhere.jsonl")


#: A run as a process of its own: FOLDER, RESULTS.
RUN = """
import sys
from pathlib import Path
from ctxvc.replay.results.file import ResultFile
from ctxvc.replay.work import outcomes
from tests.replay.recordings import slow
from tests.replay.test_work import work_in

if __name__ == "__main__":
    results = ResultFile(Path(sys.argv[2]), "1")
    for outcome in outcomes(work_in(Path(sys.argv[1]), results), slow, "1", 2):
        results.add(outcome.results)
    results.sort()
"""


def work_in(folder: Path, results: ResultFile) -> list[Unit]:
    """The units of the recordings in a folder that have no results yet."""
    return units(remaining([of_file(path) for path in sorted(folder.glob("*.jsonl"))], SETUPS, results), 1)


def begun(folder: Path, results: Path, processes: Path) -> subprocess.Popen[bytes]:
    script = folder / "run.py"
    script.write_text(RUN)
    processes.mkdir(exist_ok=True)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "REPLAY_PROCESSES": str(processes)}
    return subprocess.Popen([sys.executable, script, folder, results], env=env)


def alive(process: int) -> bool:
    try:
        return "zombie" not in Path(f"/proc/{process}/status").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="reads /proc")
def test_a_run_that_is_killed_leaves_no_process_and_is_taken_on_with_the_same_results(tmp_path: Path) -> None:
    folder, processes = tmp_path / "recordings", tmp_path / "processes"
    folder.mkdir()
    sources(folder, 6)
    killed, whole = tmp_path / "killed.jsonl", tmp_path / "whole.jsonl"

    first = begun(folder, killed, processes)
    deadline = time.monotonic() + 60
    while not (killed.exists() and killed.read_bytes().count(b"\n") >= len(SETUPS)) and time.monotonic() < deadline:
        time.sleep(0.02)
    first.send_signal(signal.SIGKILL)
    first.wait()
    with killed.open("ab") as file:
        file.write(b'{"schema":"ctxvc-rep')
    done = killed.read_bytes().count(b"\n")
    assert len(SETUPS) <= done < 6 * len(SETUPS)
    workers = [int(path.name) for path in processes.iterdir()]
    while any(map(alive, workers)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(workers) == 2
    assert not any(map(alive, workers))

    assert begun(folder, killed, processes).wait() == 0
    assert begun(folder, whole, processes).wait() == 0

    one, other = ([line_of(own.comparable) for own in ResultFile(path, "1").records] for path in (killed, whole))
    assert one == other
    assert len(one) == 6 * len(SETUPS)
