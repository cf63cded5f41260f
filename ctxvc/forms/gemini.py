"""Google's generateContent.

A message is a `content`: a role (`user`, `model`) and parts. Fields that only that form has go to `extra["gemini"]`: of
any part the other fields that it had, such as `thoughtSignature`, and `id`, the one that its call had where ours
differs (None: it had none); of the first part of a message `message`, its other fields. Names of fields may be written
`inlineData` or `inline_data`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message, Origin, Part, Role
from ctxvc.errors import BadInput
from ctxvc.forms import form, sse
from ctxvc.forms.calls import CallIds
from ctxvc.forms.origins import is_by_gemini_cli
from ctxvc.forms.values import annotated, digest, objects, text_of

NAME = "gemini"

_PATH = re.compile(r"/models/(?P<model>[^/:]+):")
_STOPS = {"STOP": "end_turn", "MAX_TOKENS": "max_tokens"}
_REFUSED = frozenset(
    {"SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY", "IMAGE_RECITATION"}
)
#: Names of fields in the other spelling.
_SNAKE = re.compile(r"_([a-z])")


def prompt(body: bytes, path: str = "") -> form.Prompt:
    """The model, and whether a stream is asked for, stand in the path. Raises: BadInput."""
    value = _fields(form.json_object(body, "request"))
    # For a Google account the request is an object within another, which has the model.
    request = _fields(value["request"]) if isinstance(value.get("request"), dict) else value
    contents = form.values_at(request, "contents")
    address = _PATH.search(path)
    settings = request.get("generationConfig")
    return form.Prompt(
        model=text_of(value.get("model")) or (address["model"] if address else ""),
        system=_system(request.get("systemInstruction")),
        tools=tuple(_tools(request.get("tools"))),
        messages=tuple(contents),
        prints=tuple(map(fingerprint, contents)),
        stream=":streamGenerateContent" in path,
        continues=text_of(request.get("cachedContent")),
        max_tokens=form.limit(_fields(settings).get("maxOutputTokens") if isinstance(settings, dict) else 0),
    )


def _system(instruction: Any) -> Any:
    parts = instruction.get("parts") if isinstance(instruction, dict) else instruction
    texts = [text for item in items(parts) if (text := text_of(item.get("text")))]
    return [{"type": "text", "text": text} for text in texts] if len(texts) > 1 else "".join(texts) or None


def _tools(tools: Any) -> Iterator[dict[str, Any]]:
    for tool in map(_fields, objects(tools)):
        for function in map(_fields, objects(tool.pop("functionDeclarations", None))):
            schema = function.pop("parametersJsonSchema", None) or function.pop("parameters", None)
            yield {**function, "input_schema": schema or {"type": "object", "properties": {}}}
        if tool:  # one that the provider runs
            yield tool


def reply(answer: bytes, *, stream: bool) -> form.Reply:
    """Raises: BadInput."""
    if sse.is_stream(answer, stream=stream):
        values = [event.value() for event in sse.events((answer,))]
    else:
        values = _values(answer)
    # For a Google account each response is an object within another.
    chunks = [inner if isinstance(inner := chunk.get("response"), dict) else chunk for chunk in objects(values)]
    if not chunks:
        raise BadInput("the answer holds no response")
    error = next(filter(None, map(form.error_text, chunks)), "")
    content, last = _assembled(chunks)
    messages = (content,) if content["parts"] else ()
    called = any("functionCall" in part for part in content["parts"])
    stop = "" if error else _stop(last, called=called)
    if not (messages or last or error):
        raise BadInput("the answer holds no response")
    return form.Reply(
        messages=messages,
        prints=tuple(map(fingerprint, messages)),
        id=text_of(last.get("responseId")),
        model=text_of(last.get("modelVersion")),
        usage=usage(last.get("usageMetadata")),
        stop=stop,
        whole=bool(stop),
        error=error,
    )


def _values(answer: bytes) -> list[Any]:
    """The JSON values of an answer: one, or the items of a list, which may be cut off."""
    text = answer.decode("utf-8", "replace").strip()
    if not text.startswith("["):
        return [form.json_object(answer, "answer")]
    values = []
    at, decoder = 1, json.JSONDecoder()
    while begin := _ITEM.match(text, at):
        try:
            value, at = decoder.raw_decode(text, begin.end())
        except (ValueError, RecursionError):
            break
        values.append(value)
    return values


_ITEM = re.compile(r"[\s,]*(?=\{)")


def _assembled(chunks: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The content of the first candidate, and the other fields of the response as the chunks left them."""
    parts: list[dict[str, Any]] = []
    texts: list[list[str]] = []  # of each part, in pieces
    last: dict[str, Any] = {}
    for chunk in map(_fields, chunks):
        candidates = [_fields(value) for value in objects(chunk.pop("candidates", None))]
        last.update({name: value for name, value in chunk.items() if value is not None})
        candidate = next((value for value in candidates if value.get("index", 0) == 0), {})
        if isinstance(reason := candidate.get("finishReason"), str):
            last["finishReason"] = reason
        content = candidate.get("content")
        for part in map(_fields, items(content.get("parts")) if isinstance(content, dict) else ()):
            if parts and _goes_on(parts[-1], part):
                texts[-1].append(part["text"])
            else:
                parts.append(part)
                texts.append([part["text"]] if isinstance(part.get("text"), str) else [])
    for part, pieces in zip(parts, texts, strict=True):
        if pieces:
            part["text"] = "".join(pieces)
    return {"role": "model", "parts": parts}, last


