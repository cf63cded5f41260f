"""What the Messages API and OpenAI's APIs both have, converted: texts, pictures, tools, token counts."""

from __future__ import annotations

import re
from typing import Any

_DATA_URL = re.compile("data:([^;,]+);base64,(.*)", re.DOTALL)


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def image(url: str) -> dict[str, Any]:
    """The Messages API's image block for a URL, which may be a data URL."""
    if match := _DATA_URL.fullmatch(url):
        return {"type": "image", "source": {"type": "base64", "media_type": match[1], "data": match[2]}}
    return {"type": "image", "source": {"type": "url", "url": url}}


def media(media_type: str, data: str) -> dict[str, Any]:
    """The Messages API's block for a file in base64: an image, else a document."""
    source = {"type": "base64", "media_type": media_type, "data": data}
    return {"type": "image" if media_type.startswith("image/") else "document", "source": source}


def image_url(source: dict[str, Any]) -> str | None:
    """The URL for the source of a picture or document; None if it is a file stored at the provider."""
    match source:
        case {"type": "base64", "media_type": str(media), "data": str(data)}:
            return f"data:{media};base64,{data}"
        case {"type": "url", "url": str(url)}:
            return url
    return None


def function(tool: dict[str, Any]) -> dict[str, Any] | None:
    """The chat completions function for a tool of the Messages API; None if the provider runs the tool."""
    if "input_schema" not in tool:
        return tool if "function" in tool or "custom" in tool else None
    fields = {name: tool[name] for name in ("name", "description", "strict") if name in tool}
    return {"type": "function", "function": {**fields, "parameters": tool["input_schema"]}}


def tool(function: dict[str, Any]) -> dict[str, Any]:
    """The Messages API's tool for a chat completions function; any other kind of tool unchanged."""
    match function:
        case {"type": "function", "function": {"name": str()} as definition}:
            schema = definition.get("parameters") or {"type": "object", "properties": {}}
            fields = {key: value for key, value in definition.items() if key != "parameters" and value is not None}
            return {**fields, "input_schema": schema}
    return function


def chat_usage(reported: Any) -> dict[str, int]:
    """The token counts (`token_counts`) of a chat completion by its `usage`; empty if it has none."""
    if not isinstance(reported, dict):
        return {}
    cached, written = _cached(reported.get("prompt_tokens_details"))
    written = reported.get("cache_creation_input_tokens", written)
    return token_counts(reported.get("prompt_tokens"), cached, written, reported.get("completion_tokens"))


def responses_usage(reported: Any) -> dict[str, int]:
    """The token counts (`token_counts`) of a response by its `usage`; empty if it has none."""
    if not isinstance(reported, dict):
        return {}
    cached, written = _cached(reported.get("input_tokens_details"))
    return token_counts(reported.get("input_tokens"), cached, written, reported.get("output_tokens"))


def token_counts(prompt: Any, cached: Any, written: Any, output: Any) -> dict[str, int]:
    """A call's token counts under the names of the Messages API, whose `input_tokens` exclude cached input.

    `prompt` has all tokens sent, of which `cached` were read from the cache and `written` into it. Empty unless prompt
    and output were both counted.
    """
    counts = [count if isinstance(count, int) and count >= 0 else None for count in (prompt, cached, written, output)]
    if counts[0] is None or counts[3] is None:
        return {}
    cached_count, written_count = counts[1] or 0, counts[2] or 0
    return {
        "input_tokens": max(0, counts[0] - cached_count - written_count),
        "cache_creation_input_tokens": written_count,
        "cache_read_input_tokens": cached_count,
        "output_tokens": counts[3],
    }


def _cached(details: Any) -> tuple[Any, Any]:
    """The tokens read from the cache and written into it, by OpenAI's details of the prompt's tokens."""
    return (details.get("cached_tokens"), details.get("cache_write_tokens")) if isinstance(details, dict) else (0, 0)
