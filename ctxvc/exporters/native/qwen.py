"""A session of Qwen Code: a line for each message, as Gemini has them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from ctxvc.core.ledger import wire
from ctxvc.exporters.conversation import Conversation
from ctxvc.exporters.native.content import Content, Turn, arriving, moved, turns
from ctxvc.exporters.native.gemini import call_fields, parts_of, result_parts
from ctxvc.exporters.native.session import NativeFormat, NativeSession, Setting, session_id, stamp, title
from ctxvc.forms.losses import Loss
from ctxvc.importers.qwen_code import FORMAT, folder_name, home_folder

_AGENT = "qwen"
#: The release whose form is written.
_VERSION = "0.24.4"


def write(conversation: Conversation, setting: Setting) -> NativeSession:
    """The session."""
    content = arriving(conversation, setting, _AGENT, FORMAT)
    identifier = session_id(conversation, setting, _AGENT)
    losses = list(content.losses)
    envelope = {
        "sessionId": str(identifier),
        "timestamp": stamp(setting),
        "cwd": str(setting.folder),
        "version": _VERSION,
    }
    lines, parent = [], None
    for number, record in enumerate(_records(content, conversation, losses)):
        own = str(uuid.uuid5(identifier, str(number)))
        lines.append(wire.compact({"uuid": own, "parentUuid": parent, **envelope, **record}) + b"\n")
        parent = own
    return NativeSession(
        id=str(identifier), files={PurePosixPath(f"{identifier}.jsonl"): b"".join(lines)}, losses=tuple(losses)
    )


def _records(content: Content, conversation: Conversation, losses: list[Loss]) -> Iterator[dict[str, Any]]:
    tools = content.tools
    for turn in turns(content):
        if turn.role == "assistant":
            yield _reply(turn, content, conversation.ledger.meta.model or "unknown", losses)
        elif results := turn.results:
            for result in results:
                yield {
                    "type": "tool_result",
                    "provenance": "tool_result",
                    "message": {"role": "user", "parts": result_parts(result, tools, losses)},
                    "toolCallResult": {"callId": result.call, "status": "error" if result.error else "success"},
                }
        else:
            message = {"role": "user", "parts": parts_of(turn.pieces, losses)}
            yield {"type": "user", "provenance": "real_user" if turn.human else "system", "message": message}
    yield {
        "type": "system",
        "provenance": "system",
        "subtype": "custom_title",
        "systemPayload": {"customTitle": title(conversation), "titleSource": "manual"},
    }


def _reply(turn: Turn, content: Content, model: str, losses: list[Loss]) -> dict[str, Any]:
    losses += moved(turn)
    calls = [call_fields(piece) for piece in turn.calls]
    parts = [*parts_of(turn.pieces, losses), *({"functionCall": call} for call in calls)]
    return {
        "type": "assistant",
        "provenance": "assistant_output",
        "model": model,
        "message": {"role": "model", "parts": parts},
        **content.note(turn.calls),
    }


def _folder(project: Path, home: Path, env: Mapping[str, str]) -> Path:
    return home_folder(home, env) / folder_name(project) / "chats"


NATIVE = NativeFormat(agent=_AGENT, format=FORMAT, write=write, folder=_folder, resume="qwen --resume {id}")