def _goes_on(before: dict[str, Any], part: dict[str, Any]) -> bool:
    """Whether a part is the next piece of a text; one with a signature stands for itself."""
    plain = ({"text"}, {"text", "thought"})
    is_text = before.keys() in plain and part.keys() in plain
    return (
        is_text
        and isinstance(before["text"], str)
        and isinstance(part["text"], str)
        and (before.get("thought") == part.get("thought"))
    )


def _stop(last: Mapping[str, Any], *, called: bool) -> str:
    """The Messages API's word for the end; empty if it did not come."""
    feedback = last.get("promptFeedback")
    if isinstance(feedback, dict) and _fields(feedback).get("blockReason"):
        return "refusal"
    reason = text_of(last.get("finishReason"))
    if not reason or reason == "FINISH_REASON_UNSPECIFIED":
        return ""
    stop = "refusal" if reason in _REFUSED else _STOPS.get(reason, "end_turn")
    return "tool_use" if called and stop == "end_turn" else stop


def usage(reported: Any) -> dict[str, int]:
    """Token counts under the names of the Messages API, which counts cached input by itself and thoughts as output."""
    if not isinstance(reported, dict):
        return {}
    value = _fields(reported)
    inputs = (value.get("promptTokenCount"), value.get("toolUsePromptTokenCount"))
    outputs = (value.get("candidatesTokenCount"), value.get("thoughtsTokenCount"))
    return counted_usage(inputs, value.get("cachedContentTokenCount"), outputs)


def counted_usage(inputs: Sequence[Any], cached: Any, outputs: Sequence[Any]) -> dict[str, int]:
    """The counts that are above zero, where the cached input is part of the inputs."""
    prompt, output = (sum(count for count in counts if type(count) is int) for counts in (inputs, outputs))
    cached = min(cached, prompt) if type(cached) is int else 0
    totals = {"input_tokens": prompt - cached, "cache_read_input_tokens": cached, "output_tokens": output}
    return {name: count for name, count in totals.items() if count > 0}


def reader() -> form.Reader:
    return form.Reader(Messages().message)


class Messages:
    """Reads one conversation's messages, in order: calls get ids that are unique in it, results find their calls."""

    def __init__(self) -> None:
        self._ids = CallIds()

    def message(self, value: Any) -> Message | str:
        """The message as one of ours, or why there is none."""
        if not isinstance(value, dict) or not isinstance(value.get("parts"), str | dict | list):
            return "it has no parts"
        role: Role = "assistant" if value.get("role") == "model" else "user"
        content = [_fields(item) for item in items(value["parts"])]
        if any("functionCall" in item for item in content):
            self._ids.begin()
        parts = [*self._parts(content, role)]
        if not parts:
            return "it is empty"
        if fields := {name: item for name, item in value.items() if name not in ("role", "parts")}:
            parts[0] = annotated(parts[0], "gemini", {"message": fields})
        return Message(role=role, parts=tuple(parts))

    def _parts(self, content: list[dict[str, Any]], role: Role) -> Iterator[Part]:
        for item, media in with_media(content):
            match item:
                case {"functionCall": {"name": str(name)} as call, **fields}:
                    call_id = self._ids.call(call.get("id"), name)
                    part = wire.call_part(name, call_id, wire.compact(call.get("args") or {}))
                    yield _noted(part, fields | _other_fields(call, call_id, "name", "args"))
                case {"functionResponse": dict(response), **fields}:
                    call_id, tool = self._ids.answered(response.get("id"), text_of(response.get("name")))
                    if not call_id:
                        yield Part(kind="other", role=role, origin="tool", body=wire.compact(item), ext="json")
                        continue
                    part = result(call_id, response, media, tool=tool)
                    yield _noted(part, fields | _other_fields(response, call_id, "name", "response", "parts"))
                case _:
                    by_client = is_by_gemini_cli(text_of(item.get("text")))
                    origin: Origin = "model" if role == "assistant" else "client" if by_client else "human"
                    yield from text_or_media(item, role, origin)


