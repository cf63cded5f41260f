"""pi with our extension: a hundred steps in a window of 24k, resumed, forked, killed; its own file tells the truth."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.hosts import coding, npm
from tests.messages_api import MessagesApi, call, serve


@dataclass
class Pi:
    """pi in a home of its own."""

    project: Path
    home: Path
    modules: Path

    @property
    def env(self) -> dict[str, str]:
        node = self.modules / "node" / "bin"
        return {
            "PATH": f"{node}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "PI_CODING_AGENT_DIR": str(self.home / ".pi" / "agent"),
            "PI_OFFLINE": "1",
            "LANG": "C.UTF-8",
        }

    def start(self, *arguments: str, piped: bool = False) -> subprocess.Popen[str]:
        entry = self.modules / "@earendil-works" / "pi-coding-agent" / "dist" / "bundle" / "cli.js"
        return subprocess.Popen(
            ["node", entry, *([] if piped else ["-p"]), "--model", f"scripted/{coding.MODEL}", *arguments],
            cwd=self.project,
            env=self.env,
            stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if piped else subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str) -> str:
        with self.start(*arguments) as process:
            out, err = process.communicate(timeout=900)
        assert process.returncode == 0, err
        assert "ctxvc" not in err, err
        return out

    def files(self) -> list[Path]:
        return sorted(
            (self.home / ".pi" / "agent" / "sessions").rglob("*.jsonl"), key=lambda path: path.stat().st_mtime
        )

    def entries(self, path: Path) -> list[dict[str, Any]]:
        return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def modules() -> Path:
    return npm.installed("pi")


@pytest.fixture
def pi(tmp_path: Path, modules: Path) -> Pi:
    return Pi(coding.make_project(tmp_path / "project"), tmp_path / "home", modules)


def reader(pi: Pi, steps: int) -> coding.Reader:
    return coding.Reader(lambda path: call("read", path=path.name), pi.project, steps)


def configure(pi: Pi, api: MessagesApi) -> None:
    agent = pi.home / ".pi" / "agent"
    agent.mkdir(parents=True, exist_ok=True)
    model = {"id": coding.MODEL, "contextWindow": coding.WINDOW, "maxTokens": coding.RESERVE, "input": ["text"]}
    provider = {"baseUrl": api.url, "api": "anthropic-messages", "apiKey": "test", "models": [model]}
    (agent / "models.json").write_text(json.dumps({"providers": {"scripted": provider}}))
    if not (agent / "extensions").exists():
        coding.install("pi", pi.project, pi.env)


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory, modules: Path) -> Iterator[tuple[Pi, MessagesApi]]:
    """A hundred steps, then the same session resumed in a new process, then a fork of it."""
    folder = tmp_path_factory.mktemp("pi")
    pi = Pi(coding.make_project(folder / "project"), folder / "home", modules)
    script = reader(pi, coding.STEPS)
    with serve(script) as api:
        configure(pi, api)
        pi.run(coding.TASK)
        script.steps += 3
        pi.run("--continue", coding.AGAIN)
        script.steps += 3
        pi.run("--fork", str(pi.files()[-1]), "And in the fork, three more.")
        yield pi, api


def test_a_hundred_steps_stay_inside_the_window_and_every_request_is_valid(long_run: tuple[Pi, MessagesApi]) -> None:
    _, api = long_run
    assert {one.status for one in api.calls} == {200}
    assert len(api.bodies) == coding.STEPS + 1 + 4 + 4
    used = [sum(one.answer["usage"][name] for name in INPUT) for one in api.calls]
    assert max(used) <= coding.WINDOW - coding.RESERVE


pytestmark = pytest.mark.timeout(1200)
INPUT = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


def test_human_words_are_in_every_request_as_they_were_said(long_run: tuple[Pi, MessagesApi]) -> None:
    _, api = long_run
    assert all(coding.TASK in coding.human_texts(body) for body in api.bodies)
    assert all(coding.AGAIN in coding.human_texts(body) for body in api.bodies[coding.STEPS + 1 :])


def test_everything_that_left_is_in_the_store(long_run: tuple[Pi, MessagesApi]) -> None:
    pi, api = long_run
    assert coding.stubs(api.bodies[-1])
    coding.check_everything_recoverable(pi.project, api.bodies[-1])


def test_between_plans_each_request_begins_with_the_one_before(long_run: tuple[Pi, MessagesApi]) -> None:
    _, api = long_run
    assert 3 <= coding.plans(api.bodies[: coding.STEPS]) <= 12


def test_a_resumed_session_and_a_fork_begin_with_the_prompt_that_was_there(long_run: tuple[Pi, MessagesApi]) -> None:
    _, api = long_run
    last = [coding.STEPS, coding.STEPS + 4]  # the last request of a process
    for at in last:
        before, after = coding.bare(api.bodies[at]), coding.bare(api.bodies[at + 1])
        assert after[: len(before)] == before
        assert coding.stubs(api.bodies[at]) <= coding.stubs(api.bodies[at + 1])


def test_a_fork_is_a_scope_of_the_same_session(long_run: tuple[Pi, MessagesApi]) -> None:
    pi, _ = long_run
    scopes = {scope: len(stored.ledger()) for _, scope, stored in coding.recorded(pi.project)}
    assert scopes.keys() == {"main", "fork-1"}
    assert scopes["fork-1"] > scopes["main"]


def test_the_file_that_pi_keeps_says_what_the_model_was_sent(long_run: tuple[Pi, MessagesApi]) -> None:
    pi, api = long_run
    entries = pi.entries(pi.files()[0])
    edits = {entry["targetId"]: entry["replacement"] for entry in entries if entry["type"] == "context_edit"}
    assert coding.stubs(api.bodies[coding.STEPS + 4]) == coding.stubs_in(json.dumps(list(edits.values())))


def test_an_import_of_a_file_that_is_recorded_already_makes_no_second_session(
    long_run: tuple[Pi, MessagesApi],
) -> None:
    pi, _ = long_run
    before = coding.run_ctxvc(pi.project, "sessions", "--json")
    coding.run_ctxvc(pi.project, "import", str(pi.files()[0]))
    assert coding.run_ctxvc(pi.project, "sessions", "--json") == before


def test_an_import_elsewhere_of_what_pi_keeps_has_the_prompt_that_was_sent(
    long_run: tuple[Pi, MessagesApi], tmp_path: Path
) -> None:
    pi, api = long_run
    coding.run_ctxvc(tmp_path, "init")
    coding.run_ctxvc(tmp_path, "import", "--final", str(pi.files()[0]))
    ((_, _, stored),) = coding.recorded(tmp_path)
    absent = [row for row in stored.ledger().rows() if not row.present]
    text = " ".join([row.stub for row in absent] + [row.tag for row in stored.ledger().rows()])
    assert coding.stubs_in(text) == coding.stubs(api.bodies[coding.STEPS + 4])
    for row in absent:  # what left is whole
        assert b"[archived" not in stored.body(row)


def test_what_left_is_read_again_by_the_tool(pi: Pi) -> None:
    script = reader(pi, 40)
    with serve(script) as api:
        configure(pi, api)
        pi.run(coding.TASK)
        handle = coding.block_of(api.bodies[-1])
        script.instead = [coding.recover(handle)]
        pi.run("--continue", "What was in it?")
        answer = json.dumps(api.bodies[-1]["messages"][-1])
    assert f"recovered {handle}" in answer
    assert "return x *" in answer


def test_a_killed_pi_goes_on_where_it_was(pi: Pi) -> None:
    script = reader(pi, 60)
    with serve(script) as api:
        configure(pi, api)
        process = pi.start(coding.TASK)
        while len(api.bodies) < 45:
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        at = len(api.bodies)
        pi.run("--continue", coding.AGAIN)
        assert {one.status for one in api.calls} == {200}
        assert all(coding.TASK in coding.human_texts(body) for body in api.bodies)
        coding.check_all_still_named(pi.project, api.bodies[at - 2], api.bodies[at])
        coding.check_everything_recoverable(pi.project, api.bodies[-1])


def test_without_a_store_pi_is_as_it_was(pi: Pi) -> None:
    coding.run_ctxvc(pi.project, "doctor")
    (pi.project / ".ctxvc").rename(pi.project / "elsewhere")
    with serve(reader(pi, 2)) as api:
        configure(pi, api)
        pi.run(coding.TASK)
        assert not any(tool["name"].startswith("context_") for tool in api.bodies[0]["tools"])


def test_an_extension_of_another_version_says_so_and_changes_nothing(pi: Pi) -> None:
    with serve(reader(pi, 2)) as api:
        configure(pi, api)
        (started,) = pi.home.rglob("program.js")
        started.write_text(started.read_text().replace('VERSION = "', 'VERSION = "9.'))
        with pi.start(coding.TASK) as process:
            _, err = process.communicate(timeout=120)
        assert process.returncode == 0
        assert "install the extension again" in err
        assert len(api.bodies) == 3


def test_a_person_who_asks_for_a_compaction_gets_room_and_no_summary(pi: Pi) -> None:
    script = reader(pi, 12)
    with serve(script) as api:
        configure(pi, api)
        settings = {"compaction": {"keepRecentTokens": 2_000}}  # else pi itself finds the session too small
        (pi.home / ".pi" / "agent" / "settings.json").write_text(json.dumps(settings))
        pi.run(coding.TASK)
        before = len(api.calls)
        assert not coding.stubs(api.bodies[-1])
        over_rpc(pi, {"type": "compact"}, {"type": "prompt", "message": "Go on."})
        assert len(api.calls) == before + 1
        assert coding.stubs(api.bodies[-1])


def over_rpc(pi: Pi, *requests: dict[str, Any]) -> None:
    """Asks pi these things in its newest session, one after the other."""
    with pi.start("--continue", "--mode", "rpc", piped=True) as process:
        assert process.stdin and process.stdout
        for request in requests:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            end = "agent_settled" if request["type"] == "prompt" else "response"
            while json.loads(process.stdout.readline())["type"] != end:
                pass
        process.stdin.close()
