"""A session of Codex: a rollout, whose items are those of the Responses API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any

from ctxvc.core import display
from ctxvc.core.ledger import wire
from ctxvc.core.prompt.formats import Prompt
from ctxvc.core.prompt.outline import Piece
from ctxvc.exporters.conversation import Conversation
from ctxvc.exporters.native.content import Content, arriving
from ctxvc.exporters.native.session import NativeFormat, NativeSession, Setting, session_id, stamp, title
from ctxvc.forms.items import is_clients
from ctxvc.forms.losses import Loss
from ctxvc.forms.responses_writer import written

_AGENT = _FORMAT = "codex"
#: The release whose form is written.
_VERSION = "0.171.0"
#: The most tokens of a result that Codex sends in full; without it, the model's limit applies.
_LIMIT = 10_000_000


def write(conversation: Conversation, setting: Setting) -> NativeSession:
    """The rollout. Its instructions are Codex's own; it does not say which results failed."""
    content = arriving(conversation, setting, _AGENT, _FORMAT, items=True, own_context=is_clients)
    identifier = str(session_id(conversation, setting, _AGENT))
    losses = list(content.losses)
    time = stamp(setting)
    lines = [
        {"type": "session_meta", "payload": _description(conversation, setting, identifier)},
        _event("thread_name_updated", thread_id=identifier, thread_name=title(conversation)),
        *_items(content, losses),
    ]
    data = b"".join(wire.compact({"timestamp": time, **line}) + b"\n" for line in lines)
    name = f"{time[:10].replace('-', '/')}/rollout-{time[:19].replace(':', '-')}-{identifier}.jsonl"
    return NativeSession(id=identifier, files={PurePosixPath("sessions", name): data}, losses=tuple(losses))


def _description(conversation: Conversation, setting: Setting, identifier: str) -> dict[str, Any]:
    source = conversation.ledger.meta.source
    return {
        "id": identifier,
        "timestamp": stamp(setting),
        "cwd": str(setting.folder),
        "originator": "ctxvc",
        "cli_version": _VERSION,
        "source": "cli",
        "model_provider": "openai",
        **({"git": {"branch": source.branch}} if source and source.branch else {}),
    }


def _event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "event_msg", "payload": {"type": kind, **fields}}


def _items(content: Content, losses: list[Loss]) -> Iterator[dict[str, Any]]:
    """The lines of all items, with events for the texts that Codex shows."""

    def place(piece: Piece) -> tuple[int, str, bool]:
        return piece.message, piece.role, piece.block in content.human

    for (_, role, human), group in groupby(content.pieces, place):
        together = list(group)
        request = written(Prompt(pieces=together))
        losses += request.losses
        texts = [display.decode(piece.body) for piece in together if piece.kind == role]
        if texts and (human or role == "assistant"):
            kind = "user_message" if human else "agent_message"
            yield _event(kind, message="\n".join(texts))
        for item in request.value["input"]:
            note = content.note(one for one in together if one.call == item.get("call_id")) if "name" in item else {}
            yield {**_line(item, human=human), **note}


def _line(item: dict[str, Any], *, human: bool) -> dict[str, Any]:
    if isinstance(item.get("content"), str):
        item = {**item, "content": [{"type": "output_text", "text": item["content"]}]}  # a rollout has no other form
    if item["type"] == "message" and item["role"] == "user":
        kinds = ["user.text" if human else "ctxvc.context"] * len(item["content"])
        item = {**item, "internal_chat_message_metadata_passthrough": {"content_item_kinds": kinds}}
    line = {"type": "response_item", "payload": item}
    if item["type"].endswith("_output"):
        line["metadata"] = {"fallback_token_limit_override": _LIMIT}
    return line


def _folder(_: Path, home: Path, env: Mapping[str, str]) -> Path:
    return Path(env["CODEX_HOME"]) if env.get("CODEX_HOME") else home / ".codex"


NATIVE = NativeFormat(agent=_AGENT, format=_FORMAT, write=write, folder=_folder, resume="codex resume {id}")
