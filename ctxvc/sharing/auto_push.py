"""Automatic pushes of what is recorded: at most one a minute, and what comes meanwhile with the next one."""

from __future__ import annotations

import hashlib
import time as clock
from collections.abc import Callable
from pathlib import Path

import msgspec

from ctxvc.errors import Conflict, CtxvcError
from ctxvc.sharing import push, remotes
from ctxvc.store import push_attempt
from ctxvc.store.files import locked
from ctxvc.store.project import links
from ctxvc.store.push_attempt import PushAttempt
from ctxvc.store.store import Store
from ctxvc.store.trust import contained
from ctxvc.store.upkeep import gc

#: Seconds between two pushes; hosts limit them (GitHub: 6 a minute for a repository).
PAUSE = 60.0
_LOCK = "ctxvc/lock/_auto-push"


def run(path: Path, sleep: Callable[[float], None] = clock.sleep) -> None:
    """Pushes what is new to every remote that a person allowed, and what comes meanwhile a minute later.

    Returns at once if another process is at it. A failure is recorded (`push_attempt`) and retried with the next news.
    Raises: CtxvcError, OSError if the store cannot be read.
    """
    contained.make_folder(path, "ctxvc/lock")
    while _news(path):
        try:
            with locked(path / _LOCK, timeout=0):
                wait = push_attempt.last(path).at + PAUSE - clock.time()
                if 0 < wait <= PAUSE:
                    sleep(wait)
                _push(path)
        except Conflict:
            return  # the other process looks for news after its own push


def _news(path: Path) -> bool:
    """Whether there is something to push that the last attempt did not have."""
    with Store(path) as store:
        return bool(_targets(store)) and _tips(store) != push_attempt.last(path).tips


def _push(path: Path) -> None:
    with Store(path) as store:
        tips, problem = _tips(store), ""
        for name in _targets(store):
            try:
                push.push(store, name)
            except CtxvcError as error:
                problem = problem or f"{name}: {error}"
        push_attempt.write(path, PushAttempt(at=clock.time(), tips=tips, problem=problem))


def _targets(store: Store) -> list[str]:
    return [remote.name for remote in remotes.every(store) if remote.sends and remotes.is_ours(store, remote)]


def _tips(store: Store) -> str:
    """A digest of everything that could be pushed."""
    gc.flush(store)
    return hashlib.sha256(msgspec.json.encode([store.all_tips(), links.tip(store)], order="sorted")).hexdigest()
