"""A LangChain agent inside a budget, with a model that follows a script: no key, no network.

`python langchain_agent.py STORE` works for forty steps in 12,000 tokens, gets an early result back, and is done. Killed
on the way, it goes on where it was when it is run again.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool

from ctxvc.integrations.langchain import CtxvcMiddleware
from ctxvc.integrations.langgraph import CtxvcSaver

STEPS = 40
THREAD: Any = {"configurable": {"thread_id": "look"}, "recursion_limit": 1_000}


@tool
def read(page: int) -> str:
    """Read a page."""
    return f"page {page}: " + f"the {page}th of many long lines. " * 60


class Scripted(BaseChatModel):
    """Reads page after page, gets the first result back, and is done. `largest` is the longest prompt in characters."""

    largest: int = 0

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Scripted:  # type: ignore[override]
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        self.largest = max(self.largest, sum(len(str(message.content)) for message in messages))
        results = [message for message in messages if isinstance(message, ToolMessage)]
        page = max((int(call["args"].get("page", 0)) for call in _calls(messages)), default=0) + 1
        if results and results[-1].name == "search":
            reply = AIMessage(f"Found again: {results[-1].text.splitlines()[0][:70]}")
        elif page > STEPS:
            reply = AIMessage("", tool_calls=[{"name": "search", "args": {"pattern": "^page 1:"}, "id": "again"}])
        else:
            reply = AIMessage("", tool_calls=[{"name": "read", "args": {"page": page}, "id": f"call-{page}"}])
        return ChatResult(generations=[ChatGeneration(message=reply)])


def _calls(messages: Sequence[BaseMessage]) -> list[Any]:
    return [call for message in messages if isinstance(message, AIMessage) for call in message.tool_calls]


def main(store: str) -> None:
    model = Scripted()
    with CtxvcMiddleware(store, budget=12_000) as middleware, CtxvcSaver(store) as saver:
        agent = create_agent(model, tools=[read], middleware=[middleware], checkpointer=saver)
        begun = agent.get_state(THREAD).values
        result = agent.invoke(None if begun else {"messages": [("human", "Read it all.")]}, THREAD)
    print(result["messages"][-1].text)
    print(f"{len(result['messages'])} messages; the longest prompt had {model.largest:,} characters")


if __name__ == "__main__":
    main(sys.argv[1])
