"""The session of the OpenAI Agents SDK against the SDK itself and its client, on a server that judges each request."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agents.run_config", reason="openai-agents is not installed")

import openai
from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled

from ctxvc.agent.loop import INTERRUPTED
from ctxvc.errors import CtxvcError
from ctxvc.integrations.openai_agents import CtxvcSession
from ctxvc.session.session import Session
from tests.hosts.frameworks.test_examples import BLOCKS
from tests.hosts.frameworks.test_examples import run as run_example
from tests.messages_api.script import call, script, text, thought
from tests.openai_api import OpenAIApi, serve

TASK = "Find the needle, and tell me its colour."
BUDGET = 20_000
KINDS = pytest.mark.parametrize("kind", [OpenAIResponsesModel, OpenAIChatCompletionsModel])


@pytest.fixture(autouse=True)
def untraced() -> None:
    set_tracing_disabled(True)


def output(cmd: str) -> str:
    return f"output of {cmd}: " + f"evidence of {cmd}, line after line. " * 80


@function_tool
def sh(cmd: str) -> str:
    """Run a command."""
    return output(cmd)


def model(kind: Any, api: OpenAIApi) -> Any:
    return kind(model="local-model", openai_client=openai.AsyncOpenAI(base_url=api.url, api_key="test", max_retries=0))


def agent(kind: Any, api: OpenAIApi, memory: CtxvcSession, *tools: Any) -> Agent[Any]:
    return Agent(
        name="finder",
        instructions="You look.",
        model=model(kind, api),
        tools=memory.with_context_tools(tools or [sh]),
    )


def run(finder: Agent[Any], memory: CtxvcSession, task: str | list[Any] = TASK) -> Any:
    return asyncio.run(
        Runner.run(finder, task, session=memory, hooks=memory, run_config=memory.run_config(), max_turns=500)
    )


def memory_in(folder: Path, **more: Any) -> CtxvcSession:
    options = {"budget": BUDGET, "model": "local-model", "instructions": "You look.", **more}
    return CtxvcSession("t", folder / ".ctxvc", **options)


def bodies(path: Path, name: str = "t") -> list[str]:
    """The bodies of all blocks of a session, in the prompt or not, in any scope."""
    with Session.open(path, name) as session:
        stored = session.stored
        rows = [(row, scope) for scope in session.scopes() for row in session.ledger(scope).rows()]
        return [stored.body(row, scope).decode() for row, scope in rows]


@KINDS
def test_a_hundred_steps_stay_under_twenty_thousand_tokens_and_lose_nothing(tmp_path: Path, kind: Any) -> None:
    replies = [[thought(f"look at {number}"), call("sh", cmd=f"ls {number}")] for number in range(100)]
    with serve(script(*replies, "Done."), window=BUDGET) as api, memory_in(tmp_path) as memory:
        result = run(agent(kind, api, memory), memory)
        items = asyncio.run(memory.get_items())

    assert result.final_output == "Done." and not api.problems
    assert len(api.bodies) == 101 and max(api.sizes) <= BUDGET
    assert all(TASK in json.dumps(body) for body in api.bodies)
    stored = bodies(tmp_path / ".ctxvc")
    assert all(stored.count(output(f"ls {number}")) == 1 for number in range(100))
    assert len([item for item in items if item.get("type") == "function_call_output"]) == 100
    assert [item["output"] for item in items if item.get("type") == "function_call_output"][7] == output("ls 7")


@KINDS
def test_the_model_gets_back_what_left(tmp_path: Path, kind: Any) -> None:
    texts: list[str] = []

    def assistant(body: dict[str, Any]) -> Any:
        number = len(texts) or len(requests)
        requests.append(body)
        if texts:
            return "Recovered."
        if number < 30:
            return [call("sh", cmd=f"ls {number}")]
        opened = memory._conversations.opened(memory._name)
        rows = opened.session.ledger().rows()
        texts.append(next(row.id for row in rows if row.kind == "tool_result" and not row.present))
        return [call("recover", block=texts[0])]

    requests: list[Any] = []
    with serve(assistant, window=BUDGET) as api, memory_in(tmp_path) as memory:
        result = run(agent(kind, api, memory), memory)
        items = asyncio.run(memory.get_items())

    assert result.final_output == "Recovered." and not api.problems
    answer = next(item["output"] for item in reversed(items) if item.get("type") == "function_call_output")
    assert texts[0] in answer and "evidence of ls" in answer


def test_each_item_is_recorded_once_and_comes_back_as_it_was(tmp_path: Path) -> None:
    replies = [
        [thought("hm"), text("I look twice."), call("sh", cmd="a"), call("sh", cmd="b")],
        "First answer.",
        "First answer.",
    ]
    with serve(script(*replies)) as api, memory_in(tmp_path) as memory:
        finder = agent(OpenAIResponsesModel, api, memory)
        first = run(finder, memory, "hi")
        run(finder, memory, "hi")
        items = asyncio.run(memory.get_items())
    with memory_in(tmp_path) as memory:
        assert asyncio.run(memory.get_items()) == items
        assert asyncio.run(memory.get_items(2)) == items[-2:]

    def said(item: Any) -> tuple[str, str]:
        arguments = json.dumps(json.loads(item.get("arguments", "0")))  # their white space is not kept
        content = item.get("content") or item.get("summary") or item.get("output") or arguments
        return item.get("type", "message"), content if isinstance(content, str) else content[0]["text"]

    sent = [said(item) for item in first.to_input_list()]
    assert [said(item) for item in items] == [*sent, ("message", "hi"), ("message", "First answer.")]
    assert items[1] == first.to_input_list()[1], "the reasoning goes back to the provider as it came"


def test_it_works_as_a_session_alone(tmp_path: Path) -> None:
    with serve(script([call("sh", cmd="a")], "One.", "Two.")) as api, memory_in(tmp_path) as memory:
        finder = Agent(name="finder", model=model(OpenAIResponsesModel, api), tools=[sh])
        asyncio.run(Runner.run(finder, "first", session=memory))
        asyncio.run(Runner.run(finder, "second", session=memory))
        items = asyncio.run(memory.get_items())

    assert [item.get("role") or item["type"] for item in items] == [
        *("user", "function_call", "function_call_output", "assistant", "user", "assistant"),
    ]
    assert len(api.bodies[2]["input"]) == 5 and not api.problems


def test_what_is_taken_back_leaves_the_conversation_and_stays_in_the_store(tmp_path: Path) -> None:
    with serve(script("One.", "Two.", "Three.")) as api, memory_in(tmp_path) as memory:
        finder = agent(OpenAIResponsesModel, api, memory)
        run(finder, memory, "first")
        run(finder, memory, "second")
        popped = asyncio.run(memory.pop_item())
        asyncio.run(memory.pop_item())
        kept = asyncio.run(memory.get_items())
        run(finder, memory, "third")
        asyncio.run(memory.clear_session())
        assert asyncio.run(memory.get_items()) == []
        assert asyncio.run(memory.pop_item()) is None

    assert popped["content"][0]["text"] == "Two."
    assert [item["role"] for item in kept] == ["user", "assistant"]
    assert "second" not in json.dumps(api.bodies[2]) and "One." in json.dumps(api.bodies[2])
    assert {"Two.", "Three."} <= set(bodies(tmp_path / ".ctxvc"))


def test_an_item_that_only_the_sdk_can_read_is_kept_and_goes_back(tmp_path: Path) -> None:
    search = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "x"},
    }
    developer = {"role": "developer", "content": "be brief"}
    hello, more = {"role": "user", "content": "hi"}, {"role": "user", "content": "and?"}
    with memory_in(tmp_path) as memory:
        asyncio.run(memory.add_items([developer, hello, search, more]))
        first = asyncio.run(memory.get_items())
    with memory_in(tmp_path) as memory:
        again = asyncio.run(memory.get_items())
        sent = memory._prompt(again)

    assert first == again == [developer, hello, search, more]
    assert search in sent


@pytest.mark.parametrize("items", [[{}], [{"role": "user"}], [{"type": 5}], [{"role": "assistant", "content": [5]}],
                                   [{"type": "function_call_output", "call_id": "never", "output": "x"}],
                                   [{"role": "user", "content": "\ud800"}]])  # fmt: skip
def test_odd_items_are_recorded_or_refused_plainly(tmp_path: Path, items: list[Any]) -> None:
    with memory_in(tmp_path) as memory:
        asyncio.run(memory.add_items(items))
        items = asyncio.run(memory.get_items())
        with contextlib.suppress(CtxvcError):  # as where the last word is the model's
            memory._prompt(items)


def test_calls_are_not_run_while_the_context_is_overfull(tmp_path: Path) -> None:
    ran: list[str] = []

    @function_tool
    def flood(cmd: str) -> str:
        """Say a lot."""
        ran.append(cmd)
        return "".join(f"{cmd} {number}\n" for number in range(6000))

    replies = [[call("flood", cmd=f"{number}{at}") for at in range(3)] for number in range(6)]
    with serve(script(*replies, "Done."), window=BUDGET) as api, memory_in(tmp_path) as memory:
        result = run(agent(OpenAIResponsesModel, api, memory, flood), memory)

    assert result.final_output == "Done." and not api.problems
    assert max(api.sizes) <= BUDGET and ran


# --- the page and its example


def test_the_example_stays_in_its_budget_and_goes_on(tmp_path: Path) -> None:
    first, second = run_example("openai_agents_agent.py", tmp_path / ".ctxvc").splitlines()

    assert first.startswith("Found again: ") and "page 1:" in first
    assert second.startswith("84 items") and int(re.findall(r"had ([\d,]+)", second)[0].replace(",", "")) < 48_000
    assert run_example("openai_agents_agent.py", tmp_path / ".ctxvc").startswith("Found again: ")


def test_the_session_does_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with serve(script([call("sh", cmd="a")], "It is the fixture.")) as api:
        names: dict[str, Any] = {"model": model(OpenAIResponsesModel, api), "tools": [sh]}
        exec(BLOCKS["openai-agents"], names)

    assert names["result"].final_output == "It is the fixture."
    assert "Why does the login test fail?" in bodies(tmp_path / ".ctxvc", "fix-login")


# --- killed

PROGRAM = """
import asyncio, sys
from pathlib import Path
from agents import Agent, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
import openai
from ctxvc.integrations.openai_agents import CtxvcSession
set_tracing_disabled(True)

