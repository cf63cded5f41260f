"""Traces of OpenTelemetry with its conventions for generative AI: OTLP as JSON, a batch of spans a line, or a document.

A span of an inference has the whole prompt (`gen_ai.input.messages`) and the reply (`gen_ai.output.messages`), so a
trace is a log of requests. Spans are written when they end: inferences before their agent. The inferences of an agent
share a parent; the first agent of a trace is the conversation's, the others are its sub-agents. Source:
open-telemetry/semantic-conventions-genai, in development; as pydantic-ai writes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Any

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message, Origin, Part, Role
from ctxvc.core.recording.events import Warned
from ctxvc.core.recording.usage import sound
from ctxvc.forms import elements
from ctxvc.forms.form import Facts
from ctxvc.forms.values import annotated, digest, objects, text_of
from ctxvc.importers import traces
from ctxvc.importers.file import Recording
from ctxvc.importers.protocol import Conversations, Importer
from ctxvc.importers.request_log import Turn, records
from ctxvc.importers.traces import Entry, Form, Inference

FORMAT = "otel-genai"

_BEGINNING = re.compile(rb'\s*\{\s*"resourceSpans"\s*:')
_PREFIX = "gen_ai."
_INPUT, _OUTPUT, _SYSTEM = "input.messages", "output.messages", "system_instructions"
#: Ours: the messages since the reply before, in a span without a prompt; the indices of a compaction's summary in it.
_OURS = "ctxvc."
_ADDED, _SUMMARY = "ctxvc.input.added", "ctxvc.summary"
_USAGE = {
    "usage.input_tokens": "input_tokens",
    "usage.output_tokens": "output_tokens",
    "usage.cache_read.input_tokens": "cache_read_input_tokens",
    "usage.cache_creation.input_tokens": "cache_creation_input_tokens",
    "usage.cache_write.input_tokens": "cache_creation_input_tokens",
}
#: The deepest nesting of lists and objects in a value that is read.
_DEEPEST = 40


def sniff(head: bytes) -> bool:
    """Whether a file begins with a batch of spans, which need not be of inferences."""
    return _BEGINNING.match(head) is not None and b'"langfuse.observation.' not in head


def conversations(recording: Recording) -> Conversations:
    """A conversation per `gen_ai.conversation.id`, else per trace. Raises: BadInput if there is none."""
    return traces.conversations(recording, _FORM, _entries(recording))


IMPORTER = Importer(format=FORMAT, sniff=sniff, conversations=conversations)


def _entries(recording: Recording) -> Iterator[Entry | Warned]:
    for record in records(recording):
        if isinstance(record, Warned):
            yield record
        elif isinstance(record.value, dict) and isinstance(record.value.get("resourceSpans"), list):
            for span in spans(record.value):
                if inference := _inference(span):
                    yield inference, record
        else:
            yield Warned(text="the line is not a batch of spans", line=record.line)


def spans(batch: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The spans of a batch."""
    for resource in objects(batch.get("resourceSpans")):
        for group in objects(resource.get("scopeSpans")):
            yield from objects(group.get("spans"))


