"""Explains origins to a model: what happened to a block, or which conversation wrote a line of code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from ctxvc.agent.tools import phrases
from ctxvc.core.display import one_line
from ctxvc.errors import BadInput, CtxvcError, NotFound
from ctxvc.inspection import blame
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import address as addresses
from ctxvc.store.store import Store

#: The most lines of an answer, and characters of a line.
_LINES, _WIDE = 60, 300
#: The most characters of a target.
_LONGEST = 4_096

#: A line of a file, a file or a commit → the answer's lines, and the addresses in it. Raises: CtxvcError.
Explain: TypeAlias = Callable[[Store, str], tuple[Sequence[str], Sequence[str]]]


class Explanation(msgspec.Struct, frozen=True):
    """The answer's lines, each safe to show, and the addresses that it names."""

    lines: list[str]
    addresses: list[str]


def explanation(stored: StoredSession, target: str, explain: Explain | None) -> Explanation:
    """The history of a block or group; for any other target, the origin of code, from `explain`.

    Raises: BadInput, NotFound, CtxvcError.
    """
    if "\0" in target or len(target) > _LONGEST:
        raise BadInput(f"{one_line(target, 40)} names nothing", hint="name a block, a file, its line, or a commit")
    resolved = addresses.target(stored, target)
    if resolved is not None and (item := resolved.row or resolved.group) is not None:
        events = blame.events(stored, resolved.snapshot.scope, item.id)
        return _bounded([_line(event) for event in events], [item.id])
    if explain is None:
        raise NotFound(f"{target[:80]!r} is not a block or group")
    try:
        return _bounded(*explain(stored.store, target))
    except CtxvcError as error:  # its hints are for the command line
        raise NotFound(phrases.message(error)) from error


def _line(event: blame.Event) -> str:
    decided = f", by {event.entry.actor}: {event.entry.subject}" if event.entry else ""
    return f"step {event.step}: {event.what}{decided}"


def _bounded(lines: Sequence[str], blocks: Sequence[str]) -> Explanation:
    more = [f"({len(lines) - _LINES} more lines)"] if len(lines) > _LINES else []
    return Explanation([*(one_line(line, _WIDE) for line in lines[:_LINES]), *more], list(dict.fromkeys(blocks)))
