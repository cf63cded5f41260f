"""The project's own code repository and its remotes, to keep sessions out of them."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ctxvc.errors import CtxvcError
from ctxvc.store.git import program, transport

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
    """Whether a remote with these refs has a commit of the project: one of its tips, or its branch's first one.

    If the remote's commits cannot be had in time, only the tips count.
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
    """The first commits of a remote's default branch; none if they cannot be had."""
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
