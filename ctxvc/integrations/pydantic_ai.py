"""A capability of Pydantic AI agents: the conversation in a session, and in each request a prompt within the budget.

Source: `AbstractCapability` of `pydantic_ai.capabilities`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    ToolCallPart,
)
from pydantic_ai.tools import Tool
from pydantic_ai.toolsets import FunctionToolset

from ctxvc.core.policy import Policy
from ctxvc.core.view.budget import Budget
from ctxvc.integrations.closeable import Closeable
from ctxvc.integrations.conversation import session_name
from ctxvc.integrations.conversations import Conversations
from ctxvc.integrations.pydantic_ai_messages import Names, framework_messages, interrupted, model_messages, restored


class CtxvcCapability(Closeable, AbstractCapability[Any]):
    """`Agent(…, capabilities=[CtxvcCapability("support-42", budget=100_000)])`, or of one run. In a `with` block, or
    `close` it.

    The agent's own messages stay whole; the model sees what the policy left of them, with a dashboard, and can call the
    context tools. `history` gives all messages again, in the next process, too, also after one that was killed.
    System prompt, instructions and tools are those of the session's first request. Requests raise CtxvcError where they
    cannot go on.
    """

    def __init__(
        self,
        session: str,
        path: str | Path = ".ctxvc",
        *,
        budget: int | Budget = 0,
        policy: str | Policy = "",
        model: str = "",
        own_tools: Collection[str] = (),
    ) -> None:
        """`own_tools` are names of the agent's tools; a context tool that has the same is then called `context_…`.

        `policy` is one as for `Session.open`, by default `default`; `model` is named where the agent's does not name
        itself. Raises: BadInput.
        """
        self._name = session_name(session)
        self._conversations = Conversations(path, budget=budget, policy=policy, model=model, interrupted=interrupted)
        self._definitions = self._conversations.context_tools([{"name": name} for name in own_tools])
        self._names = Names()  # of the messages of the newest request

    def close(self) -> None:
        """Commits what is complete, and closes the files; the next request opens them again."""
        self._conversations.close()

    def history(self) -> list[ModelMessage]:
        """All messages of the conversation, for `message_history` of the next run."""
        with self._conversations.lock:
            if self._name not in self._conversations.sessions():
                return []
            records = self._conversations.opened(self._name).records()
            messages: list[ModelMessage] = ModelMessagesTypeAdapter.validate_python(restored(records))
            return messages

    # --- what Pydantic AI calls

    def get_toolset(self) -> FunctionToolset[Any]:
        """The context tools."""
        return FunctionToolset([self._tool(definition) for definition in self._definitions])

    async def wrap_model_request(self, ctx: RunContext[Any], *, request_context: Any, handler: Any) -> ModelResponse:  # noqa: ARG002
        """The request with the session's prompt; its reply is on the disk when this returns."""
        request_context.messages = await asyncio.to_thread(self._prompted, request_context)
        response: ModelResponse = await handler(request_context)
        await asyncio.to_thread(self._record, response)
        return response

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],  # noqa: ARG002
        *,
        call: ToolCallPart,
        tool_def: Any,  # noqa: ARG002
        args: Mapping[str, Any],
        handler: Callable[[Any], Any],
    ) -> Any:
        """The answer to a call of a context tool; while the context is overfull, to any call."""
        answer = await asyncio.to_thread(self._answer, call.tool_call_id, call.tool_name, args)
        return await handler(args) if answer is None else answer

    # --- inside

    def _tool(self, definition: Mapping[str, Any]) -> Tool[Any]:
        async def answered_by_the_capability(**_: Any) -> str:
            raise NotImplementedError("a context tool was run without its capability")

        return Tool.from_schema(
            answered_by_the_capability,
            name=definition["name"],
            description=definition["description"],
            json_schema=definition["input_schema"],
        )

    def _prompted(self, context: Any) -> list[ModelMessage]:
        requests = [message for message in context.messages if isinstance(message, ModelRequest)]
        prompts = [part for request in requests for part in request.parts if isinstance(part, SystemPromptPart)]
        instructions = next((request.instructions for request in reversed(requests) if request.instructions), None)
        system = "\n\n".join([*(part.content for part in prompts), *filter(None, [instructions])])
        ours = {tool["name"] for tool in self._definitions}
        own = [
            {"name": tool.name, "description": tool.description or "", "input_schema": tool.parameters_json_schema}
            for tool in context.model_request_parameters.function_tools
            if tool.name not in ours
        ]
        with self._conversations.lock:
            self._names = Names()
            messages = list(framework_messages(context.messages, self._names))
            conversation = self._conversations.opened(self._name, system=system, tools=own)
            conversation.take(messages)
            model = self._conversations.model or getattr(context.model, "model_name", "")
            prompt = conversation.prompt(messages, model=model)
        return model_messages(prompt, prompts, instructions)

    def _record(self, response: ModelResponse) -> None:
        with self._conversations.lock:
            for message in framework_messages([response], self._names):
                self._conversations.opened(self._name).reply(message)

    def _answer(self, call: str, name: str, arguments: Mapping[str, Any]) -> str | None:
        answer = self._conversations.opened(self._name).handle(call, name, arguments)
        return answer[0] if answer else None
