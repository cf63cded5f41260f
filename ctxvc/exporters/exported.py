"""What an exporter makes of a conversation: bytes, and what they had no place for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Protocol

import msgspec

from ctxvc.core.ledger.ledger import Ledger
from ctxvc.core.prompt.outline import Piece
from ctxvc.exporters.conversation import Conversation
from ctxvc.forms.losses import Loss

_BLOCK = re.compile(r"(B[0-9]+)(.*)", re.DOTALL)
_NUMBERED = re.compile(r"\[[0-9]+\]")


class Exported(msgspec.Struct, frozen=True):
    """A session in another format.

    The path of a loss is the address of a block, with the field behind it as in `B17.is_error`; or another part of the
    request or session, as `tools[3]` or `scopes.agent-1`.
    """

    data: bytes
    losses: tuple[Loss, ...] = ()


class Exporter(Protocol):
    """A module of `ctxvc.exporters`, named after its format with `_` for `-`."""

    def export(self, conversation: Conversation) -> Exported:
        """The conversation in this format."""
        ...


def leading(content: Sequence[Piece]) -> Iterator[Loss]:
    """The system messages before all others: one with the system prompt where that has no field of its own."""
    for piece in takewhile(lambda piece: piece.role == "system", content):
        yield Loss(f"{piece.block}.role", "a part of the system prompt")


class LossKind(msgspec.Struct, frozen=True):
    """Losses of one kind: `subject` is what was lost, as `thinking` or `is_error of tool_result`."""

    subject: str
    change: str
    paths: tuple[str, ...]


def by_kind(exported: Exported, ledger: Ledger) -> list[LossKind]:
    """The losses by their kind, in the order of the first of each."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for loss in exported.losses:
        kinds.setdefault((_subject(loss.path, ledger), loss.change), []).append(loss.path)
    return [LossKind(subject, change, tuple(paths)) for (subject, change), paths in kinds.items()]


def _subject(path: str, ledger: Ledger) -> str:
    match = _BLOCK.fullmatch(path)
    if match is None:
        return _NUMBERED.sub("", path).partition(".")[0]
    row = ledger.get(match[1])
    kind = row.kind if row else "block"
    field = _NUMBERED.sub("", match[2]).removeprefix(".")
    return f"{field} of {kind}" if field else kind
