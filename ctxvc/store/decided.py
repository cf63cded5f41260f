"""A purge that is decided: everything new is on the disk, and what is left can be done, and done again, by anybody."""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack
from pathlib import Path

import msgspec

from ctxvc.errors import CtxvcError
from ctxvc.store import cleanup, durable, git, worktrees
from ctxvc.store.locks import locked

FOLDER = Path("ctxvc", "purge")
HOOKS = Path("ctxvc", "hooks")
#: What remotes are known to have, since their branches are forgotten: name → commits, as they are called now.
REMOTES = Path("ctxvc", "secrets", "remotes.json")
#: What hooks leave to be done: of that, only what a purge names goes.
WAITING = ("requests", "outputs")
#: What a running recorder holds.
_HELD = "recorder.lock"
STATE = "state.json"


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """What is left to do once everything new is on the disk. All of it can be done twice."""

    format: int
    pack: str
    refs: dict[str, str]
    gone: tuple[str, ...]
    journals: tuple[str, ...]
    checkouts: tuple[str, ...]
    files: tuple[str, ...]
    remotes: dict[str, list[str]] = {}


def pending(path: Path) -> bool:
    """Whether a purge of the store was decided and is not done."""
    return (path / FOLDER / STATE).exists()


def complete(path: Path) -> None:
    """Finishes a purge that was killed. Raises: CtxvcError."""
    names = sorted(path.name for path in (path / "ctxvc" / "lock").glob("[!.]*"))
    with ExitStack() as held:
        for name in names:
            held.enter_context(locked(path / "ctxvc" / "lock" / name))
        lock = held.enter_context(locked(path / "ctxvc" / "store.lock"))
        if pending(path):
            apply(path, lock)


def apply(path: Path, lock: int) -> None:
    """What is written down as decided is done. Whoever calls it holds all locks."""
    folder = path / FOLDER
    state = msgspec.json.decode((folder / STATE).read_bytes(), type=Decided)
    cleanup.remove(path)
    for name in state.journals:
        staged = folder / "journal" / name
        if staged.exists():
            os.replace(staged, path / "ctxvc" / "journal" / name)
    durable.sync_folder(path / "ctxvc" / "journal")
    there = git.run(path, "for-each-ref", "--format=%(refname)").decode().split("\n")
    orders = [f"update {ref} {tip}" for ref, tip in state.refs.items()]
    orders += [f"option no-deref\ndelete {ref}" for ref in state.gone if ref in there]
    git.run(path, "update-ref", "--stdin", data="".join(f"{order}\n" for order in orders).encode(), inherit=(lock,))
    if state.remotes:
        (path / REMOTES).parent.mkdir(mode=0o700, exist_ok=True)
        durable.replace(path / REMOTES, msgspec.json.encode(state.remotes))
    for checked_out in state.checkouts:
        worktrees.remove(path, Path(checked_out))  # only what ctxvc made here, whatever the list says
    # What else hooks keep is made of what is stored, or of the transcripts, and will be made again.
    hooks = [f"{HOOKS}/{found.name}" for found in (path / HOOKS).glob("*") if found.name not in (*WAITING, _HELD)]
    for name in ("worktrees", "logs", "ctxvc/cache", "objects/info", "checkout", *hooks):
        shutil.rmtree(path / name, ignore_errors=True)
    for name in ("FETCH_HEAD", "ORIG_HEAD", "MERGE_HEAD", "shallow", *hooks):
        (path / name).unlink(missing_ok=True)
    for name in state.files:
        (path / name).unlink(missing_ok=True)
    (path / "ctxvc" / "cache").mkdir(mode=0o700, exist_ok=True)
    (path / "objects" / "info").mkdir(exist_ok=True)
    git.run(path, "pack-refs", "--all", inherit=(lock,))
    _only(path / "objects", state.pack)
    durable.sync_folder(path / "objects" / "pack")
    (folder / STATE).unlink()
    durable.sync_folder(folder)
    shutil.rmtree(folder, ignore_errors=True)


def _only(objects: Path, pack: str) -> None:
    """One pack is left of all objects."""
    if not (objects / "pack" / f"{pack}.pack").exists():
        raise CtxvcError(f"the pack of the purge, {pack}, is gone", hint="restore the store from a copy")
    for found in (objects / "pack").iterdir():
        if not found.name.startswith(f"{pack}."):
            found.unlink()
    for loose in objects.glob("[0-9a-f][0-9a-f]"):
        shutil.rmtree(loose)
