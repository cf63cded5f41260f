"""Messages of Pydantic AI in the Messages API's form, and back."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from ctxvc.agent.loop import INTERRUPTED
from ctxvc.core.ledger import wire
from ctxvc.core.prompt.request import canonical
from ctxvc.forms.usage import token_counts
from ctxvc.integrations.conversation import FrameworkMessage, Sent

Block = dict[str, Any]

#: A signature for thinking that has none of its own: what has none is not sent back.
_UNSIGNED = "pydantic-ai:"


class Names:
    """Names for messages and parts, the same in each list that they stand in: most have no id."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def of(self, content: Any) -> str:
        """The name of what has this content; what comes again has another."""
        key = hashlib.sha256(canonical(content)).hexdigest()[:24]
        self._counts[key] += 1
        return key if self._counts[key] == 1 else f"{key}~{self._counts[key]}"


def framework_messages(messages: Iterable[ModelMessage], names: Names) -> Iterator[FrameworkMessage[Any]]:
    """What a conversation takes: a reply as it is, each part of a request on its own. System prompts stay outside."""
    for message in messages:
        if isinstance(message, ModelResponse):
            if framework_message := _reply(message, names):
                yield framework_message
            continue
        first: list[Any] = []  # parts that are recorded with the one behind them
        is_begun = False
        for part in message.parts:
            if isinstance(part, SystemPromptPart):
                first.append(part)
                continue
            yield _part(message, [*first, part], names, begins=not is_begun)
            first, is_begun = [], True


def interrupted(call: str, tool: str) -> FrameworkMessage[Any]:
    """The return of a call that was not run to its end."""
    (message,) = framework_messages([ModelRequest(parts=[ToolReturnPart(tool, INTERRUPTED, call)])], Names())
    return message


def _part(request: ModelRequest, parts: Sequence[Any], names: Names, *, begins: bool) -> FrameworkMessage[Any]:
    *_, part = parts
    [dumped] = _dumped([replace(request, parts=list(parts))])
    origin: Any = "client"
    match part:
        case ToolReturnPart():
            text = part.model_response_str()
            block: Block = {"type": "tool_result", "tool_use_id": part.tool_call_id, "content": text}
            if getattr(part, "outcome", "success") != "success":
                block["is_error"] = True
            content, name = [block], names.of(["result", part.tool_call_id])
        case RetryPromptPart() if part.tool_name:
            text = part.model_response()
            block = {"type": "tool_result", "tool_use_id": part.tool_call_id, "content": text, "is_error": True}
            content, name = [block], names.of(["result", part.tool_call_id])
        case UserPromptPart():
            items = [part.content] if isinstance(part.content, str) else part.content
            content = [_user_block(item) for item in items] or [_text("[empty]")]
            text, origin = content[0].get("text", ""), "human"
            name = names.of(content)
        case _:
            response = getattr(part, "model_response", None)
            text = response() if callable(response) else _json(dumped["parts"][-1])
            content = [_text(text)]
            name = names.of(content)
    match dumped["parts"][-1]:
        case {"content": str(own)} as fields if own == text:
            del fields["content"]
        case {"part_kind": "user-prompt", "content": list(items)} as fields:
            fields["content"] = [_hollow(item, block) for item, block in zip(items, content, strict=False)]
    parts_of_it = dumped.pop("parts")
    return FrameworkMessage(
        id=name,
        message={"role": "user", "content": content},
        source=part,
        origin=origin,
        record={"request": dumped if begins else {}, "parts": parts_of_it, "begins": begins},
    )


def _reply(response: ModelResponse, names: Names) -> FrameworkMessage[Any] | None:
    [dumped] = _dumped([response])
    blocks: list[Block] = []
    for part, fields in zip(response.parts, dumped["parts"], strict=True):
        block = _reply_block(part, fields)
        blocks.append(block)
        if isinstance(part, TextPart | ThinkingPart):
            fields.pop("content", None)
        elif isinstance(part, ToolCallPart):
            fields.pop("args", None)
    if not blocks:
        return None
    used = response.usage
    usage = token_counts(used.input_tokens, used.cache_read_tokens, used.cache_write_tokens, used.output_tokens)
    calls = [part.tool_call_id for part in response.parts if isinstance(part, ToolCallPart)]
    return FrameworkMessage(
        id=names.of(["reply", calls[0]] if calls else blocks),
        message={"role": "assistant", "content": blocks, "usage": usage},
        source=response,
        origin="client",
        record={"response": dumped},
    )


def _reply_block(part: Any, fields: Mapping[str, Any]) -> Block:
    match part:
        case TextPart():
            return _text(part.content)
        case ThinkingPart():
            signature = part.signature or _UNSIGNED
            return {"type": "thinking", "thinking": part.content, "signature": signature}
        case ToolCallPart():
            try:
                arguments = part.args_as_dict()
            except ValueError:  # no JSON: the agent answers it with a retry
                arguments = {"arguments": str(part.args)}
            return {"type": "tool_use", "id": part.tool_call_id, "name": part.tool_name, "input": arguments}
    return _text(_json(fields))


def _user_block(item: Any) -> Block:
    match item:
        case str():
            return _text(item)
        case BinaryContent() if item.is_image:
            source = {"type": "base64", "media_type": item.media_type, "data": item.base64}
            return {"type": "image", "source": source}
        case ImageUrl():
            return {"type": "image", "source": {"type": "url", "url": item.url}}
    [dumped] = _dumped([ModelRequest(parts=[UserPromptPart([item])])])
    return _text(_json(dumped["parts"][0]["content"][0]))


