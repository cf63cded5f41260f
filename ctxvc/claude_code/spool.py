"""Files by which hooks and the recorder notify each other outside of any store, in the person's data folder.

A shell can write and read them: the plugin's `scripts/hook.sh` leaves an empty file for each event that needs no answer
while a recorder attends to the conversation. They also work if the store is damaged or its disk is full. None is
essential: the transcript has everything, so the next event makes up for a lost one.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ctxvc.core.display import one_line
from ctxvc.errors import CtxvcError
from ctxvc.store.trust import identity

_FOLDER = "conversations"
_CONVERSATION = re.compile(r"[0-9A-Za-z-]{1,64}")
#: The recorder's process id, while it attends to the conversation. Removed before the recorder looks for the last time.
_RECORDER = "recorder"
#: The reason why the conversation is not recorded; and a mark that the person does not know it yet, whose removal
#: needs no disk space.
_TROUBLE, _UNTOLD = "trouble", "untold"
#: Errors while no store could be written, also those of `hook.sh`.
_LOG = "log"
_LONGEST = 1_000
#: Seconds after which a conversation that did not end is forgotten, as by the host.
_KEPT = 30 * 86_400


class Trouble(NamedTuple):
    """The store in which a conversation should be recorded, and the reason why it is not."""

    store: str
    reason: str


def folder(transcript: str) -> Path | None:
    """The folder for the files of a conversation; None if it cannot have one."""
    conversation = Path(transcript).stem
    if not _CONVERSATION.fullmatch(conversation):
        return None
    try:
        return identity.data_folder() / _FOLDER / conversation
    except CtxvcError:
        return None


def begin(transcript: str) -> None:
    """Marks that no trouble was reported to the person in this conversation; removes files of old conversations."""
    _forget(folder(transcript))
    _write(transcript, _UNTOLD, b"")


def tell(transcript: str) -> bool:
    """Whether to report trouble to the person now; True once a conversation."""
    path = folder(transcript)
    if path is None:
        return False
    try:
        (path / _UNTOLD).unlink()
    except OSError:
        return False
    return True


def attend(transcript: str) -> None:
    """Announces that this process reads the conversation's notices."""
    _write(transcript, _RECORDER, f"{os.getpid()}\n".encode())


def leave(transcript: str) -> None:
    """Announces that it no longer does. Earlier notices are still to be read."""
    _remove(transcript, _RECORDER)


def notices(transcript: str) -> list[tuple[Path, str]]:
    """The notices that hooks left: the file and the event of each."""
    path = folder(transcript)
    try:
        names = sorted(os.listdir(path)) if path else []
    except OSError:
        return []
    return [(path / name, name.partition(".")[0]) for name in names if path and "." in name]


def trouble(transcript: str) -> Trouble | None:
    """The reason why the conversation is not recorded; None if it is."""
    path = folder(transcript)
    return _trouble(path / _TROUBLE) if path else None


def troubles() -> Iterator[tuple[str, Trouble]]:
    """The ids of conversations that are not recorded, with the reasons."""
    try:
        paths = sorted((identity.data_folder() / _FOLDER).glob(f"*/{_TROUBLE}"))
    except (CtxvcError, OSError):
        return
    for path in paths:
        if one := _trouble(path):
            yield path.parent.name, one


def report(transcript: str, store: Path, reason: str) -> None:
    """Notes why the conversation is not recorded. Never fails: the disk may be full."""
    fields = {"store": str(store), "reason": one_line(reason, _LONGEST // 2)}
    _write(transcript, _TROUBLE, json.dumps(fields).encode())


def mended(transcript: str) -> None:
    """Notes that the conversation is recorded."""
    _remove(transcript, _TROUBLE)


def end(transcript: str) -> None:
    """Removes the files of a conversation that has ended, except its trouble.

    That may still be reported to the person: the end may arrive late, after they went on.
    """
    for path, _ in notices(transcript):
        _unlink(path)
    for name in (_RECORDER,) if trouble(transcript) else (_RECORDER, _UNTOLD):
        _remove(transcript, name)
    try:
        if own := folder(transcript):
            own.rmdir()
    except OSError:
        return  # it is in trouble, or goes on


def log_entries() -> list[str]:
    """The five newest errors while no store could be written, a line each."""
    try:
        data = (identity.data_folder() / _FOLDER / _LOG).read_bytes()[-64 * 1024 :]
    except (CtxvcError, OSError):
        return []
    return [one_line(line, 300) for line in data.decode("utf-8", "replace").splitlines()[-5:]]


def _forget(own: Path | None) -> None:
    """Removes the files of old conversations whose client was killed."""
    try:
        paths = list(own.parent.iterdir()) if own else []
        for path in paths:
            if path in (own, own and own.parent / _LOG) or path.stat().st_mtime > time.time() - _KEPT:
                continue
            if path.is_dir():
                for file in path.iterdir():
                    _unlink(file)
                path.rmdir()
            else:
                _unlink(path)  # left by `hook.sh`
    except OSError:
        return  # another hook does it, or the next one


def _trouble(path: Path) -> Trouble | None:
    try:
        with path.open("rb") as file:
            fields = json.loads(file.read(_LONGEST * 8))
        return Trouble(str(fields["store"]), str(fields["reason"]))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def _write(transcript: str, name: str, data: bytes) -> None:
    """Replaces a file by `data`, if possible."""
    path = folder(transcript)
    if path is None:
        return
    partial = path / f"{name}-{os.getpid()}"
    try:
        identity.data_folder(make=True)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
        partial.write_bytes(data)
        partial.replace(path / name)
    except (CtxvcError, OSError):
        _unlink(partial)


def _remove(transcript: str, name: str) -> None:
    if path := folder(transcript):
        _unlink(path / name)


def _unlink(path: Path) -> None:
    try:
        path.unlink()
    except OSError:
        return
