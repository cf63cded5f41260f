"""A middleware of LangChain agents: the conversation in a session, and in each call a prompt within the budget.

Source: `AgentMiddleware` of `langchain.agents.middleware`.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from langchain.agents.middleware import AgentMiddleware, ExtendedModelResponse, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.config import get_config

from ctxvc.agent import managed
from ctxvc.core.ledger import wire
from ctxvc.core.policy import Policy
from ctxvc.core.prompt.request import canonical
from ctxvc.core.view.budget import Budget
from ctxvc.errors import BadInput
from ctxvc.integrations.conversation import Conversation, FrameworkMessage, Sent, session_name

#: What the names of sessions begin with.
_PREFIX = "langchain-"
#: Bytes of what a message has besides its content; of more, only the message's type is kept.
_LARGEST = 64 << 10


class CtxvcMiddleware(AgentMiddleware):
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
        self._path, self._session, self._budget, self._policy, self._model = path, session, budget, policy, model
        own = [{"name": name} for name in own_tools]
        self._definitions = managed.tools(policy or managed.POLICY, model=model, budget=budget, own=own)[len(own) :]
        self.tools: Sequence[BaseTool] = [*map(_tool, self._definitions)]
        self._lock = threading.RLock()
        self._conversations: dict[str, Conversation] = {}

    def __enter__(self) -> CtxvcMiddleware:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Commits what is complete, and closes the files; the next call opens them again."""
        with self._lock:
            for conversation in self._conversations.values():
                conversation.close()
            self._conversations.clear()

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

    def _conversation(self, name: str, request: ModelRequest | None = None) -> Conversation:
        with self._lock:
            if name not in self._conversations:
                own = self._own(request) if request else []
                system = str(request.system_prompt or "") if request else ""
                self._conversations[name] = Conversation.open(
                    self._path,
                    name,
                    model=self._model or _model_name(request),
                    budget=self._budget,
                    system=system or None,
                    tools=own,
                    policy=self._policy,
                )
            return self._conversations[name]

    def _own(self, request: ModelRequest) -> list[dict[str, Any]]:
        """The agent's own tools. Raises: BadInput if one has the name of a context tool."""
        ours = {tool["name"] for tool in self._definitions}
        own = [tool for tool in request.tools if not any(tool is mine for mine in self.tools)]
        definitions = [*filter(None, map(_definition, own))]
        if both := sorted(ours & {tool["name"] for tool in definitions}):
            raise BadInput(
                f"the agent has tools that are called like context tools: {', '.join(both)}",
                hint=f"pass own_tools={both!r} to the middleware, which then calls its own context_{both[0]}",
            )
        return definitions

    def _prompted(self, name: str, request: ModelRequest) -> ModelRequest:
        conversation = self._conversation(name, request)
        messages = [*map(_framework_message, request.messages)]
        conversation.take(messages)
        prompt = conversation.prompt(messages, model=self._model or _model_name(request))
        choice = {"tool_choice": "none"} if conversation.final else {}
        return request.override(messages=[*map(_langchain_message, prompt)], **choice)

    def _record(self, name: str, response: Any) -> None:
        response = response.model_response if isinstance(response, ExtendedModelResponse) else response
        messages = response.result if isinstance(response, ModelResponse) else [response]
        for message in messages:
            if isinstance(message, AIMessage):
                message.id = message.id or f"ctxvc-{uuid4()}"  # under it the agent's list has it as well
                self._conversation(name).reply(_framework_message(message))

    def _answer(self, name: str, call: Mapping[str, Any]) -> ToolMessage | None:
        answer = self._conversation(name).handle(str(call["id"]), call["name"], call["args"])
        if answer is None:
            return None
        text, error = answer
        return ToolMessage(text, name=call["name"], tool_call_id=call["id"], status="error" if error else "success")


# --- tools


def _tool(definition: Mapping[str, Any]) -> BaseTool:
    def answered_by_the_middleware(**_: Any) -> str:
        raise NotImplementedError("a context tool was run without its middleware")

    return StructuredTool.from_function(
        answered_by_the_middleware,
        name=definition["name"],
        description=definition["description"],
        args_schema=definition["input_schema"],
    )


def _definition(tool: Any) -> dict[str, Any] | None:
    """A tool in the Messages API's form; None for one that a provider runs itself."""
    if isinstance(tool, dict) and not ({"function", "input_schema", "parameters"} & tool.keys()):
        return None
    function = convert_to_openai_tool(tool)["function"]
    schema = function.get("parameters") or {"type": "object", "properties": {}}
    return {"name": function["name"], "description": function.get("description", ""), "input_schema": schema}


def _model_name(request: ModelRequest | None) -> str:
    model = request.model if request else None
    names = (getattr(model, field, None) for field in ("model_name", "model"))
    return next((name for name in names if isinstance(name, str) and name), "")


# --- messages


