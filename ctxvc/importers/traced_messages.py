"""Runs of tracers, with messages in the form of the traced library: OpenAI's, Anthropic's or LangChain's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

import msgspec

from ctxvc.core.ledger.block import Message
from ctxvc.core.recording.events import Warned
from ctxvc.core.recording.usage import counts, sound
from ctxvc.forms import anthropic, chat, elements
from ctxvc.forms.form import Facts
from ctxvc.forms.values import digest, has_role, objects, text_of
from ctxvc.importers import langchain_messages
from ctxvc.importers.file import Recording
from ctxvc.importers.langchain_messages import fields_of
from ctxvc.importers.request_log import Record, Turn, records
from ctxvc.importers.traces import Entry, Form, Inference, Run, Tree

#: Blocks of a content list that only the Messages API has.
_BLOCKS = frozenset({"tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document"})


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A request to a model and its reply (None if it is still to come), as `prompt` and `reply` return them."""

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
        """A checksum of the beginning of the agent's prompts."""
        first = self.messages[0] if self.messages else None
        return digest([self.system, fingerprint(first).hex()])


class Tracer(msgspec.Struct, frozen=True, kw_only=True):
    """How a tracer's values are split into runs, and how runs of a model are read.

    `holds`: whether a value of the file has runs; `split` returns them. A value with the key `single` is one run.
    `start` is the time at which a run began. A run's fields `sent` and `received` have the prompt and the reply.
    `none`, `nameless` and `unread` are the warnings about a value without runs, a run without an id, and one whose
    messages are in another form.
    """

    holds: Callable[[Any], bool]
    split: Callable[[Any], list[dict[str, Any]]]
    single: str
    start: Callable[[Mapping[str, Any]], str]
    sent: str
    received: str
    run: Callable[[Mapping[str, Any]], Run]
    call: Callable[[Mapping[str, Any]], Call]
    trace: Callable[[Mapping[str, Any]], str]
    conversation: Callable[[Mapping[str, Any]], str]
    none: str
    nameless: str
    unread: str


def form(format: str, hint: str) -> Form:
    """The form of a format whose inferences are `Call`s."""
    return Form(format=format, turns=turns, fingerprint=fingerprint, reader=lambda: Reader().message, hint=hint)


def runs(recording: Recording, tracer: Tracer) -> Iterator[Record | Warned]:
    """The runs of a file with their positions, in order: within each batch, and of all lines with a single run."""
    alone: list[Record] = []
    for record in records(recording):
        if isinstance(record, Warned):
            yield record
            continue
        if not tracer.holds(record.value):
            yield Warned(text=tracer.none, line=record.line)
            continue
        batch = alone if tracer.single in record.value else []
        for run in tracer.split(record.value):
            if text_of(run.get("id")):
                batch.append(Record(run, record.line, record.end))
            else:
                yield Warned(text=tracer.nameless, line=record.line)
        if batch is not alone:
            yield from _in_order(batch, tracer.start)
    yield from _in_order(alone, tracer.start)


def _in_order(runs: Sequence[Record], start: Callable[[Mapping[str, Any]], str]) -> Iterator[Record]:
    """The runs of a batch or an export in the order of their starts, if all have one; exports are newest first."""
    end = 0
    by_time = sorted(runs, key=lambda run: start(run.value))
    for run in by_time if all(start(run.value) for run in runs) else runs:
        end = max(end, run.end)
        yield Record(run.value, run.line, end)


def entries(pieces: Iterable[Record | Warned], tracer: Tracer) -> Iterator[Entry | Warned]:
    """The inferences in `runs`, each as far as it came, without those within another."""
    tree = Tree()
    values: dict[str, dict[str, Any]] = {}
    for piece in pieces:
        if isinstance(piece, Warned):
            yield piece
            continue
        # An update of a run repeats only some of its fields, and may have others as null.
        fields = {name: field for name, field in piece.value.items() if field is not None}
        before = values.get(fields["id"], {})
        value = values[fields["id"]] = {**before, **fields}
        run = tracer.run(value)
        tree.add(run)
        # A reply comes once; a prompt may come before it, and the last prompt may have no reply.
        news = [name for name in (tracer.sent, tracer.received) if value.get(name) and not before.get(name)]
        if run.kind != "model" or not news or tree.is_within_model(run):
            continue
        call = tracer.call(value)
        if call.messages or call.reply:
            agent, is_sure = tree.agent(run)
            inference = Inference(
                value=call,
                trace=tracer.trace(value) or run.parent or run.id,
                agent=agent,
                conversation=tracer.conversation(value),
                beginning=b"" if is_sure else call.beginning,
            )
            yield inference, piece
        elif tracer.received in news:
            yield Warned(text=tracer.unread, line=piece.line)


