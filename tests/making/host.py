"""A host that writes a transcript and runs hooks, played from a recording: what the tests of the recorder share."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from ctxvc.claude_code import requests
from ctxvc.errors import Conflict
from ctxvc.recording import log, places
from ctxvc.recording.files import import_paths
from ctxvc.store.files import locked
from ctxvc.store.git import program
from ctxvc.store.project.locate import FOLDER
from ctxvc.store.store import Store, create

ROOT = Path(__file__).parents[2]
START = [sys.executable, "-c", "from ctxvc.cli.start import run; run()", "hook"]


def environment(project: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "CLAUDE_PROJECT_DIR": str(project), **more}


def hook(project: Path, transcript: Path, event: str, **fields: object) -> str:
    """What a hook answers. It must end well, without a word on stderr."""
    result = subprocess.run(
        [*START, event], input=_told(project, transcript, event, fields), capture_output=True, env=environment(project),
        cwd=project, check=False,
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (0, b"")
    return result.stdout.decode()


def hooked(project: Path, transcript: Path, event: str, **fields: object) -> subprocess.Popen[bytes]:
    """A hook that runs."""
    process = subprocess.Popen(
        [*START, event], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env=environment(project), cwd=project,
    )  # fmt: skip
    assert process.stdin
    with process.stdin as stream:
        stream.write(_told(project, transcript, event, fields))
    return process


def _told(project: Path, transcript: Path, event: str, fields: Mapping[str, object]) -> bytes:
    given = {"hook_event_name": event, "transcript_path": str(transcript), "cwd": str(project), **fields}
    return json.dumps(given).encode()


def settle(store: Path, seconds: float = 60) -> None:
    """Waits until the recorder has done all that was asked. It must have found nothing wrong."""
    until = time.monotonic() + seconds
    while requests.pending(store):
        assert time.monotonic() < until, f"left undone: {requests.pending(store)}"
        time.sleep(0.05)
    assert not log.entries(store), log.entries(store)


def recorders(folder: Path) -> list[int]:
    """The processes that record for `folder`, or for something in it."""
    running = []
    for words in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            _, *arguments = words.read_bytes().decode("utf-8", "replace").split("\0")
        except OSError:
            continue
        if "record" in arguments and any(Path(word).is_relative_to(folder) for word in arguments):
            running.append(int(words.parent.name))
    return running


def without_recorder(folder: Path) -> None:
    """Waits until the recorder that a hook has just started for `folder` has ended by itself."""
    time.sleep(0.2)  # until it can be seen
    until = time.monotonic() + 20
    while recorders(folder):
        assert time.monotonic() < until, "a recorder goes on"
        time.sleep(0.05)


def end_recorder(store: Path) -> None:
    """Kills the recorder of a store, if one runs."""
    for process in recorders(store.parent):
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue
    places.home(store).mkdir(mode=0o700, exist_ok=True)
    with suppress(Conflict), locked(places.lock(store), timeout=2):  # a hook may have started the next one
        return


def history(store: Path) -> dict[str, list[str]]:
    """scope → trees and subjects of its commits, oldest first."""
    with Store(store) as opened:
        return {
            f"{session}/{scope}": program.run(store, "log", "--reverse", "--first-parent", "--format=%T %s", tip)
            .decode()
            .splitlines()
            for session, tips in opened.all_tips().items()
            for scope, tip in tips.items()
        }


def single_import(folder: Path, transcript: Path) -> dict[str, list[str]]:
    """The history that one import of the finished file gives, in a store of its own."""
    with create(folder / "single" / ".ctxvc") as store:
        outcomes = list(import_paths(store, [transcript], final=True))
        assert [outcome.error for outcome in outcomes] == [None] * len(outcomes)
    return history(folder / "single" / ".ctxvc")


def project(folder: Path) -> Path:
    """A project with a store."""
    path = folder / "project"
    path.mkdir()
    create(path / FOLDER).close()
    return path


def cuts(lines: Sequence[bytes], seed: int, pieces: int) -> list[bytes]:
    """The bytes of `lines` in so many pieces, cut anywhere, also inside of lines."""
    data = b"".join(lines)
    chance = random.Random(seed)
    places = sorted({0, len(data), *(chance.randrange(len(data)) for _ in range(pieces - 1))})
    return [data[start:stop] for start, stop in pairwise(places)]
