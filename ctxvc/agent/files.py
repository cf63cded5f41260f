"""Files below a folder, reached one name at a time, so that no link and no race leads out of it.

The system never follows a link here: each is read and walked as a path of its own, from where it stands. What was
walked stays open until it has been used, so that nobody can put something else in its place in between. The list of
files that no `.gitignore` names is git's.
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
#: To look a name up in a folder, being allowed to pass through it is enough.
_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Place:
    """The target of a path: the folders on the way, held open, and a name in the last, which may not exist.

    `parts` are the names from the top, without links; none for the top itself.
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
        """Whether the folder at these path parts holds this name."""
        if depth >= len(self.folders):
            return False
        try:
            os.stat(name, dir_fd=self.folders[depth], follow_symlinks=False)
        except OSError:
            return False
        return True

    def status(self) -> os.stat_result | None:
        """Its status; None if nothing is there."""
        if self.missing:
            return None
        try:
            return os.stat(self.last or ".", dir_fd=self.folders[-1], follow_symlinks=False)
        except FileNotFoundError:
            return None

    def open(self) -> int:
        """A descriptor for reading. Raises: OSError; BadInput for what is no file."""
        if self.missing:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        handle = os.open(self.last or ".", _READ, dir_fd=self.folders[-1])
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise BadInput("not a file")
        return handle

    def replace(self, data: bytes) -> None:
        """The file has these bytes, or what it had; it keeps its mode. Folders are made. Raises: OSError."""
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
    """The files below a folder, which is held open: whatever takes its name later is not meant."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._top = os.open(root, _FOLDER & ~os.O_NOFOLLOW)

    def __del__(self) -> None:
        try:
            os.close(self._top)
        except (AttributeError, OSError):
            pass  # it never opened

    @contextmanager
    def place(self, path: str) -> Iterator[Place]:
        """Where the path leads, inside. Raises: BadInput for one that leads out of the folder, OSError."""
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
        """The names of a path from where `place` stands; of an absolute one from the top, where that is above it."""
        names = [name for name in path.split("/") if name not in ("", ".")]
        if not path.startswith("/"):
            return names
        while place.names:
            place.leave()
        # A `..` behind the top stays: what it leaves may be a link, and is walked like the rest.
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

    Where no repository is around it, `root` counts as one, and hidden files are left out. What lies in a repository
    further inside is listed as that one sees it. Raises: Refused without git.
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
    """The top of the work tree that a folder is in; None if it is in none that the person trusts."""
    answer = program.of_project(folder, "rev-parse", "--show-toplevel")
    return Path(os.fsdecode(answer.removesuffix(b"\n"))) if answer else None


def down_to(folder: Path) -> list[Path]:
    """The folders from the top of the work tree down to this one; this one alone if it is in none."""
    above, places = top(folder), [folder, *folder.parents]
    return places[: places.index(above) + 1][::-1] if above in places else [folder]


def _listed(start: Path, *, exclude: str, at: Sequence[str] = ()) -> list[str] | None:
    """Git's listing: files, and repositories with a trailing slash. None for a folder outside any repository."""
    options = ("-z", "-co", "--exclude-standard", f"--exclude={exclude}")
    answer = program.of_project(start, "ls-files", *options, at=at, personal=False)
    return None if answer is None else [os.fsdecode(name) for name in answer.split(b"\0") if name]
