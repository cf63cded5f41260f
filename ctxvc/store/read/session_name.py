"""How a person can name a session: by its name, a unique beginning of it, or its position counted from the newest."""

from __future__ import annotations

import re

from ctxvc.core.ledger import name_rules
from ctxvc.core.suggestion import meant, similar
from ctxvc.errors import NotFound, Phrase
from ctxvc.store.store import Store

_BACK = re.compile(r"-([0-9]{1,6})")
#: The most sessions that an error lists.
_MOST_NAMED = 8


class Ambiguous(NotFound):
    """Several sessions begin with `beginning`. `names` are their names, the most recently recorded first."""

    def __init__(self, beginning: str, names: list[str]) -> None:
        first = ", ".join(names[:_MOST_NAMED])
        more = f", and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        super().__init__(f"{len(names)} sessions start with {beginning!r}: {first}{more}", hint="give more of the name")
        self.beginning = beginning
        self.names = names


def by_recency(store: Store) -> list[str]:
    """The names of all sessions, the most recently recorded first, by the recorded times of their newest commits.

    Sessions with a project's notes are left out.
    """
    newest = {
        name: max(store.commit(tip).author.time for tip in scopes.values())
        for name, scopes in store.all_tips().items()
        if not name_rules.has_project_notes(name)
    }
    return sorted(newest, key=lambda name: (-newest[name], name))


def match(store: Store, text: str) -> str:
    """The session that `text` names, as for `resolve`; empty if there is none. Raises: Ambiguous."""
    try:
        return resolve(store, text)
    except Ambiguous:
        raise
    except NotFound:
        return ""


def resolve(store: Store, text: str) -> str:
    """The session that `text` names: by its name, by a beginning that no other name has, or as `-1`.

    `-0` is the most recently recorded session, `-1` the one before it. Raises: NotFound; Ambiguous if several match.
    """
    if store.tips(text):
        return text
    names = store.sessions()
    if back := _BACK.fullmatch(text):
        place = int(back[1])
        if place < len(names):
            return by_recency(store)[place]
        raise NotFound(f"{text}: there are {len(names)} sessions in {store.path}", hint=Phrase("list-sessions"))
    fitting = [name for name in names if name.startswith(text)] if text else []
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise Ambiguous(text, [name for name in by_recency(store) if name in fitting])
    near = ", ".join(similar(text, names) or names[:_MOST_NAMED]) or "none yet"
    raise NotFound(f"no session {text[:60]!r} in {store.path}{meant(text, names)}", hint=f"available: {near}")
