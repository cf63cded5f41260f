"""Hands the host's requests for compactions to the recorder, which has everything for them in memory.

The hook leaves the event as a file; whoever removes the file answers. A free recorder does so at once; after a moment
the hook takes the event back and answers it itself.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxvc.claude_code import hook
from ctxvc.core import variables
from ctxvc.recording import places
from ctxvc.store.trust import contained

if TYPE_CHECKING:
    from ctxvc.claude_code.compaction import Choice
    from ctxvc.store.store import Store

FOLDER = "ctxvc/hooks/compactions"
_ANSWER = ".answer"
#: The most bytes of an event and of an answer.
_MOST = 64 << 20
#: Seconds that a recorder has to take an event; that an answer may take; between two looks; after which the host no
#: longer waits for an event.
_CLAIM = 0.4
_ANSWERED = 8.0
_PAUSE = 0.01
_STALE = 15.0


def answer(data: bytes, env: Mapping[str, str], chosen: Callable[[Mapping[str, str]], Choice]) -> bytes:
    """`compaction.answer` for the host's event, from the recorder if one runs."""
    event = _parsed(data)
    store = places.store(Path(folder), env) if isinstance(folder := event.get("folder"), str) and folder else None
    if store and not variables.is_recording_off(env) and hook.runs(store):
        reply = _from_recorder(store, data, env)
        if reply is not None:
            return reply
    from ctxvc.claude_code import compaction

    return compaction.answer(data, env, chosen)


def _parsed(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _from_recorder(store: Path, data: bytes, env: Mapping[str, str]) -> bytes | None:
    """The recorder's answer; None if it is busy, or ended while there is time left."""
    name = f"{FOLDER}/{time.time_ns():020}-{os.getpid()}"
    path, reply = store / name, store / f"{name}{_ANSWER}"
    head = {"time": time.time(), "CLAUDE_CONFIG_DIR": env.get("CLAUDE_CONFIG_DIR", "")}
    places.write_sealed(store, path, json.dumps(head).encode() + b"\n" + data)
    claimed, started = False, time.monotonic()
    while (waited := time.monotonic() - started) < _ANSWERED:
        claimed = claimed or not path.exists()
        if not claimed and waited > _CLAIM and contained.remove(store, name):
            return None
        if claimed and reply.exists():
            answered = places.sealed(store, reply, _MOST)
            places.remove(store, reply)
            return answered
        if claimed and 1 < waited < _ANSWERED / 2 and not hook.runs(store):
            return None
        time.sleep(_PAUSE)
    return json.dumps({"decline": f"no answer within {_ANSWERED:.0f} s"}).encode()


def serve(store: Store, env: Mapping[str, str], chosen: Callable[[Mapping[str, str]], Choice]) -> bool:
    """Answers the waiting events, as the recorder; returns whether there were any. Raises: OSError, Refused."""
    from ctxvc.claude_code import compaction

    served = False
    for name in contained.names(store.path, FOLDER):
        path = store.path / FOLDER / name
        if name.startswith(".") or name.endswith(_ANSWER):
            continue
        try:
            data = places.sealed(store.path, path, _MOST)
        except FileNotFoundError:
            continue  # taken back meanwhile, or not ours
        if not contained.remove(store.path, f"{FOLDER}/{name}"):
            continue
        head, _, event = data.partition(b"\n")
        facts = _parsed(head)
        if time.time() - float(facts.pop("time", 0)) < _STALE:
            reply = compaction.answer(event, {**env, **facts}, chosen, store)
            places.write_sealed(store.path, path.with_name(name + _ANSWER), reply)
            served = True
    return served
