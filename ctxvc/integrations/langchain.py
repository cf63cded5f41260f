"""A middleware of LangChain agents: the conversation in a session, and in each call a prompt within the budget.

Source: `AgentMiddleware` of `langchain.agents.middleware`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from langchain.agents.middleware import AgentMiddleware, ExtendedModelResponse, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.config import get_config

from ctxvc.core.policy import Policy
from ctxvc.core.view.budget import Budget
from ctxvc.errors import BadInput
from ctxvc.integrations.closeable import Closeable
from ctxvc.integrations.conversation import Conversation, session_name
from ctxvc.integrations.conversations import Conversations
from ctxvc.integrations.langchain_messages import definition, framework_message, langchain_message

#: What the names of sessions begin with.
_PREFIX = "langchain-"


class CtxvcMiddleware(Closeable, AgentMiddleware):
    """`create_agent(…, middleware=[CtxvcMiddleware(".ctxvc", budget=100_000)])`. In a `with` block, or `close` it.

    The agent's own list of messages stays whole; the model sees what the policy left of it, with a dashboard, and can
    call the context tools. Each thread (`thread_id`) is a session, the same one again in the next process, also after
    one that was killed. Without a thread each list of messages is one. `session` names one for all.
    A system prompt and tools are those of the session's first call. Calls raise CtxvcError where they cannot go on.
    """

    def __init__(
        self,
        path: str | Path = ".ctxvc",
        *,
        session: str = "",
        budget: int | Budget = 0,
        policy: str | Policy = "",
        model: str = "",
        own_tools: Collection[str] = (),
    ) -> None:
        """`own_tools` are names of the agent's tools; a context tool that has the same is then called `context_…`.

        `policy` is one as for `Session.open`, by default `default`; `model` is named where LangChain's does not name
        itself. Raises: BadInput.
        """
        super().__init__()
        self._session = session
        self._conversations = Conversations(path, budget=budget, policy=policy, model=model)
        self._definitions = self._conversations.context_tools([{"name": name} for name in own_tools])
        self.tools: Sequence[BaseTool] = [*map(_tool, self._definitions)]

    def close(self) -> None:
        """Commits what is complete, and closes the files; the next call opens them again."""
        self._conversations.close()

    # --- what LangChain calls

    def wrap_model_call(self, request: ModelRequest, handler: Callable[[ModelRequest], Any]) -> Any:
        """The call with the session's prompt instead of all messages; its reply is on the disk when this returns."""
        name = self._name(request.state)
        response = handler(self._prompted(name, request))
        self._record(name, response)
        return response

    async def awrap_model_call(self, request: ModelRequest, handler: Callable[[ModelRequest], Awaitable[Any]]) -> Any:
        """As `wrap_model_call`."""
        name = self._name(request.state)
        response = await handler(await asyncio.to_thread(self._prompted, name, request))
        await asyncio.to_thread(self._record, name, response)
        return response

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """The answer to a call of a context tool; while the context is overfull, to any call."""
        answer = self._answer(self._name(request.state), request.tool_call)
        return handler(request) if answer is None else answer

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """As `wrap_tool_call`."""
        answer = await asyncio.to_thread(self._answer, self._name(request.state), request.tool_call)
        return await handler(request) if answer is None else answer

    # --- inside

    def _name(self, state: Any) -> str:
        """The session of what runs now: that of its thread, else of its list of messages."""
        if self._session:
            return self._session
        try:
            thread = get_config().get("configurable", {}).get("thread_id")
        except RuntimeError:  # outside of a graph
            thread = None
        messages = state.get("messages") if isinstance(state, dict) else None
        return session_name(f"{_PREFIX}{thread or (messages[0].id if messages else '')}")

    def _conversation(self, name: str, request: ModelRequest) -> Conversation:
        return self._conversations.opened(
            name, model=_model_name(request), system=str(request.system_prompt or ""), tools=self._own(request)
        )

    def _own(self, request: ModelRequest) -> list[dict[str, Any]]:
        """The agent's own tools, in the Messages API's form. Raises: BadInput if one has the name of a context tool."""
        ours = {tool["name"] for tool in self._definitions}
        own = [tool for tool in request.tools if not any(tool is mine for mine in self.tools)]
        definitions = [*filter(None, map(definition, own))]
        if both := sorted(ours & {tool["name"] for tool in definitions}):
            raise BadInput(
                f"the agent has tools that are called like context tools: {', '.join(both)}",
                hint=f"pass own_tools={both!r} to the middleware, which then calls its own context_{both[0]}",
            )
        return definitions

    def _prompted(self, name: str, request: ModelRequest) -> ModelRequest:
        conversation = self._conversation(name, request)
        messages = [*map(framework_message, request.messages)]
        conversation.take(messages)
        prompt = conversation.prompt(messages, model=self._conversations.model or _model_name(request))
        choice = {"tool_choice": "none"} if conversation.final else {}
        return request.override(messages=[*map(langchain_message, prompt)], **choice)

    def _record(self, name: str, response: Any) -> None:
        response = response.model_response if isinstance(response, ExtendedModelResponse) else response
        messages = response.result if isinstance(response, ModelResponse) else [response]
        for message in messages:
            if isinstance(message, AIMessage):
                message.id = message.id or f"ctxvc-{uuid4()}"  # under it the agent's list has it as well
                self._conversations.opened(name).reply(framework_message(message))

    def _answer(self, name: str, call: Mapping[str, Any]) -> ToolMessage | None:
        answer = self._conversations.opened(name).handle(str(call["id"]), call["name"], call["args"])
        if answer is None:
            return None
        text, error = answer
        return ToolMessage(text, name=call["name"], tool_call_id=call["id"], status="error" if error else "success")


def _tool(definition: Mapping[str, Any]) -> BaseTool:
    def answered_by_the_middleware(**_: Any) -> str:
        raise NotImplementedError("a context tool was run without its middleware")

    return StructuredTool.from_function(
        answered_by_the_middleware,
        name=definition["name"],
        description=definition["description"],
        args_schema=definition["input_schema"],
    )


def _model_name(request: ModelRequest) -> str:
    names = (getattr(request.model, field, None) for field in ("model_name", "model"))
    return next((name for name in names if isinstance(name, str) and name), "")
