"""A recording → spans of OpenTelemetry's conventions for generative AI, as OTLP JSON, one export request a line.

A scope is an `invoke_agent` with a `chat` for each reply and its prompt, and an `execute_tool` for each call of the
reply; a sub-agent's `invoke_agent` is below the call that started it. The names are those of
open-telemetry/semantic-conventions-genai, all still in development. Our importer also reads `ctxvc.summary` on the
first `chat` after a compaction, the indices of its summary in the prompt, and `ctxvc.input.added` on a `chat` without
its prompt, the messages since the reply before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import dropwhile, groupby, takewhile
from typing import Any, NamedTuple

from ctxvc.core import display
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.ledger import Row
from ctxvc.core.prompt.formats import block_of
from ctxvc.core.prompt.outline import Piece, Slot, outline, pieces
from ctxvc.exporters.conversation import Conversation, is_shared, provider_of
from ctxvc.exporters.exported import Exported, leading
from ctxvc.forms import elements
from ctxvc.forms.losses import Loss
from ctxvc.session.proof import as_sent
from ctxvc.store.read import revision
from ctxvc.store.read.revision import Entry, Reply, Snapshot

#: The bytes of all prompts, since each `chat` repeats the whole conversation: older ones have none. As many again are
#: for those of them that do not continue the prompt before.
_MOST_INPUT = 64_000_000
#: The deepest nesting of sub-agents.
_DEEPEST = 8
_INTERNAL, _CLIENT, _ERROR = 1, 3, 2
_COUNTS = {
    "cache_read_input_tokens": "gen_ai.usage.cache_read.input_tokens",
    "cache_creation_input_tokens": "gen_ai.usage.cache_creation.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
}
#: Providers that the conventions name differently.
_PROVIDERS = {"": "unknown", "google": "gcp.gemini", "mistral": "mistral_ai", "xai": "x_ai"}
_SCOPE = {"name": "ctxvc"}
#: States in which a block is in the prompt unchanged.
_PLAIN = frozenset({"visible", "pinned"})
#: Operations by which blocks leave the prompt.
_MAKING_ROOM = frozenset({"compact", "archive", "plan", "summarise"})


class _Step(NamedTuple):
    """A reply: its commit, its step, and whether there is room for its prompt."""

    entry: Entry
    step: int
    has_room: bool


class _Input(NamedTuple):
    """The attributes of a span on its request, and the blocks that they show."""

    attributes: dict[str, Any]
    blocks: set[str]


def export(conversation: Conversation) -> Exported:
    """The spans of the scope and its sub-agents. A span has the time of its step; durations are unknown."""
    losses = [Loss("spans.duration", "the time of the step")]
    trace = _digest(conversation.name, conversation.snapshot.commit)[:32]
    lines = list(_Scope(conversation, trace, "", losses).lines())
    return Exported(b"".join(wire.compact(line) + b"\n" for line in lines), tuple(losses))


class _Scope:
    """The spans of one scope, below the span `parent`, empty for none."""

    def __init__(self, conversation: Conversation, trace: str, parent: str, losses: list[Loss], depth: int = 0) -> None:
        self._conversation = conversation
        self._trace = trace
        self._parent = parent
        self._losses = losses
        self._depth = depth
        self._id = _digest(trace, conversation.name, "invoke_agent")[:16]
        source = conversation.ledger.meta.source
        self._hidden = {row.id for row in conversation.ledger.rows() if not is_shared(row)}
        self._places = {entry.commit: at for at, entry in enumerate(conversation.entries)}
        self._summaries: set[str] = set()
        self._room = _MOST_INPUT
        self._session = (source.id.partition("/")[0] if source else "") or conversation.snapshot.session

    def lines(self) -> Iterator[dict[str, Any]]:
        steps, seen = self._steps(), set[str]()
        replies = self._conversation.replies
        yield _line([self._agent_span(steps)])
        previous: _Step | None = None
        for step in steps:
            operations = self._operations(previous, step)
            sent = self._input(step, previous, operations)
            previous = step
            rows = self._conversation.ledger.of_step(step.step)
            reply = [row for row in rows if row.role == "assistant" and is_shared(row)]
            seen.update(sent.blocks, (row.id for row in reply))
            output = _reply([part for row in reply for part in _parts(self._conversation.piece(row))])
            attributes = dict(sent.attributes)
            if any(operation in _MAKING_ROOM for operation, _ in operations):
                attributes["gen_ai.conversation.compacted"] = True
            chat = self._chat_span(step, attributes, output, replies[step.step])
            results = {row.call: row for row in rows if row.kind == "tool_result" and is_shared(row)}
            calls = [row for row in reply if row.kind == "tool_use"]
            yield _line([chat, *(self._tool_span(step, row, results.get(row.call)) for row in calls)])
            for row in calls:
                yield from self._below(row)
        self._note_losses(seen)

    def _steps(self) -> list[_Step]:
        """The replies, oldest first; only the newest of many large prompts have room."""
        store, room = self._conversation.store, _MOST_INPUT
        steps = []
        for entry in self._conversation.entries:
            if entry.op != "step":
                continue
            number = store.reader.meta(entry.commit).counters.step
            rows = self._conversation.ledger.of_step(number)
            if not any(row.role == "assistant" and is_shared(row) for row in rows):
                continue
            if room > 0:
                room -= sum(slot.row.bytes for slot in self._sent(entry)[1])
            steps.append(_Step(entry, number, room > 0))
        return steps[::-1]

    def _sent(self, entry: Entry) -> tuple[Snapshot, list[Slot]]:
        """The prompt of a reply."""
        snapshot = as_sent(self._conversation.store, revision.at(self._conversation.store, entry.commit))
        return snapshot, [slot for slot in outline(snapshot.ledger) if slot.row.id not in self._hidden]

    def _input(self, step: _Step, previous: _Step | None, operations: set[tuple[str, str]]) -> _Input:
        """The prompt of a reply, as far as there is room for it."""
        if not step.has_room and previous and not operations and (added := self._added(step, previous)) is not None:
            messages = [message for message, _ in added]
            text = wire.compact(messages).decode()
            return _Input({"ctxvc.input.added": text}, {block for _, blocks in added for block in blocks})
        snapshot, slots = self._sent(step.entry)
        if not step.has_room:
            self._room -= sum(slot.row.bytes for slot in slots)
        if self._room < 0:
            self._losses.append(Loss(f"steps[{step.step}].input"))
            return _Input({}, set())
        sent = list(_messages(pieces(slots, snapshot.bodies)))
        attributes = {"gen_ai.input.messages": _json([message for message, _ in sent])}
        if ("compact", "host") in operations:
            written = {block for group in snapshot.ledger.groups.values() for block in group.summary}
            places = [at for at, (_, blocks) in enumerate(sent) if written.intersection(blocks) - self._summaries]
            self._summaries |= written
            attributes["ctxvc.summary"] = wire.compact(places).decode()
        return _Input(attributes, {block for _, blocks in sent for block in blocks})

    def _added(self, step: _Step, previous: _Step) -> list[tuple[dict[str, Any], tuple[str, ...]]] | None:
        """The messages between two replies, with their blocks; None if the prompt changed in other ways too."""
        store = self._conversation.store
        before, here = (revision.at(store, one.entry.commit) for one in (previous, step))
        rows = [
            *_behind_reply(here.ledger.of_step(previous.step)),
            *takewhile(_is_not_of_model, here.ledger.of_step(step.step)),
        ]
        if before.ledger.meta.cuts != here.ledger.meta.cuts or not all(row.state in _PLAIN for row in rows):
            return None
        return list(_messages([self._conversation.piece(row) for row in rows if row.id not in self._hidden]))

    def _operations(self, earlier: _Step | None, later: _Step) -> set[tuple[str, str]]:
        """The operations between two replies, each with its actor."""
        places = self._places
        start, end = places[later.entry.commit], places[earlier.entry.commit] if earlier else len(places)
        trailers = (entry.trailers for entry in self._conversation.entries[start + 1 : end])
        return {(one.get("Ctxvc-Op", ""), one.get("Ctxvc-Actor", "")) for one in trailers}

    # --- spans

    def _span(
        self, name: str, key: str, parent: str, time: int, kind: int, attributes: Mapping[str, Any]
    ) -> dict[str, Any]:
        span = {
            "traceId": self._trace,
            "spanId": _digest(self._trace, self._conversation.name, key)[:16],
            "parentSpanId": parent,
            "name": name,
            "kind": kind,
            "startTimeUnixNano": str(max(time, 0) * 1_000_000_000),
            "endTimeUnixNano": str(max(time, 0) * 1_000_000_000),
            "attributes": [_attribute(name, value) for name, value in attributes.items() if value not in ("", None)],
        }
        return span if parent else {name: value for name, value in span.items() if name != "parentSpanId"}

    def _agent_span(self, steps: Sequence[_Step]) -> dict[str, Any]:
        conversation = self._conversation
        usage = _usage([conversation.replies[step.step] for step in steps])
        times = [step.entry.time for step in steps] or [0]
        name = conversation.snapshot.scope if self._parent else conversation.agent or "agent"
        attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": _provider(conversation.ledger.meta.model),
            "gen_ai.agent.name": name,
            "gen_ai.conversation.id": self._session,
            "gen_ai.request.model": conversation.ledger.meta.model,
            **usage,
            "gen_ai.system_instructions": _json(list(map(_text, conversation.system_texts))),
            "gen_ai.tool.definitions": _json(_definitions(conversation.tools)),
            "ctxvc.scope": conversation.name,
            "ctxvc.commit": conversation.snapshot.commit,
            "ctxvc.title": display.one_line(conversation.title, 200),
        }
        span = self._span(f"invoke_agent {name}", "invoke_agent", self._parent, times[0], _INTERNAL, attributes)
        return {**span, "endTimeUnixNano": str(max(*times, 0) * 1_000_000_000)}

    def _chat_span(self, step: _Step, sent: Mapping[str, Any], output: dict[str, Any], facts: Reply) -> dict[str, Any]:
        model = facts.model or self._conversation.ledger.meta.model
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": _provider(model),
            "gen_ai.request.model": model,
            "gen_ai.response.model": facts.model,
            "gen_ai.conversation.id": self._session,
            "gen_ai.response.finish_reasons": [output["finish_reason"]],
            **_usage([facts]),
            "gen_ai.system_instructions": _json(list(map(_text, self._conversation.system_texts))),
            **sent,
            "gen_ai.output.messages": _json([output]),
            "ctxvc.commit": step.entry.commit,
        }
        key = f"chat {step.entry.commit}"
        return self._span(f"chat {model or 'unknown'}", key, self._id, step.entry.time, _CLIENT, attributes)

    def _tool_span(self, step: _Step, call: Row, result: Row | None) -> dict[str, Any]:
        conversation = self._conversation
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.tool,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": call.call,
            "gen_ai.conversation.id": self._session,
            "gen_ai.tool.call.arguments": display.decode(conversation.snapshot.bodies.body(call)),
            "gen_ai.tool.call.result": _json(_response(conversation.piece(result))) if result else "",
            "error.type": "tool_error" if result and result.error else "",
        }
        span = self._span(
            f"execute_tool {call.tool}", f"call {call.id}", self._id, step.entry.time, _INTERNAL, attributes
        )
        return {**span, "status": {"code": _ERROR}} if result and result.error else span

    def _below(self, call: Row) -> Iterator[dict[str, Any]]:
        """The spans of the sub-agents that a call started."""
        parent = _digest(self._trace, self._conversation.name, f"call {call.id}")[:16]
        for scope, subagent in self._conversation.subagents.items():
            if subagent.task != call.call or not call.call:
                continue
            if self._depth >= _DEEPEST:
                self._losses.append(Loss(f"scopes.{scope}"))
                continue
            below = self._conversation.subagent(scope)
            own: list[Loss] = []
            yield from _Scope(below, self._trace, parent, own, self._depth + 1).lines()
            self._losses += (Loss(f"scopes.{scope}.{loss.path}", loss.change) for loss in own)

    def _note_losses(self, seen: set[str]) -> None:
        started = {row.call for row in self._conversation.ledger.rows() if row.kind == "tool_use"}
        for scope, subagent in self._conversation.subagents.items():
            if subagent.task not in started:
                self._losses.append(Loss(f"scopes.{scope}"))
        recorded = [piece for message in self._conversation.messages() for _, piece in message.pieces]
        self._losses += leading(recorded)
        for row in self._conversation.ledger.rows():
            if row.id not in seen:
                self._losses.append(Loss(row.id, "the span of its call" if row.kind == "tool_result" else ""))
            else:
                self._losses += _losses(self._conversation.piece(row))


def _is_not_of_model(row: Row) -> bool:
    return row.role != "assistant"


def _behind_reply(rows: Sequence[Row]) -> list[Row]:
    """The rows after the reply in a step: its results."""
    return [row for row in dropwhile(_is_not_of_model, rows) if _is_not_of_model(row)]


def _line(spans: list[dict[str, Any]]) -> dict[str, Any]:
    resource = {"attributes": [_attribute("service.name", "ctxvc")]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": _SCOPE, "spans": spans}]}]}


def _attribute(name: str, value: Any) -> dict[str, Any]:
    return {"key": name, "value": _any_value(value)}


def _any_value(value: Any) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case list():
            return {"arrayValue": {"values": [_any_value(item) for item in value]}}
    return {"stringValue": str(value)}


def _json(value: Any) -> str:
    """A value as JSON for an attribute; empty for an empty value."""
    return wire.compact(value).decode() if value else ""


def _digest(*values: str) -> str:
    return hashlib.sha256("\0".join(values).encode()).hexdigest()


def _provider(model: str) -> str:
    provider = provider_of(model)
    return _PROVIDERS.get(provider, provider)


def _usage(replies: Sequence[Reply]) -> dict[str, int]:
    """The sums of token counts; input tokens include cached ones here."""
    total: dict[str, int] = {}
    for reply in replies:
        for name, attribute in _COUNTS.items():
            if name in reply.usage:
                total[attribute] = total.get(attribute, 0) + reply.usage[name]
        if "input_tokens" in reply.usage:
            cached = sum(reply.usage.get(name, 0) for name in _COUNTS if name != "output_tokens")
            count = reply.usage["input_tokens"] + cached
            total["gen_ai.usage.input_tokens"] = total.get("gen_ai.usage.input_tokens", 0) + count
    return total


# --- messages and their parts


def _definitions(tools: Any) -> list[dict[str, Any]]:
    functions = map(elements.function, tools or ())
    return [{"type": "function", **tool["function"]} for tool in functions if tool and "function" in tool]


def _messages(content: Sequence[Piece]) -> Iterator[tuple[dict[str, Any], tuple[str, ...]]]:
    """The messages, with results in messages of their own, each with the blocks that it shows."""
    for (_, role, is_result), group in groupby(content, _place):
        together = list(group)
        if parts := [part for piece in together for part in _parts(piece)]:
            message = _reply(parts) if role == "assistant" else {"role": "tool" if is_result else role, "parts": parts}
            yield message, tuple(piece.block for piece in together)


def _reply(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """A reply, identical as an output and in later prompts, so that readers can match them."""
    called = any(part["type"] == "tool_call" for part in parts)
    return {"role": "assistant", "parts": parts, "finish_reason": "tool_call" if called else "stop"}


def _place(piece: Piece) -> tuple[int, str, bool]:
    return piece.message, piece.role, piece.kind == "tool_result"


def _parts(piece: Piece) -> list[dict[str, Any]]:
    match piece.kind:
        case "thinking":
            return [] if piece.ext == "json" else [{"type": "reasoning", "content": display.decode(piece.body)}]
        case "tool_use":
            arguments = wire.parsed(piece.body, dict)
            written = display.decode(piece.body) if arguments is None else arguments
            return [{"type": "tool_call", "id": piece.call, "name": piece.tool, "arguments": written}]
        case "tool_result":
            return [{"type": "tool_call_response", "id": piece.call, "response": _response(piece)}]
    return [_part(block_of(piece))]


def _response(piece: Piece) -> Any:
    """A result's text, or the list of its parts."""
    if wire.items(piece.body, piece.extra) is None:
        return display.decode(piece.body)
    return [_part(item) for item in block_of(piece).get("content", [])]


