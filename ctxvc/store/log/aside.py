"""Unreadable bytes of journals, stored beside the journal until a person accepts that they are lost."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Container, Iterable, Iterator
from pathlib import Path

import msgspec

from ctxvc.errors import CtxvcError
from ctxvc.store import files
from ctxvc.store.log.damage import described
from ctxvc.store.log.journal import Damage
from ctxvc.store.store import Store

#: A part of the name of every file with such bytes; no session's name contains it.
MARK = "~unreadable-"
# The session, then digits that depend on the contents, so that the same bytes make the same file.
_NAME = re.compile(rf"(?P<session>.+){MARK}[0-9a-f]+(?P<accepted>\.accepted)?")
# The form of the name in earlier versions; a session may have such a name too.
_EARLIER = re.compile(r"(?P<session>.+)\.unreadable-[0-9a-f]+(?P<accepted>\.accepted)?")
ACCEPTED = ".accepted"


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """A damaged piece of a session's journal. `file` is its present or future file name beside the journal."""

    session: str
    file: str
    size: int
    blocks: str = ""

    def __str__(self) -> str:
        what = f", which contained {self.blocks}," if self.blocks else ""
        return f"{self.size} bytes of the journal of session {self.session}{what} cannot be read"


def piece(name: str, sessions: Container[str]) -> re.Match[str] | None:
    """Matches the name of a file with such bytes, with groups `session` and `accepted`; None for a journal."""
    return _NAME.fullmatch(name) or (None if name in sessions else _EARLIER.fullmatch(name))


def keep(store: Store, session: str, damage: Iterable[Damage]) -> None:
    """Writes each piece to a file of its own beside the journal, on the disk on return. Raises: OSError."""
    folder = store.journal_path(session).parent
    for damaged in damage:
        name = _name(session, damaged)
        if not (folder / name).exists() and not (folder / f"{name}{ACCEPTED}").exists():
            files.replace(folder / name, damaged.data)


def notices(store: Store, session: str, damage: Iterable[Damage] = ()) -> list[Notice]:
    """Notices of the damage that is not accepted yet: in files, and `damage`, which may not be in files yet."""
    listed = {notice.file: notice for notice in unaccepted(store, session)}
    for damaged in damage:
        name = _name(session, damaged)
        listed.setdefault(name, Notice(session=session, file=name, size=len(damaged.data), blocks=described(damaged)))
    return list(listed.values())


def new_notices(store: Store, session: str, damage: Iterable[Damage]) -> list[Notice]:
    """The notices that were not given before; each is given once on this machine."""
    fresh = []
    for notice in notices(store, session, damage):
        marker = store.cache_path / "notices" / notice.file
        if marker.exists():
            continue
        fresh.append(notice)
        try:
            _mark(marker)
        except OSError:
            pass  # on a read-only medium, the notice is given each time
    return fresh


def _mark(marker: Path) -> None:
    """Creates the file. No link is followed, since the store may be foreign. Raises: OSError."""
    for folder in (marker.parents[1], marker.parent):
        if folder.is_symlink():
            return
        folder.mkdir(mode=0o700, exist_ok=True)
    os.close(os.open(marker, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))


def unaccepted(store: Store, session: str) -> Iterator[Notice]:
    """A notice for each file of the session with such bytes that is not accepted yet."""
    folder = store.journal_path(session).parent
    try:
        listed = sorted(os.listdir(folder))
    except FileNotFoundError:
        return
    except OSError as error:
        raise CtxvcError(f"cannot read {folder}: {error.strerror}", hint="check the store's permissions") from error
    sessions = store.sessions() if any(map(_EARLIER.fullmatch, listed)) else ()
    for name in listed:
        parts = piece(name, sessions)
        ours = parts and parts["session"] == session and not parts["accepted"]
        if ours and (folder / name).is_file() and not (folder / name).is_symlink():
            data = (folder / name).read_bytes()
            yield Notice(session=session, file=name, size=len(data), blocks=described(Damage(0, data)))


def _name(session: str, damage: Damage) -> str:
    return f"{session}{MARK}{hashlib.sha256(damage.data).hexdigest()[:16]}"
