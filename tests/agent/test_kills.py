"""`kill -9` in the middle of steps: no command runs twice, nothing recorded is lost, the prompt stays valid."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from ctxvc.agent.loop import INTERRUPTED
from ctxvc.errors import Phrase
from ctxvc.session.session import Session
from ctxvc.store.store import Store
from ctxvc.store.verify.verify import verify
from tests.faults.summary import Tell, line
from tests.messages_api.rules import canonical_problems

from .driven import POINTS
from .test_run import asked, begun


def killed(tmp_path: Path, points: list[tuple[str, int]], steps: int, moments: Sequence[float] = ()) -> None:
    """A run of so many steps that is killed at each of these points and moments, in turn, and gone on with."""
    place, folder = tmp_path / ".ctxvc", tmp_path / "project"
    with begun(tmp_path, window=20_000) as session:
        asked(session)
    assert _driven(place, folder, steps, points) == ["killed"] * len(points)
    for moment in moments:
        _killed_after(place, folder, steps, moment)
    assert _driven(place, folder, steps, [("never", 0)]) == ["finished"]
    lines = (folder / "log").read_text().split()
    assert len(lines) == len(set(lines)), "a command was run twice"
    with Session.open(place, "run-1") as session:
        rows = [row for row in session.ledger().rows() if row.kind == "tool_result"]
        told = {row.call: session.body(row.id).decode() for row in rows}
        assert len(told) == len(rows) == 2 * steps, "a result was lost, or came twice"
        for number in range(steps):
            for part in "ab":
                words = told[f"toolu_{number}{part}"]
                assert words in (f"did {number}.{part}\n", INTERRUPTED)
                assert words == INTERRUPTED or f"{number}.{part}" in lines
        assert list(told.values()).count(INTERRUPTED) <= 2 * (len(points) + len(moments))
        assert not canonical_problems(
            [*session.prompt().messages, {"role": "user", "content": [{"type": "text", "text": "go on"}]}]
        )
    with Store(place) as store:
        # What git was writing when it was killed may lie there: that is no damage.
        assert not [finding for finding in verify(store).findings if finding.hint != Phrase("gc-removes")]


def _started(place: Path, folder: Path, steps: int, points: list[tuple[str, int]]) -> subprocess.Popen[str]:
    words = [str(word) for point in points for word in point]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.agent.driven", str(place), str(folder), str(steps), *words],
        stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2], start_new_session=True,
    )  # fmt: skip


def _driven(place: Path, folder: Path, steps: int, points: list[tuple[str, int]]) -> list[str]:
    """How the run ended at each of the points."""
    output, _ = _started(place, folder, steps, points).communicate()
    return [line for line in output.split("\n") if line not in ("up", "")]


def _killed_after(place: Path, folder: Path, steps: int, seconds: float) -> None:
    """Somebody else kills it at any moment, and all that it started."""
    process = _started(place, folder, steps, [("never", 0)])
    assert process.stdout is not None
    with process.stdout as output:
        assert output.readline() == "up\n"
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        assert process.poll() is None, "it was over before it was killed"
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_after_a_kill_at_any_point_of_a_step_no_command_runs_twice_and_nothing_is_lost(tmp_path: Path) -> None:
    killed(tmp_path, [(point, 2) for point in POINTS], steps=20)


@pytest.mark.faults
@pytest.mark.timeout(3_600)
def test_after_fifty_kills_no_command_runs_twice_and_nothing_is_lost(tmp_path: Path, tell: Tell) -> None:
    """Each point at several of its times; and moments that differ from time to time, without a random number."""
    points = [(point, count) for count in (1, 3, 4, 6) for point in POINTS]
    moments = [(1 + number * 37 % 61) / 200 for number in range(18)]
    killed(tmp_path, points, 400, moments)
    tell(line("runs of an agent killed", cases=len(points) + len(moments), steps=400, commands_run_twice=0, missing=0))
