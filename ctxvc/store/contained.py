"""The files of a store, opened so that nothing in it leads out of it.

A store may come from a clone, an archive or a shared folder: every name and link in it is then somebody else's word. A
name here is a plain relative one (`ctxvc/journal/demo`); no part of it is followed if it is a link, what is opened is a
regular file, and nothing waits for a pipe. The store's own path is the person's, and may go through links.

`examine` looks at the whole store once, when it is opened; the other functions hold by themselves, for those that read
or write before that (hooks) and for whatever removes or replaces.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path

from ctxvc.errors import Refused
from ctxvc.store import files as durable

#: Folders below each other in a store, and in a folder that is removed: more is an attack on the stack.
DEEPEST = 64
#: Bytes of a file that is read whole, where the caller names no other limit.
LARGEST = 64 * 1024 * 1024
#: Bytes of a ref, a lock or HEAD; of git's configuration; of a journal or anything else that may be read whole.
_SMALL, _CONFIGURATION, _WHOLE = 8192, 1 << 20, 1 << 30
#: Files by which git would take objects, refs or settings from another repository.
_ELSEWHERE = {
    "commondir": "another repository's refs and objects",
    "gitdir": "another repository's place",
}
_LINKED = (errno.ELOOP, errno.EMLINK, errno.ENOTDIR)


def examine(store: Path) -> None:
    """Nothing in the store leads out of it, blocks who opens it, or is too large to be read.

    Left out are the insides of checkouts, which are a person's to change, and links in `hooks/`, where git looks for
    programs that ctxvc never runs.
    Raises: Refused with the first that is no plain file or folder, or names another repository, and for a folder that
    may not be listed: what is in it could be reached by its name all the same.
    """
    waiting = [("", 0)]
    while waiting:
        folder, depth = waiting.pop()
        if depth > DEEPEST:
            raise Refused(f"{store} has folders more than {DEEPEST} deep: {folder[:60]}…", hint=_remedy(store, folder))
        try:
            with os.scandir(os.path.join(store, folder)) as entries:
                for entry in entries:
                    name = f"{folder}/{entry.name}" if folder else entry.name
                    if entry.is_dir(follow_symlinks=False):
                        if not (folder.startswith("checkout/") and folder.count("/") == 1):
                            waiting.append((name, depth + 1))
                    elif folder != "hooks":
                        with suppress(FileNotFoundError):  # gone meanwhile; the others are there still
                            _check(store, name, entry)
        except PermissionError as error:
            raise Refused(
                f"cannot read {store / folder}: permission denied",
                hint="check who owns the store, and its permissions",
            ) from error
        except (FileNotFoundError, NotADirectoryError):
            continue  # gone meanwhile, or no store at all


def _check(store: Path, name: str, entry: os.DirEntry[str]) -> None:
    """Raises: FileNotFoundError; Refused for a link, a pipe, a device, and a file that is longer than its kind is."""
    if not entry.is_file(follow_symlinks=False):
        raise _foreign(store, name, entry.stat(follow_symlinks=False))
    if name in _ELSEWHERE and entry.stat(follow_symlinks=False).st_size:
        raise Refused(f"{store} takes {_ELSEWHERE[name]} for its own ({name})", hint=_remedy(store, name))
    if _is_log(name) and entry.stat(follow_symlinks=False).st_nlink > 1:  # git adds to one that is there
        raise _shared(store, name)
    most = _limit(name)
    if most and (size := entry.stat(follow_symlinks=False).st_size) > most:
        raise Refused(f"{store}: {name} has {size:,} bytes, and may have {most:,}", hint=_remedy(store, name))


def _is_log(name: str) -> bool:
    top, *parts = name.split("/")
    return top == "logs" or (top == "worktrees" and parts[1:2] == ["logs"])


def _limit(name: str) -> int:
    if name.startswith(("refs/", "ctxvc/lock/")) or name in ("HEAD", "ctxvc/store.lock"):
        return _SMALL
    if name.startswith("worktrees/") and name.endswith(("/HEAD", "/gitdir", "/commondir")):
        return _SMALL
    if name in ("config", "config.worktree", "info/attributes", "info/exclude", "info/grafts"):
        return _CONFIGURATION
    return 0 if name.startswith("objects/") else _WHOLE


def plain(name: str) -> bool:
    """Whether `name` is the name of one file or folder, and of no way to another."""
    return name not in ("", ".", "..") and not any(char in name for char in "/\0\n\\") and len(name) <= 255


def read(store: Path, name: str, most: int = LARGEST) -> bytes:
    """The bytes of a file. Raises: FileNotFoundError; Refused where it is no plain file or has more than `most`."""
    handle = opened(store, name, os.O_RDONLY)
    with os.fdopen(handle, "rb") as file:
        if os.fstat(handle).st_size > most:
            raise Refused(f"{store / name} has more than {most:,} bytes", hint=_remedy(store, name))
        return file.read(most + 1)[:most]


def opened(store: Path, name: str, flags: int) -> int:
    """A descriptor of a plain file; with `O_CREAT` one is made, private to this user.

    Raises: OSError; Refused where it is a link, a pipe or a device, is reached through a link, or is to be written and
    has another name too, which may lie outside the store.
    """
    with _folder(store, name) as (folder, last):
        try:
            handle = os.open(
                last, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY, 0o600, dir_fd=folder
            )
        except OSError as error:
            raise _reason(store, name, folder, last, error) from error
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode) or (flags & (os.O_WRONLY | os.O_RDWR) and status.st_nlink > 1):
        os.close(handle)
        if stat.S_ISREG(status.st_mode):
            raise _shared(store, name)
        raise _foreign(store, name, status)
    return handle


def detach(store: Path, name: str) -> bool:
    """The file is one of its own, where it had a second name, as in a copy by hard links; tells whether it had.

    Nobody else writes to it meanwhile: the lock is the caller's. Raises: OSError, Refused.
    """
    with _folder(store, name) as (folder, last):
        try:
            status = os.stat(last, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return False
    if not stat.S_ISREG(status.st_mode) or status.st_nlink == 1:
        return False
    replace(store, name, read(store, name, _WHOLE), stat.S_IMODE(status.st_mode))
    return True


def replace(store: Path, name: str, data: bytes, mode: int = 0o600, *, durably: bool = True) -> None:
    """The file holds `data`, whole; before that it holds what it held. Raises: OSError, Refused.

    `durably`: on the disk when this returns.
    """
    with _folder(store, name) as (folder, last):
        temporary = f".{last}.{secrets.token_hex(4)}.new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        handle = os.open(temporary, flags, 0o600, dir_fd=folder)
        try:
            try:
                os.fchmod(handle, mode)
                durable.write_all(handle, data)
                if durably:
                    durable.sync(handle)
            finally:
                os.close(handle)
            os.replace(temporary, last, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise
        if durably:
            os.fsync(folder)


def move(store: Path, name: str, target: str) -> None:
    """The file has another name in the store; what had it is gone. Raises: OSError, Refused."""
    with _folder(store, name) as (source, last), _folder(store, target) as (folder, new):
        os.replace(last, new, src_dir_fd=source, dst_dir_fd=folder)
        os.fsync(folder)


def remove(store: Path, name: str) -> bool:
    """The file, or the link in its place, is gone; tells whether there was one. Raises: OSError, Refused."""
    try:
        with _folder(store, name) as (folder, last):
            os.unlink(last, dir_fd=folder)
    except FileNotFoundError:
        return False
    return True


def remove_folder(store: Path, name: str) -> None:
    """The folder, which is empty, is gone. Raises: OSError where it is not empty or not there, Refused."""
    with _folder(store, name) as (folder, last):
        os.rmdir(last, dir_fd=folder)


def remove_tree(store: Path, name: str) -> None:
    """The folder is gone with all that is in it, links as links. A file or link in its place is, too.

    Raises: OSError; Refused where a folder above it is a link.
    """
    try:
        with _folder(store, name) as (folder, last):
            _remove_tree(folder, last, 0)
    except FileNotFoundError:
        return


def _remove_tree(folder: int, name: str, depth: int) -> None:
    try:
        handle = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        if error.errno not in _LINKED:
            raise
        os.unlink(name, dir_fd=folder)
        return
    try:
        if depth > 4 * DEEPEST:
            raise OSError(errno.ENAMETOOLONG, "its folders are too deep", name)
        with os.scandir(handle) as entries:
            children = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for below, is_folder in children:
            if is_folder:
                _remove_tree(handle, below, depth + 1)
            else:
                os.unlink(below, dir_fd=handle)
    finally:
        os.close(handle)
    os.rmdir(name, dir_fd=folder)


def make_folder(store: Path, name: str, *, private: bool = False) -> None:
    """The folder is there with those above it, private to this user where it is new. Raises: OSError, Refused.

    With `private` it is that too where it was there before; those above it stay as they are.
    """
    parts = name.split("/")
    for count in range(1, len(parts) + 1):
        with _folder(store, "/".join(parts[:count])) as (folder, last):
            try:
                os.mkdir(last, 0o700, dir_fd=folder)
            except FileExistsError:
                status = os.stat(last, dir_fd=folder, follow_symlinks=False)
                if not stat.S_ISDIR(status.st_mode):
                    raise _foreign(store, "/".join(parts[:count]), status) from None
            if private and count == len(parts):
                _close_to_others(folder, last)


def _close_to_others(folder: int, name: str) -> None:
    handle = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.fchmod(handle, 0o700)
    finally:
        os.close(handle)


def names(store: Path, folder: str) -> list[str]:
    """The names in a folder, sorted; none where it is not there. Raises: OSError, Refused where it is no folder."""
    try:
        with _folder(store, f"{folder}/.") as (handle, _):
            return sorted(os.listdir(handle))
    except FileNotFoundError:
        return []


def files(top: Path) -> Iterator[Path]:
    """Every plain file below a folder, or the one file that it is; links and all else are passed over."""
    below = (Path(folder, name) for folder, _, names in os.walk(top) for name in names)
    for path in chain((top,), below):
        with suppress(FileNotFoundError):
            if stat.S_ISREG(path.lstat().st_mode):
                yield path


def glance(file: Path, most: int = LARGEST, *, flags: int = 0) -> bytes:
    """The first `most` bytes of a plain file, wherever it lies; none of anything else.

    Links are followed, unless `flags` has `O_NOFOLLOW`.
    """
    try:
        handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | flags)
    except (OSError, ValueError):
        return b""
    with os.fdopen(handle, "rb") as stream:
        return stream.read(most) if stat.S_ISREG(os.fstat(handle).st_mode) else b""


@contextmanager
def _folder(store: Path, name: str) -> Iterator[tuple[int, str]]:
    """A descriptor of the folder that `name` lies in, reached through no link, and the last part of the name.

    Raises: OSError; Refused where a part of it is a link or the name is no plain one.
    """
    *above, last = name.split("/")
    if not all(map(plain, (*above, last))) and not (last == "." and all(map(plain, above))):
        raise Refused(f"{name[:100]!r} is no name in a store", hint=_remedy(store, name))
    handle = os.open(store, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for count, part in enumerate(above, 1):
            try:
                below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=handle)
            except OSError as error:
                raise _reason(store, "/".join(above[:count]), handle, part, error) from error
            os.close(handle)
            handle = below
        yield handle, last
    finally:
        os.close(handle)


def _reason(store: Path, name: str, folder: int, last: str, error: OSError) -> Exception:
    """Why something could not be opened: what stands there, where that is what is wrong."""
    try:
        status = os.stat(last, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return error
    if stat.S_ISLNK(status.st_mode) or error.errno in (errno.ENXIO, errno.ENOTDIR):
        return _foreign(store, name, status)
    return error


def _shared(store: Path, name: str) -> Refused:
    return Refused(
        f"{store / name} has a second name, so writing to it may change a file elsewhere",
        hint="copy the store with `cp -a`, which gives it files of its own",
    )


def _foreign(store: Path, name: str, status: os.stat_result) -> Refused:
    kinds = (
        (stat.S_ISLNK, "a link"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISREG, "a file"),
    )
    what = next((kind for test, kind in kinds if test(status.st_mode)), "a device")
    return Refused(f"{store / name} is {what}, which a store does not have there", hint=_remedy(store, name))


def _remedy(store: Path, name: str) -> str:
    return f"look at {str(store / name)[:300]!r}, and remove it if it is not yours"


def main_worktree(start: Path) -> Path | None:
    """The root of the main worktree, where `start` lies in a linked one; None where it does not.

    Both sides must say so, as git writes them: a folder that only claims to be another project's worktree is none.
    """
    for folder in (start, *start.parents):
        dot_git = folder / ".git"
        if dot_git.is_file():
            linked = pointer(dot_git, folder)
            if linked is None or not is_worktree(linked, dot_git):
                return None
            common = linked.parent.parent  # <main>/.git/worktrees/<name>
            return common.parent if common.name == ".git" else None
        if dot_git.is_dir():
            return None
    return None


def pointer(file: Path, base: Path) -> Path | None:
    """The path that a small file of git's names, as seen from `base`, without links; None where it names none.

    The file is read as git reads it, which takes spaces for a part of the path, and what stands before it only in
    `.git`: otherwise git could be led where nobody has looked.
    """
    try:
        data = glance(file, _SMALL + 1, flags=os.O_NOFOLLOW)
        before = b"gitdir: " if file.name == ".git" else b""
        path = os.fsdecode(data.removeprefix(before)).rstrip("\r\n") if data.startswith(before) else ""
        return Path(base, path).resolve() if path and len(data) <= _SMALL else None
    except (OSError, ValueError, RuntimeError):  # not there, a NUL in it, links that go round in a circle
        return None


def is_worktree(linked: Path, dot_git: Path) -> bool:
    """Whether what git keeps of a worktree, in `linked`, names the `.git` file that names it."""
    back = pointer(linked / "gitdir", linked)
    return back is not None and back.parent == dot_git.parent.resolve() and back.name == dot_git.name


def refuse_link(path: Path) -> None:
    """A store that was found, and not named, is a folder: a project from elsewhere may carry a link to another store.

    Raises: Refused.
    """
    if path.is_symlink():
        target = str(path.readlink())
        raise Refused(f"{path} is a link to {target[:300]!r}, which a project may bring with it",
                      hint=f"if it is yours, name the store itself: CTXVC_STORE={target[:300]}")  # fmt: skip