class Reader:
    """Reads the messages of one agent, in order."""

    def __init__(self) -> None:
        self._langchain = langchain_messages.Reader()
        self._openai = chat.Reader()

    def message(self, value: Any, key: str, about: Facts) -> Message | str:
        """The `Message` for a value, or the reason there is none."""
        if not isinstance(value, dict):
            return "it is no object"
        if "role" not in value:
            message = self._langchain.message(value, key)
        elif _is_anthropic(value):
            message = anthropic.message(value, key, about)
        else:
            message = self._openai.message(value, key, about)
        if isinstance(message, str):
            return message
        return msgspec.structs.replace(
            message,
            reply=about.reply or (key if message.role == "assistant" else ""),
            model=about.model,
            usage=about.usage,
            time=about.time,
        )


def turns(call: Call) -> Iterator[Turn]:
    """The request and the reply of a call."""
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
    """The system prompt and the messages of a sent value: a list, a request, or LangChain's list of lists."""
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
    instructions, messages = chat.instructions(converted)
    return system or instructions, messages


def reply(received: Any) -> tuple[dict[str, Any] | None, int]:
    """The reply in a received value, None if there is none, and the number of further choices."""
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
    """The tool definitions, in the Messages API's form, in the first of these values that has any."""
    for place in places:
        if tools := objects(place.get("tools") if isinstance(place, dict) else None):
            return tuple(tool if "input_schema" in tool else elements.tool(tool) for tool in tools)
    return ()


def usage(*places: Any) -> dict[str, int]:
    """A reply's token counts under the Messages API's names, from the first of these values that has any."""
    return next((usage for place in places if isinstance(place, dict) and (usage := _usage(place))), {})


def _usage(reported: Mapping[str, Any]) -> dict[str, int]:
    if "prompt_tokens" in reported:
        return elements.chat_usage(reported)
    if "input" in reported or "output" in reported:  # Langfuse's buckets, with cached input apart
        names = {
            "input": "input_tokens",
            "output": "output_tokens",
            "input_cached_tokens": "cache_read_input_tokens",
            "input_cache_read": "cache_read_input_tokens",
            "cache_read_input_tokens": "cache_read_input_tokens",
            "input_cache_creation": "cache_creation_input_tokens",
            "cache_creation_input_tokens": "cache_creation_input_tokens",
        }
        return sound({names[name]: count for name, count in counts(reported).items() if name in names})
    if "input_token_details" in reported or "total_tokens" in reported:
        return langchain_messages.usage_of(reported)
    return counts(reported)


def _message(value: Any) -> dict[str, Any] | None:
    """A message of OpenAI or Anthropic, with a `role`, or the fields of LangChain's; None for any other value."""
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
    """A call in OpenAI's form; Langfuse writes LangChain's calls into messages of that form."""
    match call:
        case {"name": str(name), "args": arguments}:
            return {"id": call.get("id"), "type": "function", "function": {"name": name, "arguments": arguments}}
    return call


def _is_anthropic(message: Mapping[str, Any]) -> bool:
    return message["role"] in ("user", "assistant") and any(
        text_of(block.get("type")) in _BLOCKS for block in objects(message.get("content"))
    )


def fingerprint(message: Any) -> bytes:
    """A checksum that a reply shares with its repetition in a later request."""
    if not isinstance(message, dict):
        return digest(message)
    if "role" not in message:
        calls = [[call.get(name) for name in ("id", "name", "args")] for call in objects(message.get("tool_calls"))]
        return digest([message["type"], message.get("content"), calls, message.get("tool_call_id")])
    content = message.get("content")
    if isinstance(content, list):
        content = [
            {name: item for name, item in block.items() if item is not None and name != "cache_control"}
            if isinstance(block, dict)
            else block
            for block in content
        ]
    return chat.fingerprint({**message, "content": content})
