"""The capability against Pydantic AI itself, with its model of functions and a judge of each request."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pydantic_ai.capabilities", reason="Pydantic AI is not installed")

from pydantic_ai import Agent, BinaryContent
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import FunctionModel

from ctxvc.agent.loop import INTERRUPTED
from ctxvc.integrations.pydantic_ai import CtxvcCapability
from ctxvc.session.session import Session
from tests.hosts.frameworks.test_examples import BLOCKS
from tests.hosts.frameworks.test_examples import run as run_example
from tests.messages_api import Judge

TASK = "Find the needle, and tell me its colour."
MODEL = "claude-opus-5-5"
BUDGET = 20_000


def output(cmd: str) -> str:
    return f"output of {cmd}: " + f"evidence of {cmd}, line after line. " * 80


def sh(cmd: str) -> str:
    """Run a command."""
    return output(cmd)


class Scripted:
    """Says what `says` makes of a request's number and messages, and judges each as a request of the Messages API."""

    def __init__(self, says: Callable[[int, list[ModelMessage]], Any], first: int = 0) -> None:
        self.says, self.judge, self.numbers = says, Judge(), itertools.count(first)
        self.sizes: list[int] = []
        self.requests: list[list[ModelMessage]] = []
        self.model = FunctionModel(self.reply, model_name=MODEL)

    def reply(self, messages: list[ModelMessage], info: Any) -> ModelResponse:
        tools = [
            {"name": tool.name, "description": tool.description or "", "input_schema": tool.parameters_json_schema}
            for tool in info.function_tools
        ]
        ruling = self.judge.rule(as_body(messages, tools))
        assert not ruling.problems, f"request {len(self.requests)} is not valid: {ruling.problems[:3]}"
        self.requests.append(messages)
        self.sizes.append(ruling.tokens)
        number = next(self.numbers)
        said = self.says(number, messages)
        if isinstance(said, str):
            parts: list[Any] = [TextPart(said)]
        else:
            parts = [
                item if not isinstance(item, tuple) else ToolCallPart(item[0], item[1], f"call-{number}-{at}")
                for at, item in enumerate(said)
            ]
        response = ModelResponse(parts=parts)
        response.usage.input_tokens, response.usage.output_tokens = ruling.tokens, 20
        return response


def as_body(messages: list[ModelMessage], tools: list[dict[str, Any]]) -> dict[str, Any]:
    """A request as a client of the Messages API makes it of Pydantic AI's messages."""
    turns: list[dict[str, Any]] = []
    system: list[str] = []
    for message in messages:
        if isinstance(message, ModelResponse):
            blocks = [
                {"type": "text", "text": part.content}
                if isinstance(part, TextPart)
                else {"type": "tool_use", "id": part.tool_call_id, "name": part.tool_name, "input": part.args_as_dict()}
                for part in message.parts
                if isinstance(part, TextPart | ToolCallPart)
            ]
            turns.append({"role": "assistant", "content": blocks})
            continue
        blocks = []
        for part in message.parts:
            if part.part_kind == "system-prompt":
                system.append(part.content)
            elif part.part_kind == "tool-return":
                text = part.model_response_str()
                blocks.append({"type": "tool_result", "tool_use_id": part.tool_call_id, "content": text})
            elif part.part_kind == "retry-prompt" and part.tool_name:
                text = part.model_response()
                blocks.append({"type": "tool_result", "tool_use_id": part.tool_call_id, "content": text})
            else:
                content = part.content if isinstance(part.content, str) else list(part.content)
                items = [content] if isinstance(content, str) else content
                blocks += [{"type": "text", "text": item if isinstance(item, str) else "(picture)"} for item in items]
        turns.append({"role": "user", "content": blocks})
    body = {"model": MODEL, "max_tokens": 1000, "messages": turns}
    return {**body, **({"system": "\n".join(system)} if system else {}), **({"tools": tools} if tools else {})}


def steps(count: int) -> Any:
    """A model that runs so many commands, one a step, and is done."""
    return lambda number, _: [("sh", {"cmd": f"ls {number}"})] if number < count else "Done."


