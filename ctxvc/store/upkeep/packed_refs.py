"""Adds many refs at once to git's list of packed refs: only one file is made durable, not one per ref."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from ctxvc.errors import Conflict, Damaged, Phrase
from ctxvc.store import files
from ctxvc.store.trust import contained

FILE = "packed-refs"
#: git creates this file before it writes the list, and so do we: stock git and we wait for each other.
LOCK = f"{FILE}.lock"
#: The header of a new list: it is sorted, and has the target of each tag; commits need none.
_HEADER = b"# pack-refs with: peeled fully-peeled sorted \n"
_LARGEST = 1 << 30
_ID = re.compile(r"[0-9a-f]{40}")
_LINE = re.compile(rb"[0-9a-f]{40} refs/[^\n]+\n")


def add(store: Path, refs: Mapping[str, str]) -> None:
    """Adds refs to existing commits, all or none, even if the power fails. The caller has the store's lock.

    Raises: Conflict if one of them exists or another git is writing the list; Damaged if it is not a list; CtxvcError.
    """
    if not refs:
        return
    if wrong := next((ref for ref, commit in refs.items() if not _ID.fullmatch(commit)), ""):
        raise ValueError(f"{wrong} would lead to no commit")
    try:
        handle = contained.opened(store, LOCK, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    except FileExistsError as error:
        raise Conflict("another git is writing the store's refs", hint=Phrase("share-again")) from error
    except OSError as error:
        raise files.unwritable(store / FILE, error) from error
    try:
        try:
            files.write_all(handle, _with(store, refs))
            files.sync(handle)
        finally:
            os.close(handle)
        contained.move(store, LOCK, FILE)
    except OSError as error:
        contained.remove(store, LOCK)
        raise files.unwritable(store / FILE, error) from error
    except BaseException:
        contained.remove(store, LOCK)
        raise


def _with(store: Path, refs: Mapping[str, str]) -> bytes:
    """The list with the refs added. Raises: Conflict if one of them cannot be added."""
    header, entries = _list(store)
    present = entries.keys() | refs.keys()
    folders, new_folders = _folders(present), _folders(refs)
    for ref in refs:
        if ref in entries or ref in folders or _is_loose(store, ref):
            raise Conflict(f"another process made {ref} meanwhile", hint=Phrase("share-again"))
    for folder in new_folders:
        if folder in present or (os.path.lexists(store / folder) and not (store / folder).is_dir()):
            raise Conflict(f"the store has a ref {folder}, where refs are to be", hint=Phrase("share-again"))
    entries.update((ref, f"{commit} {ref}\n".encode("ascii")) for ref, commit in refs.items())
    return header + b"".join(entries[name] for name in sorted(entries))


def _list(store: Path) -> tuple[bytes, dict[str, bytes]]:
    """The header of the list, and ref → its lines. Raises: Damaged."""
    try:
        data = contained.read(store, FILE, _LARGEST)
    except FileNotFoundError:
        return _HEADER, {}
    header = b""
    entries: dict[str, bytes] = {}
    ref = ""
    for line in data.splitlines(keepends=True):
        if line.startswith(b"#"):
            header += line
        elif line.startswith(b"^") and ref:
            entries[ref] += line
        elif _LINE.fullmatch(line):
            ref = line.partition(b" ")[2].rstrip().decode("utf-8", "surrogateescape")
            entries[ref] = line
        else:
            raise Damaged(f"{store / FILE} is not a list of refs", hint=Phrase("verify-refs"))
    return header, entries


def _folders(refs: Iterable[str]) -> set[str]:
    """All folders above the refs, as ref names."""
    folders: set[str] = set()
    for ref in refs:
        while (ref := ref.rpartition("/")[0]) and ref not in folders:
            folders.add(ref)
    return folders


def _is_loose(store: Path, ref: str) -> bool:
    """Whether the ref has a file of its own, or there are refs below its name."""
    path = store / ref
    return any(names for _, _, names in os.walk(path)) if path.is_dir() else os.path.lexists(path)
