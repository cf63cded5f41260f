"""Traces of OpenTelemetry with its conventions for generative AI: OTLP as JSON, a batch of spans a line, or a document.

A span of an inference has the whole prompt (`gen_ai.input.messages`) and the reply (`gen_ai.output.messages`), so a
trace is a log of requests. Spans are written when they end: those of an agent's inferences before its own. What an
agent sent is told by the parent that its inferences share; of a trace, the first agent is the conversation's, and the
others are its sub-agents. Source: open-telemetry/semantic-conventions-genai, in development; as pydantic-ai writes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timezone
from typing import Any

import msgspec

from ctxvc.core.ledger import names, wire
from ctxvc.core.ledger.block import Message, Origin, Part, Role
from ctxvc.core.recording.events import Event, Said, Warned
from ctxvc.errors import BadInput
from ctxvc.importers.file import Recording
from ctxvc.importers.protocol import (
    JSON,
    Conversations,
    file_stamp,
    file_state,
    no_folders,
    no_recordings,
    nothing_beside,
    only_file,
)
from ctxvc.importers.request_log import Log, Record, Turn, annotated, digest, objects, records, text_of

FORMAT = "otel-genai"
ENDINGS = JSON
GROWS = False

_BEGINNING = re.compile(rb'\s*\{\s*"resourceSpans"\s*:')
_PREFIX = "gen_ai."
_INPUT, _OUTPUT, _SYSTEM = "input.messages", "output.messages", "system_instructions"
_USAGE = {
    "usage.input_tokens": "input_tokens",
    "usage.output_tokens": "output_tokens",
    "usage.cache_read.input_tokens": "cache_read_input_tokens",
    "usage.cache_creation.input_tokens": "cache_creation_input_tokens",
}
#: A value may be a list or an object of its own, in the protocol's own form.
_DEEPEST = 40


class _Inference(msgspec.Struct, frozen=True):
    """A span of an inference: its attributes by their names after `gen_ai.`, and its place in the trace."""

    attributes: dict[str, Any]
    trace: str
    parent: str
    time: str


def sniff(head: bytes) -> bool:
    """Whether a file begins as a batch of spans does; whether they are of inferences, only all of it tells."""
    return _BEGINNING.match(head) is not None


def conversations(recording: Recording) -> Conversations:
    """The conversations: what shares a `gen_ai.conversation.id`, else each trace. Raises: BadInput if there is none."""
    warnings: list[Warned] = []
    together: dict[str, list[tuple[_Inference, Record]]] = {}
    homes: dict[str, str] = {}  # trace → its first inference's conversation: a sub-agent may name one of its own
    for record in records(recording):
        if isinstance(record, Warned):
            warnings.append(record)
            continue
        if not (isinstance(record.value, dict) and isinstance(record.value.get("resourceSpans"), list)):
            warnings.append(Warned(text="the line is not a batch of spans", line=record.line))
            continue
        for inference in _inferences(record.value):
            own = text_of(inference.attributes.get("conversation.id")) or inference.trace
            together.setdefault(homes.setdefault(inference.trace, own), []).append((inference, record))
    if not together:
        raise BadInput(
            f"{recording.path}: no span with the messages of an inference",
            hint="let the instrumentation include content: gen_ai.input.messages and gen_ai.output.messages",
        )
    endings: set[str] = set()
    for number, (name, inferences) in enumerate(together.items(), 1):
        ending = f"-{names.slug(name[-12:]).lower()}" if len(together) > 1 else ""
        if ending in endings:
            ending += f"-{number}"
        endings.add(ending)
        yield ending, _events(inferences, recording.stem, warnings if number == 1 else [])


def _events(inferences: list[tuple[_Inference, Record]], stem: str, warnings: Iterable[Warned]) -> Iterator[Event]:
    """One conversation's events; sub-agents' are told in scopes of their own."""
    logs: dict[str, Log] = {}
    silent = True
    agents: dict[str, str] = {}  # trace → the parent of its first agent's inferences
    for inference, record in inferences:
        main = agents.setdefault(inference.trace, inference.parent) == inference.parent
        scope = "" if main else names.slug(f"agent-{inference.parent[-12:]}".lower(), "agent")
        log = logs.get(scope)
        if log is None:
            log = logs[scope] = Log(FORMAT, stem, digest, _message)
        try:
            for event in log.events([Record(inference, record.line, record.end)], _turns):
                silent = silent and not isinstance(event, Said)
                if not scope:
                    yield event
                    yield from warnings
                    warnings = ()
                elif isinstance(event, Said):
                    yield _of_agent(event, scope)
                elif isinstance(event, Warned):
                    yield event
        except BadInput:
            continue  # nothing in it is a message
    if silent:
        raise BadInput(f"{stem}: no message in the format {FORMAT}")


def _of_agent(event: Said, scope: str) -> Said:
    """What was told in a sub-agent's scope: its prompt is from the agent that asked it."""
    key = f"{scope}/{event.message.key}"
    parts = tuple(
        msgspec.structs.replace(part, origin="client") if part.origin == "human" else part
        for part in event.message.parts
    )
    message = msgspec.structs.replace(event.message, key=key, reply=key if event.message.reply else "", parts=parts)
    return msgspec.structs.replace(event, message=message, scope=scope)


