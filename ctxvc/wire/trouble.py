"""What kept requests from being recorded, in the person's data folder: the store itself may be what is in trouble."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

import msgspec

from ctxvc.errors import CtxvcError
from ctxvc.store import files
from ctxvc.store.trust import identity

_FOLDER = "wire"
_LONGEST = 16_384


class Trouble(msgspec.Struct, frozen=True):
    """Why the newest request that was not recorded was not, and when, in seconds since 1970."""

    store: str
    reason: str
    time: int


def report(store: Path, reason: str, time: int) -> None:
    """Keeps the reason for `of`, if that is possible."""
    with suppress(CtxvcError, OSError):
        path = identity.data_folder(make=True) / _FOLDER / _name(store)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        files.replace(path, msgspec.json.encode(Trouble(str(store), reason[:2_000], time)))


def of(store: Path) -> Trouble | None:
    """The newest trouble of a store; None if there is none."""
    with suppress(CtxvcError, msgspec.MsgspecError, ValueError):
        if data := identity.read_plain(identity.data_folder() / _FOLDER / _name(store), _LONGEST):
            return msgspec.json.decode(data, type=Trouble)
    return None


def _name(store: Path) -> str:
    return hashlib.sha256(os.fsencode(store.absolute())).hexdigest()[:16]
