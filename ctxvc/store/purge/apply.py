"""Carries out a decided purge: everything new is on the disk, and the remaining work can be repeated.

It is finished automatically only on the machine that decided it, as proven by a seal whose key is in the person's data
folder (`trust`). Elsewhere nothing is done until a person asks for it. In both cases the state may only name things
inside the store.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ctxvc.core.display import one_line
from ctxvc.core.ledger import wire
from ctxvc.errors import CtxvcError, Damaged, NotFound, Phrase, Refused
from ctxvc.store import files as durable
from ctxvc.store import objects, worktrees
from ctxvc.store.cache.recovered_files import FOLDER as RECOVERED
from ctxvc.store.files import locked
from ctxvc.store.git import program
from ctxvc.store.trust import contained, identity, known_stores, trust
from ctxvc.store.upkeep import leftovers

if TYPE_CHECKING:
    from ctxvc.store.store import Store


FOLDER = Path("ctxvc", "purge")
HOOKS = Path("ctxvc", "hooks")

#: name → current ids of commits that a remote is known to have; kept here because the remote branches are deleted.
REMOTES = Path("ctxvc", "secrets", "remotes.json")

#: Requests and outputs left by hooks: a purge deletes only those that it names.
WAITING = ("requests", "outputs")

#: The lock file of a running recorder.
_HELD = "recorder.lock"
STATE = "state.json"

#: The most bytes of a decided purge.
LARGEST = 64 * 1024 * 1024
_PACK = re.compile(r"pack-[0-9a-f]{40}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_REF = re.compile(r"refs(/(?!\.)(?:(?!\.\.|@\{)[^\x00-\x20\x7f~^:?*\[\\/])+(?<!\.lock))+(?<!\.)")
_PLAIN = r"(?!\.{1,2}(?:/|\Z))[^/\x00]+"
_FILE = re.compile(rf"ctxvc/(journal/{_PLAIN}[~.]unreadable-{_PLAIN}|hooks/({'|'.join(WAITING)})/{_PLAIN})")

#: Folders that a purge writes to or clears; none may be a link.
_FOLDERS = (
    *("ctxvc", "ctxvc/journal", "ctxvc/lock", "ctxvc/cache", "ctxvc/secrets", "ctxvc/purge", "ctxvc/purge/journal"),
    RECOVERED,
    *("ctxvc/hooks", *(f"ctxvc/hooks/{name}" for name in WAITING), "objects", "objects/pack", "objects/info", "refs"),
)


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """The remaining work, once everything new is on the disk. All of it can be repeated.

    `sums` maps the path in the store of each staged file to its SHA-256. `seal` covers all other fields; it is empty if
    the deciding machine has no data folder.
    """

    format: int
    pack: str
    refs: dict[str, str]
    gone: tuple[str, ...]
    journals: tuple[str, ...]
    checkouts: tuple[str, ...]
    files: tuple[str, ...]
    remotes: dict[str, list[str]] = {}
    sums: dict[str, str] = {}
    seal: str = ""


class PendingPurge(msgspec.Struct, frozen=True, kw_only=True):
    """An unfinished purge: what it moves and removes, whether this machine decided it, and its progress.

    `begun` is True if some of it is already done. `remaining` are folders that may still have the erased content after
    it is finished (`apply`). `problem` says why it can only be discarded; empty if it can be finished. The folders in
    `checkouts` were named by the machine that decided it.
    """

    sealed: bool
    begun: bool
    pack: str = ""
    refs: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    journals: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    checkouts: tuple[str, ...] = ()
    remaining: tuple[str, ...] = ()
    problem: str = ""


def pending(path: Path) -> bool:
    """Whether the store has a decided purge that is not finished."""
    return os.path.lexists(path / FOLDER / STATE)


def write(path: Path, state: Decided) -> None:
    """Decides the purge, under a seal if this machine has a data folder.

    Raises: Refused, before deciding, if a name could not be read back; OSError.
    """
    staged = [f"objects/pack/{state.pack}.{ext}" for ext in ("pack", "idx")]
    staged += [f"{FOLDER}/journal/{name}" for name in state.journals]
    state = msgspec.structs.replace(state, format=2, sums={name: _sum(path / name) for name in staged})
    if strange := next(_strange(state), None):
        raise Refused(
            f"a purge cannot name {one_line(strange, 100)}",
            hint="nothing was changed: rename that, then try again",
        )
    _write(path, state)


def complete(path: Path) -> tuple[str, ...]:
    """Finishes a purge that was killed on this machine; returns the folders that may still have the content (`apply`).

    Raises: Refused, with the way out, if another machine decided it; CtxvcError.
    """
    with _alone(path) as lock:
        if not pending(path):
            return ()  # the purge was still running and is finished now: no seal needed
        _check_staged(path, _sealed(path))
        return apply(path, lock)


def look(path: Path) -> PendingPurge:
    """Describes the unfinished purge without changing it. Raises: NotFound if there is none, CtxvcError."""
    _examine(path)
    try:
        state = _read(path)
        begun = _is_begun(path, state)
        _check_staged(path, state)
    except (Refused, Damaged) as error:
        return PendingPurge(sealed=False, begun=False, problem=str(error))
    return _pending(path, state, begun=begun)


def finish(path: Path) -> PendingPurge:
    """Finishes the purge for a person, whichever machine decided it; returns what was done.

    If it was decided elsewhere, no folder outside the store is touched, whatever it names. Repeated after a kill, it
    continues. Raises: NotFound if there is none; Refused if it names anything outside the store; CtxvcError.
    """
    _examine(path)
    with _alone(path) as lock:
        state = _read(path)
        _check_staged(path, state)
        pending_purge = _pending(path, state, begun=_is_begun(path, state))
        if not pending_purge.sealed:
            _write(path, msgspec.structs.replace(state, checkouts=()))
        return msgspec.structs.replace(pending_purge, remaining=apply(path, lock))


def discard(path: Path) -> None:
    """Discards the purge for a person: the store stays the old one, with the content that was to be erased.

    Raises: NotFound if there is none; Refused if some of it is already done.
    """
    _examine(path)
    with _alone(path):
        try:
            state = _read(path)
        except (Refused, Damaged):
            state = None  # unreadable, so no process can have begun it
        if state and _is_begun(path, state):
            raise Refused("part of the purge is already done: it can only be finished", hint=Phrase("purge-begun"))
        _remove_state(path)
        if state:
            trust.break_seal(state.seal)


def apply(path: Path, lock: int) -> tuple[str, ...]:
    """Does the decided work. The caller holds all locks and has established that it may be done.

    Returns the folders that may still have the content: checkouts that could not be removed, and checkouts that the
    store has lost track of. Raises: Refused, before any change, if it names anything outside the store; CtxvcError.
    """
    folder = path / FOLDER
    state = _read(path)
    leftovers.remove(path)
    for name in state.journals:
        staged = folder / "journal" / name
        if staged.exists():
            os.replace(staged, path / "ctxvc" / "journal" / name)
    durable.sync_folder(path / "ctxvc" / "journal")
    there = program.run(path, "for-each-ref", "--format=%(refname)").decode().split("\n")
    orders = [f"option no-deref\nupdate {ref} {tip}" for ref, tip in state.refs.items()]
    orders += [f"option no-deref\ndelete {ref}" for ref in state.gone if ref in there]
    program.run(path, "update-ref", "--stdin", data="".join(f"{order}\n" for order in orders).encode(), inherit=(lock,))
    if state.remotes:
        (path / REMOTES).parent.mkdir(mode=0o700, exist_ok=True)
        durable.replace(path / REMOTES, msgspec.json.encode(state.remotes))
    remaining = worktrees.lost(path)
    for checked_out in state.checkouts:
        worktree = worktrees.at(path, Path(checked_out))
        if not worktrees.remove(path, Path(checked_out)):  # only checkouts that ctxvc made here, whatever the list says
            remaining.append(checked_out)
        elif worktree is not None:  # so that a repetition after a kill need not find it
            contained.remove_tree(path, f"{worktrees.FOLDER}/{worktree.name}")
    # Everything else of hooks is derived from stored content or transcripts, and is made again when needed.
    hooks = [f"{HOOKS}/{hook.name}" for hook in (path / HOOKS).glob("*") if hook.name not in (*WAITING, _HELD)]
    remaining += _erase_tables(path)
    for name in ("worktrees", "logs", "ctxvc/cache", RECOVERED, "objects/info", "checkout", *hooks):
        shutil.rmtree(path / name, ignore_errors=True)
    for name in ("FETCH_HEAD", "ORIG_HEAD", "MERGE_HEAD", "shallow", *hooks, *state.files):
        _clear(path / name)
    (path / "ctxvc" / "cache").mkdir(mode=0o700, exist_ok=True)
    (path / "objects" / "info").mkdir(exist_ok=True)
    program.run(path, "pack-refs", "--all", inherit=(lock,))
    _only(path / "objects", state.pack)
    durable.sync_folder(path / "objects" / "pack")
    _remove_state(path)
    trust.break_seal(state.seal)
    return tuple(dict.fromkeys(remaining))


def _erase_tables(path: Path) -> list[str]:
    """Removes the store's files from all places of its table; returns the places that may still have some.

    Every writer there holds the folder's lock, and reads the refs again after taking it.
    """
    name = identity.store_id(path)
    remaining = []
    for place in known_stores.tables(path) if name else []:
        folder = place if isinstance(place, Path) else objects.copy_of(path, place)
        try:
            if isinstance(place, str):
                folder.mkdir(parents=True, exist_ok=True)
            if folder.is_dir():
                with locked(folder / f".{name}.lock"):
                    for file in (*folder.glob(f"*/*/*/{name}.parquet"), folder / f"{name}.json"):
                        file.unlink(missing_ok=True)
                    shutil.rmtree(folder / f".{name}.new", ignore_errors=True)
                    if isinstance(place, str):
                        objects.remove(place, name)
        except (OSError, CtxvcError):
            remaining.append(str(place))
    return remaining


def _only(objects: Path, pack: str) -> None:
    """Deletes all packs except one, and all loose objects."""
    if not (objects / "pack" / f"{pack}.pack").exists():
        raise CtxvcError(f"the pack of the purge, {pack}, is missing", hint="restore the store from a copy")
    for file in list((objects / "pack").iterdir()):
        # A folder is not a pack and not ours; its contents were searched (`search.files`).
        if not file.name.startswith(f"{pack}.") and (file.is_symlink() or not file.is_dir()):
            file.unlink()
    for loose in objects.glob("[0-9a-f][0-9a-f]"):
        _clear(loose)


def _clear(file: Path) -> None:
    """Deletes the file, or a folder or link in its place."""
    if file.is_dir() and not file.is_symlink():
        shutil.rmtree(file)
    else:
        file.unlink(missing_ok=True)


def _remove_state(path: Path) -> None:
    folder = path / FOLDER
    (folder / STATE).unlink(missing_ok=True)
    durable.sync_folder(folder)
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _alone(path: Path) -> Iterator[int]:
    """Keeps every ctxvc process from writing: holds all sessions' locks, then the store's. Yields the store's lock."""
    _check_folders(path)
    with ExitStack() as locks:
        for file in sorted((path / "ctxvc" / "lock").glob("[!.]*")):
            if not file.is_symlink():
                locks.enter_context(locked(file))
        yield locks.enter_context(locked(path / "ctxvc" / "store.lock"))


