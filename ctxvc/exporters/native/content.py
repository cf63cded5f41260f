"""What of a prompt arrives at another agent: its pieces, with calls of that agent's own tools where these are equal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from ctxvc.core.hosts import tools
from ctxvc.core.ledger import wire
from ctxvc.core.prompt.outline import Piece, outline, pieces
from ctxvc.core.prompt.sanitise import OwnText, sendable
from ctxvc.errors import Phrase, Refused
from ctxvc.exporters.conversation import Conversation
from ctxvc.forms.losses import Loss


class Content(NamedTuple):
    """The pieces in order, and what was lost on the way to them.

    `human` are the blocks that a person wrote, `original` the calls as they were before they became another tool's,
    by their ids.
    """

    pieces: list[Piece]
    losses: list[Loss]
    human: frozenset[str]
    original: Mapping[str, tools.Call]


def arriving(conversation: Conversation, agent: str, format: str) -> Content:
    """The prompt as it may stand in a session of an agent whose own recordings have this format.

    Thinking is bound to all before it: it arrives only in the format that it came in, where nothing was taken out.
    Raises: Refused if there is no message yet.
    """
    ledger = conversation.ledger
    losses = list(_losses(conversation))
    original: dict[str, tools.Call] = {}
    content: list[Piece] = []
    keeps_thinking = _is_unbroken(conversation, format)
    for piece in sendable(pieces(outline(ledger), conversation.snapshot.bodies), ledger.meta.render):
        if piece.kind == "thinking" and not keeps_thinking:
            losses.append(Loss(piece.block))
            continue
        arrived = _arrived(piece, agent)
        if arrived.tool != piece.tool:
            original[piece.call] = tools.Call(piece.tool, wire.parsed(piece.body, dict) or {})
            losses.append(Loss(f"{piece.block}.name", arrived.tool))
        content.append(arrived)
    if not content:
        raise Refused("there are no messages yet at this revision", hint=Phrase("other-revisions"))
    human = frozenset(row.id for row in ledger.rows() if row.origin == "human")
    own = {piece.block for piece in content if isinstance(piece, OwnText)}
    return Content(content, losses, human - own, original)


def _losses(conversation: Conversation) -> Iterator[Loss]:
    """What every agent has of its own."""
    if conversation.system:
        yield Loss("system", "the agent's own")
    if conversation.tools:
        yield Loss("tools", "the agent's own")


def _is_unbroken(conversation: Conversation, format: str) -> bool:
    source = conversation.ledger.meta.source
    if source is None or source.format != format or conversation.ledger.groups:
        return False
    return all(row.state in ("visible", "pinned") for row in conversation.ledger.rows())


def _arrived(piece: Piece, agent: str) -> Piece:
    if piece.role == "system":
        return msgspec.structs.replace(piece, role="user", kind="user" if piece.kind == "system" else piece.kind)
    if piece.kind != "tool_use" or piece.ext != "json":
        return piece
    arguments: dict[str, Any] | None = wire.parsed(piece.body, dict)
    call = tools.equal(tools.Call(piece.tool, arguments), agent) if arguments is not None else None
    if call is None:
        return piece
    return msgspec.structs.replace(piece, tool=call.tool, body=wire.compact(call.arguments), extra={})