def agent(model: Scripted, capability: CtxvcCapability, *tools: Any) -> Agent[Any, str]:
    return Agent(model.model, system_prompt="You look.", tools=list(tools or [sh]), capabilities=[capability])


def run(finder: Agent[Any, str], task: str = TASK, **more: Any) -> Any:
    from pydantic_ai.usage import UsageLimits

    return finder.run_sync(task, usage_limits=UsageLimits(request_limit=None), **more)


def capability_in(folder: Path, **more: Any) -> CtxvcCapability:
    return CtxvcCapability("t", folder / ".ctxvc", **{"budget": BUDGET, "model": MODEL, **more})


def bodies(path: Path, name: str = "t") -> list[str]:
    """The bodies of all blocks of a session, in the prompt or not, in any scope."""
    with Session.open(path, name) as session:
        stored = session.stored
        rows = [(row, scope) for scope in session.scopes() for row in session.ledger(scope).rows()]
        return [stored.body(row, scope).decode("utf-8", "replace") for row, scope in rows]


def prompts(messages: list[ModelMessage]) -> list[Any]:
    """What was said to the model, one by one."""
    return [
        item
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, UserPromptPart)
        for item in ([part.content] if isinstance(part.content, str) else part.content)
    ]


def dumped_and_read(messages: list[ModelMessage]) -> list[ModelMessage]:
    return ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(messages))


def parts(messages: list[ModelMessage]) -> list[Any]:
    """What the messages hold; the agent notes the run in them after each reply."""
    return [(message.kind, message.timestamp, *message.parts) for message in messages]


def test_a_hundred_steps_stay_under_twenty_thousand_tokens_and_lose_nothing(tmp_path: Path) -> None:
    model = Scripted(steps(100))
    with capability_in(tmp_path) as capability:
        result = run(agent(model, capability))
        history = capability.history()

    assert result.output == "Done." and len(result.all_messages()) == 202, "the agent's own messages are whole"
    assert len(model.requests) == 101 and max(model.sizes) <= BUDGET
    assert all(TASK in prompts(messages) for messages in model.requests)
    stored = bodies(tmp_path / ".ctxvc")
    assert all(stored.count(output(f"ls {number}")) == 1 for number in range(100))
    assert len(history) == 202 and history[15].parts[0].tool_call_id == "call-7-0"
    assert history[16].parts[0].content == output("ls 7")


def test_the_model_gets_back_what_left(tmp_path: Path) -> None:
    texts: list[str] = []

    def says(number: int, messages: list[ModelMessage]) -> Any:
        if texts:
            return "Recovered."
        if number < 40:
            return [("sh", {"cmd": f"ls {number}"})]
        opened = capability._conversations.opened(capability._name)
        rows = opened.session.ledger().rows()
        texts.append(next(row.id for row in rows if row.kind == "tool_result" and not row.present))
        return [("recover", {"block": texts[0]})]

    model = Scripted(says)
    with capability_in(tmp_path) as capability:
        result = run(agent(model, capability))

    answer = next(part for part in result.all_messages()[-2].parts if isinstance(part, ToolReturnPart))
    assert "evidence of ls" in str(answer.content) and texts[0] in str(answer.content)
    assert max(model.sizes) <= BUDGET


def test_the_history_is_the_agents_own_also_in_the_next_process(tmp_path: Path) -> None:
    def says(number: int, _: list[ModelMessage]) -> Any:
        if number == 0:
            return [ThinkingPart("hm", signature="s"), TextPart("both"), ("sh", {"cmd": "a"}), ("count", {})]
        return f"Answer {number}."

    def count() -> dict[str, int]:
        """Count."""
        return {"found": 3}

    model = Scripted(says)
    with capability_in(tmp_path) as capability:
        first = run(agent(model, capability, sh, count))
    with capability_in(tmp_path) as capability:
        history = capability.history()
        picture = BinaryContent(b"\x89PNG", media_type="image/png")
        second = run(agent(model, capability, sh, count), ["And this?", picture], message_history=history)
        whole = capability.history()

    assert parts(history) == parts(first.all_messages())
    assert parts(whole) == parts(dumped_and_read(second.all_messages()))
    assert picture.data in [getattr(item, "data", b"") for item in prompts(model.requests[2])]


