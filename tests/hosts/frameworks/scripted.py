"""A chat model of LangChain that follows a script, and keeps every request as the Messages API would get it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import PrivateAttr

from tests.messages_api import Judge

MODEL = "claude-opus-5-5"


class Scripted(BaseChatModel):
    """Says what `says` makes of a request's number and messages: a text, or calls as (name, arguments)."""

    says: Callable[[int, list[BaseMessage]], Any]
    model_name: str = MODEL
    tools: list[Any] = []
    _requests: list[dict[str, Any]] = PrivateAttr(default_factory=list)
    _sizes: list[int] = PrivateAttr(default_factory=list)
    _numbers: Any = PrivateAttr(default_factory=itertools.count)
    _judge: Judge = PrivateAttr(default_factory=Judge)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @property
    def requests(self) -> list[dict[str, Any]]:
        """The requests as bodies of the Messages API."""
        return self._requests

    @property
    def sizes(self) -> list[int]:
        """The tokens of each request, by the judge's count."""
        return self._sizes

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Any:
        bound = self.model_copy(update={"tools": list(tools)})
        bound._requests, bound._sizes = self._requests, self._sizes
        bound._numbers, bound._judge = self._numbers, self._judge
        return bound

    def judged(self, body: dict[str, Any]) -> int:
        """The tokens of a request that the judge takes."""
        ruling = self._judge.rule(body)
        assert not ruling.problems, f"request {len(self._requests)} is not valid: {ruling.problems[:3]}"
        return ruling.tokens

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        body = as_body(messages, self.tools)
        size = self.judged(body)
        self._requests.append(body)
        self._sizes.append(size)
        number = next(self._numbers)
        said = self.says(number, messages)
        if isinstance(said, str):
            reply = AIMessage(said)
        else:
            calls = [
                {"name": name, "args": arguments, "id": f"call-{number}-{at}", "type": "tool_call"}
                for at, (name, arguments) in enumerate(said)
            ]
            reply = AIMessage("", tool_calls=calls)
        reply.usage_metadata = {"input_tokens": size, "output_tokens": 20, "total_tokens": size + 20}
        return ChatResult(generations=[ChatGeneration(message=reply)])


def as_body(messages: Sequence[BaseMessage], tools: Sequence[Any]) -> dict[str, Any]:
    """A request as a client of the Messages API makes it of LangChain's messages."""
    system = [message.text for message in messages if isinstance(message, SystemMessage)]
    turns = [_turn(message) for message in messages if not isinstance(message, SystemMessage)]
    grouped = [
        {"role": role, "content": [block for _, blocks in run for block in blocks]}
        for role, run in itertools.groupby(turns, lambda turn: turn[0])
    ]
    functions = [convert_to_openai_tool(tool)["function"] for tool in tools]
    declared = [
        {"name": one["name"], "description": one.get("description", ""), "input_schema": one["parameters"]}
        for one in functions
    ]
    body = {"model": MODEL, "max_tokens": 1000, "messages": grouped}
    return {**body, **({"system": "\n".join(system)} if system else {}), **({"tools": declared} if declared else {})}


def _turn(message: BaseMessage) -> tuple[str, list[dict[str, Any]]]:
    blocks = [{"type": "text", "text": message.content}] if isinstance(message.content, str) else list(message.content)
    blocks = [block for block in blocks if block.get("text") != ""]
    if isinstance(message, ToolMessage):
        error = {"is_error": True} if message.status == "error" else {}
        return "user", [{"type": "tool_result", "tool_use_id": message.tool_call_id, "content": blocks, **error}]
    if isinstance(message, AIMessage):
        calls = [
            {"type": "tool_use", "id": call["id"], "name": call["name"], "input": call["args"]}
            for call in message.tool_calls
        ]
        return "assistant", [*blocks, *calls]
    return "user", blocks
