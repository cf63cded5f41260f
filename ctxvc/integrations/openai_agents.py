"""A session of the OpenAI Agents SDK: the conversation in one of ours, and in each call a prompt within the budget.

Source: `Session`, `RunHooks` and `RunConfig.call_model_input_filter` of `agents`.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import msgspec
from agents import FunctionTool, RunConfig, RunHooks, Tool
from agents.memory.session import SessionABC
from agents.run_config import CallModelData, ModelInputData

from ctxvc.agent import managed
from ctxvc.agent.loop import INTERRUPTED
from ctxvc.core.conversion import from_responses, to_responses
from ctxvc.core.conversion.responses import usage as responses_usage
from ctxvc.core.ledger import wire
from ctxvc.core.policy import Policy
from ctxvc.core.prompt.request import canonical
from ctxvc.core.view.budget import Budget
from ctxvc.integrations.conversation import Conversation, FrameworkMessage, session_name
from ctxvc.store.store import Store

Item = dict[str, Any]

#: Fields of an item that the SDK adds or leaves out as it likes: they tell no two items apart.
_UNSTABLE = frozenset({"id", "status", "type"})


class CtxvcSession(SessionABC, RunHooks[Any]):
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
        self._path, self._budget, self._policy, self._model = path, budget, policy, model
        self._instructions = instructions
        self._own: list[dict[str, Any]] = []
        self._lock = threading.RLock()
        self._opened: Conversation | None = None
        self._name = ""  # of the session, if it is another than the newest that is there
        self._reader = _Reader()
        self._unsaved: Counter[str] = Counter()  # items that are recorded, and that the SDK is going to add

    def __enter__(self) -> CtxvcSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Commits what is complete, and closes the files; the next call opens them again."""
        with self._lock:
            if self._opened:
                self._opened.close()
            self._opened = None

    def with_context_tools(self, tools: Sequence[Tool] = ()) -> list[Tool]:
        """An agent's tools, and those by which the model manages its context.

        While the context is overfull and nothing may leave, calls of the agent's own are answered instead of run.
        """
        own = [tool for tool in tools if isinstance(tool, FunctionTool)]
        self._own = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.params_json_schema}
            for tool in own
        ]
        definitions = managed.tools(
            self._policy or managed.POLICY, model=self._model, budget=self._budget, own=self._own
        )
        context_tools = [self._context_tool(definition) for definition in definitions[len(own) :]]
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
        with self._lock:
            if self._opened is None:
                self._opened = Conversation.open(
                    self._path,
                    self._name or _newest(self._path, session_name(self.session_id)),
                    model=self._model,
                    budget=self._budget,
                    system=self._instructions or None,
                    tools=self._own,
                    policy=self._policy,
                )
                self._end_interrupted(self._opened)
            return self._opened

    def _end_interrupted(self, conversation: Conversation) -> None:
        """Answers the calls that a process before this one left without a result."""
        calls = conversation.session.stored.open_calls
        outputs = [{"type": "function_call_output", "call_id": call, "output": INTERRUPTED} for call in calls]
        if outputs:
            conversation.take(self._reader.all_messages(conversation, [*_items(conversation), *outputs]))

    def _items(self) -> list[Item]:
        with self._lock:
            return list(_items(self._conversation()))

    def _prompt(self, items: Iterable[Any]) -> list[Item]:
        with self._lock:
            conversation = self._conversation()
            messages = self._reader.all_messages(conversation, map(_plain, items))
            self._unsaved.update(
                _key(item) for message in messages if not conversation.has(message.id) for item in message.source
            )
            conversation.take(messages)
            prompt = conversation.prompt(messages, model=self._model)
            return [item for sent in prompt for item in sent.source or _rebuilt(sent.message)]

    def _reply(self, response: Any) -> None:
        with self._lock:
            conversation = self._conversation()
            counts = {"usage": _usage(response.usage)}
            for message in self._reader.more(conversation, map(_plain, response.to_input_items())):
                self._unsaved.update(map(_key, message.source))
                conversation.reply(msgspec.structs.replace(message, message={**message.message, **counts}))

    def _add(self, items: Iterable[Any]) -> None:
        with self._lock:
            conversation = self._conversation()
            new = []
            for item in map(_plain, items):
                if self._unsaved[_key(item)] > 0:
                    self._unsaved[_key(item)] -= 1
                else:
                    new.append(item)
            if new:
                conversation.take(self._reader.all_messages(conversation, [*_items(conversation), *new]))

    def _pop(self) -> Item | None:
        with self._lock:
            conversation = self._conversation()
            items = list(_items(conversation))
            if len(items) == 1:
                self._clear()
            elif items:
                conversation.take(self._reader.all_messages(conversation, items[:-1]))
            return items[-1] if items else None

    def _clear(self) -> None:
        with self._lock:
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