def _examine(path: Path) -> None:
    """Checks the store, which was not checked yet because it is not open.

    Raises: NotFound if no purge is pending; CtxvcError if git must not run on the store or something in it leads out.
    """
    if not pending(path):
        raise NotFound(f"{path} has no unfinished purge", hint=Phrase("purge-none"))
    contained.examine(path)
    trust.check(path)


def _sealed(path: Path) -> Decided:
    """The purge, if this machine decided it. Raises: Refused if it did not or that is unknown; Damaged."""
    hint = Phrase("purge-waits")
    try:
        state = _read(path)
        ours = _is_ours(path, state)
    except (Refused, Damaged) as error:
        raise Refused(
            f"{path} has an unfinished purge, which cannot be finished automatically: {error}", hint=hint
        ) from error
    if not ours:
        message = f"{path} has an unfinished purge that was not decided on this machine"
        raise Refused(f"{message}: nothing of it was done now", hint=hint)
    return state


def _is_ours(path: Path, state: Decided) -> bool:
    return trust.is_sealed_here(identity.store_id(path), _payload(state), state.seal)


def _pending(path: Path, state: Decided, *, begun: bool) -> PendingPurge:
    try:
        ours = _is_ours(path, state)
    except CtxvcError:
        ours = False
    return PendingPurge(
        sealed=ours,
        begun=begun,
        pack=state.pack,
        refs=tuple(state.refs),
        gone=state.gone,
        journals=state.journals,
        files=state.files,
        checkouts=state.checkouts,
    )


