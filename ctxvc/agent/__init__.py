"""An agent of one's own, made context-managed: the tools that its model gets, and an adapter to the Anthropic SDK."""

from __future__ import annotations

from ctxvc.agent.adapter import Adapter, AsyncAdapter
from ctxvc.agent.call import Reply, Stop
from ctxvc.agent.tools.definitions import TOOLS, definitions

__all__ = ["TOOLS", "Adapter", "AsyncAdapter", "Reply", "Stop", "definitions"]