def _part(block: Any) -> dict[str, Any]:
    """The part for a content block; one of an unknown type is unchanged."""
    match block:
        case {"type": "text", "text": str(text)}:
            return _text(text)
        case {"type": "image" | "document" as kind, "source": dict(source)}:
            return _media(kind, source) or block
        case {"type": str()}:
            return dict(block)
    return _text(block if isinstance(block, str) else wire.compact(block).decode())


def _media(kind: str, source: Mapping[str, Any]) -> dict[str, Any] | None:
    match source:
        case {"type": "base64", "media_type": str(media), "data": str(data)}:
            return {"type": "blob", "modality": kind, "mime_type": media, "content": data}
        case {"type": "url", "url": str(url)}:
            return {"type": "uri", "modality": kind, "uri": url}
        case {"type": "file", "file_id": str(file)}:
            return {"type": "file", "modality": kind, "file_id": file}
    return None


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "content": text}


def _losses(piece: Piece) -> Iterator[Loss]:
    if piece.kind == "thinking" and piece.ext == "json":
        yield Loss(piece.block)
    elif piece.kind == "thinking" and piece.extra.get("signature"):
        yield Loss(f"{piece.block}.signature")
    elif piece.kind == "tool_result":
        if piece.error:
            yield Loss(f"{piece.block}.is_error", "the status of its span")
        if wire.items(piece.body, piece.extra) is not None:
            yield Loss(f"{piece.block}.content", "a list of parts")
