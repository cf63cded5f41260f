"""Elements that the Messages API and OpenAI's APIs both have: texts, pictures, tools."""

from __future__ import annotations

import re
from typing import Any

_DATA_URL = re.compile("data:([^;,]+);base64,(.*)", re.DOTALL)


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def image(url: str) -> dict[str, Any]:
    """The image block of the Messages API for an image's address, which may hold the image itself."""
    if match := _DATA_URL.fullmatch(url):
        return {"type": "image", "source": {"type": "base64", "media_type": match[1], "data": match[2]}}
    return {"type": "image", "source": {"type": "url", "url": url}}


def media(media_type: str, data: str) -> dict[str, Any]:
    """The block of the Messages API for a picture, or for another file, in base64."""
    source = {"type": "base64", "media_type": media_type, "data": data}
    return {"type": "image" if media_type.startswith("image/") else "document", "source": source}


def image_url(source: dict[str, Any]) -> str | None:
    """The address of a picture or document by its source; None if it is a file at the provider's."""
    match source:
        case {"type": "base64", "media_type": str(media), "data": str(data)}:
            return f"data:{media};base64,{data}"
        case {"type": "url", "url": str(url)}:
            return url
    return None


def function(tool: dict[str, Any]) -> dict[str, Any] | None:
    """A tool of the Messages API as the function of a chat completions request; None for one that the provider runs."""
    if "input_schema" not in tool:
        return tool if "function" in tool or "custom" in tool else None
    fields = {name: tool[name] for name in ("name", "description", "strict") if name in tool}
    return {"type": "function", "function": {**fields, "parameters": tool["input_schema"]}}


def tool(function: dict[str, Any]) -> dict[str, Any]:
    """A function of a chat completions request as a tool of the Messages API; any other kind of tool as it is."""
    match function:
        case {"type": "function", "function": {"name": str()} as definition}:
            schema = definition.get("parameters") or {"type": "object", "properties": {}}
            fields = {key: value for key, value in definition.items() if key != "parameters" and value is not None}
            return {**fields, "input_schema": schema}
    return function
