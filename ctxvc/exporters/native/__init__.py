"""Conversations → sessions that other agents continue, in files as they keep their own. A module per agent."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from ctxvc.exporters.native.session import NativeFormat

#: The agents. Each is a module, with `_` for `-`, imported when it is needed.
AGENTS = ("codex", "opencode", "pi", "gemini", "copilot", "qwen", "openhands", "mini-swe-agent")


def native_format(agent: str) -> NativeFormat:
    """The format of one of `AGENTS`."""
    return cast("NativeFormat", import_module(f"ctxvc.exporters.native.{agent.replace('-', '_')}").NATIVE)
