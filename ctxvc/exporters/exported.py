"""The result of an export: bytes, and their losses."""

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


class Exported(msgspec.Struct, frozen=True):
    """A session in another format.

    The path of a loss is the address of a block, perhaps with a field, as in `B17.is_error`; or another part of the
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
    """The leading system messages, which merge with the system prompt if that has no field of its own."""
    for piece in takewhile(lambda piece: piece.role == "system", content):
        yield Loss(f"{piece.block}.role", "a part of the system prompt")


def losses_in_words(exported: Exported, ledger: Ledger) -> Iterator[str]:
    """A line for each kind of losses: their number, the first one's path, and what replaces them."""
    kinds: dict[tuple[str, str, bool], list[Loss]] = {}
    for loss in exported.losses:
        kinds.setdefault((*_subject(loss.path, ledger), bool(loss.change)), []).append(loss)
    for (field, noun, is_changed), losses in kinds.items():
        first = losses[0].path.partition(".")[0] if field else losses[0].path
        subject = f"{len(losses)} {noun}s (first: {first})" if len(losses) > 1 else f"1 {noun} ({first})"
        change = ", ".join(dict.fromkeys(loss.change for loss in losses))
        yield "".join((
            "changed: " if is_changed else "left out: ", f"{field} of " if field else "",
            _WHOLE.get(losses[0].path, subject), f": {change}" if is_changed else "",
        ))  # fmt: skip


def _subject(path: str, ledger: Ledger) -> tuple[str, str]:
    """The lost field, empty if everything was lost, and a noun for what had it."""
    head, _, field = _NUMBERED.sub("", path).partition(".")
    row = ledger.get(head) if _BLOCK.fullmatch(head) else None
    if row is None and head not in ("tools", *ledger.groups):
        return "", _NOUNS.get(head, "field")
    noun = _NOUNS.get(row.kind, row.kind) if row else _NOUNS.get(head, "group")
    return _FIELDS.get(field, f"`{field}`" if field else ""), noun


_BLOCK = re.compile("B[0-9]+")
_NUMBERED = re.compile(r"\[[0-9]+\]")
#: The names of what exists once.
_WHOLE = {"system": "the system prompt", "tools": "the tool definitions"}
#: Kinds of blocks, and parts of a session or request → a noun for people.
_NOUNS = {
    "user": "message", "assistant": "answer", "thinking": "thinking block", "tool_use": "call", "tool_result": "result",
    "system": "system message", "other": "other block", "tools": "tool definition", "scopes": "subagent",
    "files": "file", "steps": "step",
}  # fmt: skip
_FIELDS = {"name": "the tool's name", "input": "the arguments", "is_error": "the error mark",
           "content": "content", "origin": "the author", "role": "the role"}  # fmt: skip
