"""Processes that die and disks that fail, at any system call: what was acknowledged is there, and the store goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store, create
from tests.faults import tracer
from tests.faults.summary import Tell, Times, line
from tests.faults.workload import unsound
from tests.making.store import ROOT, afresh, start
from tests.store.writer import beginning

pytestmark = [
    pytest.mark.faults,
    pytest.mark.timeout(7_200),
]
traced = pytest.mark.skipif(not tracer.available(), reason="Linux only: no process may be traced here")
failed = pytest.mark.skipif(not tracer.can_fail_calls(), reason="x86_64 only: system calls are made to fail")

_WRITERS, _APPENDS = 8, 2_170
#: Of a step of `writer.py`: a question, a reply with a call, and its result.
_APPENDS_A_STEP = 3


def campaign(kind: str, folder: Path, seed: int, cases: int) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-W", "error", "-m", "tests.faults.campaign", kind, str(folder), str(seed), str(cases)]
    answer = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    counts: dict[str, Any] = json.loads(answer.stdout)
    return counts


@traced
def test_kills_at_random_system_calls(tmp_path: Path, seed: int, times: Times, tell: Tell) -> None:
    counts = campaign("kills", tmp_path / "kills", seed, times(1_000))
    tell(line("kills", cases=counts["cases"], seed=seed, acknowledged_blocks=counts["acknowledged"],
              missing=counts["missing"], wrong=len(counts["wrong"])))  # fmt: skip
    assert counts["wrong"] == []
    assert counts["acknowledged"] > counts["cases"]


@traced
@failed
def test_full_and_failing_disks(tmp_path: Path, seed: int, times: Times, tell: Tell) -> None:
    counts = campaign("disks", tmp_path / "disks", seed, times(300))
    tell(line("full and failing disks", cases=counts["cases"], seed=seed, failed_calls=counts["failed calls"],
              acknowledged_blocks=counts["acknowledged"], missing=counts["missing"], refused=counts["refused"],
              wrong=len(counts["wrong"])))  # fmt: skip
    assert counts["wrong"] == []


def test_writers_beside_each_other(tmp_path: Path, times: Times, tell: Tell) -> None:
    path = tmp_path / ".ctxvc"
    with create(path) as store:
        store.create_session("demo")
    steps = -(-times(_APPENDS) // (_WRITERS * _APPENDS_A_STEP))
    with ExitStack() as running:
        writers = [
            running.enter_context(start("writer.py", path, "demo", "main", f"w{number}", steps, 8))
            for number in range(_WRITERS)
        ]
        for writer in writers:
            running.callback(writer.kill)
            assert writer.stdout is not None and writer.stdout.readline() == b"ready\n"
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write(b"go\n")
            writer.stdin.flush()
        lines: list[str] = []
        for writer in writers:
            out, err = writer.communicate()
            assert writer.returncode == 0, err.decode()
            lines += out.decode().splitlines()
    blocks = [line.split(" ", 1) for line in lines]
    there = {block: beginning(body) for block, body in afresh(path).items()}
    missing = [block for block, text in blocks if there.get(block) != text]
    twice = len(blocks) - len({block for block, _ in blocks})
    tell(line("writers", writers=_WRITERS, acknowledged_appends=_WRITERS * steps * _APPENDS_A_STEP,
              acknowledged_blocks=len(blocks), missing=len(missing), numbers_given_twice=twice))  # fmt: skip
    assert len(blocks) == _WRITERS * steps * 4
    assert not missing and not twice
    with Store(path) as store, StoredSession.open(store, "demo") as session:
        session.finish()
    assert unsound(path) == []
