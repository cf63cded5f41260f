"""Content blocks as a provider's API has them."""

from __future__ import annotations

from typing import Any


def call(id: str, tool: str = "sh", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": tool, "input": arguments}


def result(id: str, content: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": content, **fields}
