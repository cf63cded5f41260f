"""The last automatic push (`sharing.auto_push`): its time, its content, and why it failed."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ctxvc.errors import Refused
from ctxvc.store.trust import contained

_FILE = "ctxvc/auto-push.json"
_LARGEST = 64 * 1024
_LONGEST = 1_000


class PushAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """`tips` is a digest of what was to be pushed; `problem` says why the push failed, empty if it did not."""

    at: float = 0.0
    tips: str = ""
    problem: str = ""


def last(store: Path) -> PushAttempt:
    """The last attempt; an empty one if none can be read."""
    try:
        return msgspec.json.decode(contained.read(store, _FILE, _LARGEST), type=PushAttempt)
    except (OSError, Refused, msgspec.MsgspecError, ValueError):
        return PushAttempt()


def write(store: Path, attempt: PushAttempt) -> None:
    """Records an attempt in place of the last one. Raises: OSError, Refused."""
    attempt = msgspec.structs.replace(attempt, problem=attempt.problem[:_LONGEST])
    contained.replace(store, _FILE, msgspec.json.encode(attempt), durably=False)


def clear(store: Path) -> None:
    """Removes the record, after a person has pushed."""
    contained.remove(store, _FILE)
