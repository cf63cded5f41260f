"""A purge that is decided: everything new is on the disk, and what is left can be done, and done again.

It is finished by itself only on the machine that decided it: a seal says so, whose key is in the person's data folder
(`trust`). Elsewhere nothing of it is obeyed until a person says so. Either way all its names are names in the store.
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
from ctxvc.store import contained, identity, leftovers, trust, worktrees
from ctxvc.store import files as durable
from ctxvc.store.files import locked
from ctxvc.store.git import program

if TYPE_CHECKING:
    from ctxvc.store.store import Store


FOLDER = Path("ctxvc", "purge")
HOOKS = Path("ctxvc", "hooks")

#: What remotes are known to have, since their branches are forgotten: name → commits, as they are called now.
REMOTES = Path("ctxvc", "secrets", "remotes.json")

#: What hooks leave to be done: of that, only what a purge names goes.
WAITING = ("requests", "outputs")

#: What a running recorder holds.
_HELD = "recorder.lock"
STATE = "state.json"

#: What is decided has no more bytes than this.
LARGEST = 64 * 1024 * 1024
_PACK = re.compile(r"pack-[0-9a-f]{40}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_REF = re.compile(r"refs(/(?!\.)(?:(?!\.\.|@\{)[^\x00-\x20\x7f~^:?*\[\\/])+(?<!\.lock))+(?<!\.)")
_PLAIN = r"(?!\.{1,2}(?:/|\Z))[^/\x00]+"
_FILE = re.compile(rf"ctxvc/(journal/{_PLAIN}[~.]unreadable-{_PLAIN}|hooks/({'|'.join(WAITING)})/{_PLAIN})")

#: Folders that a purge writes to or clears. None of them may be a link to somewhere else.
_FOLDERS = (
    *("ctxvc", "ctxvc/journal", "ctxvc/lock", "ctxvc/cache", "ctxvc/secrets", "ctxvc/purge", "ctxvc/purge/journal"),
    *("ctxvc/hooks", *(f"ctxvc/hooks/{name}" for name in WAITING), "objects", "objects/pack", "objects/info", "refs"),
)


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """What is left to do once everything new is on the disk. All of it can be done twice.

    `sums` are the SHA-256 of what is staged, by paths in the store; `seal` covers all the rest, and is empty where the
    machine that decided it could remember nothing.
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
    """A purge that waits to be finished: what it moves and removes, whether this machine decided it, and what is done.

    `begun` is whether some of it is done already. `remaining` are folders that may still have what is erased, once it
    is finished (`apply`). `problem` says why it can only be discarded; empty where it can be
    finished. The folders in `checkouts` are named by whoever decided it.
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
    """Whether a purge of the store was decided and is not done."""
    return os.path.lexists(path / FOLDER / STATE)


def write(path: Path, state: Decided) -> None:
    """The purge is decided from now on, under a seal of this machine where it can remember one.

    Raises: Refused, and it is not decided, where a name could not be read back; OSError.
    """
    staged = [f"objects/pack/{state.pack}.{ext}" for ext in ("pack", "idx")]
    staged += [f"{FOLDER}/journal/{name}" for name in state.journals]
    state = msgspec.structs.replace(state, format=2, sums={name: _sum(path / name) for name in staged})
    if strange := next(_strange(state), None):
        raise Refused(
            f"a purge cannot name {one_line(strange, 100)}",
            hint="nothing was changed: give that another name, then again",
        )
    _write(path, state)


def complete(path: Path) -> tuple[str, ...]:
    """Finishes a purge that was killed on this machine; gives the folders that may still have it, as `apply` does.

    Raises: Refused with what was found and what to do, where another decided it; CtxvcError.
    """
    try:
        _sealed(path)
    except CtxvcError:
        # Whoever is at work on it right now needs no seal.
        with _alone(path):
            if not pending(path):
                return ()
        raise
    with _alone(path) as lock:
        if not pending(path):
            return ()
        _check_staged(path, _sealed(path))
        return apply(path, lock)


def look(path: Path) -> PendingPurge:
    """The purge that waits. Nothing of it is done. Raises: NotFound where none does, CtxvcError."""
    _examine(path)
    try:
        state = _read(path)
        begun = _is_begun(path, state)
        _check_staged(path, state)
    except (Refused, Damaged) as error:
        return PendingPurge(sealed=False, begun=False, problem=str(error))
    return _pending(path, state, begun=begun)


def finish(path: Path) -> PendingPurge:
    """A person wants the purge finished, whoever decided it; gives what was done.

    Where it was decided elsewhere no folder outside the store is touched, whatever it names. Done again after a kill,
    it goes on. Raises: NotFound where none waits; Refused where it names what is not in the store; CtxvcError.
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
    """A person wants the purge not to be: the store stays the old one. What it was to erase is there still.

    Raises: NotFound where none waits; Refused where some of it is done already.
    """
    _examine(path)
    with _alone(path):
        try:
            state = _read(path)
        except (Refused, Damaged):
            state = None  # nobody could have begun it
        if state and _is_begun(path, state):
            raise Refused("some of the purge is done already: it can only be finished", hint=Phrase("purge-begun"))
        _remove_state(path)
        if state:
            trust.break_seal(state.seal)


