"""A local model: a small window, a tokenizer and a chat template of its own, behind a gateway that renames it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ctxvc.agent.model import ModelFailed, TooLong
from ctxvc.tokens.count import count
from tests.making.provider import texts
from tests.messages_api.wire import Block


@dataclass
class Local:
    """Counts `a` thousandths of our tokens and `b` more. All that it was sent is kept, in its own tokens.

    It replies to one name only, and under another. Where it does not `refuse`, it cuts what is too long and says
    nothing, as some servers do.
    """

    replies: Iterator[Sequence[Block]]
    a: int = 1_600
    b: int = 400
    window: int = 8_192
    name: str = "local-coder"
    replies_as: str = "gpt-x-2026"
    refuse: Callable[[int, int], str] | None = None
    reports: bool = True
    sizes: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    scripted = False

    def reply(self, call: Mapping[str, Any], say: Callable[[str], None]) -> Mapping[str, Any]:
        self.names.append(call["model"])
        if call["model"] != self.name:
            raise ModelFailed(f"the provider has no such model: {call['model']}")
        tokens = self.tokens(call)
        if self.refuse and tokens > self.window:
            raise TooLong(self.refuse(tokens, self.window))
        self.sizes.append(tokens)
        content = [dict(block) for block in next(self.replies)]
        for number, block in enumerate(content):
            if block["type"] == "tool_use":
                block["id"] = f"call_{len(self.sizes)}_{number}"
            else:
                say(block["text"])
        calls = any(block["type"] == "tool_use" for block in content)
        return {
            "id": f"msg_{len(self.sizes)}",
            "role": "assistant",
            "model": self.replies_as,
            "content": content,
            "stop_reason": "tool_use" if calls else "end_turn",
            "usage": {"input_tokens": tokens, "output_tokens": 50} if self.reports else {},
        }

    def tokens(self, call: Mapping[str, Any]) -> int:
        """The size of a prompt in its own tokens."""
        pieces = [json.dumps(call.get("tools", ""), separators=(",", ":"))]
        pieces += [block["text"] for block in call.get("system", ()) if isinstance(block, dict)]
        pieces += [str(call.get("system", ""))] if isinstance(call.get("system"), str) else []
        pieces += [piece for message in call["messages"] for block in message["content"] for piece in texts(block)]
        return sum(map(count, pieces)) * self.a // 1000 + self.b
