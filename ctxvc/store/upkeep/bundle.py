"""Sessions as one file: a git bundle of their scopes, which depends on no other store."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path

from ctxvc.errors import CtxvcError, Refused
from ctxvc.store import files
from ctxvc.store.format import ref_of
from ctxvc.store.git import program
from ctxvc.store.store import Store

#: The name of the format.
FORMAT = "bundle"
#: The possible first lines of a bundle.
_SIGNS = (b"# v2 git bundle\n", b"# v3 git bundle\n")


def is_bundle(path: Path) -> bool:
    """Whether the file is a git bundle."""
    if not path.is_file():
        return False  # a pipe might never answer
    try:
        with path.open("rb") as file:
            return file.read(len(_SIGNS[0])) in _SIGNS
    except OSError:
        return False


def write(store: Store, target: Path, sessions: Mapping[str, Collection[str]]) -> int:
    """Writes a bundle of the committed scopes; returns its size in bytes. `sessions` maps each session to its scopes.

    The file is on the disk on return, and git has verified it. Raises: Refused if the file exists; CtxvcError, and then
    there is none.
    """
    if os.path.lexists(target):
        raise Refused(f"{target} exists", hint="name another file: a bundle may have the only copy of a session")
    refs = "".join(f"{ref_of(session, scope)}\n" for session, scopes in sessions.items() for scope in scopes)
    own = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        program.run(store.path, "bundle", "create", "--quiet", str(own), "--stdin", data=refs.encode())
        program.run(store.path, "bundle", "verify", "--quiet", str(own))
        own.chmod(0o600)
        with own.open("rb") as written:
            files.sync(written.fileno())
        os.link(own, target, follow_symlinks=False)
        files.sync_folder(target.parent)
        return target.stat().st_size
    except FileExistsError as error:
        raise Refused(f"{target} exists", hint="name another file") from error
    except OSError as error:
        raise CtxvcError(f"cannot write {target}: {error.strerror}", hint="check the folder's permissions") from error
    finally:
        own.unlink(missing_ok=True)
