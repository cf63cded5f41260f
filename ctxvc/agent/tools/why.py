"""Where something came from, for a model: what became of a block, or which conversation wrote a line of code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeAlias

import msgspec

from ctxvc.agent.tools import phrases
from ctxvc.agent.tools.definitions import Arguments, definition, parsed
from ctxvc.agent.tools.tools import ANSWERED, Answer, failed
from ctxvc.core.display import one_line
from ctxvc.errors import BadInput, CtxvcError, NotFound
from ctxvc.inspection import blame
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import address as addresses
from ctxvc.store.store import Store

NAME = "why"
#: The most lines of an answer, and the characters of one.
_LINES, _WIDE = 60, 300
#: Characters of what is asked about.
_LONGEST = 4_096

#: A line of a file, a file or a commit → the answer in lines, and the addresses in it. Raises: CtxvcError.
Explain: TypeAlias = Callable[[Store, str], tuple[Sequence[str], Sequence[str]]]


class Why(Arguments, frozen=True, kw_only=True):
    """Explain where something came from: for a line of a file, a file or a commit, the conversation that wrote it and
    what the person asked for; for a block's address, who took it out of the context and why."""

    target: Annotated[str, msgspec.Meta(description="as in src/app.py:42, src/app.py, HEAD, B17 or G3")]


class Explanation(msgspec.Struct, frozen=True):
    """The answer in lines, each safe to show, and the addresses that it names."""

    lines: list[str]
    addresses: list[str]


def definitions() -> list[dict[str, Any]]:
    """The tool, as a model is told of it."""
    return [definition(NAME, Why)]


def answer(stored: StoredSession, arguments: Mapping[str, Any], explain: Explain) -> Answer:
    """What a call of the tool is answered, an error too. Raises: CtxvcError if not even the session can go on."""
    try:
        stored.refresh()
        return Answer("\n".join(explanation(stored, parsed(arguments, Why).target, explain).lines))
    except ANSWERED as error:
        return failed(error)


def explanation(stored: StoredSession, target: str, explain: Explain | None) -> Explanation:
    """What is known of a block or a group, else of code, which `explain` is asked for.

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
    except CtxvcError as error:  # its hints are for a command line
        raise NotFound(phrases.message(error)) from error


def _line(event: blame.Event) -> str:
    decided = f", by {event.entry.actor}: {event.entry.subject}" if event.entry else ""
    return f"step {event.step}: {event.what}{decided}"


def _bounded(lines: Sequence[str], blocks: Sequence[str]) -> Explanation:
    more = [f"({len(lines) - _LINES} more lines)"] if len(lines) > _LINES else []
    return Explanation([*(one_line(line, _WIDE) for line in lines[:_LINES]), *more], list(dict.fromkeys(blocks)))
