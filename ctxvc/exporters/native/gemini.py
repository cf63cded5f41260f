"""A session of Gemini CLI: a header, then a line for each message; a reply has the results of its calls."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from ctxvc.core.ledger import wire
from ctxvc.exporters.conversation import Conversation
from ctxvc.exporters.native import gemini_parts
from ctxvc.exporters.native.content import Content, Turn, arriving, moved, turns
from ctxvc.exporters.native.session import NativeFormat, NativeSession, Setting, session_id, stamp, title
from ctxvc.forms.losses import Loss
from ctxvc.importers.file import object_in
from ctxvc.importers.gemini_cli import FORMAT, folders, project_hash, project_root

_AGENT = "gemini"
#: How messages begin that Gemini CLI leaves out when it goes on, and what it finds before them instead.
_LEFT_OUT = re.compile(r"\s*(?:[/?]|<session_context>|<hook_context>|$)")
_BEFORE = "…"
#: Characters of results that Gemini CLI surely sends whole, the newest; and how many more there must be before it
#: shortens older ones: 50,000 and 30,000 tokens, of about 4 characters.
_WHOLE, _SHORTENED = 180_000, 110_000


def write(conversation: Conversation, setting: Setting) -> NativeSession:
    """The session. Every text in the user's name is a person's."""
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
                {**gemini_parts.call(call), "result": gemini_parts.result(results[call.call], tools, losses)}
                for call in turn.calls
            ]
            yield {
                "type": "gemini",
                "content": gemini_parts.content(turn.pieces, losses),
                "thoughts": [],
                "model": model,
                **({"toolCalls": [{**one, "status": "success"} for one in answered]} if answered else {}),
                **content.note(turn.calls),
            }
        elif not turn.results:
            yield {"type": "user", "content": _question(turn, losses)}


def _shortened(content: Content) -> list[Loss]:
    """The results that Gemini CLI itself may shorten as it sends them: old ones, where there are many."""
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
    """What the user says, behind a part of ours where it would be taken for a command."""
    parts = gemini_parts.content(turn.pieces, losses)
    if _LEFT_OUT.match("".join(part.get("text", "") for part in parts)):
        losses.append(Loss(turn.pieces[0].block, f"the same behind {_BEFORE!r}"))
        return [{"text": _BEFORE}, *parts]
    return parts


def _folder(project: Path, home: Path, env: Mapping[str, str]) -> Path:
    """The project's folder where Gemini CLI knows it; else the one from which it takes over what older releases left,
    when it starts there for the first time."""
    (base,) = folders(project, home, env)
    return base / (_name_of(project, base) or project_hash(project)) / "chats"


def _name_of(project: Path, base: Path) -> str:
    projects = object_in(base.parent / "projects.json").get("projects")
    name = projects.get(str(project)) if isinstance(projects, dict) else None
    if isinstance(name, str) and re.fullmatch(r"[\w.-]+", name):
        return name
    return next((one.name for one in sorted(base.glob("*")) if project_root(one) == str(project)), "")


NATIVE = NativeFormat(agent=_AGENT, format=FORMAT, write=write, folder=_folder, resume="gemini --resume {id}")
