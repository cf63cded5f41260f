"""The page of a session, as `report` writes it and `ui` serves it, with the commands that a person would type."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import ctxvc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxvc.report import data
    from ctxvc.store.log.stored_session import StoredSession
    from ctxvc.tokens.meter import Meter

#: A verb → the one that takes it back.
_INVERSE = {
    **dict.fromkeys(("archive", "mask", "prune", "delete", "offload"), "restore"),
    "restore": "archive",
    "pin": "unpin",
    "unpin": "pin",
}


def page_of(
    stored: StoredSession, meter: Meter, *, tips: Sequence[str] = (), command: str = "ctxvc report"
) -> data.Session:
    """The page of what `tips` reach, by default of the whole session with what is in no commit yet. Raises: Damaged."""
    from ctxvc.report.session import Commands, session
    from ctxvc.report.share import clean_of
    from ctxvc.store import timestamp

    name = shlex.quote(stored.name)

    def undo(verb: str, block: str) -> str:
        return f"ctxvc --session {name} {_INVERSE[verb]} {block}" if verb in _INVERSE else ""

    def show(block: str) -> str:
        return f"ctxvc --session {name} show {block}"

    return session(
        stored.store,
        stored.name,
        tips or tips_of(stored),
        meter,
        created=timestamp.now("seconds"),
        version=ctxvc.__version__,
        commands=Commands(command, undo, show),
        clean=clean_of(stored.store, stored.name),
        live=None if tips else stored,
    )


def tips_of(stored: StoredSession) -> list[str]:
    """The newest commits of all scopes, the current one's first."""
    return [stored.tip(scope) for scope in dict.fromkeys((stored.scope, *stored.scopes()))]