folders = no_folders
recordings = no_recordings
beside = nothing_beside
files = only_file
stamp = file_stamp
state = file_state


def _inferences(batch: dict[str, Any]) -> Iterator[_Inference]:
    """The spans of a batch that have messages."""
    for group in (
        scope for resource in objects(batch["resourceSpans"]) for scope in objects(resource.get("scopeSpans"))
    ):
        for span in objects(group.get("spans")):
            attributes = {
                text_of(item.get("key")).removeprefix(_PREFIX): _value(item.get("value"))
                for item in objects(span.get("attributes"))
                if text_of(item.get("key")).startswith(_PREFIX)
            }
            if attributes.get("operation.name") in ("invoke_agent", "execute_tool"):
                continue  # an agent's span repeats the messages of its inferences
            if _messages(attributes.get(_INPUT)) or _messages(attributes.get(_OUTPUT)):
                yield _Inference(
                    attributes,
                    text_of(span.get("traceId")),
                    text_of(span.get("parentSpanId")),
                    _time(span.get("endTimeUnixNano")),
                )


def _value(value: Any, depth: int = 0) -> Any:
    """The value of an attribute, in plain JSON."""
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


def _structured(value: Any) -> Any:
    """The value of an attribute that many write as JSON in a string."""
    if not isinstance(value, str):
        return value
    try:
        return wire.parse(value)
    except ValueError:
        return None


def _messages(value: Any) -> list[dict[str, Any]]:
    return [message for message in objects(_structured(value)) if isinstance(message.get("role"), str)]


def _turns(inference: _Inference) -> Iterator[Turn]:
    """What was sent, and the reply to it."""
    attributes = inference.attributes
    messages = _messages(attributes.get(_INPUT))
    instructions = _texts(_structured(attributes.get(_SYSTEM)))
    while messages and messages[0]["role"] == "system":
        instructions += _texts(messages.pop(0).get("parts"))
    tools = [_definition(tool) for tool in objects(_structured(attributes.get("tool.definitions")))]
    model = text_of(attributes.get("response.model")) or text_of(attributes.get("request.model"))
    if messages:
        yield Turn(
            messages=messages,
            is_request=True,
            model=model,
            system=[{"type": "text", "text": text} for text in instructions],
            tools=tools,
            missing=tuple(
                name
                for name, value in (("the system prompt", instructions), ("the tool definitions", tools))
                if not value
            ),
        )
    replies = _messages(attributes.get(_OUTPUT))
    if replies:
        yield Turn(
            messages=replies[:1],
            model=model,
            reply=text_of(attributes.get("response.id")),
            usage=_usage(attributes),
            time=inference.time,
            left_out=f"{len(replies) - 1} more choices in the response" if len(replies) > 1 else "",
        )


def _usage(attributes: Mapping[str, Any]) -> dict[str, int]:
    """The token counts of a call under the names of the Messages API, whose input is without what the cache had."""
    pairs = ((ours, attributes.get(theirs)) for theirs, ours in _USAGE.items())
    counts = {name: count for name, count in pairs if type(count) is int and count > 0}
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


def _message(value: Any, key: str, turn: Turn) -> Message | str:
    """The message as one of ours, or why there is none."""
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
        model="" if turn.is_request else turn.model,
        usage=turn.usage,
        time=turn.time,
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
            source = {"type": "base64", "media_type": media, "data": data}
            return wire.part({"type": _kind(media), "source": source}, role, made_by)
        case {"type": "uri", "uri": str(url), "modality": "image"}:
            return wire.part({"type": "image", "source": {"type": "url", "url": url}}, role, made_by)
    return Part(kind="other", role=role, origin=made_by, body=wire.compact(part), ext="json")


def _is_object(arguments: Any) -> bool:
    return isinstance(arguments, str) and wire.parsed(arguments.encode("utf-8", "surrogatepass"), dict) is not None


def _kind(media: str) -> str:
    return "image" if media.startswith("image/") else "document"


def _time(nanoseconds: Any) -> str:
    digits = str(nanoseconds)
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
        return ""
    return datetime.fromtimestamp(int(digits) / 1e9, timezone.utc).isoformat(timespec="milliseconds")
