"""Files below a folder, opened one path component at a time, so that no link or race leads out of it.

The system never follows a link here: each link is read and its target walked from the link's folder. The folders on the
way stay open until the file has been used, so that nobody can swap them in between. Git lists the files that
`.gitignore` does not exclude.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ctxvc.errors import BadInput
from ctxvc.store.git import program
from ctxvc.store.project.locate import FOLDER

_LINKS = 40
#: O_PATH: looking a name up in a folder needs only permission to pass through it.
_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Place:
    """The target of a path: the open folders on the way, and a name in the last one, which may not exist.

    `parts` are the names from the top, with links resolved; empty for the top itself.
    """

    def __init__(self, top: int) -> None:
        self.folders = [top]
        self.names: list[str] = []
        self.missing: list[str] = []
        self.last = ""

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(filter(None, (*self.names, *self.missing, self.last)))

    def has(self, depth: int, name: str) -> bool:
        """Whether the folder at this depth of the path contains this name."""
        if depth >= len(self.folders):
            return False
        try:
            os.stat(name, dir_fd=self.folders[depth], follow_symlinks=False)
        except OSError:
            return False
        return True

    def status(self) -> os.stat_result | None:
        """The target's status; None if it does not exist."""
        if self.missing:
            return None
        try:
            return os.stat(self.last or ".", dir_fd=self.folders[-1], follow_symlinks=False)
        except FileNotFoundError:
            return None

    def open(self) -> int:
        """A descriptor for reading. Raises: OSError; BadInput if it is not a regular file."""
        if self.missing:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        handle = os.open(self.last or ".", _READ, dir_fd=self.folders[-1])
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise BadInput("not a file")
        return handle

    def replace(self, data: bytes) -> None:
        """Replaces the file's content atomically, keeping its mode and creating missing folders. Raises: OSError."""
        while self.missing:
            try:
                os.mkdir(self.missing[0], dir_fd=self.folders[-1])
            except FileExistsError:
                pass
            self.enter(self.missing.pop(0))
        folder, before = self.folders[-1], self.status()
        temporary = f".{self.last[:80]}.{secrets.token_hex(6)}"
        handle = os.open(temporary, _MAKE, 0o600, dir_fd=folder)
        try:
            with open(handle, "wb") as file:
                file.write(data)
                os.fchmod(handle, before.st_mode & 0o7777 if before else 0o644)
            os.replace(temporary, self.last, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            os.unlink(temporary, dir_fd=folder)
            raise

    def enter(self, name: str) -> None:
        self.folders.append(os.open(name, _FOLDER, dir_fd=self.folders[-1]))
        self.names.append(name)

    def leave(self) -> None:
        os.close(self.folders.pop())
        self.names.pop()

    def release(self) -> None:
        for handle in self.folders:
            os.close(handle)


class Tree:
    """The files below a folder, which stays open: a folder that takes its name later is a different one."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._top = os.open(root, _FOLDER & ~os.O_NOFOLLOW)

    def __del__(self) -> None:
        try:
            os.close(self._top)
        except (AttributeError, OSError):
            pass  # the constructor failed

    @contextmanager
    def place(self, path: str) -> Iterator[Place]:
        """The target of a path inside the folder. Raises: BadInput if the path leads out of it, OSError."""
        if "\0" in path:
            raise BadInput("a path cannot contain NUL")
        place = Place(os.dup(self._top))
        try:
            self._walk(place, path)
            yield place
        finally:
            place.release()

    def _walk(self, place: Place, path: str) -> None:
        ahead = deque(self._names(place, path, path))
        links = 0
        while ahead:
            name = ahead.popleft()
            if name == "..":
                if place.missing:
                    place.missing.pop()
                elif place.names:
                    place.leave()
                else:
                    raise _outside(path)
                continue
            if place.missing:
                place.missing.append(name)
                continue
            folder = place.folders[-1]
            try:
                mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
            except FileNotFoundError:
                place.missing.append(name)
                continue
            if stat.S_ISLNK(mode):
                links += 1
                if links > _LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                ahead.extendleft(reversed(self._names(place, os.readlink(name, dir_fd=folder), path)))
            elif ahead or stat.S_ISDIR(mode):
                place.enter(name)
            else:
                place.last = name
        if place.missing:
            place.last = place.missing.pop()

    def _names(self, place: Place, path: str, full_path: str) -> list[str]:
        """The components of a path relative to `place`; an absolute path goes back to the top and is relative to
        that."""
        names = [name for name in path.split("/") if name not in ("", ".")]
        if not path.startswith("/"):
            return names
        while place.names:
            place.leave()
        # A `..` below the top stays: the name before it may be a link, so it is walked like the rest.
        top = [name for name in str(self.root).split("/") if name]
        if names[: len(top)] == top:
            return names[len(top) :]
        try:
            return [*Path(os.path.realpath(path)).relative_to(self.root).parts]
        except ValueError:
            raise _outside(full_path) from None


def _outside(path: str) -> BadInput:
    return BadInput(f"{path} is outside the working folder")


def below(start: Path, root: Path) -> set[str]:
    """The files below a folder, by their paths from there.

    Outside any repository, `root` counts as one, and hidden files are left out. A nested repository's files are listed
    by its own rules. Raises: Refused without git.
    """
    names = _listed(start, exclude=FOLDER)
    if names is None:
        with tempfile.TemporaryDirectory() as bare:
            for name in ("objects", "refs"):
                (Path(bare) / name).mkdir()
            (Path(bare) / "HEAD").write_text("ref: refs/heads/main\n")
            at = (f"--git-dir={bare}", f"--work-tree={root}")
            names = _listed(start, exclude=".*", at=at) or []
    files = {name for name in names if not name.endswith("/")}
    inner = {*names} - files - ({"./"} if start == root else set())
    return files.union(*({name + path for path in below(start / name, start / name)} for name in inner))


def top(folder: Path) -> Path | None:
    """The top of the folder's work tree; None if it is in none, or the person does not trust it."""
    answer = program.of_project(folder, "rev-parse", "--show-toplevel")
    return Path(os.fsdecode(answer.removesuffix(b"\n"))) if answer else None


def down_to(folder: Path) -> list[Path]:
    """The folders from the top of the work tree down to this one; only this one outside a work tree."""
    above, places = top(folder), [folder, *folder.parents]
    return places[: places.index(above) + 1][::-1] if above in places else [folder]


def _listed(start: Path, *, exclude: str, at: Sequence[str] = ()) -> list[str] | None:
    """Git's listing: files, and repositories with a trailing slash. None for a folder outside any repository."""
    options = ("-z", "-co", "--exclude-standard", f"--exclude={exclude}")
    answer = program.of_project(start, "ls-files", *options, at=at, personal=False)
    return None if answer is None else [os.fsdecode(name) for name in answer.split(b"\0") if name]
