"""Recorded conversations as requests in every form."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ctxvc.core.prompt.formats import normalise_anthropic
from ctxvc.forms.conversion import convert


def recorded(path: Path) -> list[dict[str, Any]]:
    """The messages of a trajectory, in the Messages API's form."""
    lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    return normalise_anthropic(line for line in lines if "role" in line and line["role"] != "system")


def in_every_form(messages: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """The messages as each form has them."""
    request = {"model": "m", "max_tokens": 9, "messages": messages}
    return {
        "anthropic-messages": messages,
        "openai-chat": convert(request, "messages", "chat").value["messages"],
        "openai-responses": convert(request, "messages", "responses").value["input"],
        "gemini": [
            {"role": "model" if message["role"] == "assistant" else "user", "parts": list(_parts(message["content"]))}
            for message in messages
        ],
    }


def _parts(content: Any) -> Iterator[dict[str, Any]]:
    for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
        match block:
            case {"type": "text", "text": text}:
                yield {"text": text}
            case {"type": "thinking", "thinking": text}:
                yield {"text": text, "thought": True}
            case {"type": "tool_use", "id": call, "name": name, "input": arguments}:
                yield {"functionCall": {"id": call, "name": name, "args": arguments}, "thoughtSignature": "c2ln"}
            case {"type": "tool_result", "tool_use_id": call}:
                field = "error" if block.get("is_error") else "output"
                content = block.get("content", [])
                text = content if isinstance(content, str) else "".join(item.get("text", "") for item in content)
                yield {"functionResponse": {"id": call, "name": "", "response": {field: text}}}
            case {"type": "image", "source": {"media_type": media, "data": data}}:
                yield {"inlineData": {"mimeType": media, "data": data}}
            case _:
                yield {"note": block}
