"""Is something anywhere in a store? Every object is unpacked, reachable or not, and every other file is read."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from ctxvc.core import secrets
from ctxvc.errors import Refused
from ctxvc.store import git
from ctxvc.store.scrub import Scrub, forms_of

#: What goes as a whole, and what is put in another's place.
_CLEARED = frozenset({"worktrees", "logs", "checkout", "FETCH_HEAD", "ORIG_HEAD", "MERGE_HEAD"})
_REPLACED = frozenset({("ctxvc", "journal"), ("ctxvc", "cache"), ("ctxvc", "purge"), ("ctxvc", "hooks")})


def left(path: Path, scrub: Scrub) -> Iterator[str]:
    """Where something of it still is: every object is unpacked, every other file read."""
    forms = [form for word in scrub.words for form in forms_of(word)]
    pattern = secrets.any_of(forms) if forms else None
    old = {blob.hex() for blob in scrub.bodies}
    for name, data in objects(path):
        if name in old or (pattern is not None and pattern.search(data)):
            yield f"object {name[:12]}"
    for found in files(path):
        if pattern is not None and pattern.search(found.read_bytes()):
            yield str(found.relative_to(path))


def objects(path: Path) -> Iterator[tuple[str, bytes]]:
    """Id and bytes of every object, reachable or not."""
    words = ("cat-file", "--batch-all-objects", "--batch", "--buffer", "--unordered")
    with subprocess.Popen(git.command(path, *words), stdout=subprocess.PIPE, env=git.environment()) as process:
        assert process.stdout is not None
        while line := process.stdout.readline():
            name, _, size = line.split()
            yield name.decode(), process.stdout.read(int(size) + 1)[:-1]


def check_files(path: Path, words: Mapping[bytes, bytes]) -> None:
    """Raises: Refused where something of it stands in what is not ours to change: a name, the configuration, …"""
    pattern = secrets.any_of(form for word in words for form in forms_of(word)) if words else None
    for found in files(path):
        where = found.relative_to(path)
        ours = where.parts[0] in _CLEARED or where.parts[:2] in _REPLACED or where.name in _CLEARED
        if pattern is not None and not ours and pattern.search(os.fsencode(where) + b"\n" + found.read_bytes()):
            raise Refused(f"{found} has some of it, and a purge does not change that", hint="remove it there first")


def files(path: Path) -> Iterator[Path]:
    """The files of a store but for its objects."""
    for folder, folders, names in os.walk(path):
        if Path(folder) == path:
            folders.remove("objects")
        yield from (Path(folder, name) for name in names)
