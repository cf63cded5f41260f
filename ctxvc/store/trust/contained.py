"""Opens a store's files so that no name or link in it leads out of it.

A store may come from a clone, an archive or a shared folder, so its names and links cannot be trusted. Names passed to
these functions are plain and relative (`ctxvc/journal/demo`), no part of a name is followed if it is a link, only
regular files are opened, and no call blocks on a pipe. The store's own path is the person's, and may go through links.

`examine` checks the whole store once, when it is opened. The other functions are safe without it, as needed by hooks,
which read and write before that, and by all code that removes or replaces.
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

#: The deepest nesting of folders in a store, and in a folder to be removed. Anything deeper is an attack on the stack.
DEEPEST = 64
#: The most bytes of a file that is read whole, unless the caller gives a limit.
LARGEST = 64 * 1024 * 1024
#: Limits in bytes: for a ref, lock or HEAD; for git's configuration; for a journal and any other file read whole.
_SMALL, _CONFIGURATION, _WHOLE = 8192, 1 << 20, 1 << 30
#: Files that make git take objects, refs or settings from another repository, with what each takes.
_ELSEWHERE = {
    "commondir": "another repository's refs and objects",
    "gitdir": "another repository's location",
}
_LINKED = (errno.ELOOP, errno.EMLINK, errno.ENOTDIR)


def examine(store: Path) -> None:
    """Checks a whole store. Raises: Refused if anything in it leads out, blocks on opening, or is too large to read.

    The insides of checkouts, which a person may change, are skipped, and so are links in `hooks/`, where git looks for
    programs that ctxvc never runs. The error names the first entry that is not a plain file or folder or that names
    another repository, or a folder that cannot be listed: its contents could still be reached by name.
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
                        with suppress(FileNotFoundError):  # removed meanwhile; the others are still there
                            _check(store, name, entry)
        except PermissionError as error:
            raise Refused(
                f"cannot read {store / folder}: permission denied",
                hint="check the store's owner and permissions",
            ) from error
        except (FileNotFoundError, NotADirectoryError):
            continue  # removed meanwhile, or not a store at all


def _check(store: Path, name: str, entry: os.DirEntry[str]) -> None:
    """Raises: FileNotFoundError; Refused for a link, a pipe, a device, or a file too large for its kind."""
    if not entry.is_file(follow_symlinks=False):
        raise _foreign(store, name, entry.stat(follow_symlinks=False))
    if name in _ELSEWHERE and entry.stat(follow_symlinks=False).st_size:
        raise Refused(f"{store} takes {_ELSEWHERE[name]} for its own ({name})", hint=_remedy(store, name))
    if _is_log(name) and entry.stat(follow_symlinks=False).st_nlink > 1:  # git appends to an existing one
        raise _shared(store, name)
    most = _limit(name)
    if most and (size := entry.stat(follow_symlinks=False).st_size) > most:
        raise Refused(f"{store}: {name} has {size:,} bytes; at most {most:,} are allowed", hint=_remedy(store, name))


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
    return 0 if name.startswith(("objects/", "ctxvc/cache/")) else _WHOLE  # nothing in the cache is read whole


def plain(name: str) -> bool:
    """Whether `name` is the plain name of one file or folder, not a path."""
    return name not in ("", ".", "..") and not any(char in name for char in "/\0\n\\") and len(name) <= 255


def read(store: Path, name: str, most: int = LARGEST) -> bytes:
    """The bytes of a file.

    Raises: FileNotFoundError; Refused if it is not a plain file or is longer than `most` bytes.
    """
    handle = opened(store, name, os.O_RDONLY)
    with os.fdopen(handle, "rb") as file:
        if os.fstat(handle).st_size > most:
            raise Refused(f"{store / name} has more than {most:,} bytes", hint=_remedy(store, name))
        return file.read(most + 1)[:most]


