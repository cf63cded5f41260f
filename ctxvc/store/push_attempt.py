"""The last automatic push (`sharing.auto_push`): when it was, of what, and why it failed."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ctxvc.errors import Refused
from ctxvc.store.trust import contained

_FILE = "ctxvc/auto-push.json"
_LARGEST = 64 * 1024
_LONGEST = 1_000


class PushAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """`tips` is a digest of what was to be pushed, `problem` why it was not; empty if it was."""

    at: float = 0.0
    tips: str = ""
    problem: str = ""


def last(store: Path) -> PushAttempt:
    """The last attempt; an empty one where none can be read."""
    try:
        return msgspec.json.decode(contained.read(store, _FILE, _LARGEST), type=PushAttempt)
    except (OSError, Refused, msgspec.MsgspecError, ValueError):
        return PushAttempt()


def write(store: Path, attempt: PushAttempt) -> None:
    """Records an attempt in the place of the last one. Raises: OSError, Refused."""
    attempt = msgspec.structs.replace(attempt, problem=attempt.problem[:_LONGEST])
    contained.replace(store, _FILE, msgspec.json.encode(attempt), durably=False)


def clear(store: Path) -> None:
    """Removes the record: a person has pushed."""
    contained.remove(store, _FILE)
