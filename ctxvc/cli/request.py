"""A snapshot as a request of a provider."""

from __future__ import annotations

from ctxvc.core.prompt import formats
from ctxvc.core.prompt.outline import Piece
from ctxvc.store.read.revision import Snapshot


def request_of(snapshot: Snapshot, content: list[Piece]) -> formats.Prompt:
    """The complete request of a snapshot, with `content` for its messages."""
    return formats.Prompt(
        pieces=content, system=snapshot.system, tools=snapshot.tools, model=snapshot.ledger.meta.model
    )
