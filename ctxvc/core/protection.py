"""What nobody but a person removes: what the model works on now, what it was asked, and what it was told to obey."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ctxvc.core import wire
from ctxvc.core.ledger import Ledger, Row
from ctxvc.core.numbering import is_human

#: Files whose words bind the model for the whole session.
INSTRUCTIONS = ("CLAUDE.md", "AGENTS.md", "SKILL.md")


def protected(ledger: Ledger, names: Sequence[str] = INSTRUCTIONS) -> frozenset[str]:
    """The blocks of the latest step that has a reply, the human messages that opened the current turn, the session's
    first human message, and what instruction files of these `names` said."""
    held = list(ledger.rows())
    return frozenset(row.id for row in (*_latest_step(held), *_asked(held), *_instructions(held, names)))


def _latest_step(held: list[Row]) -> list[Row]:
    latest = max((row.step for row in held if row.role == "assistant"), default=None)
    return [row for row in held if row.step == latest]


def _asked(held: list[Row]) -> list[Row]:
    # A person's note is a human's text too, but it opens nothing.
    human = [row for row in held if is_human(row.role, row.origin) and row.kind != "note"]
    newest = max((row.turn for row in human), default=0)
    return [row for row in human if row.turn == newest or row.msg == human[0].msg]


def _instructions(held: list[Row], names: Sequence[str]) -> Iterator[Row]:
    if not names:
        return
    named = re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, names))})(?![\w-]|\.\w)", re.IGNORECASE)
    calls: dict[str, Row] = {}
    for row in held:
        if row.kind == "tool_use":
            calls[row.call] = row
        elif row.kind == "tool_result":
            call = calls.get(row.call)
            if call and named.search(call.label):
                yield row
        elif row.origin == "client" and named.search(f"{row.label} {wire.notes(row.extra).get('file', '')}"):
            yield row