def _framework_message(message: BaseMessage) -> FrameworkMessage[BaseMessage]:
    """A message of LangChain as a conversation takes it."""
    blocks = _blocks(message.content)
    if isinstance(message, ToolMessage):
        error = {"is_error": True} if message.status == "error" else {}
        result = {"type": "tool_result", "tool_use_id": message.tool_call_id, "content": blocks, **error}
        plain: dict[str, Any] = {"role": "user", "content": [result]}
    elif isinstance(message, AIMessage):
        texts = [block for block in blocks if block["type"] != "tool_use"]
        calls = [
            {"type": "tool_use", "id": str(call["id"]), "name": call["name"], "input": call["args"]}
            for call in message.tool_calls
        ]
        plain = {"role": "assistant", "content": [*texts, *calls], "usage": _usage(message)}
    else:
        plain = {"role": "user", "content": blocks}
    return FrameworkMessage(
        id=message.id or f"{message.type}-{hashlib.sha256(canonical(plain)).hexdigest()[:16]}",
        message=plain,
        source=message,
        origin="human" if isinstance(message, HumanMessage) else "client",
        record=_record(message),
    )


def _blocks(content: str | Sequence[Any]) -> list[dict[str, Any]]:
    """Content as blocks of the Messages API; those of other providers stay as they are."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [_block(item) for item in content if item]


def _block(item: Any) -> dict[str, Any]:
    match item:
        case {"type": "text", "text": str(text)} | str(text):
            return {"type": "text", "text": text}
        case {"type": "image", "base64": str(data), "mime_type": str(media)}:
            return {"type": "image", "source": {"type": "base64", "media_type": media, "data": data}}
        case {"type": "image", "url": str(url)} | {"type": "image_url", "image_url": {"url": str(url)} | str(url)}:
            return {"type": "image", "source": _image_source(url)}
        case {"type": str()}:
            return {field: value for field, value in item.items() if field != "index"}
    return {"type": "text", "text": str(item)}


def _image_source(url: str) -> dict[str, str]:
    media, is_data, data = url.removeprefix("data:").partition(";base64,")
    if url.startswith("data:") and is_data:
        return {"type": "base64", "media_type": media, "data": data}
    return {"type": "url", "url": url}


def _usage(message: AIMessage) -> dict[str, int]:
    """What the provider counted, with the Messages API's names: there, what the cache had is not in `input_tokens`."""
    usage: Any = message.usage_metadata
    if not usage:
        return {}
    details = usage.get("input_token_details") or {}
    hits, writes = details.get("cache_read") or 0, details.get("cache_creation") or 0
    cached = {"cache_read_input_tokens": hits, "cache_creation_input_tokens": writes}
    return {
        "input_tokens": max(0, usage["input_tokens"] - hits - writes),
        "output_tokens": usage["output_tokens"],
        **{name: count for name, count in cached.items() if count},
    }


def _record(message: BaseMessage) -> dict[str, Any]:
    """What a message has besides its content and calls, as JSON."""
    fields = message.model_dump(mode="json", exclude={"content", "tool_calls", "id"}, exclude_defaults=True)
    record = {**fields, "type": message.type}
    return record if len(wire.compact(record)) <= _LARGEST else {"type": message.type}


def _langchain_message(sent: Sent[BaseMessage]) -> BaseMessage:
    """A message of the prompt as LangChain has it: the agent's own where it says the same."""
    if sent.source is not None:
        return sent.source
    blocks = sent.message["content"]
    if sent.message["role"] == "assistant":
        return _reply(blocks, sent.basis)
    if blocks[0]["type"] != "tool_result":
        return HumanMessage(_content(blocks))
    result = blocks[0]
    content = _content(result.get("content", []))
    if isinstance(sent.basis, ToolMessage):
        return sent.basis.model_copy(update={"content": content})
    status = "error" if result.get("is_error") else "success"
    return ToolMessage(content, tool_call_id=result["tool_use_id"], status=status)


def _reply(blocks: Sequence[Mapping[str, Any]], basis: BaseMessage | None) -> AIMessage:
    calls = [
        {"type": "tool_call", "id": block["id"], "name": block["name"], "args": block["input"]}
        for block in blocks
        if block["type"] == "tool_use"
    ]
    content = _content([block for block in blocks if block["type"] != "tool_use"])
    if isinstance(basis, AIMessage):
        return basis.model_copy(update={"content": content, "tool_calls": calls})
    return AIMessage(content, tool_calls=calls)


def _content(blocks: Sequence[Mapping[str, Any]]) -> Any:
    """Blocks as LangChain's content: a string where they are all text, which every provider takes."""
    if all(block["type"] == "text" for block in blocks):
        return "\n\n".join(block["text"] for block in blocks)
    return [_item(block) for block in blocks]


def _item(block: Mapping[str, Any]) -> dict[str, Any]:
    match block:
        case {"type": "image", "source": {"type": "base64", "media_type": media, "data": data}}:
            return {"type": "image", "base64": data, "mime_type": media}
        case {"type": "image", "source": {"type": "url", "url": url}}:
            return {"type": "image", "url": url}
    return dict(block)