def apply(path: Path, lock: int) -> tuple[str, ...]:
    """What is written down as decided is done. Whoever calls it holds all locks, and says that it is to be done.

    Gives the folders that may still have it: checkouts that are not gone, and those that the store has lost sight of.
    Raises: Refused, and nothing has happened, where it names what is not in the store; CtxvcError.
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
        if not worktrees.remove(path, Path(checked_out)):  # only what ctxvc made here, whatever the list says
            remaining.append(checked_out)
        elif worktree is not None:  # whoever goes on after a kill need not look for it
            contained.remove_tree(path, f"{worktrees.FOLDER}/{worktree.name}")
    # What else hooks keep is made of what is stored, or of the transcripts, and will be made again.
    hooks = [f"{HOOKS}/{hook.name}" for hook in (path / HOOKS).glob("*") if hook.name not in (*WAITING, _HELD)]
    for name in ("worktrees", "logs", "ctxvc/cache", "objects/info", "checkout", *hooks):
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


def _only(objects: Path, pack: str) -> None:
    """One pack is left of all objects."""
    if not (objects / "pack" / f"{pack}.pack").exists():
        raise CtxvcError(f"the pack of the purge, {pack}, is gone", hint="restore the store from a copy")
    for file in list((objects / "pack").iterdir()):
        # A folder is no pack, and somebody else's; what is in it was searched (`searching.files`).
        if not file.name.startswith(f"{pack}.") and (file.is_symlink() or not file.is_dir()):
            file.unlink()
    for loose in objects.glob("[0-9a-f][0-9a-f]"):
        _clear(loose)


def _clear(file: Path) -> None:
    """The file is gone; so is a folder in its place, or a link."""
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
    """Inside, nobody of ours writes to the store: all sessions' locks, then the store's. Gives that one."""
    _check_folders(path)
    locks = [lock_file for lock_file in (path / "ctxvc" / "lock").glob("[!.]*") if not lock_file.is_symlink()]
    with ExitStack() as locks_held:
        for lock_file in sorted(locks):
            locks_held.enter_context(locked(lock_file))
        yield locks_held.enter_context(locked(path / "ctxvc" / "store.lock"))


def _examine(path: Path) -> None:
    """A purge waits in a store that git may be started on, and nothing in it leads out: nobody has opened it as yet.

    Raises: NotFound where none waits, CtxvcError.
    """
    if not pending(path):
        raise NotFound(f"no purge of {path} waits to be finished", hint=Phrase("purge-none"))
    contained.examine(path)
    trust.check(path)


def _sealed(path: Path) -> Decided:
    """What this machine decided. Raises: Refused where it did not, or cannot know; Damaged."""
    hint = Phrase("purge-waits")
    try:
        state = _read(path)
        ours = _is_ours(path, state)
    except (Refused, Damaged) as error:
        raise Refused(f"a purge of {path} waits to be finished, and cannot be by itself: {error}", hint=hint) from error
    if not ours:
        message = f"a purge of {path} waits to be finished, which this machine did not decide"
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
        seal = ""  # whoever finds it killed has to say that it is to be finished
    durable.replace(path / FOLDER / STATE, msgspec.json.encode(msgspec.structs.replace(state, seal=seal)))


def _read(path: Path) -> Decided:
    """What is decided, all of its names plain ones in the store. Raises: Refused, Damaged."""
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
            f"{FOLDER / STATE} names what is not in the store: {one_line(strange, 100)}",
            hint=Phrase("purge-strange"),
        )
    return state


def _strange(state: Decided) -> Iterator[str]:
    """Names that no purge of ours writes."""
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
    """Raises: Refused where a folder that a purge changes is a link."""
    for name in _FOLDERS:
        if (path / name).is_symlink():
            raise Refused(
                f"{path / name} is a link: none is followed in a store", hint="put what it leads to in its place"
            )


def _check_staged(path: Path, state: Decided) -> None:
    """Raises: Refused where what is staged is not what was decided on, or would lose what a ref leads to."""
    # A journal that is not there any more is in its place already.
    staged = [name for name in state.sums if name.startswith("objects/") or os.path.lexists(path / name)]
    for name in staged:
        if not (path / name).is_file() or _sum(path / name) != state.sums[name]:
            raise Refused(
                f"{name} is not what the purge was decided on",
                hint="restore the store from a copy, or discard the purge",
            )
    if not (path / "objects" / "pack" / f"{state.pack}.idx").is_file():
        raise Refused(f"the pack of the purge, {state.pack}, is not there", hint=Phrase("purge-discard"))
    from ctxvc.store.purge import search  # with all that a purge needs, which whoever opens a store does not

    packed = frozenset(search.packed(path, state.pack))
    listed = program.run(path, "for-each-ref", "--format=%(refname) %(objectname) %(symref)").decode("utf-8", "replace")
    tips = dict(line.split(" ")[:2] for line in listed.splitlines() if line.endswith(" "))  # a symbolic one follows
    lost = [ref for ref, tip in {**tips, **state.refs}.items() if ref not in state.gone and tip not in packed]
    if lost:
        raise Refused(
            f"{one_line(lost[0], 100)} leads to what the purge does not keep",
            hint=Phrase("purge-again"),
        )


def _is_begun(path: Path, state: Decided) -> bool:
    """Whether some of it is done: journals come first, then all refs at once."""
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
    """Commits that are no more → what stands in their place, over all purges."""
    if REF not in store.repository.references:
        return {}
    purge_map = wire.parsed(store.reader.path(str(store.repository.references[REF].target), MAP, MAP), dict) or {}
    ids = purge_map.get("commits")
    return {str(old): str(new) for old, new in ids.items()} if isinstance(ids, dict) else {}