# --- sessions

#: Stands between a session's name and the number of the session that `clear_session` began after it.
_CLEARED = ".cleared-"


def _newest(path: str | Path, name: str) -> str:
    """The session of that name, or the last that was begun after it."""
    if not (Path(path) / "HEAD").exists():
        return name
    with Store(Path(path)) as store:
        numbers = [
            int(number)
            for session in store.sessions()
            if session.startswith(name + _CLEARED) and (number := session[len(name + _CLEARED) :]).isdecimal()
        ]
    return f"{name}{_CLEARED}{max(numbers)}" if numbers else name


# --- items


def _plain(item: Any) -> Item:
    """An item as a dictionary."""
    return dict(item) if isinstance(item, Mapping) else item.model_dump(mode="json", exclude_unset=True)


def _key(item: Item) -> str:
    """The name of an item, which it has in every list that it stands in; a repeated message has it, too."""
    if call := item.get("call_id"):
        return _digest([item.get("type"), call])
    if isinstance(content := item.get("content"), str):
        item = {**item, "content": [{"text": content}]}
    return _digest(_stable(item))


def _digest(value: Any) -> str:
    return hashlib.sha256(canonical(value)).hexdigest()[:24]


def _stable(value: Any) -> Any:
    """A value without what the SDK adds or leaves out as it likes."""
    if isinstance(value, dict):
        return {
            name: stable
            for name, field in value.items()
            if name not in _UNSTABLE and (stable := _stable(field)) not in (None, [])
        }
    return list(map(_stable, value)) if isinstance(value, list) else value


class _Reader:
    """Reads lists of items, each mostly the one before and a few more: what was read once is not converted again."""

    def __init__(self) -> None:
        self._messages: dict[str, FrameworkMessage[list[Item]]] = {}
        self._counts: Counter[str] = Counter()  # how often each item stands in the list

    def all_messages(self, conversation: Conversation, items: Iterable[Item]) -> list[FrameworkMessage[list[Item]]]:
        """The messages of the whole conversation so far: what the model said in one reply is one."""
        self._counts.clear()
        messages = self.more(conversation, items)
        self._messages = {message.id: message for message in messages}
        return messages

    def more(self, conversation: Conversation, items: Iterable[Item]) -> list[FrameworkMessage[list[Item]]]:
        """The messages of what follows on that."""
        messages = []
        reply: list[Item] = []
        reply_id = ""
        for item in items:
            key = _key(item)
            self._counts[key] += 1
            name = key if self._counts[key] == 1 else f"{key}~{self._counts[key]}"
            is_models = _role(item) == "assistant"
            if reply and (not is_models or conversation.has(name)):
                messages.append(self._message(reply_id, reply))
                reply = []
            if is_models:
                reply_id = reply_id if reply else name
                reply.append(item)
            else:
                messages.append(self._message(name, [item]))
        return [*messages, self._message(reply_id, reply)] if reply else messages

    def _message(self, name: str, items: list[Item]) -> FrameworkMessage[list[Item]]:
        earlier = self._messages.get(name)
        if earlier and earlier.source == items:
            return msgspec.structs.replace(earlier, source=items)
        return _message(name, items)


