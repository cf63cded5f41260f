"""Gemini's `generateContent`: requests and replies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message, Part, Role
from ctxvc.core.recording.usage import sound
from ctxvc.errors import BadInput
from ctxvc.forms import sse
from ctxvc.forms.form import Prompt, Reply, facts, json_object
from ctxvc.forms.gemini_edit import edited, items, layout, media_block, own, results, role, spliced, tool
from ctxvc.forms.origins import is_by_client
from ctxvc.forms.values import digest, objects, text_of

__all__ = ["NAME", "edited", "layout", "own", "prompt", "reader", "reply", "results", "role", "spliced", "tool"]

NAME = "gemini"

_COUNTS = ("promptTokenCount", "cachedContentTokenCount", "candidatesTokenCount", "thoughtsTokenCount")
_STOPS = {"STOP": "end_turn", "MAX_TOKENS": "max_tokens"}
#: The beginnings of texts that Gemini CLI adds under the role of the user.
_CLIENTS = ("<session_context>", "<hook_context>", "This is the Gemini CLI")


def prompt(body: bytes) -> Prompt:
    """The prompt in a request's body. Raises: BadInput."""
    request = json_object(body, "the request")
    contents = request.get("contents")
    contents = [contents] if isinstance(contents, dict) else contents
    if not isinstance(contents, list):
        raise BadInput("the request has no contents")
    system = request.get("systemInstruction") or request.get("system_instruction")
    parts = [system] if isinstance(system, str) else items(system.get("parts") if isinstance(system, dict) else None)
    return Prompt(
        model=text_of(request.get("model")),
        system=[{"type": "text", "text": part["text"]} for part in items(parts) if isinstance(part.get("text"), str)],
        tools=tuple(_tools(request)),
        messages=tuple(contents),
        prints=tuple(map(fingerprint, contents)),
    )


def reply(answer: bytes, *, stream: bool) -> Reply:
    """The first candidate of an answer as the reply; a body may be an array of pieces. Raises: BadInput."""
    pieces = [event for _, event in sse.events(answer)] if stream else objects(_values(answer))
    content: list[dict[str, Any]] = []
    model = reply_id = reason = error = ""
    used: Any = None
    for piece in pieces:
        model, reply_id = text_of(piece.get("modelVersion")) or model, text_of(piece.get("responseId")) or reply_id
        used = piece.get("usageMetadata") or used
        error = repr(piece["error"])[:500] if piece.get("error") else error
        candidate = next(iter(objects(piece.get("candidates"))), {})
        reason = text_of(candidate.get("finishReason")) or reason
        part = candidate.get("content")
        for item in items(part.get("parts") if isinstance(part, dict) else None):
            _join(content, item)
    if not content and not reason:
        raise BadInput(f"the answer has no reply{f': {error}' if error else ''}")
    repeated = {"role": "model", "parts": content}
    calls = any("functionCall" in item for item in content)
    return Reply(
        messages=(repeated,) if content else (),
        prints=(fingerprint(repeated),) if content else (),
        id=reply_id,
        model=model,
        usage=usage(used),
        stop="tool_use" if calls and reason == "STOP" else _STOPS.get(reason, "refusal" if reason else ""),
        complete=bool(reason) and not error,
        error=error,
    )


class _Reader:
    """Gives calls ids, which replies lack and clients make up for the next request: ours depend on the call alone.

    A result is matched to its call by the client's id if the call has one by then, else by the tool.
    """

    def __init__(self) -> None:
        self._count: dict[str, int] = {}
        self._ids: dict[str, str] = {}  # the client's id of a call → ours
        self._unanswered: dict[str, list[str]] = {}  # tool → calls of the newest reply without a result

    def messages(self, values: Sequence[Any], reply: Reply | None = None) -> list[Message]:
        about = facts(reply)
        messages = []
        for value in values:
            content = items(value.get("parts") if isinstance(value, dict) else None)
            is_models = isinstance(value, dict) and value.get("role") == "model"
            speaker: Role = "assistant" if is_models else "user"
            if parts := self._reply(content) if is_models else self._incoming(content):
                messages.append(about.message(speaker, parts))
        return messages

    def _reply(self, content: Sequence[dict[str, Any]]) -> tuple[Part, ...]:
        self._unanswered = {}
        parts = []
        for item in content:
            match item:
                case {"functionCall": {"name": str(name)} as call}:
                    arguments = wire.compact(call.get("args", {}))
                    part = wire.call_part(name, self._id(name, arguments, text_of(call.get("id"))), arguments)
                case {"text": str(value)}:
                    kind: Any = "thinking" if item.get("thought") is True else None
                    part = wire.text_part(value, "assistant", "model", kind=kind)
                case _:
                    part = wire.other_part(item, "assistant", "model")
            parts.append(part)
        return tuple(part for part in parts if part.body)

    def _incoming(self, content: Sequence[dict[str, Any]]) -> tuple[Part, ...]:
        content_here = [self._with_id(item) for item in content]
        parts = result_parts(content_here)
        after_result = False
        for item in content_here:
            match item:
                case {"functionResponse": _}:
                    after_result = True
                case {"text": str(value)}:
                    is_clients = value.startswith(_CLIENTS) or is_by_client(value)
                    parts += [wire.text_part(value, "user", "client" if is_clients else "human")] if value else []
                case {"inlineData": dict(media)} if block := media_block(media):
                    parts += [] if after_result else [wire.part(block, "user", "human")]
                case _:
                    parts.append(wire.other_part(item, "user", "human"))
        return tuple(parts)

    def _with_id(self, item: dict[str, Any]) -> dict[str, Any]:
        """A result with our id of its call; any other part unchanged."""
        match item:
            case {"functionResponse": dict(response)}:
                name = text_of(response.get("name"))
                unanswered = self._unanswered.get(name, [])
                call = self._ids.get(text_of(response.get("id"))) or next(iter(unanswered), "")
                if call in unanswered:
                    unanswered.remove(call)
                return {"functionResponse": {**response, "id": call}} if call else item
        return item

    def _id(self, name: str, arguments: bytes, original_id: str) -> str:
        """The id of a call, the same in every request that repeats it."""
        stem = f"{name}-{digest([name, arguments.hex()]).hex()[:8]}"
        number = self._count[stem] = self._count.get(stem, 0) + 1
        own = stem if number == 1 else f"{stem}-{number}"
        self._unanswered.setdefault(name, []).append(own)
        if original_id:
            self._ids[original_id] = own
        return own


