"""Who could read what is pushed to an address: anybody, or whoever has the project's code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ctxvc.errors import CtxvcError
from ctxvc.store.git import transport
from ctxvc.store.git.allowlist import is_loopback
from ctxvc.store.project import code_remotes

#: Hosts that show a public repository by https at the path that ssh takes.
_HOSTS = frozenset({"github.com", "gitlab.com", "bitbucket.org", "codeberg.org"})
_SSH = re.compile(r"(?:ssh://)?(?:[^@/]+@)?([^:/]+)(?::[0-9]+/|[:/])(.+)")


def concerns(address: str, folder: Path, *, ask: bool = False) -> Iterator[str]:
    """Reasons not to push sessions there, for a person. `folder` is the project's.

    A fork of the project that has nothing in common by its refs cannot be told. Raises: as `transport.refs`.
    """
    refs = transport.refs(address, ask=ask)
    if is_public(address):
        yield "anybody can read it, without credentials"
    if any(place(address) == place(own) for own in code_remotes.addresses(folder)):
        yield "it is the project's own code repository"
    elif code_remotes.shares_history(folder, address, refs, ask=ask):
        yield "it has commits of the project's code: it is that repository, or a fork of it"


def is_public(address: str) -> bool:
    """Whether somebody without credentials can read it. A folder of this machine is not public."""
    for candidate in (address, _by_https(address)):
        if re.match(r"(https?|git)://", candidate):
            try:
                transport.refs(candidate, env=transport.nobody())
            except CtxvcError:
                continue
            return True
    return False


def place(address: str) -> str:
    """Host and path of an address, the same for all ways to write it."""
    address = address.strip().rstrip("/").removesuffix(".git")
    scheme, colons, path = address.partition("://")
    if not colons:
        match = None if address.startswith(("/", ".")) else _SSH.fullmatch(address)
        return f"{match[1].lower()}/{match[2].lstrip('/')}" if match else str(Path(address).resolve())
    if scheme == "file":
        return str(Path(path).resolve())
    host, _, path = path.rpartition("@")[2].partition("/")
    host = host if is_loopback(host) else host.partition(":")[0]
    return f"{host.lower()}/{path.lstrip('/')}"


def _by_https(address: str) -> str:
    host, _, path = place(address).partition("/")
    return f"https://{host}/{path}" if host in _HOSTS and not address.startswith("https://") else ""
