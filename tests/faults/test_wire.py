"""Proxies and recorders that are killed while an agent works: it goes on, and what it got is in the store, once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ctxvc.store.store import Store
from tests.faults.summary import Tell, Times, line
from tests.faults.workload import unsound
from tests.making.store import ROOT
from tests.wire import sending
from tests.wire.raw import OPEN, PAUSE, Step, Upstream
from tests.wire.test_recorder import bodies, scopes, texts

pytestmark = [
    pytest.mark.faults,
    pytest.mark.timeout(7_200),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]
#: Kills while one agent runs, and calls that it makes; in the last ones nobody is killed.
_KILLS, _CALLS, _LAST = 10, 60, 2
_WHAT = ("proxy", "recorder", "both")


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    """A model that says something else each time, slowly."""
    server = Upstream()

    def answers(_request: bytes) -> list[Step]:
        number = len(server.requests)
        head, *chunks, end = sending.stream(f"Answer {number}: " + "word " * (number % 40), number)
        half = len(chunks) // 2
        return [head + b"".join(chunks[:half]), PAUSE, b"".join(chunks[half:]) + end, OPEN]

    server.answers = answers
    yield server
    server.close()


def children(pid: int, mark: str) -> list[int]:
    """The processes that a process has started which have `mark` in their command."""
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(child) for child in path.read_text().split()]
        except OSError:
            continue
    return [child for child in found if mark in _command(child)]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def kill(wrap: int, what: str, counts: Counter[str]) -> bool:
    """Kills the proxy of a wrap, its recorder, or both; whether they were there."""
    proxies = children(wrap, "--wrapped")
    recorders = [pid for proxy in proxies for pid in children(proxy, "recorder")]
    victims = {"proxy": proxies, "recorder": recorders, "both": [*proxies, *recorders] if recorders else []}[what]
    for pid in victims:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
    counts[what] += bool(victims)
    return bool(victims)


def run(
    project: Path,
    port: int,
    chance: random.Random,
    counts: Counter[str],
    kills: int,
    name: str,
    options: Sequence[str] = (),
) -> dict[str, Any]:
    """What an agent says of its run, during which so many processes are killed; the longest time without an answer."""
    project.mkdir()
    kind = "client" if options else "person"
    agent = [sys.executable, "-m", "tests.wire.agent", str(_CALLS), name, str(project / "said"), kind]
    command = ["wrap", *options, "--", *agent]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}"}
    with subprocess.Popen(
        [sys.executable, "-m", "ctxvc", "-C", str(project), *command, *([name] if chance.random() < 0.5 else [])],
        env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout
        what = chance.choice(_WHAT)
        answered = [int(process.stdout.readline())]
        os.set_blocking(process.stdout.fileno(), False)
        while kills and answered[-1] < _CALLS - _LAST:
            time.sleep(chance.random() * 0.4)
            if kill(process.pid, what, counts):
                kills, what = kills - 1, chance.choice(_WHAT)
            answered += map(int, (process.stdout.read() or b"").split())
        _, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors.decode()
    said: dict[str, Any] = json.loads((project / "said").read_text())
    return {**said, "errors": errors.decode()}


def wrong(project: Path, said: dict[str, Any], counts: Counter[str]) -> Iterator[str]:
    """What is not in the store as the agent has it."""
    store = project / ".ctxvc"
    with Store(store) as opened:
        if len(opened.sessions()) != 1:
            yield f"sessions: {opened.sessions()}"
            return
    kept = [[text for state, text in texts(store, scope) if state == "visible"] for scope in scopes(store)]
    if said["history"] not in kept:
        yield f"no scope has the history: {[len(one) for one in kept]} of {len(said['history'])}"
    exact = [body.decode() for scope in scopes(store) for body in bodies(store, scope=scope)]
    yield from (f"a body that was not sent: {body[-200:]}" for body in exact if body not in said["bodies"])
    main = [body.decode() for body in bodies(store, scope=scopes(store)[kept.index(said["history"])])]
    if main != [body for body in said["bodies"] if body in main]:
        yield "bodies in another order, or twice"
    counts["scopes"] += len(kept)
    counts["calls"] += len(said["bodies"])
    counts["exact"] += len(set(said["bodies"]) & set(exact))
    yield from unsound(store)
    if said["errors"]:
        yield said["errors"]


def test_kills_of_proxies_and_recorders(
    tmp_path: Path, upstream: Upstream, seed: int, times: Times, tell: Tell
) -> None:
    chance, counts = random.Random(seed), Counter[str]()
    problems: list[str] = []
    wanted = times(200)
    number = 0
    while (killed := counts["proxy"] + counts["recorder"] + counts["both"]) < wanted and len(problems) < 20:
        project = tmp_path / f"project-{number}"
        said = run(project, upstream.port, chance, counts, min(_KILLS, wanted - killed), f"agent-{number}")
        problems += [f"run {number}: {problem}" for problem in wrong(project, said, counts)]
        number += 1
    tell(line("kills on the wire", cases=killed, seed=seed, runs=number, proxies=counts["proxy"],
              recorders=counts["recorder"], both=counts["both"], calls=counts["calls"], exact_bodies=counts["exact"],
              scopes=counts["scopes"], requests=len(upstream.requests), wrong=len(problems)))  # fmt: skip
    assert not problems, "\n".join(problems)


def test_kills_while_prompts_are_kept_inside_a_budget(
    tmp_path: Path, upstream: Upstream, seed: int, times: Times, tell: Tell
) -> None:
    chance, counts = random.Random(seed), Counter[str]()
    problems: list[str] = []
    wanted = times(200)
    number = 0
    while (killed := counts["proxy"] + counts["recorder"] + counts["both"]) < wanted and len(problems) < 20:
        project, before = tmp_path / f"project-{number}", len(upstream.requests)
        kills = min(_KILLS, wanted - killed)
        said = run(project, upstream.port, chance, counts, kills, f"agent-{number}", ["--budget", "8k"])
        sent = [request.partition(b"\r\n\r\n")[2].decode() for request in upstream.requests[before:]]
        problems += [f"run {number}: {problem}" for problem in wrong_inside(project, said, sent, counts)]
        number += 1
    tell(line("kills inside a budget", cases=killed, seed=seed, runs=number, proxies=counts["proxy"],
              recorders=counts["recorder"], both=counts["both"], calls=counts["calls"], managed=counts["managed"],
              requests=len(upstream.requests), wrong=len(problems)))  # fmt: skip
    assert not problems, "\n".join(problems)


def wrong_inside(project: Path, said: dict[str, Any], sent: list[str], counts: Counter[str]) -> Iterator[str]:
    """What is not in the store as the agent has it, and prompts that begin otherwise though nothing has left."""
    store = project / ".ctxvc"
    with Store(store) as opened:
        if len(opened.sessions()) != 1:
            yield f"sessions: {opened.sessions()}"
            return
    kept = {text for scope in scopes(store) for _, text in texts(store, scope)}
    if lost := [text for text in said["history"] if text not in kept]:
        yield f"{len(lost)} of {len(said['history'])} texts are not there: {lost[0][:80]}"
    if len(sent) > said["attempts"]:
        yield f"{len(sent)} requests for {said['attempts']} of the agent's"
    managed = [body for body in sent if '"recover"' in body]
    breaks = sum(
        len(later) >= len(earlier) and not later.startswith(earlier[: len(earlier) // 2])
        for earlier, later in pairwise(managed)
    )
    if breaks:
        yield f"{breaks} of {len(managed)} prompts begin otherwise though nothing has left"
    counts["calls"] += len(said["bodies"])
    counts["managed"] += len(managed)
    yield from unsound(store)
