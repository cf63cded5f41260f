"""Prompts as a model is sent them, to compare with those that a program sent."""

from __future__ import annotations

from typing import Any

from ctxvc.core.prompt import formats
from ctxvc.core.prompt.outline import outline, pieces, sendable
from ctxvc.session import proof
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import revision
from ctxvc.store.store import Store


def as_sent(store: Store, session: str, scope: str = "main") -> list[Any]:
    """The messages that the newest reply of a scope answered to, as `bare` has them."""
    with StoredSession.open(store, session, scope) as stored:
        snapshot = proof.as_sent(store, revision.now(stored))
        content = sendable(pieces(outline(snapshot.ledger), snapshot.bodies))
    return bare(formats.anthropic(formats.Prompt(pieces=content, system=None, tools=None, model="m"))["messages"])


def bare(messages: list[Any]) -> list[Any]:
    """Messages without breakpoints, neighbours of one role together, and texts in one spelling."""
    together: list[Any] = []
    for message in messages:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not together or together[-1]["role"] != message["role"]:
            together.append({"role": message["role"], "content": []})
        together[-1]["content"] += [_bare(block) for block in blocks]
    return together


def _bare(block: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in block.items() if name != "cache_control"}
    match kept.get("content"):
        case [{"type": "text", "text": text}]:
            kept["content"] = text
    return kept
