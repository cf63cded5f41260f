"""A Pydantic AI agent inside a budget, with a model that follows a script: no key, no network.

`python pydantic_ai_agent.py STORE` works for forty steps in 12,000 tokens, gets an early result back, and is done.
Killed on the way, it goes on where it was when it is run again.
"""

from __future__ import annotations

import sys
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import RequestUsage

from ctxvc.integrations.pydantic_ai import CtxvcCapability

STEPS = 40


def read(page: int) -> str:
    """Read a page."""
    return f"page {page}: " + f"the {page}th of many long lines. " * 60


class Script:
    """Reads page after page, gets the first result back, and is done. `largest` is the longest prompt in characters."""

    def __init__(self, page: int) -> None:
        self.page, self.largest, self.is_done = page, 0, False

    def reply(self, messages: list[ModelMessage], info: Any) -> ModelResponse:
        size = sum(len(str(getattr(part, "content", ""))) for message in messages for part in message.parts)
        self.largest = max(self.largest, size)
        usage = RequestUsage(input_tokens=size // 4, output_tokens=20)
        if self.is_done:
            results = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
            text = f"Found again: {str(results[-1].content).splitlines()[0][:70]}"
            return ModelResponse([TextPart(text)], usage=usage)
        self.page += 1
        self.is_done = self.page > STEPS
        name, arguments = ("search", {"pattern": "^page 1:"}) if self.is_done else ("read", {"page": self.page})
        return ModelResponse([ToolCallPart(name, arguments, f"call-{self.page}")], usage=usage)


def main(store: str) -> None:
    with CtxvcCapability("reading", store, budget=12_000) as capability:
        history = capability.history()
        calls = [part for message in history for part in message.parts if isinstance(part, ToolCallPart)]
        script = Script(max((call.args_as_dict().get("page", 0) for call in calls), default=0))
        agent = Agent(FunctionModel(script.reply), tools=[read], capabilities=[capability])
        result = agent.run_sync("Go on." if history else "Read it all.", message_history=history)
        messages = capability.history()
    print(result.output)
    print(f"{len(messages)} messages; the longest prompt had {script.largest:,} characters")


if __name__ == "__main__":
    main(sys.argv[1])
