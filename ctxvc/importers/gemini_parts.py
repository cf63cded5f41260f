"""The parts of Gemini's messages, as Gemini CLI records them: `content`, `thoughts`, `toolCalls`, `tokens`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Origin, Part
from ctxvc.forms.gemini_edit import items, media_block
from ctxvc.forms.values import objects, taken_over, text_of

#: The beginnings of texts that the host puts before a person's.
_HOSTS_TEXTS = ("<session_context>", "<hook_context>")


def text(content: Any) -> str:
    """The text of a `content`, without thoughts."""
    return "\n".join(text_of(item.get("text")) for item in items(content) if item.get("thought") is not True).strip()


def has_media(content: Any) -> bool:
    return any("inlineData" in item for item in items(content))


def prompt(record: Mapping[str, Any], *, by_host: bool = False) -> tuple[Part, ...]:
    """The parts of a user's message without results: the person's words, and files that the host read for them.

    If a message was displayed in another form than it was sent, the displayed texts are the person's. `by_host` is for
    the task of a sub-agent.
    """
    content = items(record.get("content"))
    displayed = {text_of(item.get("text")) for item in items(record.get("displayContent"))} - {""}
    is_split = any(text_of(item.get("text")) in displayed for item in content)
    after_result = False
    parts: list[Part] = []
    for item in content:
        if "functionResponse" in item:
            after_result = True
        elif not (after_result and "inlineData" in item):
            value = text_of(item.get("text"))
            is_hosts = by_host or value.startswith(_HOSTS_TEXTS) or (is_split and value not in displayed)
            parts += prompt_part(item, "client" if is_hosts or record.get("type") != "user" else "human")
    return tuple(parts)


def prompt_part(item: dict[str, Any], origin: Origin) -> list[Part]:
    """The part for a text or medium of the user; none for an empty text."""
    match item:
        case {"text": str(value)}:
            return [wire.text_part(value, "user", origin)] if value else []
        case {"inlineData": dict(media)} if block := media_block(media):
            return [wire.part(block, "user", origin)]
    return [wire.other_part(item, "user", origin)]


def reply(record: Mapping[str, Any]) -> tuple[Part, ...]:
    """The thoughts and the text of a reply, without its calls."""
    thoughts = record.get("thoughts")
    values = [_thought(value) for value in (thoughts if isinstance(thoughts, list) else ())]
    parts = [wire.text_part(value, "assistant", "model", kind="thinking") for value in values if value]
    for item in items(record.get("content")):
        match item:
            case {"functionCall": _}:
                pass
            case {"text": str(value), "thought": True}:
                if value:
                    parts.append(wire.text_part(value, "assistant", "model", kind="thinking"))
            case {"text": str(value)}:
                if value:
                    parts.append(wire.text_part(value, "assistant", "model"))
            case _:
                parts.append(wire.other_part(item, "assistant", "model"))
    return tuple(parts)


def _thought(value: Any) -> str:
    """A thought as one text, with its subject as a line in bold, as the model wrote it."""
    if not isinstance(value, dict):
        return ""
    subject, description = text_of(value.get("subject")), text_of(value.get("description"))
    return "\n".join(filter(None, (f"**{subject}**" if subject else "", description)))


def calls(record: Mapping[str, Any]) -> tuple[Part, ...]:
    """The calls of a reply, each once, from its content and from `toolCalls`."""
    requests = [item["functionCall"] for item in items(record.get("content")) if "functionCall" in item]
    parts: dict[str, Part] = {}
    for request in [*requests, *objects(record.get("toolCalls"))]:
        match request:
            case {"id": str(call), "name": str(name)} if call:
                parts.setdefault(call, wire.call_part(name, call, wire.compact(request.get("args", {}))))
    return taken_over(parts.values(), record.get("ctxvc"))


def recorded_results(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The results in a reply's `toolCalls`, as parts of a `content`."""
    parts: list[dict[str, Any]] = []
    for call in objects(record.get("toolCalls")):
        result = call.get("result")
        if isinstance(result, str):
            response = {"id": call.get("id"), "name": call.get("name"), "response": {"output": result}}
            parts.append({"functionResponse": response})
        else:
            parts += items(result)
    return parts
