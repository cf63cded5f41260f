"""Worktrees of a store: which of the folders that it names are its own, and how one is removed.

Whatever a store names is only a claim. A worktree is one where both sides say so: `worktrees/NAME` in the store names
the folder's `.git` file, and that file names `worktrees/NAME`. What else git would read there is looked at too: other
settings than those of a checkout could lead it to other files. Both sides can be forged where a folder came with the
store, so outside the store only a folder is removed of which a seal of this machine says that ctxvc made it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ctxvc.errors import Refused
from ctxvc.store import contained, seals
from ctxvc.store.git import program

FOLDER = "worktrees"
#: In what git keeps of a worktree: the seal of the machine that made it with ctxvc.
SEAL = "ctxvc-seal"
#: Beside the files that git knows: what ctxvc writes into a checkout.
DASHBOARD = "DASHBOARD.md"

#: What `git worktree add` and `git sparse-checkout` write into a worktree's settings, and `checkout` itself.
_SETTING = re.compile(
    r"\s*(?:\[(?:core|index)\]|(?:sparseCheckout|sparseCheckoutCone|symlinks|sparse) = (?:true|false)|)\s*",
    re.IGNORECASE,
)
_MOST = 65536


class Worktree(NamedTuple):
    """A folder, and the name under which the store has it."""

    name: str
    folder: Path


def listed(store: Path) -> Iterator[Worktree]:
    """The worktrees of the store, whoever made them: both sides agree, and nothing in them leads elsewhere.

    Raises: OSError, Refused where a link stands in the store.
    """
    for name in contained.names(store, FOLDER):
        if worktree := _registered(store, name):
            yield worktree


def at(store: Path, folder: Path) -> Worktree | None:
    """The worktree at `folder`; None where it is none of this store. Raises: as `listed`."""
    linked = contained.pointer(folder / ".git", folder)
    if linked is None or linked.parent != (store / FOLDER).resolve():
        return None
    worktree = _registered(store, linked.name)
    return worktree if worktree and worktree.folder == folder.resolve() else None


def missing(store: Path) -> list[str]:
    """The names of worktrees of which no folder says that it is one: it was deleted, or the store only claims it."""
    there = {worktree.name for worktree in listed(store)}
    return [name for name in contained.names(store, FOLDER) if name not in there]


def lost(store: Path) -> list[str]:
    """Where the missing ones were when the store knew them last: a folder that was moved holds its files still.

    Those among the store's own checkouts are none of them, though the store was moved with them. Raises: as `listed`.
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


def remember(store: Path, folder: Path) -> None:
    """This machine knows from now on that ctxvc made the worktree. Where nothing can be remembered, it does not."""
    worktree = at(store, folder)
    if worktree is not None:
        with suppress(OSError):
            seal = seals.seal(store, _payload(worktree))
            contained.replace(store, f"{FOLDER}/{worktree.name}/{SEAL}", seal.encode(), durably=False)


def is_made_here(store: Path, worktree: Worktree) -> bool:
    """Whether ctxvc made the worktree on this machine, or it lies where all checkouts of the store lie by default."""
    if _inside(store, worktree.folder):
        return True
    try:
        seal = contained.read(store, f"{FOLDER}/{worktree.name}/{SEAL}", _MOST)
    except (OSError, Refused):
        return False
    return seals.is_sealed_here(store, _payload(worktree), seal.decode("ascii", "replace"))


def remove(store: Path, folder: Path) -> bool:
    """The files that git has in the worktree are gone, and the folder, if it is empty then; tells whether it is gone.

    Nothing is done, and False is the answer, where the folder is no worktree that ctxvc made here. What git does not
    know in it stays. Done twice, it does the rest. Raises: CtxvcError, OSError.
    """
    worktree = at(store, folder)
    if worktree is None or not is_made_here(store, worktree):
        return not os.path.lexists(folder)
    # Not with the folder's own `.git`: what was looked at is what git is given.
    tracked = program.in_worktree(store / FOLDER / worktree.name, worktree.folder, "ls-files", "-z").split(b"\0")
    names = [os.fsdecode(name) for name in tracked if name]
    folders: set[str] = set()
    for name in (*names, DASHBOARD):
        with suppress(OSError, Refused):  # a person's link or folder in its place, which stays
            contained.remove(worktree.folder, name)
        parts = name.split("/")[:-1]
        folders.update("/".join(parts[:count]) for count in range(1, len(parts) + 1))
    for name in sorted(folders, key=len, reverse=True):
        with suppress(OSError, Refused):
            contained.remove_folder(worktree.folder, name)
    contained.remove(worktree.folder, ".git")  # last: without it nobody would come to do the rest
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
    """Whether the worktree's own settings are those of a checkout and no others."""
    try:
        data = contained.read(store, f"{FOLDER}/{name}/config.worktree", _MOST)
    except FileNotFoundError:
        return True
    except (OSError, Refused):
        return False
    return all(map(_SETTING.fullmatch, data.decode("utf-8", "replace").split("\n")))


def _inside(store: Path, folder: Path) -> bool:
    """Whether the folder lies among the store's own checkouts, reached through no link."""
    return folder.is_relative_to(store.resolve() / "checkout") and folder != store.resolve() / "checkout"


def _payload(worktree: Worktree) -> bytes:
    return b"worktree\n%s\n%s" % (os.fsencode(worktree.name), os.fsencode(worktree.folder))
