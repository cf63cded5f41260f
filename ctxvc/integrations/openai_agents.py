"""A session of the OpenAI Agents SDK: the conversation in one of ours, and in each call a prompt within the budget.

Source: `Session`, `RunHooks` and `RunConfig.call_model_input_filter` of `agents`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import msgspec
from agents import FunctionTool, RunConfig, RunHooks, Tool
from agents.memory.session import SessionABC
from agents.run_config import CallModelData, ModelInputData

from ctxvc.core.ledger import wire
from ctxvc.core.policy import Policy
from ctxvc.core.view.budget import Budget
from ctxvc.integrations.closeable import Closeable
from ctxvc.integrations.conversation import Conversation, session_name
from ctxvc.integrations.conversations import Conversations
from ctxvc.integrations.openai_agents_items import (
    Item,
    Reader,
    interrupted,
    key_of,
    plain,
    rebuilt_items,
    recorded_items,
    usage,
)

#: Stands between a session's name and the number of the session that `clear_session` began after it.
_CLEARED = ".cleared-"


class CtxvcSession(Closeable, SessionABC, RunHooks[Any]):
    """`Runner.run(agent, task, session=memory, hooks=memory, run_config=memory.run_config())`.

    As a `Session` it has the whole conversation, in this process and the next, also after one that was killed. With
    `prompt` as the filter of the run's configuration, the model sees what the policy left of it, below the budget and
    with a dashboard. As hooks it records each reply before its calls are run, which the context tools need.
    In a `with` block, or `close` it. Calls raise CtxvcError where they cannot go on.
    """

    session_settings = None

    def __init__(
        self,
        session_id: str,
        path: str | Path = ".ctxvc",
        *,
        budget: int | Budget = 0,
        policy: str | Policy = "",
        model: str = "",
        instructions: str = "",
    ) -> None:
        """`policy` is one as for `Session.open`, by default `default`. `model` and `instructions` are the agent's, for
        the count of tokens."""
        self.session_id = session_id
        self._conversations = Conversations(path, budget=budget, policy=policy, model=model, interrupted=interrupted)
        self._instructions = instructions
        self._own: list[dict[str, Any]] = []
        self._name = ""  # of the session, once that is known
        self._reader = Reader()
        self._unsaved: Counter[str] = Counter()  # items that are recorded, and that the SDK is going to add

    def close(self) -> None:
        """Commits what is complete, and closes the files; the next call opens them again."""
        self._conversations.close()

    def with_context_tools(self, tools: Sequence[Tool] = ()) -> list[Tool]:
        """An agent's tools, and those by which the model manages its context.

        While the context is overfull and nothing may leave, calls of the agent's own are answered instead of run.
        """
        own = [tool for tool in tools if isinstance(tool, FunctionTool)]
        self._own = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.params_json_schema}
            for tool in own
        ]
        context_tools = [self._context_tool(definition) for definition in self._conversations.context_tools(self._own)]
        guarded = [self._guarded(tool) if isinstance(tool, FunctionTool) else tool for tool in tools]
        return [*guarded, *context_tools]

    def run_config(self, **options: Any) -> RunConfig:
        """A configuration of the SDK with `prompt` as its filter, and the other `options` that it takes."""
        return RunConfig(call_model_input_filter=self.prompt, **options)

    # --- what the SDK calls

    async def prompt(self, data: CallModelData[Any]) -> ModelInputData:
        """The input of the next call: a prompt within the budget. For `RunConfig.call_model_input_filter`."""
        items: Any = await asyncio.to_thread(self._prompt, data.model_data.input)
        return ModelInputData(input=items, instructions=data.model_data.instructions)

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:  # noqa: ARG002 - the SDK's signature
        """Records the reply, on the disk when this returns."""
        await asyncio.to_thread(self._reply, response)

    async def get_items(self, limit: int | None = None) -> list[Any]:
        items = await asyncio.to_thread(self._items)
        return items if limit is None else items[max(0, len(items) - limit) :]

    async def add_items(self, items: list[Any]) -> None:
        await asyncio.to_thread(self._add, items)

    async def pop_item(self) -> Any:
        """Takes the newest item back: the session goes on in a new scope from before it, and what was is kept."""
        return await asyncio.to_thread(self._pop)

    async def clear_session(self) -> None:
        """Begins an empty session, NAME-2 after NAME; what was recorded stays where it is."""
        await asyncio.to_thread(self._clear)

    # --- inside

    def _conversation(self) -> Conversation:
        with self._conversations.lock:
            self._name = self._name or self._newest(session_name(self.session_id))
            return self._conversations.opened(self._name, system=self._instructions, tools=self._own)

    def _newest(self, name: str) -> str:
        """The session of that name, or the last that was begun after it."""
        start = name + _CLEARED
        sessions = self._conversations.sessions()
        numbers = [
            int(number)
            for session in sessions
            if session.startswith(start) and (number := session[len(start) :]).isdecimal()
        ]
        return f"{start}{max(numbers)}" if numbers else name

    def _items(self) -> list[Item]:
        with self._conversations.lock:
            return list(recorded_items(self._conversation()))

    def _prompt(self, items: Iterable[Any]) -> list[Item]:
        with self._conversations.lock:
            conversation = self._conversation()
            messages = self._reader.all_messages(conversation, map(plain, items))
            self._unsaved.update(
                key_of(item) for message in messages if not conversation.has(message.id) for item in message.source
            )
            conversation.take(messages)
            prompt = conversation.prompt(messages, model=self._conversations.model)
            return [item for sent in prompt for item in sent.source or rebuilt_items(sent.message)]

    def _reply(self, response: Any) -> None:
        with self._conversations.lock:
            conversation = self._conversation()
            counts = {"usage": usage(response.usage)}
            for message in self._reader.more(conversation, map(plain, response.to_input_items())):
                self._unsaved.update(map(key_of, message.source))
                conversation.reply(msgspec.structs.replace(message, message={**message.message, **counts}))

    def _add(self, items: Iterable[Any]) -> None:
        with self._conversations.lock:
            conversation = self._conversation()
            new = []
            for item in map(plain, items):
                if self._unsaved[key_of(item)] > 0:
                    self._unsaved[key_of(item)] -= 1
                else:
                    new.append(item)
            if new:
                conversation.take(self._reader.all_messages(conversation, [*recorded_items(conversation), *new]))

    def _pop(self) -> Item | None:
        with self._conversations.lock:
            conversation = self._conversation()
            items = list(recorded_items(conversation))
            if len(items) == 1:
                self._clear()
            elif items:
                conversation.take(self._reader.all_messages(conversation, items[:-1]))
            return items[-1] if items else None

    def _clear(self) -> None:
        with self._conversations.lock:
            name = self._conversation().session.name
            self.close()
            root, _, number = name.partition(_CLEARED)
            self._name = f"{root}{_CLEARED}{int(number or 1) + 1}"

    # --- tools

    def _context_tool(self, definition: Mapping[str, Any]) -> FunctionTool:
        async def invoke(context: Any, arguments: str) -> str:
            answer = await asyncio.to_thread(self._answer, context.tool_call_id, definition["name"], arguments)
            assert answer is not None, "a context tool answers its calls"
            return answer

        return FunctionTool(
            name=definition["name"],
            description=definition["description"],
            params_json_schema=definition["input_schema"],
            on_invoke_tool=invoke,
            strict_json_schema=False,
        )

    def _guarded(self, tool: FunctionTool) -> FunctionTool:
        async def invoke(context: Any, arguments: str) -> Any:
            answer = await asyncio.to_thread(self._answer, context.tool_call_id, tool.name, arguments)
            return await tool.on_invoke_tool(context, arguments) if answer is None else answer

        guarded = copy(tool)
        guarded.on_invoke_tool = invoke
        return guarded

    def _answer(self, call: str, name: str, arguments: str) -> str | None:
        """What the call is answered by us; None for one that is to be run."""
        values = wire.parsed(arguments.encode("utf-8", "surrogatepass"), dict) or {}
        answer = self._conversation().handle(call, name, values)
        return answer[0] if answer else None