def opened(store: Path, name: str, flags: int) -> int:
    """Opens a plain file; returns its descriptor. With `O_CREAT`, a new file is private to this user.

    Raises: OSError; Refused if it is a link, pipe or device, if it is reached through a link, or if it is opened for
    writing and has a second name, which may lie outside the store.
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
    """Gives a file with a second name, as in a copy by hard links, an inode of its own; returns whether it had one.

    The caller holds the lock under which the file is written. Raises: OSError, Refused.
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
    """Replaces the file with `data` atomically. Raises: OSError, Refused.

    With `durably`, the data is on the disk on return.
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
    """Renames a file inside the store, replacing any `target`. Raises: OSError, Refused."""
    with _folder(store, name) as (source, last), _folder(store, target) as (folder, new):
        os.replace(last, new, src_dir_fd=source, dst_dir_fd=folder)
        os.fsync(folder)


def remove(store: Path, name: str) -> bool:
    """Removes the file, or a link in its place; returns whether it existed. Raises: OSError, Refused."""
    try:
        with _folder(store, name) as (folder, last):
            os.unlink(last, dir_fd=folder)
    except FileNotFoundError:
        return False
    return True


def remove_folder(store: Path, name: str) -> None:
    """Removes an empty folder. Raises: OSError if it is missing or not empty, Refused."""
    with _folder(store, name) as (folder, last):
        os.rmdir(last, dir_fd=folder)


def remove_tree(store: Path, name: str) -> None:
    """Removes a folder and everything in it, or a file or link in its place. Links in it are removed, not followed.

    Raises: OSError; Refused if a folder above it is a link.
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
    """Creates the folder and missing ones above it, private to this user. Raises: OSError, Refused.

    With `private`, an existing folder is made private too; existing folders above it stay as they are.
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
    """The names in a folder, sorted; empty if it is missing. Raises: OSError; Refused if it is not a folder."""
    try:
        with _folder(store, f"{folder}/.") as (handle, _):
            return sorted(os.listdir(handle))
    except FileNotFoundError:
        return []


def files(top: Path) -> Iterator[Path]:
    """Every plain file below a folder, or `top` itself if it is one; links and everything else are skipped."""
    below = (Path(folder, name) for folder, _, names in os.walk(top) for name in names)
    for path in chain((top,), below):
        with suppress(FileNotFoundError):
            if stat.S_ISREG(path.lstat().st_mode):
                yield path


def glance(file: Path, most: int = LARGEST, *, flags: int = 0) -> bytes:
    """The first `most` bytes of a plain file anywhere; empty for anything else.

    Links are followed unless `flags` has `O_NOFOLLOW`.
    """
    try:
        handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | flags)
    except (OSError, ValueError):
        return b""
    with os.fdopen(handle, "rb") as stream:
        return stream.read(most) if stat.S_ISREG(os.fstat(handle).st_mode) else b""


@contextmanager
def _folder(store: Path, name: str) -> Iterator[tuple[int, str]]:
    """Yields a descriptor of the folder that `name` lies in, reached through no link, and the last part of the name.

    Raises: OSError; Refused if a part of the name is a link or is not plain.
    """
    *above, last = name.split("/")
    if not all(map(plain, (*above, last))) and not (last == "." and all(map(plain, above))):
        raise Refused(f"{name[:100]!r} is not a valid name in a store", hint=_remedy(store, name))
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
    """The error for a file that could not be opened; it names what is in its place, if that is the cause."""
    try:
        status = os.stat(last, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return error
    if stat.S_ISLNK(status.st_mode) or error.errno in (errno.ENXIO, errno.ENOTDIR):
        return _foreign(store, name, status)
    return error


def _shared(store: Path, name: str) -> Refused:
    return Refused(
        f"{store / name} has a second hard link, so writing to it may change a file elsewhere",
        hint="copy the store with `cp -a`, which gives it its own files",
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
    return Refused(f"{store / name} is {what}, which does not belong in a store", hint=_remedy(store, name))


def _remedy(store: Path, name: str) -> str:
    return f"check {str(store / name)[:300]!r}, and remove it if it is not yours"


def main_worktree(start: Path) -> Path | None:
    """The root of the main worktree if `start` lies in a linked one, else None.

    Both sides must agree, as git writes them: a folder that merely claims to be another project's worktree is not one.
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


def linked_worktrees(main: Path) -> list[Path]:
    """The roots of the worktrees linked to the one at `main`, sorted by their names in git. Both sides must agree."""
    try:
        linked = sorted((main / ".git" / "worktrees").iterdir())
    except OSError:
        return []
    roots = []
    for folder in linked:
        dot_git = pointer(folder / "gitdir", folder)
        if dot_git and pointer(dot_git, dot_git.parent) == folder.resolve():
            roots.append(dot_git.parent)
    return roots


def pointer(file: Path, base: Path) -> Path | None:
    """The path in one of git's pointer files, relative to `base`, with links resolved; None if it names none.

    Parsed exactly as git does: spaces are part of the path, and only `.git` has a prefix. Otherwise git could be led to
    a place that was never checked.
    """
    try:
        data = glance(file, _SMALL + 1, flags=os.O_NOFOLLOW)
        before = b"gitdir: " if file.name == ".git" else b""
        path = os.fsdecode(data.removeprefix(before)).rstrip("\r\n") if data.startswith(before) else ""
        return Path(base, path).resolve() if path and len(data) <= _SMALL else None
    except (OSError, ValueError, RuntimeError):  # missing, a NUL in the path, circular links
        return None


def is_worktree(linked: Path, dot_git: Path) -> bool:
    """Whether `linked`, git's folder of a worktree, names `dot_git`, the file that names it."""
    back = pointer(linked / "gitdir", linked)
    return back is not None and back.parent == dot_git.parent.resolve() and back.name == dot_git.name


def refuse_link(path: Path) -> None:
    """Raises: Refused if the store is a link.

    For a store that was found, not named by the person: a foreign project may contain a link to another store.
    """
    if path.is_symlink():
        target = str(path.readlink())
        raise Refused(f"{path} is a link to {target[:300]!r}, which may come with a project",
                      hint=f"if it is yours, name the store itself: CTXVC_STORE={target[:300]}")  # fmt: skip
