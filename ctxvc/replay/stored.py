"""The sessions of a store as conversations: each scope's messages, whatever has left the prompt since.

Notes, dashboards, summaries and calls of the context tools are left out: they come from the policy under which the
session was recorded, and a replay puts another in its place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import groupby

from ctxvc.agent.tools.definitions import TOOLS
from ctxvc.core.ledger.block import Message, Part
from ctxvc.core.ledger.ledger import Ledger, Row
from ctxvc.core.ledger.numbering import ASIDE
from ctxvc.core.prompt.outline import Bodies
from ctxvc.replay.conversation import Conversation, model_calls
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import revision
from ctxvc.store.store import Store


def stored_conversations(store: Store, session: str) -> Iterator[Conversation]:
    """The conversations of a session that have at least one reply, `main` first; a helper's is one of its own.

    Of scopes that share their first reply, as after a rewind, only the one with the newest block is taken. Bodies are
    as stored: without secrets. Raises: NotFound, Damaged.
    """
    sha256, _ = stored_checksum(store, session)
    with StoredSession.open(store, session) as stored:
        for scope in _scopes(stored):
            snapshot = revision.now(stored, scope)
            rows = conversation_rows(snapshot.ledger)
            if recorded := tuple(model_calls(_messages(rows, snapshot.bodies))):
                yield Conversation(
                    id=session if scope == "main" else f"{session}/{scope}",
                    file=session,
                    sha256=sha256,
                    calls=recorded,
                    model=snapshot.ledger.meta.model,
                    agent=snapshot.ledger.meta.source.agent if snapshot.ledger.meta.source else "",
                    system=snapshot.system,
                    tools=_other_tools(snapshot.tools),
                )


def stored_checksum(store: Store, session: str) -> tuple[str, int]:
    """A checksum of a session's conversations, made from their bodies' checksums, and the bodies' size in bytes.

    Raises: NotFound, Damaged.
    """
    digest, size = hashlib.sha256(), 0
    with StoredSession.open(store, session) as stored:
        for scope in _scopes(stored):
            digest.update(f"{scope}\n".encode())
            for row in conversation_rows(stored.ledger(scope)):
                digest.update(f"{row.kind} {row.role} {row.call} {row.sha256}\n".encode())
                size += row.bytes
    return digest.hexdigest(), size


def conversation_rows(ledger: Ledger) -> list[Row]:
    """The rows that come from people, the model and its tools, in order."""
    summaries = {name for group in ledger.groups.values() for name in group.summary}
    own_tools = TOOLS if ledger.meta.source is None else ()
    rows = [row for row in ledger.rows() if row.kind not in ASIDE and row.id not in summaries]
    own_calls = {row.call for row in rows if row.kind == "tool_use" and row.tool in own_tools}
    return [row for row in rows if not (row.kind in ("tool_use", "tool_result") and row.call in own_calls)]


def _scopes(stored: StoredSession) -> list[str]:
    """The scopes; of those that share their first reply, only the one with the newest block."""
    newest: dict[str, tuple[int, str]] = {}  # first reply → last block, scope
    for scope in stored.scopes():
        rows = conversation_rows(stored.ledger(scope))
        if reply := next((row.id for row in rows if row.role == "assistant"), ""):
            newest[reply] = max(newest.get(reply, (0, "")), (rows[-1].number, scope))
    chosen = {scope for _, scope in newest.values()}
    return [scope for scope in stored.scopes() if scope in chosen]


def _messages(rows: list[Row], bodies: Bodies) -> Iterator[Message]:
    for _, of_message in groupby(rows, key=lambda row: (row.step, row.msg, row.role)):
        parts = tuple(_part(row, bodies) for row in of_message)
        yield Message(role=parts[0].role, parts=parts)


def _part(row: Row, bodies: Bodies) -> Part:
    return Part(
        kind=row.kind,
        role=row.role,
        origin=row.origin,
        body=bodies.body(row),
        ext=row.ext,
        call=row.call,
        tool=row.tool,
        error=row.error,
        files=tuple((suffix, bodies.file(row, suffix)) for suffix in row.files),
        extra=row.extra,
    )


def _other_tools(tools: object) -> object:
    """The tool definitions without the context tools, which the replayed policy brings itself."""
    if not isinstance(tools, list):
        return tools
    return [tool for tool in tools if not (isinstance(tool, dict) and tool.get("name") in TOOLS)] or None
