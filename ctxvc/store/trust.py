"""What a store may do on this machine: decided by its settings, and by what the person's machine remembers of it.

A store can come from anywhere. What it may set is on a list (`allowlist`); what else it sets counts only after the
person accepted it, and what it says is decided counts only under a seal of this machine. Both are remembered in the
person's data folder, never in the store.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import os
import re
import secrets
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from ctxvc.core.text import one_line
from ctxvc.errors import CtxvcError, Damaged, Refused
from ctxvc.store import allowlist, durable, gitconfig
from ctxvc.store.locks import locked

#: In the store: what it is called on the machines that know it. Not secret, and nothing follows from it alone.
ID = Path("ctxvc", "id")
#: In the data folder.
KEY = "key"
STORES = "stores"
SEALS = "seals"
_LOCK = "lock"

#: A file of settings has no more bytes than this.
LARGEST = 256 * 1024
#: No more linked worktrees are looked into.
_MOST_WORKTREES = 10_000
_ALTERNATES = "objects/info/alternates"
_ID = re.compile(r"[0-9a-f]{32}")
_SEAL = re.compile(r"[0-9a-f]{64}")


class Setting(msgspec.Struct, frozen=True):
    """A setting that is not on the list: the file that has it, by its path in the store, and what it says.

    `acceptable` is whether a person may accept it.
    """

    file: str
    key: str
    value: str
    acceptable: bool = True


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """What this machine knows of a store: where it was last, whether it was made here, and what was accepted.

    `accepted` is the checksum of the files as the person saw them; empty where nothing is accepted.
    """

    format: int = 1
    path: str
    made: bool = False
    accepted: str = ""
    settings: tuple[Setting, ...] = ()
    time: str = ""


class Survey(msgspec.Struct, frozen=True):
    """The settings of a store that are not on the list, and the checksum of all its files that have settings."""

    settings: tuple[Setting, ...]
    sum: str


# --- what a store may set


def check(path: Path) -> None:
    """Comes back where git may be started on the store at `path`: each setting is harmless or was accepted here.

    Raises: Refused with the setting, its file and what to do; Damaged where a file of settings cannot be read as one.
    """
    survey = look(path)
    if not survey.settings:
        return
    barred = [setting for setting in survey.settings if not setting.acceptable]
    if not barred and _is_accepted(path, survey.sum):
        return
    raise _refusal(path, (barred or survey.settings)[0], len(survey.settings) - 1)


def look(path: Path) -> Survey:
    """What the store sets that is not on the list. Nothing of it is obeyed.

    Raises: Refused where a part of the store is a link or another repository; Damaged; CtxvcError where it cannot be
    read.
    """
    if os.path.lexists(path / "commondir"):
        raise Refused(
            f"{path / 'commondir'} leads git to another repository",
            hint="a store is whole in itself: delete that file if you know the store",
        )
    found: list[Setting] = []
    digest = hashlib.sha256()
    for name in ("config", "config.worktree", *_worktree_files(path)):
        data = _read(path / name)
        if data is None:
            continue
        refused = list(_refused(path, name, data))
        if refused or "/" not in name:  # a checkout more or less changes nothing that a person accepted
            digest.update(b"%s\0%d\0%s" % (name.encode(), len(data), data))
        found += refused
    borrowed = _read(path / _ALTERNATES)
    if borrowed is not None and borrowed.strip():
        digest.update(b"%s\0%d\0%s" % (_ALTERNATES.encode(), len(borrowed), borrowed))
        found.append(Setting(_ALTERNATES, "alternates", borrowed.decode("utf-8", "replace").strip()))
    return Survey(tuple(found), digest.hexdigest())


def _refused(path: Path, name: str, data: bytes) -> Iterator[Setting]:
    try:
        for setting in gitconfig.settings(data):
            if not allowlist.is_harmless(setting):
                value = "true" if setting.value is None else setting.value
                yield Setting(name, setting.key, value, allowlist.is_acceptable(setting))
    except ValueError as error:
        raise Damaged(
            f"{path / name} cannot be read as settings of git: {error}", hint="mend that line, or take it out"
        ) from error


def _worktree_files(path: Path) -> Iterator[str]:
    """Where linked worktrees have settings of their own, by paths in the store."""
    folder = path / "worktrees"
    try:
        if folder.is_symlink():
            raise _link(folder)
        names = sorted(entry.name for entry in os.scandir(folder) if not entry.is_file(follow_symlinks=False))
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unreadable(folder, error) from error
    if len(names) > _MOST_WORKTREES:
        raise Refused(
            f"{folder} lists {len(names):,} checkouts", hint=f"no more than {_MOST_WORKTREES:,} are looked into"
        )
    for name in names:
        if (folder / name).is_symlink():
            raise _link(folder / name)
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
            hint=f"clone it with plain git settings, or take it out: {remove}",
        )
    why = f"{what}{more}, which could run a program or lead git elsewhere: a store is only data"
    if not first.acceptable:
        return Refused(why, hint=f"nobody can accept this one; take it out: {remove}")
    return Refused(why, hint=f"take it out: {remove}; or, where it is yours, see and accept it: `ctxvc trust`")


# --- what the person accepted


def accept(path: Path, survey: Survey) -> None:
    """From now on the store may set what `survey` shows, until one of these files changes.

    Raises: Refused without a data folder, or where one of the settings cannot be accepted; CtxvcError.
    """
    for setting in survey.settings:
        if not setting.acceptable:
            raise _refusal(path, setting, 0)
    with _recorded(make_id(path)) as (file, known):
        made = known is not None and known.made
        _write(
            file, Remembered(path=_real(path), made=made, accepted=survey.sum, settings=survey.settings, time=_now())
        )


def revoke(path: Path) -> bool:
    """Nothing of the store's is accepted any more; gives whether something was. Raises: Refused, CtxvcError."""
    name = store_id(path)
    if not name:
        return False
    with _recorded(name) as (file, known):
        if known is None or not known.accepted:
            return False
        _write(file, msgspec.structs.replace(known, accepted="", settings=(), time=""))
    return True


