"""The middleware against LangChain itself, with a scripted model and a judge of each request."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langchain.agents.middleware", reason="LangChain is not installed")

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool

from ctxvc.errors import BadInput
from ctxvc.integrations.langchain import CtxvcMiddleware
from ctxvc.integrations.langgraph import CtxvcSaver
from ctxvc.session.session import Session
from tests.hosts.frameworks.scripted import Scripted

TASK = "Find the needle, and tell me its colour."
THREAD: Any = {"configurable": {"thread_id": "t"}, "recursion_limit": 1000}


@tool
def sh(cmd: str) -> str:
    """Run a command."""
    return output(cmd)


def output(cmd: str) -> str:
    return f"output of {cmd}: " + f"evidence of {cmd}, line after line. " * 80


def steps(count: int) -> Any:
    """A model that runs so many commands, one a step, and is done."""
    return lambda number, _: [("sh", {"cmd": f"ls {number}"})] if number < count else "Done."


def agent(model: Scripted, middleware: CtxvcMiddleware, *, tools: Any = (sh,), **more: Any) -> Any:
    return create_agent(model, tools=list(tools), system_prompt="You look.", middleware=[middleware], **more)


def ask(text: str = TASK) -> Any:
    return {"messages": [HumanMessage(text)]}


def human_words(body: dict[str, Any]) -> list[str]:
    return [block["text"] for turn in body["messages"] for block in turn["content"] if block["type"] == "text"]


def bodies(path: Path, name: str = "langchain-t") -> set[str]:
    """The bodies of all blocks of a session, in the prompt or not, in any scope."""
    with Session.open(path, name) as session:
        stored = session.stored
        return {stored.body(row, scope).decode() for scope in session.scopes() for row in session.ledger(scope).rows()}


def test_a_hundred_steps_stay_under_twenty_thousand_tokens_and_lose_nothing(tmp_path: Path) -> None:
    model = Scripted(says=steps(100))
    with CtxvcMiddleware(tmp_path / ".ctxvc", budget=20_000) as middleware:
        result = agent(model, middleware).invoke(ask(), THREAD)

    assert result["messages"][-1].text == "Done." and len(result["messages"]) == 202, "the agent's own list is whole"
    assert len(model.requests) == 101 and max(model.sizes) <= 20_000
    assert all(TASK in human_words(body) for body in model.requests)
    assert {output(f"ls {number}") for number in range(100)} <= bodies(tmp_path / ".ctxvc")


def test_the_model_gets_back_what_left(tmp_path: Path) -> None:
    texts: list[str] = []

    def says(number: int, messages: list[BaseMessage]) -> Any:
        last = messages[-1]
        if isinstance(last, ToolMessage) and last.name == "recover":
            return "Recovered."
        if number >= 40:
            texts.append(next(iter(middleware_rows())))
            return [("recover", {"block": texts[-1]})]
        return [("sh", {"cmd": f"ls {number}"})]

    def middleware_rows() -> list[str]:
        session = middleware._conversations.opened("langchain-t").session
        return [row.id for row in session.ledger().rows() if row.kind == "tool_result" and not row.present]

    model = Scripted(says=says)
    with CtxvcMiddleware(tmp_path / ".ctxvc", budget=20_000) as middleware:
        result = agent(model, middleware).invoke(ask(), THREAD)

    answer = result["messages"][-2]
    assert answer.status == "success" and "evidence of ls" in answer.text and texts[0] in answer.text
    assert max(model.sizes) <= 20_000


def test_an_agent_on_asyncio_does_the_same(tmp_path: Path) -> None:
    model = Scripted(says=steps(30))

    async def run() -> Any:
        with (
            CtxvcMiddleware(tmp_path / ".ctxvc", budget=20_000) as middleware,
            CtxvcSaver(tmp_path / ".ctxvc") as saver,
        ):
            return await agent(model, middleware, checkpointer=saver).ainvoke(ask(), THREAD)

    assert asyncio.run(run())["messages"][-1].text == "Done."
    assert max(model.sizes) <= 20_000
    assert output("ls 0") in bodies(tmp_path / ".ctxvc")


def test_parallel_calls_and_a_tool_that_fails_are_one_valid_step(tmp_path: Path) -> None:
    @tool
    def fail() -> str:
        """Fail."""
        raise ValueError("no")

    fail.handle_tool_error = True

    def says(number: int, messages: list[BaseMessage]) -> Any:
        return (
            "Done." if number else [("sh", {"cmd": "a"}), ("unknown", {}), ("sh", {"cmd": "b"}), ("search", {"x": 1})]
        )

    model = Scripted(says=says)
    with CtxvcMiddleware(tmp_path / ".ctxvc") as middleware:
        agent(model, middleware, tools=(sh, fail)).invoke(ask(), THREAD)

    results = [block for turn in model.requests[1]["messages"] for block in turn["content"] if "tool_use_id" in block]
    assert [block.get("is_error", False) for block in results] == [False, True, False, True]


def test_turns_follow_each_other_in_one_session_and_threads_do_not(tmp_path: Path) -> None:
    model = Scripted(says=lambda number, _: f"Answer {number}.")
    with CtxvcMiddleware(tmp_path / ".ctxvc") as middleware, CtxvcSaver(tmp_path / ".ctxvc") as saver:
        agent_ = agent(model, middleware, checkpointer=saver)
        agent_.invoke(ask("First?"), THREAD)
        agent_.invoke(ask("Second?"), THREAD)
        agent_.invoke(ask("Elsewhere?"), {"configurable": {"thread_id": "other"}})

    assert {"First?", "Second?"} <= set(human_words(model.requests[1]))
    assert "First?" not in json.dumps(model.requests[2]["messages"])
    assert "Elsewhere?" in bodies(tmp_path / ".ctxvc", "langchain-other")


def test_without_a_thread_each_list_of_messages_is_a_conversation_of_its_own(tmp_path: Path) -> None:
    model = Scripted(says=lambda number, _: f"Answer {number}." if number != 1 else [("search", {"pattern": "x"})])
    with CtxvcMiddleware(tmp_path / ".ctxvc") as middleware:
        first = agent(model, middleware).invoke(ask("First?"))
        agent(model, middleware).invoke(ask("Second?"))
        agent(model, middleware).invoke({"messages": [*first["messages"], HumanMessage("Third?")]})
        assert len(middleware._conversations.sessions()) == 2

    assert "First?" not in human_words(model.requests[1]) and "First?" not in human_words(model.requests[2])
    assert {"First?", "Third?"} <= set(human_words(model.requests[3]))


def test_threads_whose_names_differ_by_case_alone_are_two(tmp_path: Path) -> None:
    model = Scripted(says=lambda *_: "Done.")
    with CtxvcMiddleware(tmp_path / ".ctxvc") as middleware, CtxvcSaver(tmp_path / ".ctxvc") as saver:
        for name in ("Fix", "fix", "fix-00000000000000"):
            agent(model, middleware, checkpointer=saver).invoke(ask(name), {"configurable": {"thread_id": name}})

    assert [len(body["messages"]) for body in model.requests] == [1, 1, 1]


def test_time_travel_goes_on_from_the_earlier_state_in_a_scope_of_its_own(tmp_path: Path) -> None:
    model = Scripted(says=lambda number, _: f"Answer {number}.")
    with CtxvcMiddleware(tmp_path / ".ctxvc") as middleware, CtxvcSaver(tmp_path / ".ctxvc") as saver:
        agent_ = agent(model, middleware, checkpointer=saver)
        agent_.invoke(ask("First?"), THREAD)
        earlier = agent_.get_state(THREAD).config
        agent_.invoke(ask("Second?"), THREAD)
        agent_.invoke(ask("Other?"), {**earlier, "recursion_limit": 100})
        scope = middleware._conversations.opened("langchain-t").session.scope

    words = human_words(model.requests[2])
    assert "First?" in words and "Other?" in words and "Second?" not in json.dumps(model.requests[2]["messages"])
    assert scope == "rewind-1" and {"Second?", "Answer 1."} <= bodies(tmp_path / ".ctxvc")


def test_a_tool_with_the_name_of_a_context_tool_is_refused_until_it_is_named(tmp_path: Path) -> None:
    @tool
    def search(query: str) -> str:
        """Search the web."""
        return "found on the web"

    model = Scripted(says=lambda number, _: "Done." if number else [("search", {"query": "x"})])
    with (
        CtxvcMiddleware(tmp_path / "a") as middleware,
        pytest.raises(BadInput, match="called like context tools: search"),
    ):
        agent(model, middleware, tools=(search,)).invoke(ask(), THREAD)
    with CtxvcMiddleware(tmp_path / "b", own_tools=["search"]) as middleware:
        result = agent(model, middleware, tools=(search,)).invoke(ask(), THREAD)

    assert "found on the web" in [message.text for message in result["messages"]]
    assert {"search", "context_search"} <= {tool["name"] for tool in model.requests[-1]["tools"]}


def test_content_of_other_providers_comes_back_as_it_was(tmp_path: Path) -> None:
    odd = AIMessage([{"type": "reasoning", "encrypted": "abc"}, {"type": "text", "text": "So."}], id="odd")
    sent: list[list[BaseMessage]] = []

    def says(number: int, messages: list[BaseMessage]) -> Any:
        sent.append(messages)
        return "Done."

    with CtxvcMiddleware(tmp_path / ".ctxvc") as middleware:
        picture = {"type": "image", "base64": "aGk=", "mime_type": "image/png"}
        history = [HumanMessage([{"type": "text", "text": "See."}, picture], id="h"), odd, HumanMessage("Go on.")]
        agent(Plain(says=says), middleware).invoke({"messages": history}, THREAD)

    assert odd in sent[0] and any(history[0].content == message.content for message in sent[0])


class Plain(Scripted):
    """Of another provider: no judge of the Messages API reads what it is sent."""

    def judged(self, _: dict[str, Any]) -> int:
        return 100


def test_what_a_message_has_besides_its_content_is_recorded(tmp_path: Path) -> None:
    model = Scripted(says=lambda *_: "Done.")
    with CtxvcMiddleware(tmp_path / ".ctxvc") as middleware:
        agent(model, middleware).invoke({"messages": [HumanMessage("Hi.", name="ada", id="h1")]}, THREAD)
        (_, human), (_, reply) = middleware._conversations.opened("langchain-t").records()

    assert human == {"type": "human", "name": "ada", "id": "h1"}
    assert reply["type"] == "ai" and reply["usage_metadata"]["output_tokens"] == 20


_WORKING = """
import os, signal, sys
from pathlib import Path
from tests.hosts.frameworks.test_langchain import *
place, with_saver, count = Path(sys.argv[1]), sys.argv[2] == "saver", int(sys.argv[3])