def _payload(state: Decided) -> bytes:
    return msgspec.json.encode(msgspec.structs.replace(state, seal=""))


def _write(path: Path, state: Decided) -> None:
    try:
        seal = trust.seal(identity.make_id(path), _payload(state))
    except CtxvcError:
        seal = ""  # a person must ask to finish it if it is killed
    durable.replace(path / FOLDER / STATE, msgspec.json.encode(msgspec.structs.replace(state, seal=seal)))


def _read(path: Path) -> Decided:
    """The decided purge; every name in it is a plain one in the store. Raises: Refused, Damaged."""
    _check_folders(path)
    data = identity.read_plain(path / FOLDER / STATE, LARGEST)
    try:
        state = msgspec.json.decode(data or b"", type=Decided)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Damaged(f"{FOLDER / STATE} cannot be read", hint=Phrase("purge-discard")) from error
    if state.format not in (1, 2):
        raise Refused(f"{FOLDER / STATE} has format {state.format}; this ctxvc reads up to 2", hint="update ctxvc")
    if strange := next(_strange(state), None):
        raise Refused(
            f"{FOLDER / STATE} refers to something not in the store: {one_line(strange, 100)}",
            hint=Phrase("purge-strange"),
        )
    return state


def _strange(state: Decided) -> Iterator[str]:
    """Names in the state that no purge of ours writes."""
    if not _PACK.fullmatch(state.pack):
        yield f"the pack {state.pack!r}"
    for ref, tip in state.refs.items():
        if not _REF.fullmatch(ref) or not _COMMIT.fullmatch(tip):
            yield f"{ref!r} at {tip!r}"
    yield from (repr(ref) for ref in state.gone if not _REF.fullmatch(ref) or not ref.startswith("refs/remotes/"))
    yield from (f"the journal {name!r}" for name in state.journals if not re.fullmatch(_PLAIN, name))
    yield from (f"the file {name!r}" for name in state.files if not _FILE.fullmatch(name))
    for tips in state.remotes.values():
        yield from (f"the commit {tip!r}" for tip in tips if not _COMMIT.fullmatch(tip))
    staged = {f"objects/pack/{state.pack}.{ext}" for ext in ("pack", "idx")}
    staged |= {f"{FOLDER}/journal/{name}" for name in state.journals}
    yield from (repr(name) for name in state.sums if name not in staged)