@function_tool
def sh(cmd: str) -> str:
    "Run a command."
    if cmd == "ls 20":
        print("begun", flush=True)
        import time; time.sleep(600)
    return f"output of {cmd}: " + f"evidence of {cmd}, line after line. " * 80

url, store = sys.argv[1:]
memory = CtxvcSession("t", store, budget=20_000, model="local-model", instructions="You look.")
client = openai.AsyncOpenAI(base_url=url, api_key="test")
agent = Agent(name="finder", instructions="You look.", tools=memory.with_context_tools([sh]),
              model=OpenAIResponsesModel(model="local-model", openai_client=client))
asyncio.run(Runner.run(agent, "Find the needle.", session=memory, hooks=memory, run_config=memory.run_config(),
                       max_turns=500))
"""


def test_a_run_that_was_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    replies = [[call("sh", cmd=f"ls {number}")] for number in range(40)]
    (tmp_path / "program.py").write_text(PROGRAM)
    with serve(script(*replies, "Done."), window=BUDGET) as api:
        process = subprocess.Popen(
            [sys.executable, str(tmp_path / "program.py"), api.url, str(tmp_path / ".ctxvc")],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert process.stdout and process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGKILL)
        process.communicate()
        with memory_in(tmp_path) as memory:
            result = run(agent(OpenAIResponsesModel, api, memory), memory, "Go on.")

    assert result.final_output == "Done." and not api.problems
    assert max(api.sizes) <= BUDGET
    stored = bodies(tmp_path / ".ctxvc")
    assert INTERRUPTED in stored
    assert all(stored.count(output(f"ls {number}")) == (number != 20) for number in range(40))