def _text(value: str) -> Block:
    return {"type": "text", "text": value}


def _json(value: Any) -> str:
    return wire.compact(value).decode()


def _dumped(messages: list[ModelMessage]) -> list[dict[str, Any]]:
    dumped: list[dict[str, Any]] = ModelMessagesTypeAdapter.dump_python(messages, mode="json")
    return dumped


def model_messages(
    prompt: Sequence[Sent[Any]], prompts: Sequence[SystemPromptPart], instructions: str | None
) -> list[ModelMessage]:
    """The prompt as messages of Pydantic AI: the agent's own where they say the same."""
    messages: list[ModelMessage] = []
    parts: list[Any] = list(prompts)
    for sent in prompt:
        if sent.message["role"] == "assistant":
            if parts:
                messages.append(ModelRequest(parts=parts, instructions=instructions))
                parts = []
            messages.append(sent.source or _response(sent))
        else:
            parts.append(sent.source or _request_part(sent))
    return [*messages, ModelRequest(parts=parts, instructions=instructions)] if parts else messages


def _request_part(sent: Sent[Any]) -> Any:
    blocks = sent.message["content"]
    if blocks[0]["type"] != "tool_result":
        content = [_user_content(block) for block in blocks]
        return UserPromptPart(content[0] if len(content) == 1 and isinstance(content[0], str) else content)
    result = blocks[0]
    text = "\n\n".join(str(item.get("text", "")) for item in result.get("content", ()))
    basis = sent.basis
    if isinstance(basis, ToolReturnPart):
        return replace(basis, content=text)
    tool = basis.tool_name if isinstance(basis, RetryPromptPart) and basis.tool_name else "unknown"
    return ToolReturnPart(tool, text, result["tool_use_id"])


def _user_content(block: Mapping[str, Any]) -> Any:
    match block:
        case {"type": "image", "source": {"type": "base64", "media_type": str(media), "data": str(data)}}:
            return BinaryContent.from_data_uri(f"data:{media};base64,{data}")
        case {"type": "image", "source": {"type": "url", "url": str(url)}}:
            return ImageUrl(url)
    return str(block.get("text", ""))


def _response(sent: Sent[Any]) -> ModelResponse:
    """A reply of which something left: parts that stay are the agent's own."""
    basis = sent.basis if isinstance(sent.basis, ModelResponse) else ModelResponse(parts=[])
    fields = _dumped([basis])[0]["parts"]
    own = {canonical(_reply_block(part, dumped)): part for part, dumped in zip(basis.parts, fields, strict=True)}
    parts = []
    for block in sent.message["content"]:
        match block:
            case _ if part := own.get(canonical(block)):
                parts.append(part)
            case {"type": "tool_use", "id": str(call), "name": str(name), "input": dict(arguments)}:
                parts.append(ToolCallPart(name, arguments, call))
            case {"type": "text", "text": str(text)}:
                parts.append(TextPart(text))
    return replace(basis, parts=parts)


def restored(records: Iterable[tuple[dict[str, Any], Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Messages as they were dumped, from what is recorded of them."""
    messages: list[dict[str, Any]] = []
    for message, record in records:
        blocks = message["content"]
        if isinstance(response := record.get("response"), dict):
            parts = [_filled(fields, block) for fields, block in zip(response["parts"], blocks, strict=False)]
            messages.append({**response, "parts": parts})
            continue
        recorded = record.get("parts")
        if not isinstance(recorded, list) or not recorded:
            continue
        fields = {"content": "\n\n".join(_texts(blocks)), **recorded[-1]}
        if isinstance(items := fields["content"], list) and fields["part_kind"] == "user-prompt":
            fields["content"] = [_filled_item(item, block) for item, block in zip(items, blocks, strict=False)]
        parts = [*recorded[:-1], fields]
        if record.get("begins") or not messages or messages[-1]["kind"] != "request":
            messages.append({"kind": "request", **record.get("request", {}), "parts": parts})
        else:
            messages[-1]["parts"] += parts
    return messages


def _hollow(item: Any, block: Block) -> Any:
    """An item of what a person said, as it was dumped, without what its block says."""
    if isinstance(item, str):
        return ""
    if block["type"] == "image" and "data" in item:
        return {name: value for name, value in item.items() if name != "data"}
    return item


def _filled_item(item: Any, block: Mapping[str, Any]) -> Any:
    match item, block:
        case "", {"type": "text", "text": str(text)}:
            return text
        case dict(), {"type": "image", "source": {"data": str(data)}}:
            return {**item, "data": data}
    return item


def _texts(blocks: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for block in blocks:
        if block["type"] == "tool_result":
            yield from _texts(block.get("content") or ())
        else:
            yield str(block.get("text", ""))


def _filled(fields: Mapping[str, Any], block: Mapping[str, Any]) -> dict[str, Any]:
    """A part of a reply with what its block says."""
    match block["type"]:
        case "text" if fields["part_kind"] == "text":
            return {**fields, "content": block["text"]}
        case "thinking":
            return {**fields, "content": block["thinking"]}
        case "tool_use":
            return {**fields, "args": block["input"]}
    return dict(fields)
