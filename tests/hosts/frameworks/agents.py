"""Agents of frameworks over the wire: each with one tool that reads a file, and an HTTP client of ours."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai

import ctxvc

SYSTEM = "You look."
_STEPS = 200


@dataclass(frozen=True)
class Case:
    """What an agent is asked: at which upstream, recorded where, in which way, after which messages of its own.

    `way` is `sync`, `async` or `stream`.
    """

    url: str
    store: Path
    folder: Path
    task: str
    budget: int = 0
    way: str = "sync"
    history: Sequence[Any] = ()

    @property
    def options(self) -> dict[str, Any]:
        return {"store": self.store, "session": "t", "budget": self.budget}

    def read(self, path: str) -> str:
        """Read a file."""
        return (self.folder / path).read_text()


#: The last words of the agent, and its own list of messages.
Ended = tuple[str, Sequence[Any]]


@dataclass(frozen=True)
class Framework:
    """A framework with one of its models. `package` is what it is installed as, `module` what it is imported as."""

    name: str
    package: str
    module: str
    ask: Callable[[Case], Ended]
    #: Whether it can be asked without asyncio.
    is_sync: bool = True

    @property
    def is_installed(self) -> bool:
        """Whether it is there, with clients that take one of ours."""
        return importlib.util.find_spec(self.module) is not None and int(openai.__version__.partition(".")[0]) >= 3


def _langchain(case: Case) -> Ended:
    from langchain.agents import create_agent
    from langchain_core.messages import HumanMessage
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(
        model="gpt-4.1",
        base_url=f"{case.url}/v1",
        api_key="not-a-key",
        http_client=ctxvc.http_client(**case.options) if case.way != "async" else None,
        http_async_client=ctxvc.async_http_client(**case.options) if case.way == "async" else None,
    )
    agent = create_agent(model, tools=[tool(case.read)], system_prompt=SYSTEM)
    asked: Any = {"messages": [*case.history, HumanMessage(case.task)]}
    config: Any = {"recursion_limit": _STEPS}
    if case.way == "stream":
        for mode, state in agent.stream(asked, config, stream_mode=["messages", "values"]):
            messages = state["messages"] if mode == "values" else ()
    else:
        ended = agent.invoke(asked, config) if case.way == "sync" else asyncio.run(agent.ainvoke(asked, config))
        messages = ended["messages"]
    if model.http_client:
        model.http_client.close()
    return messages[-1].text, messages


def _openai_agents(kind: str) -> Callable[[Case], Ended]:
    async def ask(case: Case) -> Ended:
        import agents

        agents.set_tracing_disabled(True)
        async with ctxvc.async_http_client(**case.options) as http_client:
            client = openai.AsyncOpenAI(base_url=f"{case.url}/v1", api_key="not-a-key", http_client=http_client)
            model = getattr(agents, kind)(model="gpt-4.1", openai_client=client)
            agent = agents.Agent(
                name="reader", instructions=SYSTEM, model=model, tools=[agents.function_tool(case.read)]
            )
            asked: Any = [*case.history, {"role": "user", "content": case.task}]
            if case.way == "stream":
                streamed = agents.Runner.run_streamed(agent, asked, max_turns=_STEPS)
                async for _ in streamed.stream_events():
                    pass
                return streamed.final_output, streamed.to_input_list()
            ended = await agents.Runner.run(agent, asked, max_turns=_STEPS)
            return ended.final_output, ended.to_input_list()

    return lambda case: asyncio.run(ask(case))


def _pydantic_ai(model_of: Callable[[Case, Any], Any]) -> Callable[[Case], Ended]:
    async def ask(case: Case) -> Ended:
        from pydantic_ai import Agent
        from pydantic_ai.usage import UsageLimits

        async with ctxvc.async_http_client(**case.options) as http_client:
            agent = Agent(model_of(case, http_client), system_prompt=SYSTEM, tools=[case.read])
            options: Any = {"message_history": list(case.history), "usage_limits": UsageLimits(request_limit=_STEPS)}
            if case.way == "stream":
                async with agent.iter(case.task, **options) as running:
                    async for node in running:
                        if Agent.is_model_request_node(node):
                            async with node.stream(running.ctx) as events:
                                async for _ in events:
                                    pass
                assert running.result
                return running.result.output, running.result.all_messages()
            ended = await agent.run(case.task, **options)
            return ended.output, ended.all_messages()

    return lambda case: asyncio.run(ask(case))


def _chat(case: Case, http_client: Any) -> Any:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    client = openai.AsyncOpenAI(base_url=f"{case.url}/v1", api_key="not-a-key", http_client=http_client)
    return OpenAIChatModel("gpt-4.1", provider=OpenAIProvider(openai_client=client))


def _anthropic(case: Case, http_client: Any) -> Any:
    from anthropic import AsyncAnthropic
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    client = AsyncAnthropic(base_url=case.url, api_key="not-a-key", http_client=http_client)
    return AnthropicModel("claude-sonnet-4-5", provider=AnthropicProvider(anthropic_client=client))


FRAMEWORKS = (
    Framework("langchain", "langchain-openai", "langchain_openai", _langchain),
    Framework("openai-agents-responses", "openai-agents", "agents", _openai_agents("OpenAIResponsesModel"), False),
    Framework("openai-agents-chat", "openai-agents", "agents", _openai_agents("OpenAIChatCompletionsModel"), False),
    Framework("pydantic-ai-chat", "pydantic-ai-slim", "pydantic_ai", _pydantic_ai(_chat), False),
    Framework("pydantic-ai-anthropic", "pydantic-ai-slim", "pydantic_ai", _pydantic_ai(_anthropic), False),
)