def attributes_of(span: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A span's attributes whose names begin with `prefix`, by the rest of the name, as plain JSON."""
    return {
        text_of(item.get("key")).removeprefix(prefix): _value(item.get("value"))
        for item in objects(span.get("attributes"))
        if text_of(item.get("key")).startswith(prefix)
    }


def _inference(span: Mapping[str, Any]) -> Inference | None:
    """The inference of a span; None if it has no messages."""
    attributes = attributes_of(span, _PREFIX)
    attributes |= {f"{_OURS}{name}": value for name, value in attributes_of(span, _OURS).items()}
    if attributes.get("operation.name") in ("invoke_agent", "execute_tool"):
        return None  # an agent's span repeats the messages of its inferences
    content = {name: _messages(attributes.get(name)) for name in (_INPUT, _ADDED, _OUTPUT)}
    if not any(content.values()):
        return None
    return Inference(
        value=({**attributes, **content}, time_of_nanoseconds(span.get("endTimeUnixNano"))),
        trace=text_of(span.get("traceId")),
        agent=text_of(span.get("parentSpanId")),
        conversation=text_of(attributes.get("conversation.id")),
    )


def _value(value: Any, depth: int = 0) -> Any:
    """The value of an attribute as plain JSON."""
    match value:
        case {"stringValue": str(text)}:
            return text
        case {"intValue": str(digits)} if digits.isascii() and digits.isdigit() and len(digits) < 20:
            return int(digits)
        case {"intValue": int(number)} | {"doubleValue": int(number) | float(number)} | {"boolValue": bool(number)}:
            return number
        case {"arrayValue": {"values": list(values)}} if depth < _DEEPEST:
            return [_value(item, depth + 1) for item in values]
        case {"kvlistValue": {"values": list(pairs)}} if depth < _DEEPEST:
            return {text_of(pair.get("key")): _value(pair.get("value"), depth + 1) for pair in objects(pairs)}
    return None


def structured(value: Any) -> Any:
    """The value of an attribute, which may be JSON in a string."""
    return wire.parsed(value, object) if isinstance(value, str) else value


def _messages(value: Any) -> list[dict[str, Any]]:
    return [message for message in objects(structured(value)) if isinstance(message.get("role"), str)]


def _turns(value: tuple[dict[str, Any], str]) -> Iterator[Turn]:
    """The request and the reply of a span, by its attributes, in which messages are lists, and its end."""
    attributes, time = value
    messages = list(attributes[_INPUT])
    instructions = _texts(structured(attributes.get(_SYSTEM)))
    while messages and messages[0]["role"] == "system":
        instructions += _texts(messages.pop(0).get("parts"))
    tools = [_definition(tool) for tool in objects(structured(attributes.get("tool.definitions")))]
    model = text_of(attributes.get("response.model")) or text_of(attributes.get("request.model"))
    added = [] if messages else attributes[_ADDED]
    if messages or added:
        summary = structured(attributes.get(_SUMMARY))
        yield Turn(
            messages=messages or added,
            is_request=bool(messages),
            compacted=attributes.get("conversation.compacted") is True,
            summary=frozenset(at for at in summary if type(at) is int) if isinstance(summary, list) else None,
            model=model,
            system=[{"type": "text", "text": text} for text in instructions],
            tools=tools,
            missing=tuple(
                name
                for name, value in (("the system prompt", instructions), ("the tool definitions", tools))
                if not value
            ),
        )
    replies = attributes[_OUTPUT]
    if replies:
        yield Turn(
            messages=replies[:1],
            model=model,
            reply=text_of(attributes.get("response.id")),
            usage=_usage(attributes),
            time=time,
            left_out=f"{len(replies) - 1} more choices in the response" if len(replies) > 1 else "",
        )


def _usage(attributes: Mapping[str, Any]) -> dict[str, int]:
    """The token counts of a call under the Messages API's names, where `input_tokens` exclude cached input."""
    pairs = ((ours, attributes.get(theirs)) for theirs, ours in _USAGE.items())
    counts = {name: count for name, count in sound({n: c for n, c in pairs if type(c) is int}).items() if count}
    cached = counts.get("cache_read_input_tokens", 0) + counts.get("cache_creation_input_tokens", 0)
    if "input_tokens" in counts:
        counts["input_tokens"] = max(counts["input_tokens"] - cached, 0)
    return counts


def _texts(parts: Any) -> list[str]:
    return [text for part in objects(parts) if (text := text_of(part.get("content")))]


def _definition(tool: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": text_of(tool.get("name")),
        "description": text_of(tool.get("description")),
        "input_schema": tool.get("parameters") or {"type": "object"},
    }


def _message(value: Any, key: str, about: Facts) -> Message | str:
    """The `Message` for a value, or the reason there is none."""
    role: Role = value["role"] if value["role"] in ("assistant", "system") else "user"
    parts = tuple(_part(part, role) for part in objects(value.get("parts")))
    if not parts:
        return "it is empty"
    if (reason := text_of(value.get("finish_reason"))) not in ("", "stop", "tool_call", "tool_calls"):
        parts = (*parts[:-1], annotated(parts[-1], "ctxvc", {"finish_reason": reason}))
    return Message(
        role=role,
        parts=parts,
        key=key,
        reply=key if role == "assistant" else "",
        model=about.model,
        usage=about.usage,
        time=about.time,
    )


def _part(part: dict[str, Any], role: Role) -> Part:
    made_by: Origin = "model" if role == "assistant" else "client" if role == "system" else "human"
    match part:
        case {"type": "text", "content": str(text)}:
            return wire.text_part(text, role, made_by)
        case {"type": "reasoning" | "thinking", "content": str(text)}:
            return wire.text_part(text, role, made_by, kind="thinking")
        case {"type": "tool_call", "id": str(call), "name": str(name)} if call and role == "assistant":
            arguments = part.get("arguments", {})
            return wire.call_part(name, call, arguments.encode() if _is_object(arguments) else wire.compact(arguments))
        case {"type": "tool_call_response", "id": str(call)} if call:
            result = part.get("response", part.get("result", ""))
            content = result if isinstance(result, str) else wire.compact(result)
            return wire.result_part(content, call, tool=text_of(part.get("name")))
        case {"type": "blob", "content": str(data)} if media := text_of(part.get("mime_type")):
            return wire.part(elements.media(media, data), role, made_by)
        case {"type": "uri", "uri": str(url), "modality": "image"}:
            return wire.part({"type": "image", "source": {"type": "url", "url": url}}, role, made_by)
    return wire.other_part(part, role, made_by)


def _is_object(arguments: Any) -> bool:
    return isinstance(arguments, str) and wire.parsed(arguments.encode("utf-8", "surrogatepass"), dict) is not None


def time_of_nanoseconds(nanoseconds: Any) -> str:
    """ISO 8601 for nanoseconds since 1970, a number or a text of digits; empty for any other value."""
    digits = str(nanoseconds)
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
        return ""
    return datetime.fromtimestamp(int(digits) / 1e9, timezone.utc).isoformat(timespec="milliseconds")


_FORM = Form(
    format=FORMAT,
    turns=_turns,
    fingerprint=digest,
    reader=lambda: _message,
    hint="let the instrumentation include content: gen_ai.input.messages and gen_ai.output.messages",
)
