"""What a store may do on this machine: its harmless settings, and what the person accepted or this machine sealed.

A store can come from anywhere. Harmless settings are on a list (`allowlist`); any other counts only once the person has
accepted it, and a decision recorded in the store counts only under a seal of this machine. Acceptances and seals are in
the person's data folder, never in the store.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import shlex
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import msgspec

from ctxvc.core.display import one_line
from ctxvc.errors import CtxvcError, Damaged, Phrase, Refused
from ctxvc.store import files, timestamp
from ctxvc.store.git import allowlist, config_parser
from ctxvc.store.trust.identity import (
    data_folder,
    is_id,
    link_refused,
    make_file,
    make_id,
    no_folder,
    read_plain,
    store_id,
    unreadable,
)
from ctxvc.store.trust.known_stores import STORES, Remembered, Setting, memory, real, recorded, write

#: Names in the data folder.
KEY = "key"
SEALS = "seals"

#: The most bytes of a settings file.
LARGEST = 256 * 1024
#: The most linked worktrees that are checked.
_MOST_WORKTREES = 10_000
_ALTERNATES = "objects/info/alternates"
_SEAL = re.compile(r"[0-9a-f]{64}")


class Survey(msgspec.Struct, frozen=True):
    """The settings of a store that are not on the list, and the checksum of all its settings files."""

    settings: tuple[Setting, ...]
    sum: str


# --- settings


def check(path: Path) -> None:
    """Checks that git may be started on the store at `path`.

    Raises: Refused, with file and remedy, if a setting is neither harmless nor accepted here; Damaged if a settings
    file cannot be parsed.
    """
    survey = look(path)
    if not survey.settings:
        return
    barred = [setting for setting in survey.settings if not setting.acceptable]
    if not barred and is_accepted(path, survey):
        return
    raise _refusal(path, (barred or survey.settings)[0], len(survey.settings) - 1)


def look(path: Path) -> Survey:
    """The store's settings that are not on the list. None of them takes effect.

    Raises: Refused if a part of the store is a link or another repository; Damaged; CtxvcError if it cannot be read.
    """
    if os.path.lexists(path / "commondir"):
        raise Refused(
            f"{path / 'commondir'} redirects git to another repository",
            hint="a store is self-contained: delete that file if you know the store",
        )
    settings: list[Setting] = []
    digest = hashlib.sha256()
    for name in ("config", "config.worktree", *_worktree_files(path)):
        data = _read(path / name)
        if data is None:
            continue
        refused = list(_refused(path, name, data))
        if refused or "/" not in name:  # adding or removing a checkout does not affect what a person accepted
            digest.update(b"%s\0%d\0%s" % (name.encode(), len(data), data))
        settings += refused
    borrowed = _read(path / _ALTERNATES)
    if borrowed is not None and borrowed.strip():
        digest.update(b"%s\0%d\0%s" % (_ALTERNATES.encode(), len(borrowed), borrowed))
        settings.append(Setting(_ALTERNATES, "alternates", borrowed.decode("utf-8", "replace").strip()))
    return Survey(tuple(settings), digest.hexdigest())


def _refused(path: Path, name: str, data: bytes) -> Iterator[Setting]:
    try:
        for setting in _unlisted(data):
            value = "true" if setting.value is None else setting.value
            yield Setting(name, setting.key, value, allowlist.is_acceptable(setting))
    except ValueError as error:
        raise Damaged(
            f"{path / name} cannot be read as git settings: {error}", hint="fix that line, or remove it"
        ) from error


@lru_cache(maxsize=16)
def _unlisted(data: bytes) -> tuple[config_parser.Setting, ...]:
    """The settings in a file that are not on the list. Cached: git is started often, and the files rarely change."""
    return tuple(setting for setting in config_parser.settings(data) if not allowlist.is_harmless(setting))


def _worktree_files(path: Path) -> Iterator[str]:
    """The files with linked worktrees' own settings, as paths in the store."""
    folder = path / "worktrees"
    try:
        if folder.is_symlink():
            raise link_refused(folder)
        names = sorted(entry.name for entry in os.scandir(folder) if not entry.is_file(follow_symlinks=False))
    except FileNotFoundError:
        return
    except OSError as error:
        raise unreadable(folder, error) from error
    if len(names) > _MOST_WORKTREES:
        raise Refused(f"{folder} lists {len(names):,} checkouts", hint=f"at most {_MOST_WORKTREES:,} are checked")
    for name in names:
        if (folder / name).is_symlink():
            raise link_refused(folder / name)
        yield f"worktrees/{name}/config.worktree"