reader = _Reader


def fingerprint(content: Any) -> bytes:
    """A checksum that a reply shares with its repetition in a later request, with its thoughts or without."""
    if not isinstance(content, dict):
        return digest(content)
    parts: list[dict[str, Any]] = []
    for item in items(content.get("parts")):
        if item.get("thought") is not True:
            _join(parts, {name: value for name, value in item.items() if name != "thoughtSignature"})
    return digest([content.get("role", "user"), parts])


def usage(tokens: Any, names: Sequence[str] = _COUNTS) -> dict[str, int]:
    """Token counts under the Messages API's names: `input_tokens` exclude cached input, output includes thoughts.

    `names` are the fields with the tokens of the prompt, of its cached part, of the answer and of thoughts.
    """
    fields = tokens if isinstance(tokens, dict) else {}
    counts = sound({name: fields[name] for name in names if type(fields.get(name)) is int})
    sent, cached, answered, thought = (counts.get(name, 0) for name in names)
    cached = min(cached, sent)
    totals = {"input_tokens": sent - cached, "cache_read_input_tokens": cached, "output_tokens": answered + thought}
    return {name: count for name, count in totals.items() if count > 0}


def _join(parts: list[dict[str, Any]], item: dict[str, Any]) -> None:
    """Adds a part; a text that continues the newest part is joined to it."""
    newest = parts[-1] if parts else {}
    goes_on = set(item) <= {"text", "thought"} and "text" in newest and newest.get("thought") == item.get("thought")
    if goes_on and isinstance(item.get("text"), str) and isinstance(newest["text"], str):
        parts[-1] = {**newest, "text": newest["text"] + item["text"]}
    elif item != {"text": ""}:
        parts.append(item)


def _values(answer: bytes) -> list[Any]:
    """The pieces of a body: the one value, or the items of an array, which may be cut off."""
    try:
        value = wire.parse(answer)
    except ValueError as error:
        cut = answer.rpartition(b"\n,")[0] or answer.rpartition(b"},")[0] + b"}"
        value = wire.parsed(cut + b"]", list)
        if value is None:
            raise BadInput(f"the answer is not JSON: {error}") from error
    return value if isinstance(value, list) else [value]


def _tools(request: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    for entry in objects(request.get("tools")):
        declared = objects(entry.get("functionDeclarations") or entry.get("function_declarations"))
        for function in declared:
            schema = function.get("parametersJsonSchema") or function.get("parameters") or {"type": "object"}
            yield {
                "name": text_of(function.get("name")),
                "description": text_of(function.get("description")),
                "input_schema": schema,
            }
        if not declared:
            yield {"type": next(iter(entry), "unknown"), **entry}


def result_parts(content: Any) -> list[Part]:
    """The results in a `content`, each with the pictures inside and after it, which are what the tool read."""
    if isinstance(content, str):
        return []
    answers: list[tuple[str, dict[str, Any], list[dict[str, Any]]]] = []
    for item in items(content):
        match item:
            case {"functionResponse": {"id": str(call)} as response} if call:
                nested = [part.get("inlineData") for part in items(response.get("parts"))]
                blocks = [media_block(media) for media in nested if isinstance(media, dict)]
                answers.append((call, response, [block for block in blocks if block]))
            case {"inlineData": dict(media)} if answers and (block := media_block(media)):
                answers[-1][2].append(block)
    return [_result(call, response, blocks) for call, response, blocks in answers]


def _result(call: str, response: Mapping[str, Any], media: list[dict[str, Any]]) -> Part:
    value, name = response.get("response"), text_of(response.get("name"))
    failed = isinstance(value, dict) and "error" in value
    match value:
        case {"error": str(body)} | {"output": str(body)}:
            pass
        case _:
            body = wire.compact(value).decode("utf-8", "replace")
    content = [{"type": "text", "text": body}, *media] if media else body
    return wire.result_part(content, call, tool=name, error=failed)
