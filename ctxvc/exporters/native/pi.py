"""A session of pi: a tree of entries, here without branches."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from ctxvc.core import display
from ctxvc.core.ledger import wire
from ctxvc.core.prompt.outline import Piece
from ctxvc.exporters.conversation import Conversation
from ctxvc.exporters.native.content import Content, Turn, arguments, arriving, texts_and_media, turns
from ctxvc.exporters.native.session import (
    NativeFormat,
    NativeSession,
    Setting,
    milliseconds,
    model,
    session_id,
    stamp,
    title,
)  # fmt: skip
from ctxvc.forms.losses import Loss
from ctxvc.importers.pi import FORMAT, folders

_AGENT = "pi"
_USAGE = {**dict.fromkeys(("input", "output", "cacheRead", "cacheWrite", "totalTokens"), 0)}
_COST = dict.fromkeys(("input", "output", "cacheRead", "cacheWrite", "total"), 0)


def write(conversation: Conversation, setting: Setting) -> NativeSession:
    """The session. Texts that no person wrote are messages of an extension, which pi sends as the user's."""
    content = arriving(conversation, setting, _AGENT, FORMAT)
    identifier = str(session_id(conversation, setting, _AGENT))
    losses = list(content.losses)
    time = stamp(setting)
    header = {"type": "session", "version": 3, "id": identifier, "timestamp": time, "cwd": str(setting.folder)}
    lines, parent = [header], None
    entries = [{"type": "session_info", "name": title(conversation)}]
    entries += _entries(content, conversation, setting, losses)
    for number, entry in enumerate(entries):
        own = hashlib.sha256(f"{identifier}/{number}".encode()).hexdigest()[:8]
        lines.append({"type": entry["type"], "id": own, "parentId": parent, "timestamp": time, **entry})
        parent = own
    data = b"".join(wire.compact(line) + b"\n" for line in lines)
    name = f"{time.replace(':', '-').replace('.', '-')}_{identifier}.jsonl"
    return NativeSession(id=identifier, files={PurePosixPath(name): data}, losses=tuple(losses))


def _entries(
    content: Content, conversation: Conversation, setting: Setting, losses: list[Loss]
) -> Iterator[dict[str, Any]]:
    time = milliseconds(setting)
    provider, name = model(conversation, setting)
    tools = content.tools
    for turn in turns(content):
        if turn.role == "assistant":
            message = {
                "role": "assistant",
                "content": [block for piece in turn.pieces for block in _reply(piece, losses)],
                "api": "anthropic-messages" if provider == "anthropic" else "openai-responses",
                "provider": provider,
                "model": name,
                "usage": {**_USAGE, "cost": _COST},
                "stopReason": "toolUse" if turn.calls else "stop",
                "timestamp": time,
            }
            yield {"type": "message", "message": message, **content.note(turn.calls)}
        elif results := turn.results:
            yield from ({"type": "message", "message": _result(one, tools, time, losses)} for one in results)
        else:
            yield _incoming(turn, time, losses)


def _reply(piece: Piece, losses: list[Loss]) -> Iterator[dict[str, Any]]:
    if piece.kind == "tool_use":
        yield {"type": "toolCall", "id": piece.call, "name": piece.tool, "arguments": arguments(piece)}
    elif piece.kind == "assistant":
        yield {"type": "text", "text": display.decode(piece.body)}
    else:
        losses.append(Loss(piece.block))


def _incoming(turn: Turn, time: int, losses: list[Loss]) -> dict[str, Any]:
    content = [block for piece in turn.pieces for block in _blocks(piece, losses)]
    if turn.human:
        return {"type": "message", "message": {"role": "user", "content": content, "timestamp": time}}
    return {"type": "custom_message", "customType": "ctxvc", "content": content, "display": False}


def _result(piece: Piece, tools: Mapping[str, str], time: int, losses: list[Loss]) -> dict[str, Any]:
    content = _blocks(piece, losses)
    losses += [Loss(f"{piece.block}.content", "`(no tool output)`, if it goes to OpenAI")] * (not content)
    return {
        "role": "toolResult",
        "toolCallId": piece.call,
        "toolName": tools.get(piece.call, piece.tool),
        "content": content,
        "isError": piece.error,
        "timestamp": time,
    }


def _blocks(piece: Piece, losses: list[Loss]) -> list[dict[str, Any]]:
    return [
        {"type": "text", "text": one}
        if isinstance(one, str)
        else {"type": "image", "data": one.data, "mimeType": one.type}
        for one in texts_and_media(piece, losses)
    ]


NATIVE = NativeFormat(
    agent=_AGENT, format=FORMAT, write=write, folder=lambda *place: folders(*place)[-1], resume="pi --session {id}"
)
