"""Keeps a store small and fast: measures its sizes on the disk, and merges its packs into one well-packed pack."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import msgspec

from ctxvc.errors import CtxvcError, Damaged, Phrase, Refused
from ctxvc.store.git import program
from ctxvc.store.log import journal as journals
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from ctxvc.store.trust import contained
from ctxvc.store.upkeep import leftovers

#: Unreachable objects are kept this long: a push or a person's git may be about to point a ref at them.
GRACE = timedelta(days=14)

# fast-import's deltas are kept: it received the versions of each file in sequence, whereas git's own search sorts by
# name and size and mixes sessions (measured: 24 MB of imports became 35 to 47 MB with `-f`). Objects without a delta
# get one from another pack; a window above 10 finds no more. The window's memory is bounded: bodies may be large.
_COMPRESS = ("--window=10", "--depth=50", "--window-memory=128m")
_REPACK = ("repack", "--quiet", "-n", "--no-write-bitmap-index")

_MARKER = "ctxvc/cache/compact"


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """The sizes of a store on the disk, in bytes; `total` is the whole store, `packs` the number of packs."""

    packs: int
    packed: int
    loose: int
    journal: int
    cache: int
    total: int


class GcReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a gc. `removed` are leftovers of killed writers, as paths in the store.

    `unreadable` has an error for each session whose journal cannot be read and was left unchanged.
    """

    before_bytes: int
    after_bytes: int
    packs_before: int
    packs_after: int
    removed: tuple[str, ...]
    seconds: float
    unreadable: tuple[Damaged, ...] = ()


def sizes(store: Store) -> Sizes:
    """The sizes of the store on the disk."""
    packed = loose = journal = cache = total = 0
    for folder, _, files in os.walk(store.path):
        size = sum(_size(Path(folder, name)) for name in files)
        total += size
        match Path(folder).relative_to(store.path).parts:
            case ("objects", "pack"):
                packed += size
            case ("objects", name) if len(name) == 2:
                loose += size
            case ("ctxvc", "journal"):
                journal += size
            case ("ctxvc", "cache", *_):
                cache += size
    return Sizes(packs=len(_packs(store)), packed=packed, loose=loose, journal=journal, cache=cache, total=total)


#: Called with the current activity.
Report = Callable[[str], None]


def gc(store: Store, *, grace: timedelta = GRACE, report: Report = lambda _: None) -> GcReport:
    """Merges everything into one pack; unreachable objects older than `grace` are deleted.

    Flushes complete steps first. Writers continue while it compresses, and wait only while packs are exchanged. If
    killed at any moment, it leaves an intact store, and the next gc finishes the work.
    Raises: CtxvcError; Conflict if a writer holds the store for too long.
    """
    start = time.perf_counter()
    before = sizes(store)
    report("committing complete steps")
    unreadable = flush(store)
    if _packs(store) != _marked(store):
        report("packing")
        # The shared lock keeps other processes from treating our temporary files as a killed writer's.
        with store.shared() as lock:
            _git(store, lock, *_REPACK, "-a", *_COMPRESS)
    with store.exclusive() as lock:
        report("exchanging packs")
        removed = leftovers.remove(store.path)
        # A half-written list of refs, left by a killed `git pack-refs`, blocks every later one.
        removed += ["packed-refs.new"] if contained.remove(store.path, "packed-refs.new") else []
        expiry = (datetime.now(timezone.utc) - grace).strftime("%Y-%m-%dT%H:%M:%SZ") if grace else "now"
        repack_options = ("-A", f"--unpack-unreachable={expiry}") if grace else ("-a",)
        # Determines the reachable objects now, copies them from the pack above, and only then deletes the other packs.
        _git(store, lock, *_REPACK, *repack_options, "-d")
        report("removing what nothing reaches")
        _git(store, lock, "prune", f"--expire={expiry}")
        _git(store, lock, "pack-refs", "--all")
        contained.make_folder(store.path, "ctxvc/cache")
        contained.replace(store.path, _MARKER, "\n".join(_packs(store)).encode())
    after = sizes(store)
    return GcReport(
        before_bytes=before.total,
        after_bytes=after.total,
        packs_before=before.packs,
        packs_after=after.packs,
        removed=tuple(removed),
        seconds=time.perf_counter() - start,
        unreadable=tuple(unreadable),
    )


def flush(store: Store) -> list[Damaged]:
    """Commits the complete steps of all journals and sets damaged records aside.

    Returns an error for each session whose journal cannot be read at all; it is left unchanged. Raises: CtxvcError.
    """
    unreadable = []
    for name in store.sessions():
        try:
            if is_waiting(store, name):
                with StoredSession.open(store, name) as stored:
                    stored.flush()
        except Damaged as error:
            unreadable.append(error)
    return unreadable


def is_waiting(store: Store, session: str) -> bool:
    """Whether the session's journal has uncommitted records or damage. Raises: Damaged if it cannot be read."""
    _, records, _, tail = journals.contents(store.journal_path(session))
    return bool(records or tail.damage)


#: What git prints for an object that is missing or damaged, and for no other failure while it packs.
_DAMAGE = re.compile(
    r"corrupt|bad (packed |tree )?object|unable to read|Could not read [0-9a-f]{40}|missing (blob|tree|commit)|inflate:"
)


def _git(store: Store, lock: int, *arguments: str) -> None:
    try:
        program.run(store.path, *arguments, inherit=(lock,))
    except CtxvcError as error:
        if _DAMAGE.search(str(error)):
            raise Damaged(f"the store is damaged, and left as it is: {error}", hint=Phrase("verify")) from error
        raise CtxvcError(str(error), hint=Phrase("verify-gc")) from error


def _packs(store: Store) -> list[str]:
    return sorted(path.name for path in (store.path / "objects" / "pack").glob("*.pack"))


def _marked(store: Store) -> list[str]:
    """The packs that the last gc left; if there are no others, there is nothing to compress."""
    try:
        return contained.read(store.path, _MARKER).decode("utf-8", "replace").split("\n")
    except (OSError, Refused):
        return []


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except FileNotFoundError:
        return 0  # a writer's temporary file
