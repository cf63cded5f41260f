"""A message as a host passes it to an extension: role, text, calls and results, whatever else the host stores."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class ToolUse(msgspec.Struct, frozen=True, kw_only=True):
    """A call in a message: the provider's id for it, the tool, its arguments."""

    id: str
    tool: str
    input: Any = None


class ToolResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call's result in a message, as the text that the model is sent."""

    id: str
    text: str = ""
    error: bool = False


class HostMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message of a host. `key` is the host's own name for it, if any: that of its line in the transcript."""

    role: Literal["user", "assistant"]
    text: str = ""
    tool_uses: tuple[ToolUse, ...] = ()
    tool_results: tuple[ToolResult, ...] = ()
    key: str = ""

    @property
    def empty(self) -> bool:
        """Whether it has no content, as when it contained only thinking."""
        return not (self.text.strip() or self.tool_uses or self.tool_results)
