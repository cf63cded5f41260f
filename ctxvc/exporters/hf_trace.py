"""A recording → a session trace of Hugging Face (STS-Format, https://huggingface.co/docs/hub/session-traces-format).

JSON lines: a header, then a message a line, with text only. A message of several texts, or with text after its calls,
becomes several lines. Facts without a field of the format, which an import reads, are beside the message under `ctxvc`,
which the format's viewer ignores: `origin` if the role does not imply it, `error`, and `continues` if it goes on with
the reply of the line before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ctxvc.core import display
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.ledger import Row
from ctxvc.core.prompt.formats import block_of
from ctxvc.core.prompt.outline import Piece
from ctxvc.exporters.conversation import Conversation, Recorded
from ctxvc.exporters.exported import Exported
from ctxvc.forms.losses import Loss, lost_fields

_ORIGINS = {"user": "human", "system": "client", "assistant": "model"}


def export(conversation: Conversation) -> Exported:
    """The whole recording."""
    losses = list(conversation.unshared())
    lines = [_header(conversation)]
    for text in conversation.system_texts:
        message = {"role": "system", "content": text}
        lines.append({"type": "message", "message": message, "ctxvc": {"request": True}})
    losses += [Loss("tools")] if conversation.tools else []
    for recorded in conversation.messages():
        lines += _Lines(conversation, recorded, losses).lines()
    return Exported(b"".join(wire.compact(line) + b"\n" for line in lines), tuple(losses))


def _header(conversation: Conversation) -> dict[str, Any]:
    return {
        "type": "session",
        "harness": "ctxvc",
        "id": conversation.name,
        "name": display.one_line(conversation.title, 200),
        "agent": conversation.agent,
        "model": conversation.ledger.meta.model,
        "commit": conversation.snapshot.commit,
    }


class _Lines:
    """The lines of a recorded message."""

    def __init__(self, conversation: Conversation, recorded: Recorded, losses: list[Loss]) -> None:
        self._losses = losses
        self._recorded = recorded
        self._reply = conversation.replies.get(recorded.step)
        self._model = conversation.ledger.meta.model
        self._open: dict[str, Any] | None = None  # the line of a reply that may take more
        self._continues = False

    def lines(self) -> Iterator[dict[str, Any]]:
        for row, piece in self._recorded.pieces:
            match piece.kind:
                case "tool_result":
                    yield self._result(row, piece)
                case "thinking" | "tool_use":
                    yield from self._of_reply(piece)
                case "image" | "document" | "other":
                    self._losses.append(Loss(piece.block))
                case _ if piece.role == "assistant":
                    self._losses += lost_fields(piece)
                    yield from self._of_reply(piece)
                case _:
                    self._losses += lost_fields(piece)
                    marks = {"origin": row.origin} if row.origin != _ORIGINS[piece.role] else {}
                    yield self._line({"role": piece.role, "content": display.decode(piece.body)}, marks)
        if self._open:
            yield self._open

    def _result(self, row: Row, piece: Piece) -> dict[str, Any]:
        items = block_of(piece).get("content", [])
        texts = []
        for number, item in enumerate(items):
            match item:
                case {"type": "text", "text": str(text)}:
                    texts.append(text)
                case _:
                    self._losses.append(Loss(f"{piece.block}.content[{number}]"))
        if len(texts) > 1:
            self._losses.append(Loss(f"{piece.block}.content", "one text"))
        self._losses += lost_fields(piece)
        marks: dict[str, Any] = {"error": True} if piece.error else {}
        if row.origin != "tool":
            marks["origin"] = row.origin
        return self._line({"role": "tool", "content": "\n".join(texts), "toolCallId": piece.call}, marks)

    def _of_reply(self, piece: Piece) -> Iterator[dict[str, Any]]:
        """Adds a piece to the open line of a reply; yields that line first if it cannot take the piece."""
        text = display.decode(piece.body)
        if piece.kind == "thinking":
            if piece.ext == "json" or not text:
                self._losses.append(Loss(piece.block))
                return
            self._losses += lost_fields(piece)
        if self._open and not _takes(self._open["message"], piece):
            yield self._open
            self._open = None
        if self._open is None:
            marks = {"continues": True} if self._continues else {}
            self._open = self._line({"role": "assistant", "content": ""}, marks)
            self._continues = True
        message = self._open["message"]
        if piece.kind == "tool_use":
            function = {"name": piece.tool, "arguments": text}
            message.setdefault("toolCalls", []).append({"id": piece.call, "function": function})
            self._losses += lost_fields(piece)
        else:
            message["reasoningContent" if piece.kind == "thinking" else "content"] = text

    def _line(self, message: dict[str, Any], marks: dict[str, Any]) -> dict[str, Any]:
        if self._reply:
            message["timestamp"] = self._reply.time * 1000
            if message["role"] == "assistant" and (model := self._reply.model or self._model):
                message["model"] = model
        line: dict[str, Any] = {"type": "message", "message": message}
        return {**line, "ctxvc": marks} if marks else line


def _takes(message: dict[str, Any], piece: Piece) -> bool:
    """Whether a reply's line can take another piece in the order reasoning, text, calls."""
    if piece.kind == "tool_use":
        return True
    if piece.kind == "thinking":
        return not (message["content"] or "toolCalls" in message or "reasoningContent" in message)
    return not (message["content"] or "toolCalls" in message)
