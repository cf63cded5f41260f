"""opencode with our plugin: a hundred steps in a window of 24k, resumed, forked, killed."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.hosts import coding, npm
from tests.hosts.opencode.program import Opencode
from tests.messages_api import MessagesApi, call, serve, text
from tests.messages_api.wire import Block, Request

#: A hundred steps take a minute and a half where nothing else runs.
pytestmark = pytest.mark.timeout(1200)
INPUT = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


@pytest.fixture(scope="module")
def modules() -> Path:
    return npm.installed("opencode")


@pytest.fixture
def opencode(tmp_path: Path, modules: Path) -> Opencode:
    return Opencode(coding.make_project(tmp_path / "project"), tmp_path / "home", modules)


def reader(opencode: Opencode, steps: int) -> coding.Reader:
    return coding.Reader(lambda path: call("read", filePath=str(path)), opencode.project, steps)


def configure(opencode: Opencode, api: MessagesApi) -> None:
    opencode.configure(opencode.settings(api.url, {"context": coding.WINDOW, "output": coding.RESERVE}))
    if not (opencode.home / "config" / "opencode" / "plugins").exists():
        coding.install("opencode", opencode.project, opencode.env)


@pytest.fixture(scope="module")
def long_run(
    tmp_path_factory: pytest.TempPathFactory, modules: Path
) -> Iterator[tuple[Opencode, MessagesApi, list[int]]]:
    """A hundred steps, then the same session in a new process, then a fork; with the number of requests after each."""
    folder = tmp_path_factory.mktemp("opencode")
    opencode = Opencode(coding.make_project(folder / "project"), folder / "home", modules)
    script = reader(opencode, coding.STEPS)
    ends: list[int] = []
    with serve(script) as api:
        configure(opencode, api)
        for arguments in (
            (coding.TASK,),
            ("--continue", coding.AGAIN),
            ("--continue", "--fork", "And three in the fork."),
        ):
            opencode.run(*arguments)
            script.steps += 3
            ends.append(len(coding.conversation_of(api.bodies)))
        yield opencode, api, ends


def test_a_hundred_steps_stay_inside_the_window_and_every_request_is_valid(
    long_run: tuple[Opencode, MessagesApi, list[int]],
) -> None:
    _, api, ends = long_run
    assert {one.status for one in api.calls} == {200}
    assert ends == [coding.STEPS + 1, coding.STEPS + 5, coding.STEPS + 9]
    used = [sum(one.answer["usage"][name] for name in INPUT) for one in api.calls]
    assert max(used) <= coding.WINDOW - coding.RESERVE


def test_human_words_are_in_every_request_as_they_were_said(
    long_run: tuple[Opencode, MessagesApi, list[int]],
) -> None:
    _, api, ends = long_run
    bodies = coding.conversation_of(api.bodies)
    assert all(coding.TASK in coding.human_texts(body) for body in bodies)
    assert all(coding.AGAIN in coding.human_texts(body) for body in bodies[ends[0] :])


def test_everything_that_left_is_in_the_store(long_run: tuple[Opencode, MessagesApi, list[int]]) -> None:
    opencode, api, _ = long_run
    last = coding.conversation_of(api.bodies)[-1]
    assert coding.stubs(last)
    coding.check_everything_recoverable(opencode.project, last)


def test_between_plans_each_request_begins_with_the_one_before(
    long_run: tuple[Opencode, MessagesApi, list[int]],
) -> None:
    _, api, _ = long_run
    assert 3 <= coding.plans(coding.conversation_of(api.bodies)[: coding.STEPS]) <= 30


def test_a_new_process_and_a_fork_begin_with_the_prompt_that_was_there(
    long_run: tuple[Opencode, MessagesApi, list[int]],
) -> None:
    _, api, ends = long_run
    bodies = coding.conversation_of(api.bodies)
    for end in ends[:2]:
        before, after = coding.bare(bodies[end - 1]), coding.bare(bodies[end])
        assert coding.stubs(bodies[end - 1]) <= coding.stubs(bodies[end])
        assert after[: len(before)] == before or coding.plans(bodies[end - 1 : end + 1])


def test_a_fork_is_a_scope_of_the_same_session(long_run: tuple[Opencode, MessagesApi, list[int]]) -> None:
    opencode, _, _ = long_run
    scopes = {scope: len(stored.ledger()) for _, scope, stored in coding.recorded(opencode.project)}
    assert scopes.keys() == {"main", "fork-1"}
    assert scopes["fork-1"] > scopes["main"]


def test_its_own_compaction_fits_the_window_and_human_words_stay(opencode: Opencode) -> None:
    base = reader(opencode, 40)

    def script(request: Request) -> Sequence[Block]:
        is_summary = not request.get("tools") and "<conversation>" in json.dumps(request["messages"])
        return [text("The files were read.")] if is_summary else base(request)

    model = {"providerID": "scripted", "modelID": coding.MODEL}
    with serve(script) as api:
        configure(opencode, api)
        opencode.run(coding.TASK)
        before = len(api.bodies)
        with opencode.serving() as url:  # a new process, which has not seen the messages so far
            (session,) = (one["id"] for one in opencode.ask(url, "/session"))
            for words in (coding.AGAIN, "Last words."):
                opencode.ask(url, f"/session/{session}/summarize", model)
                base.steps += 2
                said = {"model": model, "parts": [{"type": "text", "text": words}]}
                opencode.ask(url, f"/session/{session}/message", said)
        assert {one.status for one in api.calls} == {200}
        used = [sum(one.answer["usage"][name] for name in INPUT) for one in api.calls]
        assert max(used) <= coding.WINDOW - coding.RESERVE, "the requests for a summary too"
        summaries = [body for body in api.bodies[before:] if not body.get("tools")]
        assert len(summaries) == 2
        assert coding.stubs(summaries[0]), "their addresses can be named"
        later = coding.conversation_of(api.bodies[before:])
        assert all(coding.TASK in coding.human_texts(body) for body in later)
        assert all("The files were read." in json.dumps(body) for body in later)
    ((_, _, stored),) = coding.recorded(opencode.project)
    by_host = [row for row in stored.ledger().rows() if row.removed_by == "host"]
    assert len(by_host) > 40
    assert not any(row.origin == "human" for row in by_host)
    coding.run_ctxvc(opencode.project, "verify")


def test_what_left_is_read_again_by_the_tool(opencode: Opencode) -> None:
    script = reader(opencode, 20)
    with serve(script) as api:
        configure(opencode, api)
        opencode.run(coding.TASK)
        handle = coding.block_of(coding.conversation_of(api.bodies)[-1])
        script.instead = [coding.recover(handle)]
        opencode.run("--continue", "What was in it?")
        answer = json.dumps(coding.conversation_of(api.bodies)[-1]["messages"][-1])
    assert f"recovered {handle}" in answer
    assert "return x *" in answer


def test_a_killed_opencode_goes_on_where_it_was(opencode: Opencode) -> None:
    script = reader(opencode, 40)
    with serve(script) as api:
        configure(opencode, api)
        process = opencode.start(coding.TASK)
        while len(api.bodies) < 30:
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        bodies = coding.conversation_of(api.bodies)
        at = len(bodies)
        opencode.run("--continue", coding.AGAIN)
        bodies = coding.conversation_of(api.bodies)
        assert {one.status for one in api.calls} == {200}
        assert all(coding.TASK in coding.human_texts(body) for body in bodies)
        coding.check_all_still_named(opencode.project, bodies[at - 2], bodies[at])
        coding.check_everything_recoverable(opencode.project, bodies[-1])
