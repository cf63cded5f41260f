"""The remotes that a person added to a store, and what was last pushed there.

Kept in the store under a seal: a store from elsewhere cannot bring a remote to which anything is sent.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from ctxvc.core.suggestion import meant
from ctxvc.errors import BadInput, CtxvcError, NotFound, Phrase, Refused, reason_of
from ctxvc.sharing import index
from ctxvc.store.git import allowlist, program, transport
from ctxvc.store.store import Store
from ctxvc.store.trust import contained, seals

FILE = "ctxvc/sharing.json"
FORMAT = 1
DEFAULT = "origin"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_LARGEST = 16 << 20


class Remote(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A remote. `sends` says whether a person agreed to push there, `sessions` which sessions: all if empty.

    `since` excludes older sessions, `withheld` withdrawn ones. `pushed` is the commit of the index last known to be
    there, `pushing` one whose push was never confirmed.
    """

    name: str
    address: str
    sends: bool = False
    sessions: tuple[str, ...] = ()
    since: str = ""
    withheld: tuple[str, ...] = ()
    pushed: str = ""
    pushing: str = ""
    seal: str = ""


class _State(msgspec.Struct, frozen=True, kw_only=True):
    format: int = FORMAT
    clone: str = ""
    remotes: dict[str, Remote] = {}
    writers: dict[str, str] = {}  # a session that came in → the clone that brought it


def clone_name(store: Store) -> str:
    """The name of this store on its remotes; empty before it has a remote."""
    return _state(store).clone


def writers(store: Store) -> Callable[[str], str]:
    """Session → the clone that recorded it: the one it came from, else this store's name, which may be empty.

    Always empty if the file cannot be read.
    """
    try:
        state = _state(store)
    except CtxvcError:
        state = _State()
    return lambda session: state.writers.get(session, state.clone)


def remember_writers(store: Store, sessions: Mapping[str, str]) -> None:
    """Records which clones new sessions came from."""
    if sessions:
        state = _state(store)
        _write(store, msgspec.structs.replace(state, writers={**state.writers, **sessions}))


def every(store: Store) -> list[Remote]:
    """All remotes, by name. Raises: CtxvcError if their file cannot be read."""
    return [remote for _, remote in sorted(_state(store).remotes.items())]


def find(store: Store, name: str = "") -> Remote:
    """The remote of this name, by default the only one. Raises: NotFound; Refused if another machine added it."""
    remotes = _state(store).remotes
    if not name and len(remotes) == 1:
        (name,) = remotes
    name = name or DEFAULT
    if name not in remotes:
        raise NotFound(f"no remote {name[:40]!r}{meant(name, remotes)}", hint=Phrase("share-add"))
    remote = remotes[name]
    if not is_ours(store, remote):
        raise Refused(
            f"the remote has not been accepted on this machine: {name}, {transport.printable(remote.address)}",
            hint=Phrase("share-add-again", address=transport.printable(remote.address)),
        )
    return remote


def is_ours(store: Store, remote: Remote) -> bool:
    """Whether a person added this remote on this machine."""
    return seals.is_sealed_here(store.path, _payload(_state(store).clone, remote), remote.seal)


def check(name: str, address: str, clone: str) -> None:
    """Raises: BadInput if the remote's name or address, or the clone's name, cannot be used."""
    if not _NAME.fullmatch(name):
        raise BadInput(f"{name[:40]!r} cannot name a remote", hint="use up to 40 lower-case letters, digits and '-'")
    if not allowlist.is_address(address):
        raise BadInput(f"{transport.printable(address)!r} is not the address of a remote", hint=Phrase("share-address"))
    if re.search(r"//[^/@]*:[^/@]*@", address):
        raise BadInput("the address has a password in it", hint="let git keep it: `git help credentials`")
    if clone and (reason := index.clone_problem(clone)):
        raise BadInput(f"{clone[:60]!r} cannot name this clone: {reason}", hint="try a shorter, simpler one")


def absolute(address: str, folder: Path) -> str:
    """The address, with a local path made absolute, so that it means the same from every folder."""
    before, colon, _ = address.partition(":")
    is_elsewhere = "://" in address or (colon and "/" not in before)
    return address if is_elsewhere else str((folder / address).resolve())


