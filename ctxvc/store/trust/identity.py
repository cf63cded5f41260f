"""The person's data folder, and the id by which a machine recognises a store.

Hooks use both several times a second, so next to nothing is imported.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from pathlib import Path

from ctxvc.errors import CtxvcError, Damaged, Phrase, Refused
from ctxvc.store import files

#: The file in a store with its id on the machines that know it. Not secret; it alone gives no rights.
ID = Path("ctxvc", "id")
#: An id has 32 characters and a line end; a longer file is not one.
_LONGEST = 4096
_ID = re.compile(r"[0-9a-f]{32}")


def is_id(name: str) -> bool:
    """Whether `name` can be a store's id."""
    return _ID.fullmatch(name) is not None


# --- the store's id


def store_id(path: Path) -> str:
    """The store's id; empty if it has none, or an invalid one."""
    try:
        data = read_plain(path / ID, _LONGEST) or b""
    except CtxvcError:
        return ""
    id_text = data.decode("ascii", "replace").removesuffix("\n")
    return id_text if is_id(id_text) else ""


def make_id(path: Path) -> str:
    """The store's id, created if missing; if two processes create one at the same time, both use the first.

    Raises: CtxvcError if it cannot be written.
    """
    if own_id := store_id(path):
        return own_id
    try:
        if (path / ID.parent).is_symlink():
            raise link_refused(path / ID.parent)
        make_file(path / ID, f"{secrets.token_hex(16)}\n".encode())
    except OSError as error:
        raise CtxvcError(
            f"cannot write {path / ID}: {error.strerror}", hint="check the store's owner and permissions"
        ) from error
    if own_id := store_id(path):
        return own_id
    raise Damaged(f"{path / ID} is not a store's id", hint="delete that file: a new one will be created")


# --- the person's data folder


def data_folder(*, make: bool = False) -> Path:
    """The folder of this person's data on this machine; with `make`, created if missing.

    Raises: Refused if there is none, with the reason; only `trust` and finishing a purge need it.
    """
    if not any(os.environ.get(name, "").startswith("/") for name in ("HOME", "XDG_DATA_HOME")):
        raise no_folder("HOME is not set")
    from platformdirs import user_data_path

    folder = user_data_path("ctxvc", appauthor=False)
    if not folder.is_absolute():
        raise no_folder(f"{folder} is not an absolute path")
    try:
        if make and not folder.exists():
            nearest = next(parent for parent in folder.parents if parent.exists())
            if nearest.stat().st_uid != os.geteuid():
                raise no_folder(f"{nearest} belongs to another user")
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
        about = folder.stat()
    except FileNotFoundError:
        return folder  # empty so far
    except OSError as error:
        raise no_folder(f"{folder} cannot be used: {error.strerror}") from error
    if about.st_uid != os.geteuid() or not stat.S_ISDIR(about.st_mode):
        raise no_folder(f"{folder} is not yours")
    if about.st_mode & 0o022:
        raise no_folder(f"others may write to {folder}")
    return folder


def no_folder(why: str) -> Refused:
    return Refused(
        f"this machine cannot store anything for you: {why}",
        hint=Phrase("trust-folder"),
    )


# --- files


def read_plain(path: Path, most: int) -> bytes | None:
    """The bytes of a plain file; None if it is missing. Links are not followed, pipes do not block.

    Raises: Refused if it is a link, not a file, or longer than `most`; CtxvcError if it cannot be read.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise link_refused(path) from error
        if error.errno in (errno.ENXIO, errno.ENODEV):
            raise Refused(
                f"{path} is not a regular file", hint="a store is only data: delete it if you know what it is"
            ) from error
        raise unreadable(path, error) from error
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise Refused(
                f"{path} is not a regular file", hint="a store is only data: delete it if you know what it is"
            )
        if about.st_size > most:
            raise Refused(f"{path} has {about.st_size:,} bytes: at most {most:,} are read", hint="check its contents")
        with os.fdopen(os.dup(handle), "rb") as file:
            return file.read(most + 1)[:most]
    except OSError as error:
        raise unreadable(path, error) from error
    finally:
        os.close(handle)


def make_file(path: Path, data: bytes) -> None:
    """Creates the file at `path` atomically; if two processes create one at the same time, both find the first.

    Raises: OSError.
    """
    own = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    files.replace(own, data)
    try:
        os.link(own, path, follow_symlinks=False)
    except FileExistsError:
        pass  # the other process's file wins
    finally:
        own.unlink()
    files.sync_folder(path.parent)


def link_refused(path: Path) -> Refused:
    return Refused(f"{path} is a link: links in a store are not followed", hint="replace it with its target")


def unreadable(path: Path, error: OSError) -> CtxvcError:
    return CtxvcError(f"cannot read {path}: {error.strerror}", hint="check the store's owner and permissions")
