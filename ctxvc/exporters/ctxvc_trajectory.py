"""A recording → our neutral format `ctxvc-trajectory/1`: a header line, then a message a line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.ledger import Row
from ctxvc.core.prompt.formats import block_of
from ctxvc.core.prompt.outline import Piece
from ctxvc.exporters.conversation import Conversation, Recorded
from ctxvc.exporters.exported import Exported, leading
from ctxvc.forms.losses import Loss
from ctxvc.store.timestamp import iso


def export(conversation: Conversation) -> Exported:
    """The whole recording, with its host's compactions as boundaries."""
    losses = list(conversation.unshared())
    losses += [Loss("tools")] if conversation.tools else []
    summaries = {block: group.id for group in conversation.ledger.groups.values() for block in group.summary[:1]}
    losses += _partial_compactions(conversation, summaries)
    lines = [_header(conversation)]
    if system := conversation.system:
        content = [{"type": "text", "text": system}] if isinstance(system, str) else system
        lines.append({"role": "system", "content": content})
    messages = list(conversation.messages())
    losses += leading([piece for recorded in messages for _, piece in recorded.pieces])
    for recorded in messages:
        lines += _lines(conversation, recorded, summaries, losses)
    return Exported(b"".join(wire.compact(line) + b"\n" for line in lines), tuple(losses))


def _header(conversation: Conversation) -> dict[str, Any]:
    source = conversation.ledger.meta.source
    return {
        "format": "ctxvc-trajectory/1",
        "id": conversation.name,
        "task": conversation.title,
        "native_format": source.format if source else "ctxvc",
        "agent": conversation.agent,
        "model": conversation.ledger.meta.model,
        "tools_used": sorted({row.tool for row in conversation.ledger.rows() if row.kind == "tool_use"}),
    }


def _partial_compactions(conversation: Conversation, summaries: dict[str, str]) -> Iterator[Loss]:
    """The compactions that kept some earlier blocks, which a boundary cannot express."""
    for block, group in summaries.items():
        before = int(block[1:])
        if any(row.present and row.number < before for row in conversation.ledger.rows()):
            yield Loss(f"{group}.kept", "a boundary below everything")


def _lines(
    conversation: Conversation, recorded: Recorded, summaries: dict[str, str], losses: list[Loss]
) -> Iterator[dict[str, Any]]:
    """The line for a message; none if the format has no place for any of its blocks."""
    content = [block for row, piece in recorded.pieces if (block := _block(row, piece, losses))]
    if not content:
        return
    meta: dict[str, Any] = {}
    if reply := conversation.replies.get(recorded.step):
        meta["ts"] = iso(reply.time)
        if recorded.role == "assistant":
            meta |= {"model": reply.model} if reply.model else {}
            meta |= {"usage": dict(reply.usage)} if reply.usage else {}
    if any(row.id in summaries for row, _ in recorded.pieces):
        meta |= {"compact_boundary": True, "compact_summary": True}
    elif recorded.role == "user" and all(map(_is_injected, recorded.pieces)):
        meta["injected"] = True
    yield {"role": recorded.role, "content": content, **({"meta": meta} if meta else {})}


def _is_injected(entry: tuple[Row, Piece]) -> bool:
    """Whether the client added a block; its results are those of interrupted calls, which do not count."""
    return entry[0].origin == "client" and entry[0].kind != "tool_result"


def _block(row: Row, piece: Piece, losses: list[Loss]) -> dict[str, Any] | None:
    block = block_of(piece)
    if row.kind == "thinking" and block.get("type") not in ("thinking", "redacted_thinking"):
        losses.append(Loss(row.id))
        return None
    if row.kind == "tool_use" and piece.body and wire.parsed(piece.body, dict) is None:
        losses.append(Loss(f"{row.id}.input", "an object with the text under `arguments`"))
    if "openai" in row.extra:
        losses.append(Loss(f"{row.id}.openai"))
    if row.kind == "tool_result" and row.origin == "client":
        block["synthetic"] = True
    return block