def _other_fields(value: Mapping[str, Any], call_id: str, *names: str) -> dict[str, Any]:
    """The fields of a call or a result besides these, its id only where it differs from ours."""
    fields = {name: item for name, item in value.items() if name not in (*names, "id")}
    return fields if value.get("id") == call_id else {**fields, "id": value.get("id")}


def _noted(part: Part, fields: dict[str, Any]) -> Part:
    return annotated(part, "gemini", fields) if fields else part


def text_or_media(item: dict[str, Any], role: Role, origin: Origin) -> list[Part]:
    """The part for one that is no call and no result; none for an empty text."""
    match item:
        case {"text": "", **fields} if not fields.keys() - {"thought"}:
            return []
        case {"text": str(text), "thought": True, **fields} if role == "assistant":
            return [_noted(wire.text_part(text, role, origin, kind="thinking"), fields)]
        case {"text": str(text), **fields}:
            return [_noted(wire.text_part(text, role, origin), fields)]
        case {"inlineData": dict(data), **fields} if block := media_block(data):
            return [_noted(wire.part(block, role, origin), fields)]
    return [Part(kind="other", role=role, origin=origin, body=wire.compact(item), ext="json")]


def items(parts: Any) -> list[dict[str, Any]]:
    """The parts of a content; they may be a text, a part or a list of both."""
    values = parts if isinstance(parts, list) else [parts]
    texts = ({"text": value} if isinstance(value, str) else value for value in values)
    return [value for value in texts if isinstance(value, dict)]


def with_media(content: Sequence[dict[str, Any]]) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """The parts, each result with the blocks of the pictures behind it: that is how a host hands over a file."""
    groups: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    media: list[dict[str, Any]] | None = None  # of the newest result
    for item in content:
        data = item.get("inlineData")
        if media is not None and isinstance(data, dict) and (block := media_block(data)):
            media.append(block)
            continue
        groups.append((item, []))
        if "functionResponse" in item:
            media = groups[-1][1]
    return groups


def result(call: str, response: Mapping[str, Any], media: Sequence[dict[str, Any]], *, tool: str) -> Part:
    """The result in a `functionResponse`, with the pictures in and behind it."""
    value = response.get("response")
    failed = isinstance(value, dict) and "error" in value
    match value:
        case {"error": str(body)} | {"output": str(body)}:
            pass
        case _:
            body = wire.compact(value).decode("utf-8", "replace")
    datas = [_fields(item).get("inlineData") for item in items(response.get("parts"))]
    blocks = [*(block for data in datas if isinstance(data, dict) and (block := media_block(data))), *media]
    if not blocks:
        return wire.result_part(body, call, tool=tool, error=failed)
    content = [{"type": "text", "text": body}, *blocks]
    block = {"type": "tool_result", "tool_use_id": call, "content": content, "is_error": failed}
    return msgspec.structs.replace(wire.part(block, "user", "tool"), tool=tool)


def media_block(data: Mapping[str, Any]) -> dict[str, Any] | None:
    """The Messages API's block for a picture or a PDF; None for what is neither."""
    match _fields(data):
        case {"mimeType": str(kind), "data": str(encoded)} if encoded and (
            kind.startswith("image/") or kind == "application/pdf"
        ):
            source = {"type": "base64", "media_type": kind, "data": encoded}
            return {"type": "image" if kind.startswith("image/") else "document", "source": source}
    return None


def fingerprint(content: Any) -> bytes:
    """Equal for two spellings of one content: a client may leave out thoughts and their signatures and the ids of
    calls, and put a reply's texts together."""
    if not isinstance(content, dict):
        return digest(content)
    role = content.get("role") or "user"
    meanings: list[Any] = []
    for part in map(_fields, items(content.get("parts"))):
        meaning = _meaning(part)
        is_text = role == "model" and meaning.keys() == {"text"}
        if is_text and meanings and isinstance(meanings[-1], list):
            meanings[-1].append(meaning["text"])
        elif meaning:
            meanings.append([meaning["text"]] if is_text else meaning)
    return digest([role, ["".join(map(text_of, one)) if isinstance(one, list) else one for one in meanings]])


def _meaning(part: dict[str, Any]) -> dict[str, Any]:
    """What tells a part from others; empty for a thought and a text without words."""
    if part.get("thought") is True or part.get("text") == "":
        return {}
    if isinstance(call := part.get("functionCall"), dict):
        return {"functionCall": [call.get("name"), call.get("args") or {}]}
    return {name: value for name, value in part.items() if value is not None and name not in _THOUGHTS}


_THOUGHTS = frozenset({"thought", "thoughtSignature"})


def _fields(value: Mapping[str, Any]) -> dict[str, Any]:
    """An object's fields, all in one spelling of their names."""
    return {_SNAKE.sub(_upper, name) if "_" in name else name: item for name, item in value.items()}


def _upper(match: re.Match[str]) -> str:
    return match[1].upper()
