"""Reads from a request who sent it: the client, its conversation, and the sub-agent in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from ctxvc.core.ledger import wire
from ctxvc.forms.form import Prompt

#: The longest id from a client that is accepted.
_LONGEST = 200


class Sender(msgspec.Struct, frozen=True, kw_only=True):
    """Who sent a request. `conversation` is the client's own id of it, `agent` that of a sub-agent in it.

    `client` is the format of the recordings that the client itself keeps under the same ids; empty if it keeps none
    with such ids. What a request does not say is empty.
    """

    client: str = ""
    conversation: str = ""
    agent: str = ""


def sender(headers: Mapping[str, str], body: bytes) -> Sender:
    """The sender of a request with these headers, in lower case, and this body."""
    for client in _CLIENTS:
        if conversation := _id(client.conversation(headers, body)):
            agent = _id(client.agent(headers, body))
            return Sender(client=client.name, conversation=conversation, agent="" if agent == conversation else agent)
    return Sender()


class _Client(NamedTuple):
    name: str
    conversation: Callable[[Mapping[str, str], bytes], Any]
    agent: Callable[[Mapping[str, str], bytes], Any]


#: What every body contains in which Claude Code names its session.
_CLAUDE_ID = b"session_id"


def _claude_session(headers: Mapping[str, str], body: bytes) -> Any:
    if header := headers.get("x-claude-code-session-id"):
        return header
    request = wire.parsed(body, dict) if _CLAUDE_ID in body else None
    match (request or {}).get("metadata"):
        case {"user_id": str(user)} if user.startswith("{"):
            return (wire.parsed(user.encode("utf-8", "surrogatepass"), dict) or {}).get("session_id")
    return ""


_CLIENTS = (
    _Client("claude-code", _claude_session, lambda headers, _: headers.get("x-claude-code-agent-id")),
    _Client(
        "codex",
        lambda headers, _: headers.get("session-id") if "x-codex-turn-metadata" in headers else "",
        lambda headers, _: headers.get("thread-id"),
    ),
    _Client(  # its sub-agents are sessions of their own, which name their parent
        "opencode",
        lambda headers, _: headers.get("x-opencode-parent-session-id") or headers.get("x-opencode-session-id"),
        lambda headers, _: headers.get("x-opencode-session-id"),
    ),
)
#: Texts with which clients ask for a summary, at the end of the conversation.
_SUMMARIES = (b"CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.",)


def asks_for_summary(prompt: Prompt) -> bool:
    """Whether the newest message asks for a summary from which the client will continue."""
    newest = wire.compact(prompt.messages[-1]) if prompt.messages else b""
    return any(text in newest for text in _SUMMARIES)


def _id(value: Any) -> str:
    return value if isinstance(value, str) and len(value) <= _LONGEST and value.isprintable() else ""
