"""The Messages API as its provider describes it: rules, signatures, cache, and a server on this machine.

Nothing here knows ctxvc, so it can judge what ctxvc sends. `Judge` works in memory; `serve` answers a real client.
"""

from __future__ import annotations

from tests.messages_api.judge import Judge, Refused
from tests.messages_api.models import MODELS, Model, catalogue
from tests.messages_api.rules import problems
from tests.messages_api.script import Refusal, Reply, call, script, text, thought
from tests.messages_api.server import MessagesApi, serve

__all__ = [
    "MODELS",
    "Judge",
    "MessagesApi",
    "Model",
    "Refusal",
    "Refused",
    "Reply",
    "call",
    "catalogue",
    "problems",
    "script",
    "serve",
    "text",
    "thought",
]
