"""The real recorder behind the proxy, where things go wrong or several go at once: what passes is as without it."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from ctxvc.wire.recorder_process import RecorderProcess
from tests.faults.workload import unsound
from tests.making.store import ROOT
from tests.wire import agent, sending
from tests.wire.raw import KEY, OPEN, PATIENCE, Seen, Step, Upstream, ask, post, running
from tests.wire.test_answers import ANSWERS, PATH, seen
from tests.wire.test_recorder import bodies, texts
from tests.wire.test_recorder_process import REQUESTED, conversation, record_here

CTXVC = (sys.executable, "-m", "ctxvc")
ANSWER = sending.reply("Hello")
STEPS: list[Step] = [b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(ANSWER), ANSWER), OPEN]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / ".ctxvc"


def good(port: int, path: str, upstream: Upstream) -> tuple[bytes, Seen]:
    """The body of a request that can be recorded, and what its client sees."""
    upstream.steps = STEPS
    body = sending.body([{"role": "user", "content": "Hi"}])
    return body, ask(port, post(port, path, body), until=lambda data: data.endswith(ANSWER))


def test_whatever_an_upstream_sends_passes_and_what_can_be_recorded_is(store: Path, upstream: Upstream) -> None:
    troubles: list[str] = []
    recorder = RecorderProcess(store, on_trouble=troubles.append)
    with running({"anthropic": f"http://127.0.0.1:{upstream.port}"}, recorder=recorder) as proxy:
        for name, (steps, _) in ANSWERS.items():
            upstream.steps = list(steps)
            size = sum(len(step) for step in steps if isinstance(step, bytes))
            directly = seen(upstream.port, PATH, upstream, size)
            assert seen(proxy.port, f"/{KEY}{PATH}", upstream, size) == directly, name
        body, _ = good(proxy.port, f"/{KEY}{PATH}", upstream)
    recorder.close()

    assert bodies(store) == [body] and not unsound(store)
    assert not proxy.troubles and len(troubles) <= 1


def _another_format(store: Path) -> None:
    subprocess.run(["git", "-C", store, "config", "ctxvc.format", "99"], check=True)


def _no_store(store: Path) -> None:
    for path in sorted(store.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    store.rmdir()
    store.write_text("mine")


def _no_journal(store: Path) -> None:
    for path in (store / "ctxvc" / "journal").iterdir():
        path.write_bytes(b"\xff" * 100)


DAMAGES = {"another format": _another_format, "a file in its place": _no_store, "a spoilt journal": _no_journal}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_store_that_cannot_be_written_is_told_once_and_stops_nothing(
    name: str, store: Path, upstream: Upstream
) -> None:
    record_here(store, conversation(2))
    DAMAGES[name](store)

    troubles: list[str] = []
    recorder = RecorderProcess(store, on_trouble=troubles.append)
    with running({"anthropic": f"http://127.0.0.1:{upstream.port}"}, recorder=recorder) as proxy:
        answers = [good(proxy.port, f"/{KEY}{PATH}", upstream)[1].data for _ in range(2)]
    recorder.close()

    assert answers == [STEPS[0]] * 2
    assert len(troubles) == (name != "a spoilt journal"), troubles
    assert store.is_dir() or store.read_text() == "mine"


@pytest.mark.skipif(sys.platform != "linux", reason="sets limits of another process")
def test_a_disk_that_is_full_is_told_once_and_costs_what_came_meanwhile(store: Path) -> None:
    troubles: list[str] = []
    sent = conversation(4)
    recorder = RecorderProcess(store, on_trouble=troubles.append)

    def record(number: int) -> None:
        recorder.record(sent[number])
        recorder.ask(REQUESTED).result(PATIENCE)  # which comes after it

    record(0)
    (pid,) = _recorders(os.getpid())
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    record(1)
    record(2)
    assert len(troubles) == 1
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    record(3)
    recorder.close()

    assert bodies(store) == [sent[0].body, sent[3].body]
    assert [text for _, text in texts(store)] == [f"{what} {n}" for n in range(4) for what in ("Question", "Answer")]
    assert not unsound(store)


def _recorders(pid: int) -> list[int]:
    lists = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return [int(child) for one in lists for child in one if "recorder" in Path(f"/proc/{child}/cmdline").read_text()]


@pytest.fixture
def echo(upstream: Upstream) -> Upstream:
    """A model that says whose question it was."""

    def answers(request: bytes) -> list[Step]:
        names = re.findall(rb"([a-z]+-[0-9]+): question ([0-9]+)", request)
        said = f"to {names[-1][0].decode()}: answer {names[-1][1].decode()}"
        return [b"".join(sending.stream(said, len(upstream.requests))), OPEN]

    upstream.answers = answers
    return upstream


@contextmanager
def proxy(folder: Path, upstream: str) -> Iterator[str]:
    """The address of a proxy for a project, which ends as with ^C."""
    command = [*CTXVC, "-C", str(folder), "proxy", "--upstream", f"anthropic={upstream}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield process.stdout.readline().strip()
        process.send_signal(signal.SIGINT)


def at_work(address: str, name: str, file: Path, *command: str) -> subprocess.Popen[bytes]:
    """An agent that makes ten calls; with a command in front."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "ANTHROPIC_BASE_URL": address}
    own = [sys.executable, "-m", "tests.wire.agent", "10", name, str(file), "person"]
    return subprocess.Popen([*command, *own], env=env, stdout=subprocess.DEVNULL, cwd=ROOT)


def recorded(store: Path) -> dict[str, list[str]]:
    """The texts of the main line of each session, by the agent whose questions are in it."""
    lines = {}
    with Store(store) as opened:
        for name in opened.sessions():
            stored = StoredSession.for_reading(opened, name)
            line = [stored.body(row).decode() for row in stored.ledger().rows()]
            lines[line[0].partition(":")[0]] = line
    return lines


def check(store: Path, agents: dict[str, Path]) -> None:
    """Each agent's session is whole, and there is none but theirs."""
    histories = {name: json.loads(file.read_text())["history"] for name, file in agents.items()}
    for name, history in histories.items():
        assert all(text.startswith((f"{name}: ", f"to {name}: ")) for text in history)
    assert recorded(store) == histories
    assert not unsound(store)


def test_agents_and_proxies_on_one_store_and_one_of_another_project(tmp_path: Path, echo: Upstream) -> None:
    """No store was there before. The end of one proxy is not that of the others."""
    url = f"http://127.0.0.1:{echo.port}"
    folders = [tmp_path / name for name in ("one", "one", "one", "two")]
    files = [folder / f"said-{number}" for number, folder in enumerate(folders)]
    for folder in set(folders):
        folder.mkdir()

    def talk(address: str, number: int, conversation: str = "") -> None:
        agent.main(10, f"agent-{number}", str(files[number]), "person", conversation, address=address)

    with proxy(folders[1], url) as first, proxy(folders[2], url) as second, ThreadPoolExecutor() as threads:
        with proxy(folders[3], url) as other:
            talks = [threads.submit(talk, other, 3), threads.submit(talk, first, 1, "a1c2")]
            wrapped = at_work(url, "agent-0", files[0], *CTXVC, "-C", str(folders[0]), "wrap", "--")
            assert [one.result(120) for one in talks] == [None] * 2
        talk(second, 2, "c3d4")
        assert wrapped.wait(120) == 0

    check(folders[0] / ".ctxvc", {f"agent-{number}": files[number] for number in range(3)})
    check(folders[3] / ".ctxvc", {"agent-3": files[3]})
