"""A conversation of OpenHands: a folder with its state, and a file for each event."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from ctxvc.core import display
from ctxvc.core.ledger import wire
from ctxvc.core.prompt.outline import Piece
from ctxvc.exporters.conversation import Conversation
from ctxvc.exporters.native.content import Content, Turn, arguments, arriving, moved, texts_and_media, turns
from ctxvc.exporters.native.session import NativeFormat, NativeSession, Setting, session_id, stamp, title
from ctxvc.forms.losses import Loss
from ctxvc.importers.openhands import FORMAT, NOTE, folders

_AGENT = "openhands"
#: OpenHands writes its own system prompt only into a new conversation: one that continues must have one already.
_SYSTEM = (
    "You are OpenHands agent, a helpful AI assistant that can interact with a computer to solve tasks. You continue a "
    "conversation that another agent began: its tools may have had other names. Your working folder is {folder}."
)
#: The most events that OpenHands sends without a summary, with the new question, and those it keeps at the beginning.
_MOST_EVENTS, _FIRST_EVENTS = 78, 4
#: The most characters of a result's text that OpenHands sends in full.
_LONGEST_TEXT = 50_000


def write(conversation: Conversation, setting: Setting) -> NativeSession:
    """The folder. Calls have no action of OpenHands, which would be checked against its tool."""
    content = arriving(conversation, setting, _AGENT, FORMAT)
    identifier = session_id(conversation, setting, _AGENT)
    losses = [Loss("system", "a short text") if loss.path == "system" else loss for loss in content.losses]
    folder = PurePosixPath(identifier.hex)
    files = {folder / "base_state.json": wire.compact(_state(conversation, setting, identifier))}
    note = content.note(piece for piece in content.pieces if piece.kind == "tool_use")
    if note:
        files[folder / NOTE] = wire.compact(note["ctxvc"])  # an event has no place for it
    events = [_system(conversation, setting), *_Events(content, losses).all()]
    for number, event in enumerate(events):
        own = event.pop("id", None) or str(uuid.uuid5(identifier, str(number)))
        data = wire.compact({"id": own, "timestamp": stamp(setting).removesuffix("Z"), **event})
        files[folder / "events" / f"event-{number:05}-{own}.json"] = data
    return NativeSession(id=identifier.hex, files=files, losses=(*losses, *_summarized(content, len(events))))


def _summarized(content: Content, events: int) -> list[Loss]:
    """The pieces that OpenHands's default condenser will summarize: all but the first few and the newest events.

    A piece has about one event.
    """
    if events <= _MOST_EVENTS:
        return []
    summarized = content.pieces[: 1 - _MOST_EVENTS // 2 + _FIRST_EVENTS]
    return [Loss(piece.block, "OpenHands's own summary of what is more than 80 events") for piece in summarized]


def _state(conversation: Conversation, setting: Setting, identifier: uuid.UUID) -> dict[str, Any]:
    # The recorded model would be checked for its window, although OpenHands continues with the one that it is set to.
    return {
        "id": str(identifier),
        "agent": {
            "kind": "Agent",
            "llm": {"model": setting.model or "unknown"},
            "tools": [],
            "include_default_tools": [],
        },
        "workspace": {"kind": "LocalWorkspace", "working_dir": str(setting.folder)},
        "tags": {"title": title(conversation)},
    }


def _system(conversation: Conversation, setting: Setting) -> dict[str, Any]:
    source = conversation.ledger.meta.source
    texts = conversation.system_texts if source and source.format == FORMAT else []
    text = "\n\n".join(texts) or _SYSTEM.format(folder=setting.folder)
    return {"source": "agent", "system_prompt": _text(text), "tools": [], "kind": "SystemPromptEvent"}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


class _Events:
    """Writes the events: one for each message, each call and each result."""

    def __init__(self, content: Content, losses: list[Loss]) -> None:
        self._content = content
        self._losses = losses
        self._tools = content.tools
        self._actions: dict[str, str] = {}  # call → its event

    def all(self) -> Iterator[dict[str, Any]]:
        for number, turn in enumerate(turns(self._content)):
            if turn.role == "assistant":
                yield from self._reply(turn, f"reply-{number}")
            elif results := turn.results:
                yield from map(self._result, results)
            else:
                parts = [part for piece in turn.pieces for part in self._parts(piece)]
                yield self._message("user" if turn.human else "environment", "user", parts)

    def _message(self, source: str, role: str, parts: list[dict[str, Any]], **fields: str) -> dict[str, Any]:
        message = {"role": role, "content": parts, "thinking_blocks": []}
        return {"source": source, "llm_message": message, **fields, "kind": "MessageEvent"}

    def _reply(self, turn: Turn, reply: str) -> Iterator[dict[str, Any]]:
        self._losses += moved(turn)
        texts = [_text(display.decode(piece.body)) for piece in turn.pieces if piece.kind == "assistant"]
        self._losses += [Loss(one.block) for one in turn.pieces if one.kind not in ("assistant", "tool_use")]
        if not turn.calls:
            yield self._message("agent", "assistant", texts, llm_response_id=reply)
        for number, piece in enumerate(turn.calls):
            yield self._call(piece, [] if number else texts, reply)

    def _call(self, piece: Piece, thought: list[dict[str, Any]], reply: str) -> dict[str, Any]:
        action = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{reply}/{piece.call}"))
        self._actions[piece.call] = action
        text = wire.compact(arguments(piece)).decode("utf-8", "surrogatepass")
        return {
            "id": action,
            "source": "agent",
            "thought": thought,
            "thinking_blocks": [],
            "tool_name": piece.tool,
            "tool_call_id": piece.call,
            "tool_call": {"id": piece.call, "name": piece.tool, "arguments": text, "origin": "completion"},
            "llm_response_id": reply,
            "kind": "ActionEvent",
        }

    def _result(self, piece: Piece) -> dict[str, Any]:
        about = {"tool_name": self._tools.get(piece.call, piece.tool), "tool_call_id": piece.call}
        parts = list(self._parts(piece))
        if any(len(part.get("text", "")) > _LONGEST_TEXT for part in parts):
            change = f"what OpenHands leaves of more than {_LONGEST_TEXT:,} characters"
            self._losses.append(Loss(f"{piece.block}.content", change))
        if piece.error and all(part["type"] == "text" for part in parts):
            error = "".join(part["text"] for part in parts)
            return {"source": "agent", **about, "error": error, "kind": "AgentErrorEvent"}
        observation = {"content": parts, "tool_name": about["tool_name"], "kind": "MCPToolObservation"}
        action = self._actions.get(piece.call, "")
        return {"source": "environment", **about, "observation": observation, "action_id": action,
                "kind": "ObservationEvent"}  # fmt: skip

    def _parts(self, piece: Piece) -> Iterator[dict[str, Any]]:
        for one in texts_and_media(piece, self._losses):
            yield _text(one) if isinstance(one, str) else {"type": "image", "image_urls": [one.url]}


NATIVE = NativeFormat(
    agent=_AGENT, format=FORMAT, write=write, folder=lambda *place: folders(*place)[0], resume="openhands --resume {id}"
)