def says(number, messages):
    if number == count:
        os.kill(os.getpid(), signal.SIGKILL)
    return [("sh", {"cmd": f"ls {number}"})]

middleware, saver = CtxvcMiddleware(place, budget=20_000), CtxvcSaver(place)
more = {"checkpointer": saver, } if with_saver else {}
agent(Scripted(says=says), middleware, **more).invoke(ask(), {**THREAD}, durability="sync") if with_saver else \
    agent(Scripted(says=says), middleware).invoke(ask(), THREAD)
"""


@pytest.mark.parametrize("memory", ["saver", "none"])
def test_a_killed_agent_goes_on_where_it_was(tmp_path: Path, memory: str) -> None:
    place = tmp_path / ".ctxvc"
    done = subprocess.run(
        [sys.executable, "-c", _WORKING, place, memory, "25"], capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr

    model = Scripted(says=lambda *_: "Done.")
    with CtxvcMiddleware(place, budget=20_000) as middleware, CtxvcSaver(place) as saver:
        if memory == "saver":
            result = agent(model, middleware, checkpointer=saver).invoke(None, THREAD)
            assert len(result["messages"]) == 1 + 25 * 2 + 1
        else:
            agent(model, middleware).invoke(ask("Go on."), THREAD)
        assert middleware._conversations.opened("langchain-t").session.scope == "main", (
            "nothing was lost, so nothing went back"
        )

    content = json.dumps(model.requests[0]["messages"])
    assert TASK in content and "ls 24" in content and model.sizes[0] <= 20_000
    recorded = bodies(place)
    assert {output(f"ls {number}") for number in range(25)} <= recorded
    assert sum(bool(re.fullmatch(re.escape(TASK), body)) for body in recorded) == 1