def _refusal(path: Path, first: Setting, others: int) -> Refused:
    file = path / first.file
    more = f" (and {others} more)" if others else ""
    if first.file == _ALTERNATES:
        what, remove = (
            f"{file} borrows objects from another repository",
            "`git repack -a -d` there, then delete that file",
        )
    else:
        what = f"{file} sets {one_line(first.key, 120)}"
        remove = f"`git config --file {shlex.quote(str(file))} --unset-all {shlex.quote(one_line(first.key, 200))}`"
    if first.key.startswith("extensions."):
        return Refused(
            f"the store {path} uses {one_line(first.key, 120)}, which is not supported",
            hint=f"clone it with default git settings, or remove it: {remove}",
        )
    why = f"{what}{more}, which could run a program or redirect git: a store is only data"
    if not first.acceptable:
        return Refused(why, hint=f"this one cannot be accepted; remove it: {remove}")
    return Refused(why, hint=Phrase("trust-setting", remove=remove))


# --- acceptance


def accept(path: Path, survey: Survey) -> None:
    """Accepts the settings in `survey` for this store, until one of its settings files changes.

    Raises: Refused if there is no data folder or one of the settings cannot be accepted; CtxvcError.
    """
    for setting in survey.settings:
        if not setting.acceptable:
            raise _refusal(path, setting, 0)
    with recorded(make_id(path)) as (file, remembered):
        former = remembered or Remembered(path="")
        now = timestamp.now("seconds")
        accepted = {"accepted": survey.sum, "settings": survey.settings, "time": now}
        write(file, msgspec.structs.replace(former, path=real(path), **accepted))


def revoke(path: Path) -> bool:
    """Revokes everything accepted for the store; returns whether there was anything. Raises: Refused, CtxvcError."""
    name = store_id(path)
    if not name:
        return False
    with recorded(name) as (file, remembered):
        if remembered is None or not remembered.accepted:
            return False
        write(file, msgspec.structs.replace(remembered, accepted="", settings=(), time=""))
    return True


def is_accepted(path: Path, survey: Survey) -> bool:
    """Whether the person accepted exactly these settings on this machine. Forgets an outdated acceptance."""
    name = store_id(path)
    if not name:
        return False
    try:
        file = data_folder() / STORES / f"{name}.json"
        remembered = memory(file)
        if remembered is None or not remembered.accepted:
            return False
        here = real(path)
        # A copy has its original's id while the original is still at its path; a moved store's old path is empty.
        if remembered.path != here and os.path.lexists(remembered.path):
            return False
        if remembered.accepted != survey.sum:
            revoke(path)
            return False
        if remembered.path != here:
            with recorded(name) as (file, _):
                write(file, msgspec.structs.replace(remembered, path=here))
        return True
    except CtxvcError:
        return False


def accepted() -> list[Remembered]:
    """All stores with accepted settings, by path. Raises: Refused without a data folder."""
    folder = data_folder() / STORES
    remembered = [memory(file) for file in sorted(folder.glob("*.json"))] if folder.is_dir() else []
    return sorted((store for store in remembered if store and store.accepted), key=lambda store: store.path)


# --- seals


def seal(name: str, payload: bytes) -> str:
    """Seals `payload` for the store with that id. The seal counts once, and only this person's data folder can make it.

    Raises: Refused without a data folder, CtxvcError.
    """
    folder = data_folder(make=True)
    mac = _mac(_own_key(folder), name, payload)
    try:
        (folder / SEALS).mkdir(mode=0o700, exist_ok=True)
        files.replace(folder / SEALS / mac, b"")
    except OSError as error:
        raise no_folder(f"{folder} is not writable: {error.strerror}") from error
    return mac


def is_sealed_here(name: str, payload: bytes, seal: str) -> bool:
    """Whether this machine put that seal on the payload and has not broken it since.

    Raises: Refused without a data folder, CtxvcError.
    """
    folder = data_folder()
    if not _SEAL.fullmatch(seal) or not is_id(name) or not (folder / KEY).exists():
        return False
    right = hmac.compare_digest(_mac(_own_key(folder), name, payload), seal)
    return right and (folder / SEALS / seal).is_file()


def break_seal(seal: str) -> None:
    """Invalidates a seal that has served its purpose: it does not count again if restored from a copy."""
    if not _SEAL.fullmatch(seal):
        return
    try:
        (data_folder() / SEALS / seal).unlink(missing_ok=True)
    except (CtxvcError, OSError):
        return  # it would have to be restored together with everything that was staged


def _mac(key: bytes, name: str, payload: bytes) -> str:
    return hmac.new(key, b"ctxvc seal 1\0" + name.encode() + b"\0" + payload, hashlib.sha256).hexdigest()


def _own_key(folder: Path) -> bytes:
    """Raises: CtxvcError."""
    path = folder / KEY
    try:
        if not path.exists():
            make_file(path, secrets.token_bytes(32))
        key = _read(path) or b""
    except OSError as error:
        raise no_folder(f"{path} is not writable: {error.strerror}") from error
    if len(key) != 32:
        raise CtxvcError(f"{path} is not a key", hint="delete that file: a new one will be created")
    return key


# --- files


def _read(path: Path) -> bytes | None:
    return read_plain(path, LARGEST)
