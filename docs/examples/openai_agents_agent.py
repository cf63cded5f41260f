"""An agent of the OpenAI Agents SDK inside a budget, with a model that follows a script: no key, no network.

`python openai_agents_agent.py STORE` works for forty steps in 12,000 tokens, gets an early result back, and is done.
Killed on the way, it goes on where it was when it is run again.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from ctxvc.integrations.openai_agents import CtxvcSession

STEPS = 40
INSTRUCTIONS = "You read."


@function_tool
def read(page: int) -> str:
    """Read a page."""
    return f"page {page}: " + f"the {page}th of many long lines. " * 60


class Scripted(Model):
    """Reads page after page, gets the first result back, and is done. `largest` is the longest prompt in characters."""

    def __init__(self, page: int) -> None:
        self.page, self.largest, self.is_done = page, 0, False

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> ModelResponse:
        self.largest = max(self.largest, len(json.dumps(input)))
        if self.is_done:
            found = next(item["output"] for item in reversed(input) if item.get("type") == "function_call_output")
            text = ResponseOutputText(
                annotations=[], text=f"Found again: {found.splitlines()[0][:70]}", type="output_text"
            )
            reply: Any = ResponseOutputMessage(
                id="msg", content=[text], role="assistant", status="completed", type="message"
            )
        else:
            self.page += 1
            self.is_done = self.page > STEPS
            name, arguments = ("search", {"pattern": "^page 1:"}) if self.is_done else ("read", {"page": self.page})
            reply = ResponseFunctionToolCall(
                arguments=json.dumps(arguments), call_id=f"call-{self.page}", name=name, type="function_call"
            )
        return ModelResponse(output=[reply], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


async def main(store: str) -> None:
    set_tracing_disabled(True)
    with CtxvcSession("reading", store, budget=12_000, instructions=INSTRUCTIONS) as memory:
        tools = memory.with_context_tools([read])
        earlier = await memory.get_items()
        pages = [json.loads(item["arguments"])["page"] for item in earlier if item.get("name") == "read"]
        model = Scripted(max(pages, default=0))
        agent = Agent(name="reader", instructions=INSTRUCTIONS, model=model, tools=tools)
        task = "Go on." if earlier else "Read it all."
        result = await Runner.run(
            agent, task, session=memory, hooks=memory, run_config=memory.run_config(), max_turns=200
        )
        items = await memory.get_items()
    print(result.final_output)
    print(f"{len(items)} items; the longest prompt had {model.largest:,} characters")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