def test_a_new_list_of_messages_goes_on_in_the_session(tmp_path: Path) -> None:
    model = Scripted(lambda number, _: f"Answer {number}.")
    with capability_in(tmp_path) as capability:
        finder = agent(model, capability)
        run(finder, "First?")
        run(finder, "Second?")

    sent = prompts(model.requests[1])
    assert "First?" in sent and "Second?" in sent, "what the agent forgot is in the session's prompt"


def test_parallel_calls_and_a_tool_that_asks_for_a_retry_are_one_valid_step(tmp_path: Path) -> None:
    from pydantic_ai import ModelRetry

    def fail() -> str:
        """Fail."""
        raise ModelRetry("not so")

    def says(number: int, _: list[ModelMessage]) -> Any:
        return "Done." if number else [("sh", {"cmd": "a"}), ("fail", {}), ("search", {"x": 1}), ("sh", {"cmd": "b"})]

    model = Scripted(says)
    with capability_in(tmp_path) as capability:
        result = run(agent(model, capability, sh, fail))

    assert result.output == "Done."


def test_calls_are_not_run_while_the_context_is_overfull(tmp_path: Path) -> None:
    ran: list[str] = []

    def flood(cmd: str) -> str:
        """Say a lot."""
        ran.append(cmd)
        return "".join(f"{cmd} {number}\n" for number in range(6000))

    model = Scripted(
        lambda number, _: [("flood", {"cmd": f"{number}{at}"}) for at in range(3)] if number < 6 else "Done."
    )
    with capability_in(tmp_path) as capability:
        result = run(agent(model, capability, flood))

    assert result.output == "Done." and max(model.sizes) <= BUDGET and ran


def test_a_tool_with_the_name_of_a_context_tool_is_told_apart(tmp_path: Path) -> None:
    def search(text: str) -> str:
        """Search the web."""
        return "found on the web"

    model = Scripted(lambda number, _: "Done." if number else [("search", {"text": "x"})])
    with capability_in(tmp_path, own_tools=("search",)) as capability:
        run(agent(model, capability, search))
        history = capability.history()

    assert any(part.content == "found on the web" for part in history[-2].parts)


# --- the page and its example


def test_the_example_stays_in_its_budget_and_goes_on(tmp_path: Path) -> None:
    first, second = run_example("pydantic_ai_agent.py", tmp_path / ".ctxvc").splitlines()

    assert first.startswith("Found again: ") and "page 1:" in first
    assert second.startswith("84 messages") and int(re.findall(r"had ([\d,]+)", second)[0].replace(",", "")) < 48_000
    assert run_example("pydantic_ai_agent.py", tmp_path / ".ctxvc").startswith("Found again: ")


def test_the_capability_does_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scripted = Scripted(lambda number, _: "It is the fixture." if number else [("sh", {"cmd": "a"})])
    names: dict[str, Any] = {"model": scripted.model, "tools": [sh]}
    exec(BLOCKS["pydantic-ai"], names)

    assert names["result"].output == "It is the fixture."
    assert "Why does the login test fail?" in bodies(tmp_path / ".ctxvc", "fix-login")


# --- killed

PROGRAM = """
import sys, time
from tests.hosts.frameworks.test_pydantic_ai import CtxvcCapability, MODEL, Scripted, agent, output, run, steps

def sh(cmd: str) -> str:
    "Run a command."
    if cmd == "ls 20":
        print("begun", flush=True)
        time.sleep(600)
    return output(cmd)

capability = CtxvcCapability("t", sys.argv[1], budget=20_000, model=MODEL)
run(agent(Scripted(steps(40)), capability, sh))
"""


def test_a_run_that_was_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "program.py"), str(tmp_path / ".ctxvc")],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout and process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    model = Scripted(steps(40), first=21)
    with capability_in(tmp_path) as capability:
        history = capability.history()
        result = run(agent(model, capability), "Go on.", message_history=history)

    assert result.output == "Done." and max(model.sizes) <= BUDGET
    assert len(history) == 43 and history[-1].parts[0].content == INTERRUPTED
    stored = bodies(tmp_path / ".ctxvc")
    assert all(stored.count(output(f"ls {number}")) == (number != 20) for number in range(40))
