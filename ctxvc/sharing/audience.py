"""Who can read what is pushed to an address: anybody, or whoever has the project's code."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from ctxvc.errors import CtxvcError
from ctxvc.store.git import program, transport
from ctxvc.store.git.allowlist import is_loopback

#: Hosts that serve a public repository over https at the path used over ssh.
_HOSTS = frozenset({"github.com", "gitlab.com", "bitbucket.org", "codeberg.org"})
_SSH = re.compile(r"(?:ssh://)?(?:[^@/]+@)?([^:/]+)(?::[0-9]+/|[:/])(.+)")


def concerns(address: str, folder: Path, *, ask: bool = False) -> Iterator[str]:
    """Reasons not to push sessions to an address, for a person. `folder` is the project's.

    A fork of the project whose refs share nothing with it is not recognised. Raises: as `transport.refs`.
    """
    refs = transport.refs(address, ask=ask)
    if is_public(address):
        yield "anybody can read it, without credentials"
    if any(place(address) == place(own) for own in addresses(folder)):
        yield "it is the project's own code repository"
    elif shares_history(folder, address, refs, ask=ask):
        yield "it has commits of the project's code: it is that repository, or a fork of it"


def is_public(address: str) -> bool:
    """Whether an address can be read without credentials. A folder of this machine is not public."""
    for candidate in (address, _by_https(address)):
        if re.match(r"(https?|git)://", candidate):
            try:
                transport.refs(candidate, env=transport.nobody())
            except CtxvcError:
                continue
            return True
    return False


def place(address: str) -> str:
    """Host and path of an address, however it is written."""
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


# --- the project's own code repository and its remotes, which sessions should stay out of

#: The most refs of a remote that are looked up.
_MOST = 20_000
_SECONDS = 60.0


def addresses(folder: Path) -> list[str]:
    """The addresses of the project's remotes, and the folder of its repository."""
    output = program.of_project(folder, "config", "-z", "--get-regexp", r"^remote\..*\.(url|pushurl)$") or b""
    own = program.of_project(folder, "rev-parse", "--path-format=absolute", "--git-common-dir") or b""
    common = os.fsdecode(own).rstrip("\n")
    local = [common, str(Path(common).parent)] if common else []
    return [*(os.fsdecode(line).partition("\n")[2] for line in output.split(b"\0") if line), *local]


def shares_history(folder: Path, address: str, refs: Mapping[str, str], *, ask: bool = False) -> bool:
    """Whether a remote with these refs has a commit of the project: as a tip, or as its default branch's first commit.

    If the remote's commits cannot be fetched in time, only the tips count.
    """
    ids = list(dict.fromkeys(refs.values()))[:_MOST]
    if not ids:
        return False
    data = "".join(f"{name}\n" for name in ids).encode()
    output = program.of_project(folder, "cat-file", "--batch-check", data=data) or b""
    if re.search(rb"(?m)^[0-9a-f]{40} commit ", output):
        return True
    roots = set((program.of_project(folder, "rev-list", "--max-parents=0", "--all") or b"").split())
    return bool(roots) and "HEAD" in refs and not roots.isdisjoint(_first_commits(address, ask=ask))


def _first_commits(address: str, *, ask: bool) -> list[bytes]:
    """The first commits of a remote's default branch; empty if they cannot be fetched."""
    with tempfile.TemporaryDirectory(prefix="ctxvc-") as folder:
        path = Path(folder, "commits.git")
        program.run(None, "init", "--quiet", "--bare", "--template=", str(path))
        options = ("--quiet", "--no-tags", "--filter=tree:0", "--no-write-fetch-head", "--refmap=")
        try:
            transport.run(
                path, address, "fetch", *options, "--", address, "+HEAD:refs/heads/code", ask=ask, timeout=_SECONDS
            )
        except CtxvcError:
            return []
        return program.run(path, "rev-list", "--max-parents=0", "refs/heads/code", check=False).split()