def add(store: Store, remote: Remote, clone: str = "") -> Remote:
    """Adds or replaces a remote; `clone` is this store's new name on its remotes. Raises: BadInput."""
    check(remote.name, remote.address, clone)
    state = _state(store)
    clone = clone or state.clone or secrets.token_hex(4)
    if clone != state.clone:  # the seals of the other remotes have the old name
        state = msgspec.structs.replace(
            state,
            remotes={
                name: _sealed(store, clone, msgspec.structs.replace(former, pushed="", pushing=""))
                for name, former in state.remotes.items()
                if seals.is_sealed_here(store.path, _payload(state.clone, former), former.seal)
            },
        )
    remote = _sealed(store, clone, remote)
    _write(store, msgspec.structs.replace(state, clone=clone, remotes={**state.remotes, remote.name: remote}))
    program.run(store.path, "config", f"remote.{remote.name}.url", remote.address)
    return remote


def update(store: Store, remote: Remote) -> Remote:
    """Saves a changed remote: which sessions it gets, what it has."""
    state = _state(store)
    remote = _sealed(store, state.clone, remote)
    _write(store, msgspec.structs.replace(state, remotes={**state.remotes, remote.name: remote}))
    return remote


def check_own(remote: Remote, clone: str, there: str) -> None:
    """Raises: Refused if the index `there`, on the remote under this store's name, is another store's."""
    if there and there not in (remote.pushed, remote.pushing):
        raise Refused(
            f"another store pushes to {remote.name} as {clone}", hint=Phrase("share-name", address=remote.address)
        )


def recognised(store: Store, remote: Remote, clone: str = "", *, ask: bool = False) -> Remote:
    """The remote with `pushed` set to its index under the name `clone`, by default this store's, if pushed from here.

    Raises: Refused if another store has this name there; as `transport.refs`.
    """
    clone = clone or clone_name(store)
    ref = f"{index.REFS}{clone}"
    there = transport.refs(remote.address, ref, ask=ask).get(ref, "") if clone else ""
    if there and there in store.repository:  # pushed from here, before the remote was removed
        remote = msgspec.structs.replace(remote, pushed=there)
    check_own(remote, clone, there)
    return remote


def remove(store: Store, name: str) -> Remote:
    """Removes a remote from this store; what was pushed there stays there. Raises: NotFound."""
    state = _state(store)
    if name not in state.remotes:
        raise NotFound(f"no remote {name[:40]!r}{meant(name, state.remotes)}", hint=Phrase("share-add"))
    remaining = {key: remote for key, remote in state.remotes.items() if key != name}
    _write(store, msgspec.structs.replace(state, remotes=remaining))
    program.run(store.path, "config", "--remove-section", f"remote.{name}", check=False)
    program.run(store.path, "update-ref", "-d", tracking(name, state.clone), check=False)
    return state.remotes[name]


def tracking(remote: str, clone: str) -> str:
    """The ref here that leads to what was last pushed."""
    return f"refs/remotes/{remote}/{clone}"


def _sealed(store: Store, clone: str, remote: Remote) -> Remote:
    try:
        return msgspec.structs.replace(remote, seal=seals.seal(store.path, _payload(clone, remote)))
    except OSError as error:
        raise CtxvcError(
            f"the remote cannot be saved on this machine: {reason_of(error)}", hint=Phrase("trust-folder")
        ) from error


def _payload(clone: str, remote: Remote) -> bytes:
    return "\n".join(("remote", clone, remote.name, remote.address, str(remote.sends))).encode()


def _state(store: Store) -> _State:
    try:
        data = contained.read(store.path, FILE, _LARGEST)
    except FileNotFoundError:
        return _State()
    except OSError as error:
        raise CtxvcError(f"cannot read {store.path / FILE}: {error.strerror}", hint="check its permissions") from error
    try:
        state = msgspec.json.decode(data, type=_State)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise CtxvcError(f"{store.path / FILE} cannot be read", hint=Phrase("share-forget")) from error
    if state.format > FORMAT:
        raise Refused(f"{store.path / FILE} has format {state.format}; this ctxvc reads {FORMAT}", hint="update ctxvc")
    return state


def _write(store: Store, state: _State) -> None:
    try:
        contained.replace(store.path, FILE, msgspec.json.format(msgspec.json.encode(state), indent=1) + b"\n")
    except OSError as error:
        raise CtxvcError(f"cannot write {store.path / FILE}: {error.strerror}", hint="check the disk") from error
