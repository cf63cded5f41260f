"""Who sent a request, as far as it says: the client, its conversation, the sub-agent in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from ctxvc.core.ledger import wire

#: The longest id of a client's that is believed.
_LONGEST = 200


class Sender(msgspec.Struct, frozen=True, kw_only=True):
    """Who sent a request. `conversation` is the client's own id of it and `agent` that of a sub-agent in it.

    `client` is the format of the recordings that the client itself keeps under the same ids; empty for one that keeps
    none, or none with such ids. What a request does not say is empty.
    """

    client: str = ""
    conversation: str = ""
    agent: str = ""


def sender(headers: Mapping[str, str], body: Mapping[str, Any]) -> Sender:
    """The sender of a request with these headers, in lower case, and this body."""
    for client in _CLIENTS:
        if conversation := _id(client.conversation(headers, body)):
            agent = _id(client.agent(headers, body))
            return Sender(client=client.name, conversation=conversation, agent="" if agent == conversation else agent)
    return Sender()


class _Client(NamedTuple):
    name: str
    conversation: Callable[[Mapping[str, str], Mapping[str, Any]], Any]
    agent: Callable[[Mapping[str, str], Mapping[str, Any]], Any]


def _claude_session(headers: Mapping[str, str], body: Mapping[str, Any]) -> Any:
    if named := headers.get("x-claude-code-session-id"):
        return named
    match body.get("metadata"):
        case {"user_id": str(user)} if user.startswith("{"):
            return (wire.parsed(user.encode("utf-8", "surrogatepass"), dict) or {}).get("session_id")
    return ""


_CLIENTS = (
    _Client(
        "claude-code",
        _claude_session,
        lambda headers, body: headers.get("x-claude-code-agent-id"),  # noqa: ARG005
    ),
    _Client(
        "codex",
        lambda headers, body: headers.get("session-id") if "x-codex-turn-metadata" in headers else "",  # noqa: ARG005
        lambda headers, body: headers.get("thread-id"),  # noqa: ARG005
    ),
    _Client("", lambda headers, body: body.get("prompt_cache_key"), lambda headers, body: ""),  # noqa: ARG005
)


def _id(value: Any) -> str:
    return value if isinstance(value, str) and len(value) <= _LONGEST and value.isprintable() else ""
