"""Footholds: the places in a project from which code would run later, without anybody asking for it again.

The settings and hooks of a git repository, of a bare one too, wherever it lies; what Claude Code runs; hooks of other
tools; the store. The agent's file tools do not write there; a shell cannot be kept from it: its changes are reported.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

#: Folders and files, by their names as `_plain` has them.
_PLACES: Mapping[str, str] = {
    ".git": "git runs programs named in its settings and hooks",
    ".ctxvc": "it is the store",
    ".claude": "Claude Code runs programs named in its settings",
    ".mcp.json": "an agent's host starts the servers it names",
    ".husky": "git runs hooks from there",
    ".githooks": "git runs hooks from there",
}
#: What file systems of Windows call the same in eight signs and three.
_SHORT = re.compile(r"(git|ctxvc|claude|mcp|husky|githoo)~[0-9]+(\.[a-z0-9]{0,3})?")
#: What file systems of macOS leave out of a name.
_IGNORED = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
_BARE = ("HEAD", "objects", "refs")
_HOOKS_PATH = re.compile(r"^[ \t]*hooksPath[ \t]*=[ \t]*(.+?)[ \t]*$", re.IGNORECASE | re.MULTILINE)

#: What runs code in a git directory; the rest of it changes with every commit.
_SETTINGS = ("config", "config.worktree", "commondir", "gitdir", "info/attributes")
#: Folders that are looked through, files that are watched, and bytes that are read of a configuration.
FOLDERS = 20_000
FILES = 5_000
_READ = 64 << 10
#: Nanoseconds after which a folder's time tells every change: the clock of a file system is coarse.
_SETTLED = 100_000_000


def reason(parts: Sequence[str], has: Callable[[int, str], bool], hooks: Sequence[Sequence[str]] = ()) -> str:
    """Why nothing is written at this path below a project, by what is there; empty if something may be.

    `has` says whether the folder at the first parts of the path holds a name; `hooks` are paths of what is run.
    """
    for depth, part in enumerate(parts):
        for name in _plain(part):
            if why := _PLACES.get(name):
                return why
            if _SHORT.fullmatch(name):
                return "it is the short name of a folder of git or of an agent's host"
        if part.casefold() in map(str.casefold, _BARE) and all(
            name.casefold() == part.casefold() or has(depth, name) for name in _BARE
        ):
            return "it makes a git repository"
        if all(has(depth, name) for name in _BARE):
            return "it is inside a git repository"
    if any(tuple(map(str.casefold, parts[: len(path)])) == tuple(map(str.casefold, path)) for path in hooks):
        return "programs or hooks are run from there"
    return ""


def _plain(part: str) -> Iterator[str]:
    """The names that file systems may take a part of a path for."""
    for piece in part.split("\\"):
        name = _IGNORED.sub("", unicodedata.normalize("NFKC", piece)).partition(":")[0]
        yield _IGNORED.sub("", unicodedata.normalize("NFKC", name.casefold())).rstrip(" .")


class Footholds:
    """The footholds of a project, watched: `changes` reports what changed since the last look.

    `partial` says that the last look was not complete: the deepest folders are not watched.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folders: dict[str, tuple[int, tuple[str, ...], tuple[str, ...]]] = {}  # ctime, folders, watched
        self._hooks: dict[str, tuple[object, tuple[str, ...]]] = {}  # of a configuration: its signature, paths
        self._before: dict[str, object] | None = None
        self._lock = threading.Lock()
        self.partial = False

    @property
    def watched(self) -> bool:
        """Whether anybody has looked yet."""
        return self._before is not None

    def hooks(self) -> list[tuple[str, ...]]:
        """The paths below the project that configurations run hooks from, and that of the programs that run us."""
        with self._lock:
            if self._before is None:
                self._before = self._seen()
            listed = [path for _, paths in self._hooks.values() for path in paths]
            below = (os.path.relpath(path, self._root) for path in (*listed, os.path.realpath(sys.prefix)))
            return [tuple(path.split("/")) for path in below if not path.startswith("..") and path != "."]

    def changes(self) -> list[str]:
        """The changes since the last look, as `PATH (new)`; none at the first."""
        with self._lock:
            before, self._before = self._before, self._seen()
            now = self._before
        if before is None:
            return []
        report = [(path, "new" if path not in before else "changed") for path in now if now[path] != before.get(path)]
        report += [(path, "removed") for path in before if path not in now and not os.path.lexists(path)]
        return [f"{os.path.relpath(path, self._root)} ({how})" for path, how in sorted(report)]

    def _seen(self) -> dict[str, object]:
        """The signature of each file that is watched, by its path."""
        seen: dict[str, object] = {}
        self._hooks = {path: cached for path, cached in self._hooks.items() if os.path.lexists(path)}
        for folder in self._root.parents:
            if (folder / ".git").exists():
                self._git(str(folder / ".git"), seen)
                break
        self.partial = False
        front, looked = [str(self._root)], 0
        while front:
            below: list[str] = []
            for path in front:
                looked += 1
                if looked > FOLDERS or len(seen) > FILES:
                    self.partial = True
                    return seen
                folders, watched = self._folder(path)
                below += folders
                for place in watched:
                    self._watch(place, seen)
            front = below
        return seen

    def _folder(self, path: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The folders inside to look through, and what is watched; nothing is read again that did not change."""
        try:
            changed = os.lstat(path).st_ctime_ns
            cached = self._folders.get(path)
            if cached and cached[0] == changed:
                return cached[1:]
            with os.scandir(path) as entries:
                inside = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
        except OSError:
            return (), ()
        folders: tuple[str, ...] = ()
        watched: tuple[str, ...] = (path,)
        if not all(name in inside for name in _BARE):
            watched = tuple(f"{path}/{name}" for name in inside if _is_place(name))
            folders = tuple(f"{path}/{name}" for name, folder in inside.items() if folder and not _is_place(name))
        if time.time_ns() - changed > _SETTLED:
            self._folders[path] = changed, folders, watched
        return folders, watched

    def _watch(self, path: str, seen: dict[str, object]) -> None:
        name = next(_plain(path.rpartition("/")[2]), "")
        if name in (".git", ".ctxvc") or os.path.lexists(f"{path}/objects"):
            self._git(path, seen)
        else:
            _take(path, seen)

    def _git(self, path: str, seen: dict[str, object], depth: int = 0) -> None:
        """A git directory, or the file that names one, with its modules and the hooks that it names."""
        seen[path] = signed = _signature(path)
        if signed != "folder":
            path = _git_directory(path)
        for name in _SETTINGS:
            _take(f"{path}/{name}", seen, deep=False)
        _take(f"{path}/hooks", seen)
        for config in (f"{path}/config", f"{path}/config.worktree"):
            for hooks in self._named_hooks(config, os.path.dirname(path)):  # noqa: PTH120
                _take(hooks, seen)
        if depth < 3:
            for group in ("modules", "worktrees"):
                for name in _names(f"{path}/{group}"):
                    self._git(f"{path}/{group}/{name}", seen, depth + 1)

    def _named_hooks(self, config: str, top: str) -> tuple[str, ...]:
        """The folders below the project that a configuration has hooks run from."""
        signed = _signature(config)
        cached = self._hooks.get(config)
        if signed is None or (cached and cached[0] == signed):
            return cached[1] if cached else ()
        try:
            with open(config, encoding="utf-8", errors="replace") as file:
                text = file.read(_READ)
        except OSError:
            return ()
        listed = (os.path.expanduser(path.strip('"')) for path in _HOOKS_PATH.findall(text))  # noqa: PTH111
        paths = (os.path.normpath(f"{top}/{path}" if not path.startswith("/") else path) for path in listed)
        root = str(self._root)
        self._hooks[config] = signed, tuple(path for path in paths if path.startswith(f"{root}/"))
        return self._hooks[config][1]


def _is_place(name: str) -> bool:
    return any(plain in _PLACES for plain in _plain(name)) if not name.isalnum() else False


def _take(path: str, seen: dict[str, object], *, deep: bool = True) -> None:
    """Adds a file, or all files of a folder."""
    if len(seen) > FILES or (signed := _signature(path)) is None:
        return
    if deep and signed == "folder":
        for name in _names(path):
            _take(f"{path}/{name}", seen)
    else:
        seen[path] = signed


def _signature(path: str) -> object:
    """A value that changes with the file; "folder" for a folder, None if nothing is there."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    if stat.S_ISDIR(status.st_mode):
        return "folder"
    return status.st_ino, status.st_size, status.st_mode, status.st_mtime_ns, status.st_ctime_ns


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _git_directory(path: str) -> str:
    """The directory that a `.git` file names."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read(4096)
    except OSError:
        return path
    return os.path.join(os.path.dirname(path), text.removeprefix("gitdir:").strip().partition("\n")[0])  # noqa: PTH120
