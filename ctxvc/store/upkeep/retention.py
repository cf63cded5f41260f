"""Which sessions a store keeps, and the removal of the others: a person's decision, never a policy's.

A session is removed whole: its refs, its journal, and those of its objects that no other session shares. All refs are
packed first, so that a session's refs vanish with the rename of one file: if the process is killed at any moment, the
session is either complete or gone. A line under a seal of this machine records the removal, so that its recording is
not automatically imported again.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path

import msgspec

from ctxvc.core.ledger.ledger import Ledger
from ctxvc.core.ledger.numbering import speaks
from ctxvc.errors import Conflict, CtxvcError, Damaged, Refused
from ctxvc.store import files, pending_plans, timestamp, worktrees
from ctxvc.store.files import locked
from ctxvc.store.format import head_ref, ref_of
from ctxvc.store.git import program
from ctxvc.store.git.fast_import import epoch
from ctxvc.store.log import aside
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from ctxvc.store.trust import contained, seals
from ctxvc.store.upkeep import gc

#: The file in the store with a line for each session that was removed here.
REMOVED = "ctxvc/removed.jsonl"
#: The most bytes of that file that are read.
_LARGEST = 16 << 20
_DAY = 86_400
#: A session that changed within this many seconds may be in use.
_ACTIVE = _DAY
_OTHER_REFS = ("for-each-ref", "--format=%(objectname)", "refs/remotes", "refs/tags")


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Keeps the sessions of the last `days`, and as many of the newest as fit into `size` bytes on the disk.

    With `pinned`, a session in which someone pinned a block is always kept.
    """

    days: int | None = None
    size: int | None = None
    pinned: bool = False


class Leaving(msgspec.Struct, frozen=True, kw_only=True):
    """A session that the limits do not keep.

    `updated` is the time of its newest commit, `bytes` the size of its bodies. `sources` are the (format, id) of each
    recording that it was imported from.
    """

    session: str
    updated: int
    blocks: int
    bytes: int
    tips: Mapping[str, str]
    sources: tuple[tuple[str, str], ...]


class Staying(msgspec.Struct, frozen=True, kw_only=True):
    """A session that the limits do not keep, and why it stays nevertheless."""

    session: str
    why: str


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of limits, oldest session first.

    `size` is the packed size of the store on the disk in bytes, `freed` how much of it the removal frees.
    """

    leaving: tuple[Leaving, ...]
    staying: tuple[Staying, ...]
    size: int
    freed: int


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    """A session that was removed on this machine, and when."""

    session: str
    sources: tuple[tuple[str, str], ...]
    updated: str
    time: str
    seal: str = ""


# --- what would go


def survey(store: Store, limits: Limits) -> Survey:
    """What the limits would remove. Changes nothing, except that complete steps are flushed. Raises: CtxvcError."""
    gc.flush(store)
    tips, now = store.all_tips(), store.now()
    updated = {name: max(store.commit(tip).author.time for tip in scopes.values()) for name, scopes in tips.items()}
    checkouts = dict(_checkouts(store))
    leaving: list[Leaving] = []
    staying: list[Staying] = []
    younger: list[Leaving] = []
    for name in sorted(tips, key=lambda name: (updated[name], name)):
        age = now - updated[name]
        is_old = limits.days is not None and age > limits.days * _DAY
        if not is_old and limits.size is None:
            continue
        reason = f"checked out in {checkouts[name]}" if name in checkouts else _reason_to_stay(store, name, age, limits)
        if reason:
            staying.append(Staying(session=name, why=reason))
        else:
            (leaving if is_old else younger).append(_leaving(store, name, tips[name], updated[name]))
    disk = _Disk(store, tips)
    if limits.size is not None:
        leaving += _oldest(younger, leaving, disk, limits.size)
    freed = disk.freed(leaving)
    return Survey(leaving=tuple(leaving), staying=tuple(staying), size=disk.total, freed=freed)


def _oldest(younger: list[Leaving], leaving: list[Leaving], disk: _Disk, size: int) -> list[Leaving]:
    """The oldest of `younger`, as many as must leave besides `leaving` so that the rest fits into `size` bytes."""
    count = bisect_left(range(len(younger)), disk.total - size, key=lambda n: disk.freed([*leaving, *younger[:n]]))
    return younger[:count]


class _Disk:
    """The store's size on the disk: in total, and the part that only some sessions use."""

    def __init__(self, store: Store, tips: Mapping[str, Mapping[str, str]]) -> None:
        self._store = store
        self._tips = tips
        sizes = gc.sizes(store)
        self.total = sizes.total - sizes.packed - sizes.loose + self._usage(["--all"], "")

    def freed(self, leaving: Collection[Leaving]) -> int:
        if not leaving:
            return 0
        names = {one.session for one in leaving}
        lines = [f"{'' if name in names else '^'}{tip}" for name, tips in self._tips.items() for tip in tips.values()]
        # Pulled and signed commits are kept by refs of their own.
        lines += [f"^{tip}" for tip in program.run(self._store.path, *_OTHER_REFS).decode("ascii").split()]
        return self._usage(["--stdin"], "".join(f"{line}\n" for line in lines))

    def _usage(self, arguments: list[str], revisions: str) -> int:
        command = ("rev-list", "--objects", "--disk-usage", *arguments)
        return int(program.run(self._store.path, *command, data=revisions.encode()))


def _reason_to_stay(store: Store, name: str, age: int, limits: Limits) -> str:
    """Why a session stays whatever the limits say; empty if there is no reason."""
    if name == store.used_session():
        return "`use` chose it"
    if age < _ACTIVE:
        return "it changed within a day"
    if any(aside.unaccepted(store, name)):
        return "parts of its journal could not be read"
    try:
        stored = StoredSession.for_reading(store, name)
        if limits.pinned and any(_is_pinned(stored.ledger(scope)) for scope in stored.scopes()):
            return "a block is pinned"
    except Damaged as error:
        return str(error)
    return ""


