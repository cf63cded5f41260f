"""Blocks that only a person removes: the current work, the request behind it, and instruction files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.ledger import Ledger, Row
from ctxvc.core.ledger.numbering import is_human
from ctxvc.core.ledger.pairs import calls_and_results
from ctxvc.core.ledger.skills import newest_step, skills, unused

#: Files whose instructions bind the model: for the whole session, those of a skill as long as it is in use.
INSTRUCTIONS = ("CLAUDE.md", "AGENTS.md", "SKILL.md")


_names_file = re.compile(
    rf"(?<![\w.-])(?:{'|'.join(map(re.escape, INSTRUCTIONS))})(?![\w-]|\.\w)", re.IGNORECASE
).search


def protected(ledger: Ledger) -> frozenset[str]:
    """The blocks that only a person removes.

    They are those of the latest step that has a reply, the human messages that opened the current turn, the session's
    first human message, the contents of instruction files, and the skills in use.
    """
    return ledger.derived(_protected)


def _protected(ledger: Ledger) -> frozenset[str]:
    unbound = unused(ledger)
    instructions = [row for row in _instructions(ledger) if row.id not in unbound]
    in_use = (skill.row for skill in skills(ledger) if skill.row.id not in unbound)
    rows = (*latest_step(ledger), *_human_requests(ledger), *instructions, *in_use)
    return frozenset(row.id for row in rows)


def latest_step(ledger: Ledger) -> list[Row]:
    """The rows of the latest step that has a reply."""
    latest = max((step for step in ledger.by_segment(newest_step) if step is not None), default=None)
    return [] if latest is None else ledger.of_step(latest)


def _human_requests(ledger: Ledger) -> list[Row]:
    human = list(chain.from_iterable(ledger.by_segment(_human)))
    newest = max((row.turn for row in human), default=0)
    return [row for row in human if row.turn == newest or row.msg == human[0].msg]


def _human(rows: tuple[Row, ...]) -> list[Row]:
    # A person's note is also human text, but it opens no turn.
    return [row for row in rows if is_human(row.role, row.origin) and row.kind != "note"]


def _instructions(ledger: Ledger) -> Iterator[Row]:
    """The contents of instruction files: results of calls that name one, and what the client added from one."""
    calls: set[str] = set()  # the ids of the calls that name such a file
    for row in chain.from_iterable(ledger.by_segment(_naming)):
        if row.kind == "tool_use":
            calls.add(row.call)
        else:
            yield row
    latest: dict[str, Row] = {}
    for row in calls_and_results(ledger, calls) if calls else ():
        if row.kind == "tool_use":
            latest[row.call] = row
        elif row.call in latest and row.kind == "tool_result" and _names_file(latest[row.call].label):
            yield row


def _naming(rows: tuple[Row, ...]) -> list[Row]:
    """The rows that name such a file: calls, and what the client added."""
    return [row for row in rows if row.kind != "tool_result" and _names_file(_naming_text(row))]


def _naming_text(row: Row) -> str:
    """The text that may name an instruction file."""
    if row.kind == "tool_use":
        return row.label
    return f"{row.label} {wire.own_metadata(row.extra).get('file', '')}" if row.origin == "client" else ""
