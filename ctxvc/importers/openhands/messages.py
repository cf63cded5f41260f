"""What a model is sent for an event of OpenHands: what `to_llm_message` of its class in the SDK makes of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message, Origin, Part
from ctxvc.forms import elements
from ctxvc.forms.values import objects, taken_over, text_of
from ctxvc.importers.documents import mapping

#: Stands before what a tool gave back when it failed.
_FAILED = "[An error occurred during execution.]\n"


class Messages:
    """Reads the messages of one conversation. `usage` are the provider's counts by its ids of replies.

    `by_agent`: the conversation is a sub-agent's, and the user in it another agent.
    """

    def __init__(self, model: str, usage: Mapping[str, dict[str, int]], note: Any = None, *, by_agent: bool) -> None:
        self._model = model
        self._usage = usage
        self._note = note
        self._by_agent = by_agent
        self._tools: dict[str, str] = {}  # call → tool

    def message(self, kind: str, event: dict[str, Any], key: str) -> Message | str:
        """The message of an event, or why there is none."""
        reply = text_of(event.get("llm_response_id"))
        if kind == "MessageEvent":
            inner = mapping(event, "llm_message")
            is_reply = inner.get("role") == "assistant"
            parts = [*_reasoning(inner), *_content(inner.get("content"), is_reply, self._maker(event))]
            parts += _content(event.get("extended_content"), is_reply, "client")
        elif kind == "ActionEvent":
            is_reply = True
            parts = [*_reasoning(event), *_content(event.get("thought"), True, "model")]
            call = self._call(event)
            if call is None:
                return "its call has no name or id"
            parts += taken_over([call], self._note)
        else:
            is_reply = False
            parts = self._result(kind, event)
        if not parts:
            return "it is empty"
        return Message(
            role="assistant" if is_reply else "user",
            parts=tuple(parts),
            key=key,
            reply=reply if is_reply else "",
            time=text_of(event.get("timestamp")),
            model=self._model if is_reply else "",
            usage=self._usage.get(reply, {}) if is_reply else {},
        )

    def _maker(self, event: dict[str, Any]) -> Origin:
        source = text_of(event.get("source"))
        if source == "agent":
            return "model"
        by_program = self._by_agent or source in ("environment", "hook") or bool(text_of(event.get("sender")))
        return "client" if by_program else "human"

    def _call(self, event: dict[str, Any]) -> Part | None:
        call = mapping(event, "tool_call")
        inner = mapping(call, "function") or call
        identifier = text_of(call.get("id")) or text_of(event.get("tool_call_id"))
        name = text_of(inner.get("name")) or text_of(event.get("tool_name"))
        if not identifier or not name:
            return None
        self._tools[identifier] = name
        return wire.call_part(name, identifier, inner.get("arguments", {}))

    def _result(self, kind: str, event: dict[str, Any]) -> list[Part]:
        call = text_of(event.get("tool_call_id"))
        tool = self._tools.get(call) or text_of(event.get("tool_name"))
        if not call:
            return []
        if kind == "AgentErrorEvent":
            return [wire.result_part(text_of(event.get("error")), call, tool=tool, error=True)]
        if kind == "UserRejectObservation":
            text = f"Action rejected: {text_of(event.get('rejection_reason'))}"
            return [wire.result_part(text, call, tool=tool, error=True)]
        observation = mapping(event, "observation")
        failed = observation.get("is_error") is True
        items = [*_sent_for(observation), *_blocks(event.get("extended_content"))]
        if failed:
            items.insert(0, {"type": "text", "text": _FAILED})
        if all(item["type"] == "text" and item.keys() == {"type", "text"} for item in items):
            # The Messages API's several texts are one to every reader; a result of one text is plain.
            return [wire.result_part("".join(item["text"] for item in items), call, tool=tool, error=failed)]
        return [wire.result_part(items, call, tool=tool, error=failed)]


def _reasoning(reply: dict[str, Any]) -> Iterator[Part]:
    """The reasoning of a reply: signed blocks, items of OpenAI's Responses, or text."""
    blocks = objects(reply.get("thinking_blocks"))
    yield from (wire.part(block, "assistant", "model") for block in blocks)
    text = text_of(reply.get("reasoning_content"))
    if item := mapping(reply, "responses_reasoning_item"):
        body = wire.compact({"type": "reasoning", **item})
        yield Part(kind="thinking", role="assistant", origin="model", body=body, ext="json")
    elif text and not blocks:
        yield wire.text_part(text, "assistant", "model", kind="thinking")


def _content(content: Any, is_reply: bool, origin: Origin) -> list[Part]:
    return [wire.part(block, "assistant" if is_reply else "user", origin) for block in _blocks(content)]


def _blocks(content: Any) -> list[dict[str, Any]]:
    """Content as blocks of the Messages API, without empty texts."""
    blocks: list[dict[str, Any]] = []
    for item in [content] if isinstance(content, str) else content if isinstance(content, list) else ():
        match item:
            case str(text) | {"type": "text", "text": str(text)}:
                blocks += [{"type": "text", "text": text}] if text else []
            case {"type": "image", "image_urls": list(urls)}:
                blocks += [elements.image(url) for url in urls if isinstance(url, str)]
            case dict():
                blocks.append(item)
    return blocks


def _sent_for(observation: dict[str, Any]) -> list[dict[str, Any]]:
    """What the model is sent for a tool's result. Most tools send its content; some add to it."""
    blocks = _blocks(observation.get("content") or observation.get("output"))
    match observation:
        case {"task_id": str(task), "subagent": str(name), "status": str(status)}:
            facts = f"Task ID: {task}\nSubagent: {name}\nStatus: {status}"
            return [{"type": "text", "text": facts}, *blocks]
        case {"screenshot_data": str(data)} if data:
            kind = "jpeg" if data.startswith("/9j/") else "png"
            return [*blocks, elements.image(f"data:image/{kind};base64,{data}")]
        case {"metadata": {"exit_code": int(code)} as metadata} if all(block["type"] == "text" for block in blocks):
            text = text_of(metadata.get("prefix")) + "".join(block["text"] for block in blocks)
            text += text_of(metadata.get("suffix"))
            if folder := text_of(metadata.get("working_dir")):
                text += f"\n[Current working directory: {folder}]"
            if interpreter := text_of(metadata.get("py_interpreter_path")):
                text += f"\n[Python interpreter: {interpreter}]"
            if code != -1:
                text += f"\n[Command finished with exit code {code}]"
            return [{"type": "text", "text": text}]
    return blocks
