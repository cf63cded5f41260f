"""Real clients inside a budget, at a scripted upstream: they work for long, and end as without us."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from ctxvc.store.store import Store
from tests.hosts import coding
from tests.hosts.coding import ROOT, run_ctxvc
from tests.hosts.wire import play, recorded, workers
from tests.hosts.wire.agents import Place
from tests.hosts.wire.tap import Passed, Tap, tapped
from tests.hosts.wire.upstream import Blocks, Body, form_of, serve
from tests.hosts.wire.workers import WORKERS, Model, Turn, Worker, ours
from tests.messages_api import text
from tests.messages_api.judge import Judge
from tests.openai_api import judge as openai
from tests.wire.clients import gemini_problems

pytestmark = pytest.mark.timeout(1800)
#: Seconds that a client may take for its work, and between the events of a stream.
_PATIENCE, _PAUSE = 600, 0.002
_REASON = re.compile(r"\(stream disconnected before completion: [^)]*\)")


@dataclass
class Ended:
    """A client's work: how it ended, and what the upstream got."""

    worker: Worker
    place: Place
    model: Model
    code: int
    out: str
    err: str
    far: Tap

    def shown(self) -> tuple[int, list[str]]:
        """Exit status and output, without the reason that a client has for a broken answer."""
        return self.code, play.shown(_REASON.sub("(#)", self.out), self.place)

    def calls(self, *, whole: bool = True) -> list[Passed]:
        """The calls of a model that were answered: to their end, or not."""
        posts = [one for one in self.far.passed() if one.method == "POST" and one.status == 200 and one.whole == whole]
        return [one for one in posts if form_of(one.path) and not form_of(one.path).endswith("count")]

    def goes_on(self, arguments: Sequence[str], *turns: Turn) -> tuple[Body, Body]:
        """The client runs once more inside its budget: the last request before, and the first one then."""
        self.model.turns = [*turns, Turn([{"type": "text", "text": "Goodbye."}])]
        at = len(self.model.bodies)
        front = play.wrapping(self.worker.client, self.far.url, "--budget", str(self.worker.budget))
        ended = _run([*front, *arguments], self.worker, self.place, self.far.url)
        assert (ended.returncode, self.model.turns, self.model.beyond) == (0, [], []), (ended.stdout, ended.stderr)
        return self.model.bodies[at - 1], self.model.bodies[at]

    def resumed(self) -> tuple[int, str]:
        """The client goes on without us: its exit status, and what the upstream got."""
        assert self.worker.resume
        self.model.turns = [Turn([{"type": "text", "text": "Goodbye."}])]
        command = [*play.pointed(self.worker.client, self.far.url), *self.worker.resume(self.place)]
        code = _run(command, self.worker, self.place, self.far.url).returncode
        return code, json.dumps(self.model.bodies[-1])


@contextmanager
def work(
    worker: Worker, *options: str, turns: Sequence[Turn] = (), managed: bool = True, until: int = 0
) -> Iterator[Ended]:
    """The client at its work, inside its budget or without us; killed at the request `until`, if there is one."""
    with play.laid(worker.client) as (place, _):
        workers.lay(place)
        model = Model([*(turns or worker.turns(place))])
        with serve(model, pause=_PAUSE) as upstream, tapped(upstream.url) as far:
            wrap = ("--budget", str(worker.budget), *options)
            pointing = play.wrapping if managed else play.pointed
            front = pointing(worker.client, far.url, *(wrap if managed else ()))
            command = [*front, *worker.arguments(place)]
            if until:
                _kill(command, worker, place, far.url, lambda: len(model.bodies) >= until)
                yield Ended(worker, place, model, -signal.SIGKILL, "", "", far)
                return
            result = _run(command, worker, place, far.url)
            yield Ended(worker, place, model, result.returncode, result.stdout, result.stderr, far)


def _run(command: Sequence[str], worker: Worker, place: Place, url: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=place.project, env=_environment(worker, place, url), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=_PATIENCE, check=False,
    )  # fmt: skip


