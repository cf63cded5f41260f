"""The conversation that a program of ours runs in, by what the host says of it: never the newest by chance."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ctxvc.claude_code import requests
from ctxvc.claude_code.hook import SESSIONS
from ctxvc.errors import NotFound
from ctxvc.recording import places
from ctxvc.store.session_name import by_recency
from ctxvc.store.store import Store

#: In what the host says of a call of a tool: the id of the call.
_CALL = "claudecode/toolUseId"
#: The recordings' format, and the variable in which the host names one.
((_FORMAT, _NAME),) = SESSIONS.items()
#: Seconds that a call waits for the recorder, if its conversation has only begun.
_PATIENCE = 5.0
_NAMED = 5


def of_environment(store: Store, env: Mapping[str, str]) -> str:
    """The session that the host runs this program in; empty if it names none, or one that is not recorded here."""
    conversation = env.get(_NAME, "")
    return store.session_of(_FORMAT, conversation) if conversation else ""


def of_call(store: Store, meta: Mapping[str, Any], env: Mapping[str, str], patience: float = _PATIENCE) -> str:
    """The session in which a tool was called; empty if the host says nothing of it.

    `meta` is what it says of the call, which a hook has written down; else it is what it says to the whole server.
    Raises: NotFound if that conversation is not recorded.
    """
    call = meta.get(_CALL)
    transcript = _transcript(store.path, call) if isinstance(call, str) and call else ""
    conversation = Path(transcript).stem or env.get(_NAME, "")
    if not conversation:
        return ""
    until = time.monotonic() + patience
    while not (session := store.session_of(_FORMAT, conversation)):
        if time.monotonic() > until or not _waits(store.path, conversation):
            names = ", ".join(by_recency(store)[:_NAMED])
            raise NotFound(
                f"this conversation ({conversation[:8]}) is not recorded in {store.path}",
                hint=f"name one of the sessions: {names}",
            )
        time.sleep(0.05)
    return session


def _transcript(store: Path, call: str) -> str:
    path = places.call(store, call)
    try:
        transcript = places.sealed(store, path).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
    places.remove(store, path)
    return transcript


def _waits(store: Path, conversation: str) -> bool:
    """Whether the recorder still has to read that conversation."""
    return any(Path(request.transcript).stem == conversation for _, request in requests.pending(store))
