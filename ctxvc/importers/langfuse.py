"""Observations of Langfuse: as its SDKs send them, a batch a line, or as its API and exports return them.

SDKs since version 3 send spans (OTLP, here as JSON) with Langfuse's attributes, older ones send its own events; exports
have observations, alone or in their traces. A generation has the whole prompt, in the form of the traced library.
Source: langfuse 5.0 and 2.60, langfuse.api.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from ctxvc.core.recording.events import Warned
from ctxvc.forms.values import objects, text_in, text_of
from ctxvc.importers import traced_messages, traces
from ctxvc.importers.documents import mapping
from ctxvc.importers.file import Recording
from ctxvc.importers.otel_genai import attributes_of, spans, structured, time_of_nanoseconds
from ctxvc.importers.protocol import Conversations, Importer
from ctxvc.importers.request_log import Record, opening
from ctxvc.importers.traced_messages import Call, Tracer, entries, runs
from ctxvc.importers.traces import Entry, Run

FORMAT = "langfuse"

_OBSERVATION = "langfuse.observation."
_KINDS: dict[str, Literal["model", "tool", "agent"]] = {"generation": "model", "tool": "tool", "agent": "agent"}


def sniff(head: bytes) -> bool:
    """Whether `head` begins with a batch, with spans that have attributes of Langfuse's, or with an observation."""
    if b'"resourceSpans"' in head[:100]:
        return f'"{_OBSERVATION}'.encode() in head
    if not any(mark in head for mark in (b'"traceId"', b'"observations"', b'"trace-create"')):
        return False
    values = opening(head)
    value: Any = values[0] if values else None
    if isinstance(value, dict) and isinstance(value.get("data"), list):
        value = value["data"]
    first = value[0] if isinstance(value, list) and value else value
    match first:
        case {"batch": [{"type": str(kind)}, *_]}:
            return kind in ("trace-create", "span-create", "generation-create")
        case {"observations": [dict(), *_]}:
            return "sessionId" in first
        case {"traceId": str(), "type": str(kind)}:
            return kind.lower() in (*_KINDS, "span", "event", "chain")
    return False


def conversations(recording: Recording) -> Conversations:
    """A conversation per session id, else per trace. Raises: BadInput if there is none."""
    return traces.conversations(recording, _FORM, _entries(recording))


IMPORTER = Importer(format=FORMAT, sniff=sniff, conversations=conversations)


def _pieces_of(value: Any) -> list[dict[str, Any]]:
    """The observations in a value of the file, with the API's names; in SDK 2's form also traces, without `traceId`."""
    match value:
        case {"resourceSpans": list()}:
            return [_of_span(span) for span in spans(value)]
        case {"batch": list(events)}:
            return [piece for event in objects(events) if (piece := _of_event(event))]
        case {"data": list(items)} | list(items):
            return [piece for item in objects(items) if "data" not in item for piece in _pieces_of(item)]
        case {"observations": list(observations)}:
            trace = {"traceId": value.get("id"), "sessionId": value.get("sessionId")}
            return [{**one, **trace} for one in objects(observations)]
        case {"traceId": _}:
            return [value]
    return []


def _has_pieces(value: Any) -> bool:
    names = {"resourceSpans", "batch", "data", "observations", "traceId"}
    return isinstance(value, list) or (isinstance(value, dict) and not names.isdisjoint(value))


def _of_event(event: Mapping[str, Any]) -> dict[str, Any] | None:
    """The observation, its update, or the trace in an event of SDK 2; None for any other event."""
    kind, _, verb = text_of(event.get("type")).rpartition("-")
    body = event.get("body")
    if not isinstance(body, dict) or verb not in ("create", "update"):
        return None
    if kind == "trace":
        return {"id": body.get("id"), "sessionId": body.get("sessionId")}
    return {"type": text_of(body.get("type")) or kind, **body} if kind != "score" else None


def _of_span(span: Mapping[str, Any]) -> dict[str, Any]:
    attributes = attributes_of(span)
    own = {
        name.removeprefix(_OBSERVATION): value for name, value in attributes.items() if name.startswith(_OBSERVATION)
    }
    return {
        "id": text_of(span.get("spanId")),
        "traceId": text_of(span.get("traceId")),
        "parentObservationId": text_of(span.get("parentSpanId")),
        "sessionId": text_of(attributes.get("session.id")),
        "type": text_of(own.get("type")),
        "input": _parsed(own.get("input")),
        "output": _parsed(own.get("output")),
        "model": own.get("model.name"),
        "usageDetails": structured(own.get("usage_details")),
        "startTime": time_of_nanoseconds(span.get("startTimeUnixNano")),
        "endTime": time_of_nanoseconds(span.get("endTimeUnixNano")),
    }


def _parsed(value: Any) -> Any:
    """A value, which may be JSON in a string."""
    parsed = structured(value)
    return parsed if isinstance(parsed, (dict, list)) else value


def _entries(recording: Recording) -> Iterator[Entry | Warned]:
    pieces = list(runs(recording, _TRACER))
    sessions: dict[str, str] = {}  # trace → its session, which SDK 2 may send only at the end
    for piece in pieces:
        if isinstance(piece, Record) and (session := text_in(piece.value, "sessionId")):
            sessions.setdefault(text_in(piece.value, "traceId") or piece.value["id"], session)
    observations = (piece for piece in pieces if isinstance(piece, Warned) or text_in(piece.value, "traceId"))
    for entry in entries(observations, _TRACER):
        if isinstance(entry, Warned):
            yield entry
        else:
            yield msgspec.structs.replace(entry[0], conversation=sessions.get(entry[0].trace, "")), entry[1]


def _run(observation: Mapping[str, Any]) -> Run:
    return Run(
        id=observation["id"],
        parent=text_in(observation, "parentObservationId"),
        kind=_KINDS.get(text_in(observation, "type").lower(), ""),
    )


def _call(observation: Mapping[str, Any]) -> Call:
    sent, received = _parsed(observation.get("input")), _parsed(observation.get("output"))
    system, messages = traced_messages.prompt(sent)
    reply, more = traced_messages.reply(received) if received else (None, 0)
    return Call(
        messages=messages,
        reply=reply,
        system=system,
        tools=traced_messages.definitions(sent, mapping(observation, "modelParameters")),
        model=text_of(observation.get("model")) or text_of(observation.get("providedModelName")),
        usage=traced_messages.usage(observation.get("usageDetails"), observation.get("usage")),
        time=text_of(observation.get("endTime")),
        left_out=f"{more} more choices in the response" if more else "",
    )


_FORM = traced_messages.form(FORMAT, "the inputs and outputs of generations may be masked, or left out of the export")
_TRACER = Tracer(
    holds=_has_pieces,
    split=_pieces_of,
    single="traceId",
    start=lambda piece: text_in(piece, "startTime"),
    sent="input",
    received="output",
    run=_run,
    call=_call,
    trace=lambda observation: text_in(observation, "traceId"),
    conversation=lambda _: "",  # `_entries` knows it
    none="the line has no observation",
    nameless="skipped: an observation without an id",
    unread="skipped: a generation whose messages are in a form that is not read",
)