def is_accepted(path: Path, survey: Survey) -> bool:
    """Whether the person accepted exactly this on this machine. What was accepted and has changed is forgotten."""
    return _is_accepted(path, survey.sum)


def accepted() -> list[Remembered]:
    """All stores of which something is accepted, by their paths. Raises: Refused without a data folder."""
    folder = data_folder() / STORES
    known = [_known(file) for file in sorted(folder.glob("*.json"))] if folder.is_dir() else []
    return sorted((each for each in known if each and each.accepted), key=lambda each: each.path)


def _is_accepted(path: Path, sum: str) -> bool:
    name = store_id(path)
    if not name:
        return False
    try:
        file = data_folder() / STORES / f"{name}.json"
        known = _known(file)
        if known is None or not known.accepted:
            return False
        here = _real(path)
        # A copy has the id of what it was copied from; a store that was moved is where nothing else is.
        if known.path != here and os.path.lexists(known.path):
            return False
        if known.accepted != sum:
            revoke(path)
            return False
        if known.path != here:
            with _recorded(name) as (file, _):
                _write(file, msgspec.structs.replace(known, path=here))
        return True
    except CtxvcError:
        return False


# --- the store's id


def store_id(path: Path) -> str:
    """What the store is called; empty where it has no name yet, or none that can be one."""
    try:
        data = _read(path / ID) or b""
    except CtxvcError:
        return ""
    words = data.decode("ascii", "replace").removesuffix("\n")
    return words if _ID.fullmatch(words) else ""


def make_id(path: Path) -> str:
    """The store's id, made where it has none; of two processes that make one at once, both use the first.

    Raises: CtxvcError where it cannot be written.
    """
    if known := store_id(path):
        return known
    try:
        if (path / ID.parent).is_symlink():
            raise _link(path / ID.parent)
        _make(path / ID, f"{secrets.token_hex(16)}\n".encode())
    except OSError as error:
        raise CtxvcError(
            f"cannot write {path / ID}: {error.strerror}", hint="check who owns the store and its permissions"
        ) from error
    if known := store_id(path):
        return known
    raise Damaged(f"{path / ID} is no id of a store", hint="delete that file: a new one is made")


def remember_made(path: Path) -> None:
    """This machine made the store. Without a data folder nothing happens: nobody needs it to work with the store."""
    try:
        with _recorded(make_id(path)) as (file, _):
            _write(file, Remembered(path=_real(path), made=True, time=_now()))
    except CtxvcError:
        return


# --- seals


def seal(name: str, payload: bytes) -> str:
    """A seal on `payload` for the store with that id, which only this person's data folder can make; it counts once.

    Raises: Refused without a data folder, CtxvcError.
    """
    folder = data_folder(make=True)
    made = _mac(_own_key(folder), name, payload)
    try:
        (folder / SEALS).mkdir(mode=0o700, exist_ok=True)
        durable.replace(folder / SEALS / made, b"")
    except OSError as error:
        raise _no_folder(f"{folder} cannot be written: {error.strerror}") from error
    return made


def is_sealed_here(name: str, payload: bytes, seal: str) -> bool:
    """Whether this machine put that seal on it, and has not broken it since.

    Raises: Refused without a data folder, CtxvcError.
    """
    folder = data_folder()
    if not _SEAL.fullmatch(seal) or not _ID.fullmatch(name) or not (folder / KEY).exists():
        return False
    right = hmac.compare_digest(_mac(_own_key(folder), name, payload), seal)
    return right and (folder / SEALS / seal).is_file()


def break_seal(seal: str) -> None:
    """What was sealed is done: brought back from a copy, it does not count again."""
    if not _SEAL.fullmatch(seal):
        return
    try:
        (data_folder() / SEALS / seal).unlink(missing_ok=True)
    except (CtxvcError, OSError):
        return  # it would have to come back together with all that was staged


