"""Worktrees of a store: created with the right git settings, recognised as the store's own, and removed.

A store's word is not enough. In a real worktree both sides agree: `worktrees/NAME` in the store names the folder's
`.git` file, and that file names `worktrees/NAME`. Everything else that git would read there is checked too, since
settings other than a checkout's could lead it to other files. A folder that came with the store can forge both sides,
so outside the store a folder is removed only if a seal of this machine proves that ctxvc made it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ctxvc.errors import Refused
from ctxvc.store.git import program
from ctxvc.store.trust import contained, seals

FOLDER = "worktrees"
#: The file in git's folder of a worktree with the seal of the machine on which ctxvc made it.
SEAL = "ctxvc-seal"
#: The file that ctxvc adds to a checkout; git does not track it.
DASHBOARD = "DASHBOARD.md"

#: The settings that git and `add` write for a worktree.
_SETTING = re.compile(
    r"\s*(?:\[(?:core|index)\]|(?:sparseCheckout|sparseCheckoutCone|symlinks|sparse) = (?:true|false)|)\s*",
    re.IGNORECASE,
)
_MOST = 65536


class Worktree(NamedTuple):
    """A worktree's name in the store, and its folder."""

    name: str
    folder: Path


def listed(store: Path) -> Iterator[Worktree]:
    """The worktrees of the store, whoever made them, whose two sides agree and in which nothing leads elsewhere.

    Raises: OSError; Refused if there is a link in the store.
    """
    for name in contained.names(store, FOLDER):
        if worktree := _registered(store, name):
            yield worktree


def at(store: Path, folder: Path) -> Worktree | None:
    """The worktree at `folder`; None if it is not one of this store. Raises: as `listed`."""
    linked = contained.pointer(folder / ".git", folder)
    if linked is None or linked.parent != (store / FOLDER).resolve():
        return None
    worktree = _registered(store, linked.name)
    return worktree if worktree and worktree.folder == folder.resolve() else None


def missing(store: Path) -> list[str]:
    """The names of worktrees that no folder confirms: the folder was deleted, or never existed."""
    there = {worktree.name for worktree in listed(store)}
    return [name for name in contained.names(store, FOLDER) if name not in there]


def lost(store: Path) -> list[str]:
    """The last known paths of the missing worktrees: a folder that was moved still has its files.

    Without the store's own checkouts, which moved together with the store. Raises: as `listed`.
    """
    folders = []
    for name in missing(store):
        linked = store / FOLDER / name
        dot_git = contained.pointer(linked / "gitdir", linked)
        if dot_git is not None and not _moved_along(store, dot_git.parent):
            folders.append(str(dot_git.parent))
    return folders


def _moved_along(store: Path, folder: Path) -> bool:
    *_, top, session, scope = ("", "", *folder.parts)
    own = store / top / session / scope
    return _inside(store, folder) or (top == "checkout" and own.is_dir() and not folder.exists())


def add(store: Path, folder: Path, commit: str, patterns: Sequence[str]) -> None:
    """Adds a worktree in an empty folder: detached, sparse with these patterns, still without files.

    Raises: CtxvcError.
    """
    # Forced, because git still lists folders that were deleted by hand.
    program.run(store, "worktree", "add", "--quiet", "--force", "--detach", "--no-checkout", str(folder), commit)
    program.in_checkout(folder, "sparse-checkout", "set", "--no-cone", *patterns)
    # A scope written by somebody else could contain links to anywhere.
    program.in_checkout(folder, "config", "--worktree", "core.symlinks", "false")
    remember(store, folder)


def remember(store: Path, folder: Path) -> None:
    """Records on this machine, if possible, that ctxvc made the worktree."""
    worktree = at(store, folder)
    if worktree is not None:
        with suppress(OSError):
            seal = seals.seal(store, _payload(worktree))
            contained.replace(store, f"{FOLDER}/{worktree.name}/{SEAL}", seal.encode(), durably=False)


def is_made_here(store: Path, worktree: Worktree) -> bool:
    """Whether ctxvc made the worktree on this machine, or it lies in the store's own folder for checkouts."""
    if _inside(store, worktree.folder):
        return True
    try:
        seal = contained.read(store, f"{FOLDER}/{worktree.name}/{SEAL}", _MOST)
    except (OSError, Refused):
        return False
    return seals.is_sealed_here(store, _payload(worktree), seal.decode("ascii", "replace"))


def remove(store: Path, folder: Path) -> bool:
    """Removes git's files from the worktree, and the folder if it is then empty; returns whether the folder is gone.

    A folder that is not a worktree made here by ctxvc is not touched. Files unknown to git stay. If killed, a
    repetition finishes the work. Raises: CtxvcError, OSError.
    """
    worktree = at(store, folder)
    if worktree is None or not is_made_here(store, worktree):
        return not os.path.lexists(folder)
    # Not through the folder's own `.git`: git must use what was checked.
    tracked = program.in_worktree(store / FOLDER / worktree.name, worktree.folder, "ls-files", "-z").split(b"\0")
    names = [os.fsdecode(name) for name in tracked if name]
    folders: set[str] = set()
    for name in (*names, DASHBOARD):
        with suppress(OSError, Refused):  # a person's link or folder in place of the file stays
            contained.remove(worktree.folder, name)
        parts = name.split("/")[:-1]
        folders.update("/".join(parts[:count]) for count in range(1, len(parts) + 1))
    for name in sorted(folders, key=len, reverse=True):
        with suppress(OSError, Refused):
            contained.remove_folder(worktree.folder, name)
    contained.remove(worktree.folder, ".git")  # last: without it, a repetition would not find the worktree
    with suppress(OSError):
        worktree.folder.rmdir()
    return not os.path.lexists(worktree.folder)


def _registered(store: Path, name: str) -> Worktree | None:
    linked = store / FOLDER / name
    dot_git = (
        contained.pointer(linked / "gitdir", linked) if contained.plain(name) and not linked.is_symlink() else None
    )
    if dot_git is None or dot_git.name != ".git":
        return None
    if contained.pointer(dot_git, dot_git.parent) != linked.resolve():
        return None
    if contained.pointer(linked / "commondir", linked) != store.resolve() or not _harmless(store, name):
        return None
    return Worktree(name, dot_git.parent)


def _harmless(store: Path, name: str) -> bool:
    """Whether the worktree's own settings are only those that a checkout needs."""
    try:
        data = contained.read(store, f"{FOLDER}/{name}/config.worktree", _MOST)
    except FileNotFoundError:
        return True
    except (OSError, Refused):
        return False
    return all(map(_SETTING.fullmatch, data.decode("utf-8", "replace").split("\n")))


def _inside(store: Path, folder: Path) -> bool:
    """Whether the folder is in the store's own folder for checkouts, not reached through a link."""
    return folder.is_relative_to(store.resolve() / "checkout") and folder != store.resolve() / "checkout"


def _payload(worktree: Worktree) -> bytes:
    return b"worktree\n%s\n%s" % (os.fsencode(worktree.name), os.fsencode(worktree.folder))
