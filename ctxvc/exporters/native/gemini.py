"""A session of Gemini CLI: a header, then a line for each message; a reply has the results of its calls.

`parts_of`, `call_fields` and `result_parts` make the parts of Gemini's messages, which Qwen Code has too.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from ctxvc.core.ledger import wire
from ctxvc.core.prompt.outline import Piece
from ctxvc.exporters.conversation import Conversation
from ctxvc.exporters.native.content import Content, Media, Turn, arguments, arriving, moved, texts_and_media, turns
from ctxvc.exporters.native.session import NativeFormat, NativeSession, Setting, session_id, stamp, title
from ctxvc.forms.losses import Loss
from ctxvc.importers.file import object_in
from ctxvc.importers.gemini_cli import FORMAT, folders, project_hash, project_root

_AGENT = "gemini"
#: The beginnings of media types that a message may have.
_TAKES = ("image/", "application/pdf", "audio/", "video/")
#: The beginnings of messages that Gemini CLI would leave out as it goes on, and a part that is put before them.
_LEFT_OUT = re.compile(r"\s*(?:[/?]|<session_context>|<hook_context>|$)")
_BEFORE = "…"
#: The characters of the newest results that Gemini CLI certainly sends in full, and of older ones below which it
#: shortens none: 50,000 and 30,000 tokens of about 4 characters.
_WHOLE, _SHORTENED = 180_000, 110_000


def write(conversation: Conversation, setting: Setting) -> NativeSession:
    """The session, in which every text of the user counts as a person's."""
    content = arriving(conversation, setting, _AGENT, FORMAT)
    identifier = session_id(conversation, setting, _AGENT)
    time, losses = stamp(setting), [*content.losses, *content.unattributed(), *_shortened(content)]
    header = {
        "sessionId": str(identifier),
        "projectHash": project_hash(setting.folder),
        "startTime": time,
        "lastUpdated": time,
        "kind": "main",
    }
    lines = [header, {"$set": {"summary": title(conversation)}}]
    for number, message in enumerate(_messages(content, conversation, losses)):
        lines.append({"id": str(uuid.uuid5(identifier, str(number))), "timestamp": time, **message})
    data = b"".join(wire.compact(line) + b"\n" for line in lines)
    name = f"session-{time[:16].replace(':', '-')}-{str(identifier)[:8]}.jsonl"
    return NativeSession(id=str(identifier), files={PurePosixPath(name): data}, losses=tuple(losses))


def _messages(content: Content, conversation: Conversation, losses: list[Loss]) -> Iterator[dict[str, Any]]:
    tools, results = content.tools, content.results
    model = conversation.ledger.meta.model or "unknown"
    for turn in turns(content):
        if turn.role == "assistant":
            losses += moved(turn)
            answered = [
                {**call_fields(call), "result": result_parts(results[call.call], tools, losses)} for call in turn.calls
            ]
            yield {
                "type": "gemini",
                "content": parts_of(turn.pieces, losses),
                "thoughts": [],
                "model": model,
                **({"toolCalls": [{**one, "status": "success"} for one in answered]} if answered else {}),
                **content.note(turn.calls),
            }
        elif not turn.results:
            yield {"type": "user", "content": _question(turn, losses)}


def _shortened(content: Content) -> list[Loss]:
    """The old results that Gemini CLI may shorten as it sends them, if there are many."""
    room = _WHOLE
    old = []
    for piece in reversed(content.results.values()):
        room -= len(piece.body)
        if room < 0:
            old.append(piece)
    if sum(len(piece.body) for piece in old) < _SHORTENED:
        return []
    return [Loss(f"{piece.block}.content", "what Gemini CLI leaves of old results") for piece in reversed(old)]


def _question(turn: Turn, losses: list[Loss]) -> list[dict[str, Any]]:
    """The parts of the user's message, after one of ours if it would be taken for a command."""
    parts = parts_of(turn.pieces, losses)
    if _LEFT_OUT.match("".join(part.get("text", "") for part in parts)):
        losses.append(Loss(turn.pieces[0].block, f"the same behind {_BEFORE!r}"))
        return [{"text": _BEFORE}, *parts]
    return parts


def parts_of(pieces: Iterable[Piece], losses: list[Loss]) -> list[dict[str, Any]]:
    """The parts for the texts and media of a turn; calls are left out."""
    return [part for piece in pieces if piece.kind != "tool_use" for part in _parts(piece, losses)]


def _parts(piece: Piece, losses: list[Loss]) -> Iterator[dict[str, Any]]:
    if piece.kind == "thinking" or (piece.role == "assistant" and piece.kind != "assistant"):
        losses.append(Loss(piece.block))
        return
    for one in texts_and_media(piece, losses, _TAKES):
        yield _inline(one) if isinstance(one, Media) else {"text": one}


def call_fields(piece: Piece) -> dict[str, Any]:
    """The id, name and arguments of a call."""
    return {"id": piece.call, "name": piece.tool, "args": arguments(piece)}


def result_parts(piece: Piece, tools: Mapping[str, str], losses: list[Loss]) -> list[dict[str, Any]]:
    """A result, followed by its pictures. `tools` maps the ids of calls to their tools."""
    content = texts_and_media(piece, losses, _TAKES)
    text = "\n".join(one for one in content if isinstance(one, str))
    response = {"error" if piece.error else "output": text}
    answer = {"id": piece.call, "name": tools.get(piece.call, piece.tool), "response": response}
    return [{"functionResponse": answer}, *(_inline(one) for one in content if isinstance(one, Media))]


def _inline(media: Media) -> dict[str, Any]:
    return {"inlineData": {"mimeType": media.type, "data": media.data}}


def _folder(project: Path, home: Path, env: Mapping[str, str]) -> Path:
    """The project's folder if Gemini CLI knows it, else that of older releases, which it takes over at first start."""
    (base,) = folders(project, home, env)
    return base / (_name_of(project, base) or project_hash(project)) / "chats"


def _name_of(project: Path, base: Path) -> str:
    projects = object_in(base.parent / "projects.json").get("projects")
    name = projects.get(str(project)) if isinstance(projects, dict) else None
    if isinstance(name, str) and re.fullmatch(r"[\w.-]+", name):
        return name
    return next((one.name for one in sorted(base.glob("*")) if project_root(one) == str(project)), "")


NATIVE = NativeFormat(agent=_AGENT, format=FORMAT, write=write, folder=_folder, resume="gemini --resume {id}")
