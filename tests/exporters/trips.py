"""A recording, imported, exported and imported again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ctxvc import exporters, importers
from ctxvc.claude_code.resume import resumable
from ctxvc.core.ledger import wire
from ctxvc.core.prompt.outline import Piece
from ctxvc.core.prompt.sanitise import valid
from ctxvc.exporters.conversation import Conversation
from ctxvc.exporters.exported import Exported
from ctxvc.forms.losses import Loss
from ctxvc.recording.files import import_paths
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import revision
from ctxvc.store.store import Store, create

CLAUDE_CODE = "claude-code"
#: The formats that go both ways.
BOTH_WAYS = [*(name for name in exporters.FORMATS if name in importers.FORMATS), CLAUDE_CODE]
#: Those of them that have the prompt, where the others have all that was recorded.
PROMPTS = frozenset({"anthropic-messages", "openai-chat", "openai-responses", CLAUDE_CODE})
_FIELD = re.compile(r"(B[0-9]+)\.(.+)")


class Block(NamedTuple):
    """What must come back of a block."""

    kind: str
    role: str
    call: str
    error: bool
    body: Any


def imported(store: Store, path: Path, format: str = "auto") -> Conversation:
    """The only session of a file, now."""
    (outcome,) = import_paths(store, [path], format=format, final=True, redact=False)
    if outcome.error:
        raise outcome.error
    return conversation(store, outcome.session)


def conversation(store: Store, session: str, name: str = "HEAD") -> Conversation:
    with StoredSession.open(store, session) as opened:
        return Conversation(store, revision.resolve(store, opened, name))


def exported(recorded: Conversation, format: str) -> Exported:
    if format != CLAUDE_CODE:
        return exporters.exporter(format).export(recorded)
    made = resumable(recorded.store, recorded.snapshot, Path("/work"))
    changed = (Loss(f"{block}.input") for block in made.taken_over)
    return Exported(made.data, (*map(Loss, made.left_out), *changed))


def content(recorded: Conversation, format: str) -> list[Piece]:
    if format == CLAUDE_CODE:  # which is made valid on the way, and writes system messages as a user's
        sent = valid(recorded.prompt())
        return [
            msgspec.structs.replace(piece, role="user", kind="user") if piece.role == "system" else piece
            for piece in sent
        ]
    if format in PROMPTS:
        return recorded.prompt()
    return [piece for message in recorded.messages() for _, piece in message.pieces]


def differences(recorded: Conversation, format: str, folder: Path) -> list[str]:
    """What is not the same after the way there and back, and was not listed as lost."""
    export = exported(recorded, format)
    path = folder / f"{format}.jsonl"
    path.write_bytes(export.data)
    lost = {loss.path for loss in export.losses if _FIELD.fullmatch(loss.path) is None}
    fields = {match.groups() for loss in export.losses if (match := _FIELD.fullmatch(loss.path))}
    # What leads as a part of the system prompt is no message of its own any more.
    lost |= {name for name, field in fields if field == "role"}
    with create(folder / format) as other:
        again = [block(piece) for piece in content(imported(other, path, format), format)]
    ours = [
        (piece.block, block(piece)) for piece in content(recorded, format) if piece.block not in lost and piece.body
    ]
    again = [one for one in again if one.body not in (b"", None)]
    return list(_compared(ours, again, {name for name, _ in fields}))


def _compared(ours: list[tuple[str, Block]], again: list[Block], in_part: set[str]) -> Iterator[str]:
    if len(ours) != len(again):
        yield f"{len(again)} blocks of {len(ours)}"
    for (name, one), other in zip(ours, again, strict=False):
        # Of a block that lost something, as was listed, the rest is not compared.
        rest = {"body": b"", "error": False} if name in in_part else {}
        if one._replace(**rest) != other._replace(**rest):
            yield f"{name}: {str(one)[:300]} became {str(other)[:300]}"


def block(piece: Piece) -> Block:
    body: Any = piece.body
    if piece.kind in ("tool_use", "other") or piece.ext == "json":
        body = value if (value := wire.parsed(piece.body, object)) is not None else piece.body
    kind = "user" if piece.kind == "note" else piece.kind
    return Block(kind, piece.role, piece.call, piece.error, body)