def _role(item: Item) -> str:
    kind = str(item.get("type", "message"))
    if kind == "message":
        return "assistant" if item.get("role") == "assistant" else "user"
    return "user" if kind.endswith("_output") else "assistant"


def _message(name: str, items: list[Item]) -> FrameworkMessage[list[Item]]:
    converted = from_responses({"input": list(map(_carried, items))}).value["messages"]
    message = converted[0] if converted else {"role": _role(items[0]), "content": [{"type": "text", "text": "[empty]"}]}
    is_human = items[0].get("role") == "user"
    return FrameworkMessage(
        id=name, message=message, source=items, origin="human" if is_human else "client", record=_record(items, message)
    )


def _carried(item: Item) -> Item:
    """The item as the Messages API can have it; what it has no place for is its JSON, for the model to read."""
    kind, role = item.get("type", "message"), item.get("role")
    if kind in _CARRIED or (kind == "message" and role in ("user", "assistant")):
        return item
    if kind == "message":
        return {**item, "role": "user"}
    part = {"type": "input_text", "text": wire.compact(item).decode()}
    return {"type": "message", "role": _role(item), "content": [part]}


_CARRIED = frozenset(
    {"function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output", "reasoning"}
)


def _rebuilt(message: Mapping[str, Any]) -> list[Item]:
    """The items of a message. Not every server takes a list of texts as an output: they are one text."""
    items: list[Item] = to_responses({"messages": [message]}).value["input"]
    for item in items:
        output = item.get("output")
        if isinstance(output, list) and all(part["type"] == "input_text" for part in output):
            item["output"] = "\n\n".join(part["text"] for part in output)
    return items


def _record(items: Sequence[Item], message: Mapping[str, Any]) -> dict[str, Any]:
    """What the items have that the message does not tell."""
    rebuilt = _rebuilt(message)
    if len(rebuilt) != len(items):
        return {"items": list(items)}
    return {"fields": [_different(item, again) for item, again in zip(items, rebuilt, strict=True)]}


def _different(item: Item, rebuilt: Item) -> Item:
    """The fields of an item that are not the rebuilt one's: None where it has none, and "" for content that is a string
    with the text of the one part."""
    absent = dict.fromkeys(rebuilt.keys() - item.keys())
    fields = {name: value for name, value in item.items() if not _says_the_same(value, rebuilt.get(name))}
    if "content" in fields and fields["content"] == _only_text(rebuilt):
        fields["content"] = ""
    return absent | fields


def _says_the_same(value: Any, rebuilt: Any) -> bool:
    if isinstance(value, str) and isinstance(rebuilt, str) and rebuilt.startswith("{"):  # the arguments of a call
        return bool(wire.parsed(value.encode("utf-8", "surrogatepass"), dict) == wire.parse(rebuilt))
    return bool(_stable(value) == _stable(rebuilt))


def _only_text(item: Item) -> str | None:
    match item.get("content"):
        case [{"text": str(text)}]:
            return text
    return None


def _items(conversation: Conversation) -> Iterator[Item]:
    """The items that are recorded in the conversation, oldest first."""
    for message, record in conversation.records():
        if isinstance(items := record.get("items"), list):
            yield from items
            continue
        rebuilt, fields = _rebuilt(message), record.get("fields")
        if not isinstance(fields, list) or len(fields) != len(rebuilt):
            yield from rebuilt
            continue
        for item, own in zip(rebuilt, fields, strict=True):
            text = {"content": _only_text(item)} if own.get("content") == "" else {}
            yield {name: value for name, value in {**item, **own, **text}.items() if value is not None}


def _usage(usage: Any) -> dict[str, int]:
    details = getattr(usage, "input_tokens_details", None)
    return responses_usage(
        {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "input_tokens_details": {"cached_tokens": getattr(details, "cached_tokens", 0)},
        }
    )