def _is_pinned(ledger: Ledger) -> bool:
    """Whether someone pinned a block. A session's first human message is pinned automatically and does not count."""
    rows = iter(ledger.rows())
    first = next((row.id for row in rows if speaks(row.kind, row.role, row.origin)), "")
    return any(row.state == "pinned" and row.id != first for row in ledger.rows())


def _leaving(store: Store, name: str, tips: Mapping[str, str], updated: int) -> Leaving:
    ledgers = [store.reader.ledger(tip) for tip in tips.values()]
    rows = {(row.id, row.sha256): row.bytes for ledger in ledgers for row in ledger.rows()}
    sources = {(source.format, source.id) for ledger in ledgers if (source := ledger.meta.source)}
    return Leaving(
        session=name,
        updated=updated,
        blocks=len(rows),
        bytes=sum(rows.values()),
        tips=tips,
        sources=tuple(sorted(sources)),
    )


def _checkouts(store: Store) -> Iterator[tuple[str, Path]]:
    """The sessions that are checked out somewhere, each with a folder."""
    with suppress(OSError):
        for worktree in worktrees.listed(store.path):
            with suppress(CtxvcError, OSError, ValueError):
                head = contained.read(store.path, f"{worktrees.FOLDER}/{worktree.name}/HEAD", 100)
                yield store.reader.meta(head.decode("ascii").strip()).session, worktree.folder


# --- removal


def closed(store: Store, leaving: Collection[Leaving]) -> list[Leaving]:
    """The sessions as they leave: an open step, whose results never came, is committed. Raises: CtxvcError."""
    ended = []
    for one in leaving:
        with StoredSession.open(store, one.session) as stored:
            for scope in stored.scopes():
                stored.finish(scope)
        ended.append(msgspec.structs.replace(one, tips=store.tips(one.session)))
    return ended


def remove(store: Store, leaving: Collection[Leaving], progress: Callable[[str], None] = lambda _: None) -> None:
    """Removes the sessions and packs the store, without gc's usual grace period for unreachable objects.

    Raises: Conflict, before any change, if one of them changed since it was `closed`; CtxvcError.
    """
    if not leaving:
        return
    with ExitStack() as locks:
        for name in sorted(one.session for one in leaving):
            locks.enter_context(locked(store.lock_path(name)))
        lock = locks.enter_context(store.exclusive())
        for one in leaving:
            if store.tips(one.session) != one.tips or gc.is_waiting(store, one.session):
                raise Conflict(f"session {one.session} changed meanwhile", hint="run it again")
        progress("removing sessions")
        _note(store, leaving)
        for one in leaving:
            contained.remove(store.path, head_ref(one.session))
            contained.remove(store.path, f"ctxvc/journal/{one.session}")
            store.redaction.forget(one.session)
        program.run(store.path, "pack-refs", "--all", "--prune", inherit=(lock,))
        refs = [ref for one in leaving for ref in _refs(store, one)]
        deletions = "".join(f"delete {ref}\0{tip}\0" for ref, tip in refs)
        program.run(store.path, "update-ref", "-z", "--no-deref", "--stdin", data=deletions.encode(), inherit=(lock,))
        with suppress(CtxvcError):
            name = store.current_session()
            store.set_current_scope(name, store.current_scope(name))
    gc.gc(store, grace=timedelta(0), report=progress)


def _refs(store: Store, one: Leaving) -> Iterator[tuple[str, str]]:
    """The session's refs with their commits."""
    yield from ((ref_of(one.session, scope), tip) for scope, tip in one.tips.items())
    plans = store.repository.references.get(pending_plans.plans_ref(one.session))
    if plans is not None:
        yield plans.name, str(plans.target)


# --- what was removed


def removed(store: Store) -> list[Removed]:
    """The sessions that were removed here and are not back, oldest first. Lines of another machine do not count."""
    try:
        data = contained.read(store.path, REMOVED, _LARGEST)
    except (OSError, Refused):
        return []
    present = store.all_tips()
    return [one for line in data.splitlines() if (one := _decoded(store, line)) and one.session not in present]


def removed_recordings(store: Store) -> dict[tuple[str, str], int]:
    """(format, id) of each recording → when its session was removed, in seconds since 1970."""
    return {source: epoch(one.time, 0) for one in removed(store) for source in one.sources}


def _note(store: Store, leaving: Collection[Leaving]) -> None:
    """Adds a line for each session. Raises: CtxvcError."""
    now = timestamp.now("seconds")
    lines = [msgspec.json.encode(one) for one in removed(store)]
    for one in leaving:
        note = Removed(session=one.session, sources=one.sources, updated=timestamp.iso(one.updated), time=now)
        with suppress(OSError):  # a machine without a key removes it nevertheless
            note = msgspec.structs.replace(note, seal=seals.seal(store.path, _payload(note)))
        lines.append(msgspec.json.encode(note))
    try:
        contained.replace(store.path, REMOVED, b"".join(line + b"\n" for line in lines)[-_LARGEST:])
    except OSError as error:
        raise files.unwritable(store.path / REMOVED, error) from error


def _decoded(store: Store, line: bytes) -> Removed | None:
    try:
        one = msgspec.json.decode(line, type=Removed)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return one if seals.is_sealed_here(store.path, _payload(one), one.seal) else None


def _payload(one: Removed) -> bytes:
    content = msgspec.json.encode(msgspec.structs.replace(one, seal=""))
    return b"removed session " + hashlib.sha256(content).digest()
