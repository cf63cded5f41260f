"""A session of Copilot CLI: a folder with its description and a line for each event."""

from __future__ import annotations

import base64
import hashlib
import uuid
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from ctxvc.core import display
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.wire import without
from ctxvc.core.prompt.outline import Piece
from ctxvc.exporters.conversation import Conversation
from ctxvc.exporters.native.content import Content, Media, Turn, arguments, arriving, moved, texts_and_media, turns
from ctxvc.exporters.native.session import NativeFormat, NativeSession, Setting, session_id, stamp, title
from ctxvc.forms.losses import Loss
from ctxvc.importers.copilot_cli import FORMAT, folders

_AGENT = "copilot"
#: The release whose form is written.
_VERSION = "1.0.102"


def write(conversation: Conversation, setting: Setting) -> NativeSession:
    """The folder. A message with several texts becomes several messages."""
    content = arriving(conversation, setting, _AGENT, FORMAT)
    identifier = session_id(conversation, setting, _AGENT)
    losses, time = list(content.losses), stamp(setting)
    events = [_start(setting, str(identifier), time), *_Events(content, identifier, losses).all()]
    lines, parent = [], None
    for number, (kind, data) in enumerate(events):
        own = str(uuid.uuid5(identifier, str(number)))
        lines.append(wire.compact({"type": kind, "data": data, "id": own, "timestamp": time, "parentId": parent}))
        parent = own
    folder = PurePosixPath(str(identifier))
    files = {
        folder / "events.jsonl": b"\n".join(lines) + b"\n",
        folder / "workspace.yaml": _description(conversation, setting, str(identifier), time),
    }
    return NativeSession(id=str(identifier), files=files, losses=tuple(losses))


def _start(setting: Setting, identifier: str, time: str) -> tuple[str, dict[str, Any]]:
    data = {
        "sessionId": identifier,
        "version": 1,
        "producer": "copilot-agent",
        "copilotVersion": _VERSION,
        "startTime": time,
        "context": {"cwd": str(setting.folder)},
    }
    return "session.start", data


def _description(conversation: Conversation, setting: Setting, identifier: str, time: str) -> bytes:
    """The session's description in YAML, with JSON strings."""
    fields = {
        "id": identifier,
        "cwd": str(setting.folder),
        "name": title(conversation),
        "created_at": time,
        "updated_at": time,
    }
    return b"".join(name.encode() + b": " + wire.compact(value) + b"\n" for name, value in fields.items())


class _Events:
    """Writes the events, each as its type and data."""

    def __init__(self, content: Content, identifier: uuid.UUID, losses: list[Loss]) -> None:
        self._content = content
        self._identifier = identifier
        self._losses = losses
        self._results = content.results

    def all(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for number, turn in enumerate(turns(self._content)):
            message = str(uuid.uuid5(self._identifier, f"message-{number}"))
            if turn.role == "assistant":
                yield from self._reply(turn, message, str(number))
            elif not turn.results:
                yield from (("user.message", question) for question in self._questions(turn, message))

    def _questions(self, turn: Turn, message: str) -> Iterator[dict[str, Any]]:
        """A message for each text; the last has the pictures."""
        content = [one for piece in turn.pieces for one in texts_and_media(piece, self._losses)]
        texts = [one for one in content if isinstance(one, str)] or [""]
        files = [
            {"type": "blob", "data": one.data, "mimeType": one.type, "displayName": one.name or "picture"}
            for one in content
            if isinstance(one, Media)
        ]
        for number, text in enumerate(texts):
            yield {
                "content": text,
                "transformedContent": text,
                "messageId": f"{message}-{number}",
                "attachments": files if number == len(texts) - 1 else [],
                **({} if turn.human else {"source": "agent-ctxvc"}),
            }

    def _reply(self, turn: Turn, message: str, number: str) -> Iterator[tuple[str, dict[str, Any]]]:
        self._losses += moved(turn)
        texts = [display.decode(piece.body) for piece in turn.pieces if piece.kind == "assistant"] or [""]
        self._losses += [Loss(one.block) for one in turn.pieces if one.kind not in ("assistant", "tool_use")]
        requests = [
            {"toolCallId": call.call, "name": call.tool, "arguments": arguments(call), "type": "function"}
            for call in turn.calls
        ]
        yield "assistant.turn_start", {"turnId": number}
        for at, text in enumerate(texts[:-1]):
            message_data = {"messageId": f"{message}-{at}", "content": text, "toolRequests": [], "turnId": number}
            yield "assistant.message", message_data
        yield (
            "assistant.message",
            {
                "messageId": message,
                "content": texts[-1],
                "toolRequests": requests,
                "turnId": number,
                **self._content.note(turn.calls),
            },
        )
        for call in turn.calls:
            about = {"toolCallId": call.call, "turnId": number}
            yield "tool.execution_start", {**about, "toolName": call.tool, "arguments": arguments(call)}
            yield from self._result(self._results[call.call], about)
        yield "assistant.turn_end", {"turnId": number}

    def _result(self, piece: Piece, about: Mapping[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
        """The event of a result, after those with its pictures."""
        content = texts_and_media(piece, self._losses)
        text = "\n".join(one for one in content if isinstance(one, str))
        assets = [_asset(one) for one in content if isinstance(one, Media)]
        yield from (("session.binary_asset", asset) for asset in assets)
        self._losses += [Loss(f"{piece.block}.content", "sent only to models that take pictures")] * bool(assets)
        if piece.error and not assets:
            failure = {"success": False, "error": {"message": text, "code": "failure"}}
            yield "tool.execution_complete", {**about, **failure}
            return
        pictures = [without(asset, "data") for asset in assets]
        result = {"content": text, **({"binaryResultsForLlm": pictures} if pictures else {})}
        yield "tool.execution_complete", {**about, "success": True, "result": result}


def _asset(media: Media) -> dict[str, Any]:
    data = base64.b64decode(media.data)
    return {
        "assetId": f"sha256:{hashlib.sha256(data).hexdigest()}",
        "type": "image",
        "mimeType": media.type,
        "byteLength": len(data),
        "data": media.data,
        "description": media.name or "picture",
    }


NATIVE = NativeFormat(
    agent=_AGENT, format=FORMAT, write=write, folder=lambda *place: folders(*place)[0], resume="copilot --resume={id}"
)
