"""Messages in the runs of tracers, in the form of the traced library: OpenAI's, Anthropic's or LangChain's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import Any

import msgspec

from ctxvc.core.conversion import chat
from ctxvc.core.conversion.fields import usage as normal_usage
from ctxvc.core.ledger.block import Message
from ctxvc.core.prompt import openai_elements as elements
from ctxvc.forms import anthropic
from ctxvc.forms import chat as chat_form
from ctxvc.forms.values import counts, digest, has_role, objects, text_of
from ctxvc.importers import langchain_messages
from ctxvc.importers.documents import mapping
from ctxvc.importers.langchain_messages import fields_of
from ctxvc.importers.request_log import Turn

#: Blocks of a content list that only the Messages API has.
_BLOCKS = frozenset({"tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document"})


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """What was sent to a model and its reply, None if there is none yet, as `prompt` and `reply` give them."""

    messages: list[Any]
    reply: dict[str, Any] | None = None
    system: Any = None
    tools: tuple[dict[str, Any], ...] = ()
    model: str = ""
    usage: dict[str, int] = {}
    time: str = ""
    left_out: str = ""

    @property
    def beginning(self) -> bytes:
        """A checksum of what the agent's prompts begin with."""
        first = self.messages[0] if self.messages else None
        return digest([self.system, fingerprint(first).hex()])


class Reader:
    """Reads the messages of one agent, in order."""

    def __init__(self) -> None:
        self._langchain = langchain_messages.Reader()
        self._openai = chat_form.Messages()

    def message(self, value: Any, key: str, turn: Turn) -> Message | str:
        """The message as one of ours, or the reason why there is none."""
        if not isinstance(value, dict):
            return "it is no object"
        if "role" not in value:
            message = self._langchain.message(value, key)
        elif _is_anthropic(value):
            message = anthropic.message(value)
        else:
            message = self._openai.message(value)
        if isinstance(message, str):
            return message
        return msgspec.structs.replace(
            message,
            key=key,
            reply=turn.reply or (key if message.role == "assistant" else ""),
            model="" if turn.is_request else turn.model,
            usage=turn.usage,
            time=turn.time,
        )


def turns(call: Call) -> Iterator[Turn]:
    """What was sent, and the reply to it."""
    if call.messages:
        absent = {"the system prompt": not call.system, "the tool definitions": not call.tools}
        yield Turn(
            messages=call.messages,
            is_request=True,
            model=call.model,
            system=call.system,
            tools=[*call.tools],
            missing=tuple(name for name, is_absent in absent.items() if is_absent),
        )
    if call.reply is not None:
        yield Turn(messages=[call.reply], model=call.model, usage=call.usage, time=call.time, left_out=call.left_out)


def prompt(sent: Any) -> tuple[Any, list[Any]]:
    """The system prompt and the messages in what was sent: a list, a request, or LangChain's list of lists."""
    messages = sent.get("messages") if isinstance(sent, dict) else sent
    while isinstance(messages, list) and len(messages) == 1 and isinstance(messages[0], list):
        messages = messages[0]
    if isinstance(messages, str) and messages:
        messages = [{"role": "user", "content": messages}]
    converted: list[Any] = [_message(message) for message in messages] if isinstance(messages, list) else []
    if not any(converted):
        return None, []
    system = sent.get("system") if isinstance(sent, dict) else None
    if converted[0] is not None and "role" not in converted[0]:
        leading = [*takewhile(lambda message: message is not None and "role" not in message, converted)]
        instructions, count = langchain_messages.leading_system(leading)
        return system or instructions, converted[count:]
    instructions, messages = chat_form.instructions(converted)
    return system or instructions, messages


def reply(received: Any) -> tuple[dict[str, Any] | None, int]:
    """The reply in what was received, None if there is none, and how many more choices there are."""
    if message := _message(received):
        return message, 0
    match received:
        case {"choices": [{"message": message}, *more]}:
            return _message(message), len(more)
        case {"generations": [[{"message": message}, *more], *_] | [{"message": message}, *more]}:
            return _message(message), len(more)
        case {"message": dict(message)} | {"output": dict(message)}:
            return _message(message), 0
        case {"messages": [*_, message]} | [*_, message]:
            return _message(message), 0
        case str(text) | {"output": str(text)} | {"content": str(text)} if text:
            return {"role": "assistant", "content": text}, 0
    return None, 0


def definitions(*places: Any) -> tuple[dict[str, Any], ...]:
    """The tool definitions of a request, in the Messages API's form, at the first of these places that has any."""
    for place in places:
        if tools := objects(place.get("tools") if isinstance(place, dict) else None):
            return tuple(tool if "input_schema" in tool else elements.tool(tool) for tool in tools)
    return ()


def usage(*places: Any) -> dict[str, int]:
    """The counts of a reply with the Messages API's names, at the first of these places that has any.

    There, `input_tokens` is without what the cache had.
    """
    return next((usage for place in places if isinstance(place, dict) and (usage := _usage(place))), {})


def _usage(reported: Mapping[str, Any]) -> dict[str, int]:
    if "prompt_tokens" in reported:
        return chat.usage(reported)
    if "input" in reported or "output" in reported:  # Langfuse's buckets: what the cache had is beside the input
        names = {
            "input": "input_tokens",
            "output": "output_tokens",
            "input_cached_tokens": "cache_read_input_tokens",
            "input_cache_read": "cache_read_input_tokens",
            "cache_read_input_tokens": "cache_read_input_tokens",
            "input_cache_creation": "cache_creation_input_tokens",
            "cache_creation_input_tokens": "cache_creation_input_tokens",
        }
        return {names[name]: count for name, count in counts(reported).items() if name in names and count >= 0}
    if "input_token_details" in reported or "total_tokens" in reported:
        details = mapping(reported, "input_token_details")
        return normal_usage(
            reported.get("input_tokens"),
            details.get("cache_read"),
            details.get("cache_creation"),
            reported.get("output_tokens"),
        )
    return counts(reported)


def _message(value: Any) -> dict[str, Any] | None:
    """A message: with a `role` one of OpenAI's or Anthropic's, else LangChain's by its fields; None if it is none."""
    fields = fields_of(value)
    if fields is not None and not has_role(value):
        return fields
    if not has_role(value):
        return None
    calls = value.get("tool_calls")
    if isinstance(calls, list) and any("args" in call for call in objects(calls)):
        return {**value, "tool_calls": [_call(call) for call in calls]}
    return dict(value)


def _call(call: Any) -> Any:
    """A call of LangChain's in a message of OpenAI's form, as Langfuse writes it."""
    match call:
        case {"name": str(name), "args": arguments}:
            return {"id": call.get("id"), "type": "function", "function": {"name": name, "arguments": arguments}}
    return call


def _is_anthropic(message: Mapping[str, Any]) -> bool:
    return message["role"] in ("user", "assistant") and any(
        text_of(block.get("type")) in _BLOCKS for block in objects(message.get("content"))
    )


def fingerprint(message: Any) -> bytes:
    """Equal for a reply and the same as a later request repeats it."""
    if not isinstance(message, dict):
        return digest(message)
    if "role" not in message:
        calls = [[call.get(name) for name in ("id", "name", "args")] for call in objects(message.get("tool_calls"))]
        return digest([message["type"], message.get("content"), calls, message.get("tool_call_id")])
    return chat_form.fingerprint(message)