def _kill(command: Sequence[str], worker: Worker, place: Place, url: str, is_time: Callable[[], bool]) -> None:
    """Runs a client, and kills it with all that it has started once it is time."""
    process = subprocess.Popen(
        command, cwd=place.project, env=_environment(worker, place, url), stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    while not is_time():
        assert process.poll() is None, process.returncode
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _environment(worker: Worker, place: Place, url: str) -> dict[str, str]:
    return {**play.agents.environment(worker.client, place), **play.filled(worker.client, url), "PYTHONPATH": str(ROOT)}


def _installed(worker: Worker) -> Worker:
    try:
        worker.client.folders()
    except (RuntimeError, FileNotFoundError) as error:
        pytest.skip(f"{worker.client.name} cannot be installed here: {error}")
    return worker


@pytest.fixture(params=WORKERS, ids=lambda worker: worker.client.name)
def worker(request: pytest.FixtureRequest) -> Worker:
    """Each client in turn, installed."""
    return _installed(request.param)


def test_a_client_inside_a_budget_ends_as_without(worker: Worker) -> None:
    with work(worker, managed=False) as alone:
        assert (alone.model.turns, alone.model.beyond) == ([], []), (alone.out[-2000:], alone.err[-2000:])
        shown, usual = alone.shown(), {_kind(problem) for one in alone.calls() for problem in problems(one)}
        first, last = (len(json.dumps(alone.model.bodies[place])) // 4 for place in (0, -1))
        assert last - first > 2 * (worker.budget - first), "its results fill the room twice"
    with work(worker) as managed:
        assert (managed.model.turns, managed.model.beyond) == ([], []), (managed.out[-2000:], managed.err[-2000:])
        assert managed.shown() == shown
        notes = [line for line in managed.err.splitlines() if line.startswith("ctxvc:")]
        assert all("largest prompt" in line for line in notes), notes
        assert all(workers.ASKED in json.dumps(body) for body in managed.model.bodies)
        assert max(map(size, managed.calls())) <= worker.budget
        assert [problem for one in managed.calls() for problem in problems(one) if _kind(problem) not in usual] == []
        assert workers.NEEDLE.encode()[-12:] in managed.model.continued[0].encode()
        kept = [path for path in workers.kept(managed.place) if workers.PATTERN.encode() in path.read_bytes()]
        assert (kept, workers.PATTERN in managed.out) == ([], False)
        recorded.check(managed.place.project / ".ctxvc", managed.calls(), 1, managed.calls(whole=False))
        if worker.resume:
            code, body = managed.resumed()
            assert code == 0
            assert "kingfisher-77" in body and workers.PATTERN not in body


# --- sessions that go on


def _newest(place: Place) -> str:
    """The newest session of pi."""
    files = (place.home / ".pi" / "agent" / "sessions").rglob("*.jsonl")
    return str(max(files, key=lambda path: path.stat().st_mtime))


#: A client → its arguments for a fork of the newest session.
_FORKS: dict[str, Callable[[Place], Sequence[str]]] = {
    "pi-anthropic": lambda place: ("--fork", _newest(place), "--model", "anthropic/claude-sonnet-4-5", "-p", "Fork."),
    "opencode-anthropic": lambda _: ("run", "-m", "anthropic/claude-sonnet-4-5", "--continue", "--fork", "Fork."),
}


@pytest.fixture(params=_FORKS)
def forking(request: pytest.FixtureRequest) -> Worker:
    """Each client that can fork a session, installed."""
    return _installed(next(worker for worker in WORKERS if worker.client.name == request.param))


def test_a_new_process_and_a_fork_go_on_with_the_prompt_that_was_there(forking: Worker) -> None:
    assert forking.resume
    with work(forking) as ended:
        for arguments in (forking.resume(ended.place), _FORKS[forking.client.name](ended.place)):
            before, after = ended.goes_on(arguments)
            assert coding.stubs(before) and coding.stubs(before) <= coding.stubs(after)
            assert coding.bare(after)[: len(before["messages"])] == coding.bare(before)
        assert max(map(size, ended.calls())) <= forking.budget
        coding.check_everything_recoverable(ended.place.project, ended.model.bodies[-1])
        recorded.check(ended.place.project / ".ctxvc", ended.calls(), 1, ended.calls(whole=False))


def test_a_client_that_was_killed_goes_on_where_it_was(forking: Worker) -> None:
    assert forking.resume
    with work(forking, until=12) as ended:
        before, after = ended.goes_on(forking.resume(ended.place), *ended.model.turns[:-1])
        assert all(workers.ASKED in json.dumps(body) for body in ended.model.bodies)
        coding.check_all_still_named(ended.place.project, before, after)
        coding.check_everything_recoverable(ended.place.project, ended.model.bodies[-1])
        assert max(map(size, ended.calls())) <= forking.budget


# --- what the upstream would say


def size(one: Passed) -> int:
    """The tokens of a request, as the upstream counts them."""
    return len(json.dumps(json.loads(one.body))) // 4


def problems(one: Passed) -> list[str]:
    """What the provider would refuse in a request."""
    body = json.loads(one.body)
    match form_of(one.path).removesuffix("-stream"):
        case "messages":
            betas = [name.strip() for name in one.header("anthropic-beta").split(",") if name.strip()]
            return list(Judge(thinking=False).rule(body, betas=betas).problems)
        case "chat":
            return list(openai.chat_problems(body))
        case "responses":
            return list(openai.responses_problems(body))
    return list(gemini_problems(body["contents"]))


def _kind(problem: str) -> str:
    return re.sub(r"\d+|'[^']*'", "#", problem)


# --- policies whose tools the model uses itself


@pytest.fixture
def codex() -> Worker:
    """Codex, with room for its own instructions and tools and for ours."""
    return _installed(next(worker for worker in WORKERS if worker.client.name == "codex"))


def test_a_task_in_a_scope_and_back_with_a_note_is_in_the_store_as_with_our_own_agent(codex: Worker) -> None:
    place_of = [[text(f"Part {number} is next."), *codex.read(Place(ROOT), number)] for number in range(1, 7)]
    turns = [
        Turn(place_of[0]),
        Turn(place_of[1], asides=[[text("A task of its own."), ours("scope", name="find/needle", note="find it")]]),
        Turn(place_of[2]),
        Turn(place_of[3], asides=[[text("I note it."), ours("note", text="kingfisher-77 is the password")]]),
        Turn(place_of[4], asides=[[text("Back."), ours("goto", name="main", note="it is kingfisher-77")]]),
        Turn(place_of[5]),
        Turn([text("All done.")]),
    ]
    with work(codex, "--policy", "scoped", turns=turns) as ended:
        assert (ended.code, ended.model.turns, ended.model.beyond) == (0, [], []), (
            ended.out[-2000:],
            ended.err[-2000:],
        )
        assert [
            problem for one in ended.calls() for problem in problems(one) if "Unknown parameter" not in problem
        ] == []
        bodies = [one.body.decode() for one in ended.calls()]
        store = ended.place.project / ".ctxvc"
        recorded.check(store, ended.calls(), 1)
        with Store(store) as opened:
            (session,) = opened.sessions()
            assert set(opened.tips(session)) == {"main", "find/needle"}
            assert opened.current_scope(session) == "main"
            refs = subprocess.run(["git", "-C", store, "for-each-ref"], capture_output=True, text=True, check=True)
            assert f"refs/heads/{session}/find/needle" in refs.stdout
        notes = run_ctxvc(ended.place.project, "notes", "find/needle")
        inside, last = bodies[3], bodies[-1]
        assert "part 1, line 5:" not in inside and "part 2, line 5:" in inside
        assert "part 3, line 5:" not in last and "part 1, line 5:" in last and "it is kingfisher-77" in last
        assert "[dashboard " in inside and "[dashboard " in last
        assert "kingfisher-77 is the password" in notes


def test_what_the_model_archives_and_restores_is_in_the_store_and_in_its_prompts(codex: Worker) -> None:
    parts = [[text(f"Part {number} is next."), *codex.read(Place(ROOT), number)] for number in range(1, 6)]
    block: list[str] = []

    def archive(body: Body) -> Blocks:
        (asked,) = re.findall(r"B(\d+) [^\\]*Read all the pa", _board(body))
        block.append(f"B{int(asked) + 4}")  # behind the board, what the model says and its call
        return [text("Away."), ours("archive", blocks=block[0], index="part one")]

    turns = [
        Turn(parts[0]),
        Turn(parts[1]),
        Turn(parts[2], asides=[archive]),
        Turn(parts[3]),
        Turn(parts[4], asides=[lambda _: [text("Again."), ours("restore", blocks=block[0])]]),
        Turn([text("All done.")]),
    ]
    with work(codex, "--policy", "self_managed", turns=turns) as ended:
        assert (ended.code, ended.model.turns, ended.model.beyond) == (0, [], []), (
            ended.out[-2000:],
            ended.err[-2000:],
        )
        recorded.check(ended.place.project / ".ctxvc", ended.calls(), 1)
        operations = run_ctxvc(ended.place.project, "ops")
        assert f"archive {block[0]}" in operations and f"restore {block[0]}" in operations
        bodies = [one.body.decode() for one in ended.calls()]
        is_shown = ["part 1, line 5:" in body for body in bodies]
        assert is_shown == [False, True, True, False, False, False, True, True]


def _board(body: Body) -> str:
    """The newest board in a request."""
    return json.dumps(body).rpartition("[dashboard ")[2]
