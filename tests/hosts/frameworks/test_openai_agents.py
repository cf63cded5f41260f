"""The session of the OpenAI Agents SDK: items come back as they were, in this process and the next."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agents.run_config", reason="openai-agents is not installed")

import openai
from agents import Agent, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled

from ctxvc.integrations.openai_agents import CtxvcSession
from ctxvc.store.store import Store
from ctxvc.store.verify.verify import verify
from tests.messages_api.script import call, script, text, thought
from tests.openai_api import OpenAIApi, serve

SECRET = "AKIA" + "Q3EGYWR5ZTBXN7LM"
HELLO, MORE = {"role": "user", "content": "hi"}, {"role": "user", "content": "and?"}
ODD: list[Any] = [
    {"role": "developer", "content": "be brief"},
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}},
    {},
    {"type": 5},
    {"role": "user", "content": "\ud800 line\u2028"},
]


@pytest.fixture(autouse=True)
def untraced() -> None:
    set_tracing_disabled(True)


@function_tool
def sh(cmd: str) -> str:
    """Run a command."""
    if cmd == "wait":
        print("begun", flush=True)
        signal.pause()
    return f"output of {cmd}"


def agent(api: OpenAIApi) -> Agent[Any]:
    client = openai.AsyncOpenAI(base_url=api.url, api_key="test", max_retries=0)
    model = OpenAIResponsesModel(model="local-model", openai_client=client)
    return Agent(name="finder", instructions="You look.", model=model, tools=[sh])


def run(finder: Agent[Any], session: CtxvcSession, task: str) -> Any:
    return asyncio.run(Runner.run(finder, task, session=session))


def items(session: CtxvcSession, limit: int | None = None) -> list[Any]:
    return asyncio.run(session.get_items(limit))


def test_items_come_back_as_they_were_given_also_to_another_process(tmp_path: Path) -> None:
    with CtxvcSession("t", tmp_path / ".ctxvc") as session, CtxvcSession("t", tmp_path / ".ctxvc") as other:
        assert items(session) == []
        asyncio.run(session.add_items([HELLO, *ODD]))
        asyncio.run(session.add_items([]))
        assert items(other) == [HELLO, *ODD]
        asyncio.run(other.add_items([MORE]))
        assert items(session) == [HELLO, *ODD, MORE]
        assert (items(session, 2), items(session, 0)) == ([ODD[-1], MORE], [])
    with CtxvcSession("t", tmp_path / ".ctxvc") as session, CtxvcSession("T", tmp_path / ".ctxvc") as another:
        assert (items(session), items(another)) == ([HELLO, *ODD, MORE], [])


def test_a_run_has_the_items_of_those_before(tmp_path: Path) -> None:
    replies = [[thought("hm"), text("I look twice."), call("sh", cmd="a"), call("sh", cmd="b")], "First.", "Second."]
    with serve(script(*replies)) as api:
        with CtxvcSession("t", tmp_path / ".ctxvc") as session:
            first = run(agent(api), session, "hi")
            assert items(session) == first.to_input_list()
        with CtxvcSession("t", tmp_path / ".ctxvc") as session:
            assert run(agent(api), session, "and?").final_output == "Second."

    assert not api.problems
    assert api.bodies[2]["input"][:-1] == [*first.to_input_list()]


def test_what_is_taken_out_is_gone_for_the_sdk_and_stays_in_the_store(tmp_path: Path) -> None:
    with CtxvcSession("t", tmp_path / ".ctxvc") as session:
        asyncio.run(session.add_items([HELLO, MORE]))
        assert asyncio.run(session.pop_item()) == MORE
        assert items(session) == [HELLO]
        asyncio.run(session.clear_session())
        assert (items(session), asyncio.run(session.pop_item())) == ([], None)
        asyncio.run(session.add_items([MORE]))
    with CtxvcSession("t", tmp_path / ".ctxvc") as session:
        assert items(session) == [MORE]
        added = [value["item"] for value in session._records.newest_first() if "item" in value]
        assert added == [MORE, MORE, HELLO]
    with Store(tmp_path / ".ctxvc") as store:
        assert store.sessions() == ["openai-agents-t"] and not verify(store).damaged


def test_a_secret_comes_back_as_a_mark(tmp_path: Path) -> None:
    with CtxvcSession("t", tmp_path / ".ctxvc") as session:
        asyncio.run(session.add_items([{"role": "user", "content": f"use {SECRET}"}]))
        assert items(session)[0]["content"].startswith("use [REDACTED:")


PROGRAM = """
import sys
from pathlib import Path
from tests.hosts.frameworks.test_openai_agents import *
set_tracing_disabled(True)
run(agent(type("Api", (), {"url": sys.argv[1]})), CtxvcSession("t", sys.argv[2]), "Find the needle.")
"""


def test_a_run_that_was_killed_goes_on_with_all_that_was_added(tmp_path: Path) -> None:
    steps = [[call("sh", cmd=f"ls {number}")] for number in range(5)]
    (tmp_path / "program.py").write_text(PROGRAM)
    with serve(script(*steps, [call("sh", cmd="wait")], "Done.")) as api:
        command = [sys.executable, tmp_path / "program.py", api.url, tmp_path / ".ctxvc"]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
            assert process.stdout and process.stdout.readline() == "begun\n"
            process.send_signal(signal.SIGKILL)
        with CtxvcSession("t", tmp_path / ".ctxvc") as session:
            assert run(agent(api), session, "Go on.").final_output == "Done."

    outputs = [item["output"] for item in api.bodies[-1]["input"] if item.get("type") == "function_call_output"]
    assert outputs == [f"output of ls {number}" for number in range(5)]
    assert not api.problems