def _check_folders(path: Path) -> None:
    """Raises: Refused if a folder that a purge changes is a link."""
    for name in _FOLDERS:
        if (path / name).is_symlink():
            raise Refused(
                f"{path / name} is a link: links in a store are not followed", hint="replace it with its target"
            )


def _check_staged(path: Path, state: Decided) -> None:
    """Raises: Refused if a staged file was changed since the decision, or a ref would lose its target."""
    # A journal that is missing has already been moved into place.
    staged = [name for name in state.sums if name.startswith("objects/") or os.path.lexists(path / name)]
    for name in staged:
        if not (path / name).is_file() or _sum(path / name) != state.sums[name]:
            raise Refused(
                f"{name} has changed since the purge was decided",
                hint="restore the store from a copy, or discard the purge",
            )
    index = path / "objects" / "pack" / f"{state.pack}.idx"
    if not index.is_file():
        raise Refused(f"the pack of the purge, {state.pack}, is missing", hint=Phrase("purge-discard"))
    packed = frozenset(program.packed(index))
    listed = program.run(path, "for-each-ref", "--format=%(refname) %(objectname) %(symref)").decode("utf-8", "replace")
    tips = dict(line.split(" ")[:2] for line in listed.splitlines() if line.endswith(" "))  # not symbolic refs
    lost = [ref for ref, tip in {**tips, **state.refs}.items() if ref not in state.gone and tip not in packed]
    if lost:
        raise Refused(
            f"{one_line(lost[0], 100)} leads to something that the purge removes",
            hint=Phrase("purge-again"),
        )


def _is_begun(path: Path, state: Decided) -> bool:
    """Whether some of it is done: journals are moved first, then all refs at once."""
    if any(not os.path.lexists(path / FOLDER / "journal" / name) for name in state.journals):
        return True
    listed = program.run(path, "for-each-ref", "--format=%(refname) %(objectname)").decode("utf-8", "replace")
    return any(f"{ref} {tip}" in listed.splitlines() for ref, tip in state.refs.items())


def _sum(path: Path) -> str:
    """SHA-256 of a plain file. Raises: OSError."""
    digest = hashlib.sha256()
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        while data := file.read(1 << 20):
            digest.update(data)
    return digest.hexdigest()


REF = "refs/ctxvc/purged"
MAP = "purged.json"


def commits(store: Store) -> Mapping[str, str]:
    """Erased commit → its replacement, over all purges."""
    if REF not in store.repository.references:
        return {}
    purge_map = wire.parsed(store.reader.path(str(store.repository.references[REF].target), MAP, MAP), dict) or {}
    ids = purge_map.get("commits")
    return {str(old): str(new) for old, new in ids.items()} if isinstance(ids, dict) else {}
