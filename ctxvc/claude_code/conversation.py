"""The conversation in which the host runs a program of ours, as the host names it: never a guess."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ctxvc.claude_code import requests, spool
from ctxvc.claude_code.hook import SESSIONS
from ctxvc.core.ledger import name_rules
from ctxvc.errors import NotFound
from ctxvc.recording import places
from ctxvc.store.read.session_name import by_recency
from ctxvc.store.store import Store

#: The field with the call's id in the host's metadata of a tool call.
_CALL = "claudecode/toolUseId"
#: The recordings' format, and the variable in which the host names one.
((_FORMAT, _NAME),) = SESSIONS.items()
#: Seconds that a call waits for the recorder in a new conversation, and in one of which something is still to be read.
_PATIENCE, _FRESH = 5.0, 1.0
_NAMED = 5


def of_environment(store: Store, env: Mapping[str, str]) -> str:
    """The session that the host runs this program in; empty if it names none, or one that is not recorded here."""
    conversation = env.get(_NAME, "")
    return store.session_of(_FORMAT, conversation) if conversation else ""


def of_call(
    store: Store, meta: Mapping[str, Any], env: Mapping[str, str], patience: float = _PATIENCE
) -> tuple[str, str]:
    """The session in which a tool was called, and the scope of a sub-agent that called it; empty if none is named.

    `meta` is the host's metadata of the call, whose caller a hook has noted; otherwise `env` decides. Waits up to
    `patience` seconds for the recorder to read what came before the call; the scope may still be missing then. Raises:
    NotFound if the conversation is not recorded.
    """
    call = meta.get(_CALL)
    transcript, agent = _caller(store.path, call) if isinstance(call, str) and call else ("", "")
    conversation = Path(transcript).stem or env.get(_NAME, "")
    if not conversation:
        return "", ""
    scope = name_rules.agent_scope(agent) if agent else ""
    start = time.monotonic()
    while True:
        session = store.session_of(_FORMAT, conversation)
        recorded = session and (not scope or scope in store.tips(session))
        limit = min(patience, _FRESH) if recorded else patience
        pending = (Path(request.transcript).stem for _, request in requests.pending(store.path))
        if time.monotonic() - start > limit or conversation not in pending:
            break
        time.sleep(0.02)
    if session:
        return session, scope
    sessions = ", ".join(by_recency(store)[:_NAMED])
    raise NotFound(
        f"this conversation ({conversation[:8]}) is not recorded in {store.path}",
        hint=f"name one of the sessions: {sessions}",
    )


def has_begun(env: Mapping[str, str]) -> bool:
    """Whether the host runs this program in a conversation that is, or will be, recorded."""
    conversation = env.get(_NAME, "")
    place = spool.folder(conversation) if conversation else None
    return place is not None and place.is_dir() and spool.trouble(conversation) is None


def _caller(store: Path, call: str) -> tuple[str, str]:
    """The transcript and the sub-agent that a hook noted for a call; both empty if none did."""
    path = places.call(store, call)
    try:
        caller = places.sealed(store, path).decode("utf-8", "replace")
    except FileNotFoundError:
        return "", ""
    places.remove(store, path)
    transcript, _, agent = caller.partition("\0")
    return transcript, agent
