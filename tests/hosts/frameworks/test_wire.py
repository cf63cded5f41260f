"""Agents of frameworks inside a budget, by an HTTP client of ours: at long work, in the next process, killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from tests.hosts import coding
from tests.hosts.frameworks.agents import FRAMEWORKS, Case, Framework
from tests.hosts.wire import recorded, workers
from tests.hosts.wire.tap import Passed, Tap, tapped
from tests.hosts.wire.test_managed import problems, size
from tests.hosts.wire.upstream import form_of, serve
from tests.hosts.wire.workers import ASKED, BYE, FOUND, Model, Turn, ours, part
from tests.messages_api import call, text

pytestmark = pytest.mark.timeout(600)
BUDGET = 12_000
ALL = pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.name)


@pytest.fixture(autouse=True)
def installed(request: pytest.FixtureRequest) -> None:
    framework: Framework = request.node.callspec.params["framework"]
    if not framework.is_installed:
        pytest.skip(f"{framework.package} is not installed")


@dataclass
class Wire:
    """A scripted model behind a tap, and a store."""

    model: Model
    far: Tap
    store: Path
    case: Case

    def calls(self) -> list[Passed]:
        return [one for one in self.far.passed() if one.method == "POST" and one.status == 200 and form_of(one.path)]


def reads(last: Turn, search: int = 13) -> list[Turn]:
    """The model reads all parts; before one of them it looks again for what has left."""
    turns = [Turn([text(f"Part {number}."), call("read", path=part(number))]) for number in range(1, workers.STEPS + 1)]
    aside = [text("Where was that?"), ours("search", pattern=workers.PATTERN)]
    turns[search - 1] = Turn([text(FOUND), *turns[search - 1].blocks], asides=[aside])
    return [*turns, last]


@contextmanager
def wire(folder: Path, turns: Sequence[Turn], way: str = "sync") -> Iterator[Wire]:
    place = workers.Place(folder)
    place.make()
    workers.lay(place)
    model = Model([*turns])
    with serve(model) as upstream, tapped(upstream.url) as far:
        store = place.project / ".ctxvc"
        yield Wire(model, far, store, Case(far.url, store, place.project, ASKED, BUDGET, way))


@ALL
@pytest.mark.parametrize("way", ["sync", "async", "stream"])
def test_an_agent_stays_in_its_budget_finds_again_what_left_and_is_recorded(
    framework: Framework, way: str, tmp_path: Path
) -> None:
    if way == "sync" and not framework.is_sync:
        pytest.skip("it has asyncio inside")
    last = Turn([text("All done.")], asides=[[text("Once more."), ours("recover", block="B3")]])
    with wire(tmp_path, reads(last), way) as at:
        said, messages = framework.ask(at.case)

        assert (said[-9:], at.model.turns, at.model.beyond) == ("All done.", [], [])
        assert workers.NEEDLE[-12:] in at.model.continued[0]
        assert workers.PATTERN not in repr(messages), "the agent sees nothing of our tools"
        assert all(ASKED in json.dumps(body) for body in at.model.bodies)
        assert max(map(size, at.calls())) <= BUDGET
        assert [problem for one in at.calls() for problem in problems(one)] == []
        recorded.check(at.store, at.calls(), 1)


@ALL
def test_the_next_process_goes_on_with_the_prompt_that_was_there(framework: Framework, tmp_path: Path) -> None:
    with wire(tmp_path, reads(Turn([text("All done.")]))) as at:
        _, messages = framework.ask(at.case)
        before = at.model.bodies[-1]
        at.model.turns = [Turn([text("Goodbye.")])]
        assert framework.ask(replace(at.case, task=BYE, history=messages))[0] == "Goodbye."

        sent = json.dumps(at.model.bodies[-1])
        assert coding.stubs_in(json.dumps(before)) and BYE in sent
        assert coding.stubs_in(json.dumps(before)) <= coding.stubs_in(sent)
        assert max(map(size, at.calls())) <= BUDGET
        recorded.check(at.store, at.calls(), 1)


PROGRAM = """
import sys
from pathlib import Path
from tests.hosts.frameworks.agents import *
name, url, store, folder, task, budget = sys.argv[1:]
(framework,) = [one for one in FRAMEWORKS if one.name == name]
framework.ask(Case(url, Path(store), Path(folder), task, int(budget)))
"""


@ALL
def test_what_was_answered_is_recorded_when_the_process_is_killed(framework: Framework, tmp_path: Path) -> None:
    """The tenth file is a pipe that nobody writes to."""
    with wire(tmp_path, reads(Turn([text("All done.")]))) as at:
        (at.case.folder / part(10)).unlink()
        os.mkfifo(at.case.folder / part(10))
        case = [framework.name, at.case.url, at.store, at.case.folder, ASKED, str(BUDGET)]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        with subprocess.Popen([sys.executable, "-c", PROGRAM, *case], env=env) as process:
            with (at.case.folder / part(10)).open("w"):  # once the tool reads it
                process.send_signal(signal.SIGKILL)
                process.wait()

        assert len(at.model.bodies) == 10
        with Store(at.store) as store:
            StoredSession.open(store, "t").close()  # commits what is in its journal
        recorded.check(at.store, at.calls(), 1)