def _mac(key: bytes, name: str, payload: bytes) -> str:
    return hmac.new(key, b"ctxvc seal 1\0" + name.encode() + b"\0" + payload, hashlib.sha256).hexdigest()


def _own_key(folder: Path) -> bytes:
    """Raises: CtxvcError."""
    path = folder / KEY
    try:
        if not path.exists():
            _make(path, secrets.token_bytes(32))
        key = _read(path) or b""
    except OSError as error:
        raise _no_folder(f"{path} cannot be written: {error.strerror}") from error
    if len(key) != 32:
        raise CtxvcError(f"{path} is no key", hint="delete that file: a new one is made")
    return key


# --- the person's data folder


def data_folder(*, make: bool = False) -> Path:
    """The folder in which this person's machine remembers; with `make` it is there afterwards.

    Raises: Refused where there is none, with the reason: without it all works but `trust` and finishing a purge.
    """
    if not any(os.environ.get(name, "").startswith("/") for name in ("HOME", "XDG_DATA_HOME")):
        raise _no_folder("HOME is not set")
    from platformdirs import user_data_path

    folder = user_data_path("ctxvc", appauthor=False)
    if not folder.is_absolute():
        raise _no_folder(f"{folder} is no full path")
    try:
        if make and not folder.exists():
            nearest = next(parent for parent in folder.parents if parent.exists())
            if nearest.stat().st_uid != os.geteuid():
                raise _no_folder(f"{nearest} belongs to another user")
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
        about = folder.stat()
    except FileNotFoundError:
        return folder  # nothing is remembered yet
    except OSError as error:
        raise _no_folder(f"{folder} cannot be used: {error.strerror}") from error
    if about.st_uid != os.geteuid() or not stat.S_ISDIR(about.st_mode):
        raise _no_folder(f"{folder} is not yours")
    if about.st_mode & 0o022:
        raise _no_folder(f"others may write to {folder}")
    return folder


def _no_folder(why: str) -> Refused:
    return Refused(
        f"this machine can remember nothing for you: {why}",
        hint="`ctxvc trust` and finishing a purge need a data folder of yours: set HOME to a folder that you can write",
    )


@contextmanager
def _recorded(name: str) -> Iterator[tuple[Path, Remembered | None]]:
    """Inside, nobody else changes what is remembered of the store with that id. Gives the file and what it holds."""
    folder = data_folder(make=True)
    try:
        (folder / STORES).mkdir(mode=0o700, exist_ok=True)
        with locked(folder / _LOCK):
            file = folder / STORES / f"{name}.json"
            yield file, _known(file)
    except OSError as error:
        raise _no_folder(f"{folder} cannot be written: {error.strerror}") from error


def _known(file: Path) -> Remembered | None:
    try:
        known = msgspec.json.decode(_read(file) or b"", type=Remembered)
    except (CtxvcError, msgspec.MsgspecError, ValueError):
        return None
    return known if known.format == 1 else None


def _write(file: Path, known: Remembered) -> None:
    durable.replace(file, msgspec.json.encode(known))


# --- files


def read_plain(path: Path, most: int) -> bytes | None:
    """What a plain file holds; None where it is not there. No link is followed and no pipe is waited for.

    Raises: Refused where it is a link, no file, or has more than `most` bytes; CtxvcError where it cannot be read.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise _link(path) from error
        if error.errno in (errno.ENXIO, errno.ENODEV):
            raise Refused(
                f"{path} is no plain file", hint="a store is only data: delete it if you know what it is"
            ) from error
        raise _unreadable(path, error) from error
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise Refused(f"{path} is no plain file", hint="a store is only data: delete it if you know what it is")
        if about.st_size > most:
            raise Refused(f"{path} has {about.st_size:,} bytes: at most {most:,} are read", hint="look what is in it")
        with os.fdopen(os.dup(handle), "rb") as file:
            return file.read(most + 1)[:most]
    except OSError as error:
        raise _unreadable(path, error) from error
    finally:
        os.close(handle)


def _read(path: Path) -> bytes | None:
    return read_plain(path, LARGEST)


def _make(path: Path, data: bytes) -> None:
    """The file at `path` is there, whole; one that is there already stays. Raises: OSError."""
    own = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    durable.replace(own, data)
    try:
        os.link(own, path, follow_symlinks=False)
    except FileExistsError:
        pass  # theirs counts
    finally:
        own.unlink()
    durable.sync_folder(path.parent)


def _link(path: Path) -> Refused:
    return Refused(f"{path} is a link: none is followed in a store", hint="put what it leads to in its place")


def _unreadable(path: Path, error: OSError) -> CtxvcError:
    return CtxvcError(f"cannot read {path}: {error.strerror}", hint="check who owns the store, and its permissions")


def _real(path: Path) -> str:
    """Where it is, whatever links lead there. Raises: Refused where no JSON can say it."""
    real = os.path.realpath(path)
    try:
        real.encode()
    except UnicodeEncodeError as error:
        raise Refused("the store's path is not UTF-8: it cannot be remembered", hint="rename that folder") from error
    return real


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")
