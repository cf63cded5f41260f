"""What Chat Completions and the Responses API take: the first thing that is wrong with a request, in their words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_CHAT = frozenset(
    {"model", "messages", "tools", "tool_choice", "parallel_tool_calls", "max_tokens", "max_completion_tokens", "stop"}
    | {"stream", "stream_options", "temperature", "top_p", "reasoning_effort", "n", "store", "metadata"}
)
_RESPONSES = frozenset(
    {"model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "max_output_tokens", "stream"}
    | {"temperature", "top_p", "reasoning", "store", "include", "text", "truncation", "metadata", "prompt_cache_key"}
)
_PARTS = {
    "system": {"text"},
    "developer": {"text"},
    "tool": {"text"},
    "user": {"text", "image_url", "file", "input_audio"},
    "assistant": {"text", "refusal"},
}
_ITEM_PARTS = {
    "user": {"input_text", "input_image", "input_file"},
    "system": {"input_text"},
    "developer": {"input_text"},
    "assistant": {"output_text", "refusal"},
}


def chat_problem(body: Mapping[str, Any]) -> str:
    """What is wrong with a request for a chat completion; empty for nothing."""
    return next(chat_problems(body), "")


def responses_problem(body: Mapping[str, Any]) -> str:
    """What is wrong with a request for a response; empty for nothing."""
    return next(responses_problems(body), "")


# --- Chat Completions


def chat_problems(body: Mapping[str, Any]) -> Iterator[str]:
    """All that is wrong with a request for a chat completion."""
    yield from (f"Unrecognized request argument supplied: {name}" for name in body if name not in _CHAT)
    if not isinstance(body.get("model"), str):
        yield "you must provide a model parameter"
    if "stream_options" in body and not body.get("stream"):
        yield "The 'stream_options' parameter is only allowed when 'stream' is enabled."
    yield from _tools([tool.get("function") for tool in body.get("tools", ()) if tool.get("type") == "function"])
    if body.get("tools") == []:
        yield "[] is too short - 'tools'"
    if "tool_choice" in body and not body.get("tools"):
        yield "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified."
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        yield "[] is too short - 'messages'"
        return
    waiting: list[str] = []
    for number, message in enumerate(messages):
        place, role = f"messages[{number}]", message.get("role")
        if role not in _PARTS:
            yield f"Invalid value: '{role}'. {place}.role"
            return
        if role == "tool":
            if message.get("tool_call_id") not in waiting:
                yield (
                    f"Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                    f"'tool_calls'. {place}"
                )
                return
            waiting.remove(message["tool_call_id"])
        elif waiting:
            yield (
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(waiting)}"
            )
            return
        yield from _content(message, role, place)
        if role == "assistant":
            waiting = []
            for call in message.get("tool_calls", ()):
                yield from _call(call, place)
                if call["id"] in waiting:
                    yield f"Duplicate value for 'tool_call_id' of '{call['id']}' in {place}"
                waiting.append(call["id"])
    if waiting:
        yield f"The following tool_call_ids did not have response messages: {', '.join(waiting)}"


def _content(message: Mapping[str, Any], role: str, place: str) -> Iterator[str]:
    content = message.get("content")
    if content is None:
        if role != "assistant" or not message.get("tool_calls"):
            yield f"Invalid value for 'content': expected a string, got null. {place}"
        return
    if isinstance(content, str):
        return
    if not isinstance(content, list) or not content:
        yield f"Invalid type for '{place}.content'"
        return
    for part in content:
        if part.get("type") not in _PARTS[role]:
            yield f"Invalid value: '{part.get('type')}'. {place}.content"
        if part.get("type") == "text" and not isinstance(part.get("text"), str):
            yield f"Invalid type for '{place}.content.text'"


def _call(call: Mapping[str, Any], place: str) -> Iterator[str]:
    function = call.get("function")
    if not isinstance(call.get("id"), str) or not call["id"] or call.get("type") != "function":
        yield f"Missing required parameter: '{place}.tool_calls.id'"
    elif not isinstance(function, dict) or not _NAME.fullmatch(str(function.get("name"))):
        yield f"Invalid '{place}.tool_calls.function.name'"
    elif not isinstance(function.get("arguments"), str):
        yield f"Invalid type for '{place}.tool_calls.function.arguments'"


def _tools(functions: list[Any]) -> Iterator[str]:
    for function in functions:
        if not isinstance(function, dict) or not _NAME.fullmatch(str(function.get("name"))):
            yield "Invalid 'tools.function.name'"
        elif function.get("parameters", {}).get("type", "object") != "object":
            yield f"Invalid schema for function '{function['name']}'"
    names = [function.get("name") for function in functions if isinstance(function, dict)]
    if len(names) != len(set(names)):
        yield "Invalid 'tools': names are not unique"


# --- Responses


def responses_problems(body: Mapping[str, Any]) -> Iterator[str]:
    """All that is wrong with a request for a response."""
    yield from (f"Unknown parameter: '{name}'." for name in body if name not in _RESPONSES)
    yield from _tools([tool for tool in body.get("tools", ()) if tool.get("type") == "function"])
    items = body.get("input")
    if isinstance(items, str):
        return
    if not isinstance(items, list) or not items:
        yield "Missing required parameter: 'input'."
        return
    calls: list[str] = []
    answered: list[str] = []
    for number, item in enumerate(items):
        place, kind = f"input[{number}]", item.get("type", "message")
        following = items[number + 1] if number + 1 < len(items) else {}
        match kind:
            case "message":
                yield from _message(item, place)
            case "function_call":
                yield from _call_item(item, place)
                if item.get("call_id") in calls:
                    yield f"Duplicate call_id {item.get('call_id')}. {place}"
                calls.append(item.get("call_id"))
            case "custom_tool_call":
                if not item.get("call_id") or not isinstance(item.get("input"), str):
                    yield f"Missing required parameter: '{place}.input'."
                calls.append(item.get("call_id"))
            case "function_call_output" | "custom_tool_call_output":
                if item.get("call_id") not in calls:
                    yield f"No tool call found for function call output with call_id {item.get('call_id')}."
                answered.append(item.get("call_id"))
            case "reasoning":
                if not isinstance(item.get("summary"), list):
                    yield f"Missing required parameter: '{place}.summary'."
                if body.get("store") is False and not item.get("encrypted_content"):
                    yield f"Item with id '{item.get('id')}' not found. Items are not persisted when `store` is false."
                owners = ("reasoning", "function_call", "custom_tool_call")
                if following.get("type") not in owners and following.get("role") != "assistant":
                    yield f"Item '{item.get('id')}' of type 'reasoning' was provided without its following item."
            case "additional_tools":
                if not isinstance(item.get("tools"), list):
                    yield f"Invalid value for '{place}.tools'."
            case _:
                yield f"Invalid value: '{kind}'. {place}.type"
    yield from (f"No tool output found for function call {call}." for call in calls if call not in answered)


def _message(item: Mapping[str, Any], place: str) -> Iterator[str]:
    role, content = item.get("role"), item.get("content")
    if role not in _ITEM_PARTS:
        yield f"Invalid value: '{role}'. {place}.role"
    elif isinstance(content, list) and content:
        yield from (
            f"Invalid value: '{part.get('type')}'. {place}.content"
            for part in content
            if part.get("type") not in _ITEM_PARTS[role]
        )
    elif not isinstance(content, str):
        yield f"Invalid type for '{place}.content'"


def _call_item(item: Mapping[str, Any], place: str) -> Iterator[str]:
    if not item.get("call_id") or not _NAME.fullmatch(str(item.get("name"))):
        yield f"Missing required parameter: '{place}.call_id'."
    if not isinstance(item.get("arguments"), str):
        yield f"Invalid type for '{place}.arguments'"
