"""git objects for verification: raw, with nothing trusted, and with errors that name the object."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pygit2

TREE = b"40000"
FILE = b"100644"

_ENTRY = re.compile(rb"([0-7]{5,6}) ([^\0]+)\0(.{20})", re.DOTALL)
_LOOSE = re.compile(r"[0-9a-f]{38}")
_COMMIT, _TREE, _BLOB = pygit2.enums.ObjectType.COMMIT, pygit2.enums.ObjectType.TREE, pygit2.enums.ObjectType.BLOB
_NAMES = {b"commit": _COMMIT, b"tree": _TREE, b"blob": _BLOB}


class Unreadable(Exception):
    """Raised for an object that is missing, damaged, or of the wrong type for its place. `id` is its 20 bytes."""

    def __init__(self, id: bytes, why: str) -> None:
        super().__init__(f"object {id.hex()[:12]} {why}")
        self.id = id


def blob_id(data: bytes) -> bytes:
    """The id of a blob of these bytes, 20 bytes."""
    return hashlib.sha1(b"blob %d\0%b" % (len(data), data), usedforsecurity=False).digest()


def damage(error: Exception) -> str:
    """A description of an error from reading an object: `missing from the store` or `damaged`."""
    return "missing from the store" if isinstance(error, KeyError) else "damaged"


class Entry(NamedTuple):
    """A file (mode 100644), a folder (40000), or something that does not belong in a store."""

    mode: bytes
    id: bytes


#: A folder: name → (mode, id), as in `Entry`.
Tree = Mapping[bytes, tuple[bytes, bytes]]


class Commit(NamedTuple):
    """A commit as stored. `committer` is `name <mail>`."""

    tree: bytes
    parents: tuple[bytes, ...]
    committer: str
    message: str


class Change(NamedTuple):
    """A difference between two trees at `path`."""

    path: str
    old: Entry | None
    new: Entry | None


@contextmanager
def unhashed() -> Iterator[None]:
    """Turns off libgit2's hashing of objects, in this process: `git fsck` hashes all of them at the same time."""
    option = pygit2.enums.Option.ENABLE_STRICT_HASH_VERIFICATION
    pygit2.option(option, False)
    try:
        yield
    finally:
        pygit2.option(option, True)


class Objects:
    """Reads objects; caches those that are likely to be read again soon."""

    def __init__(self, repository: pygit2.Repository) -> None:
        self._odb = repository.odb
        self._loose = _loose_files(Path(repository.path) / "objects")
        self.tree = lru_cache(128)(self._tree)
        self.version = lru_cache(128)(self.blob)

    def commit(self, id: bytes) -> Commit:
        """The parsed commit. Raises: Unreadable."""
        head, _, message = self._read(id, _COMMIT).partition(b"\n\n")
        fields = [line.partition(b" ")[::2] for line in head.split(b"\n")]
        try:
            (tree,) = (bytes.fromhex(value.decode()) for name, value in fields if name == b"tree")
            parents = tuple(bytes.fromhex(value.decode()) for name, value in fields if name == b"parent")
            (committer,) = (value for name, value in fields if name == b"committer")
        except ValueError:
            raise Unreadable(id, "is not a valid commit") from None
        if any(len(other) != 20 for other in (tree, *parents)):
            raise Unreadable(id, "is not a valid commit")
        name = committer.rpartition(b">")[0] + b">"
        return Commit(tree, parents, name.decode("utf-8", "replace"), message.decode("utf-8", "replace"))

    def blob(self, id: bytes) -> bytes:
        """The bytes of a blob. Raises: Unreadable."""
        return self._read(id, _BLOB)

    def _tree(self, id: bytes) -> Tree:
        """The parsed tree. Raises: Unreadable."""
        raw = self._read(id, _TREE)
        entries = _ENTRY.findall(raw)
        if sum(map(len, chain.from_iterable(entries))) + 2 * len(entries) != len(raw):
            raise Unreadable(id, "is not a valid tree")
        return {name: (mode, child) for mode, name, child in entries}

    def diff(self, old: bytes | None, new: bytes | None, path: str, depth: int) -> Iterator[Change | Unbrowsed]:
        """The differences between two trees at `path`, down to files `depth` folders below.

        A deeper folder is reported as a change and not entered: no store has one, and a hostile tree of a few bytes can
        have more paths than fit into memory. An unreadable folder is reported as `Unbrowsed`.
        """
        stack = [(old, new, path, depth)]
        while stack:
            before, after, at, levels = stack.pop()
            try:
                old_tree = self.tree(before) if before is not None else {}
                new_tree = self.tree(after) if after is not None else {}
            except Unreadable as error:
                yield Unbrowsed(at, error)
                continue
            for name, was, now in differing(old_tree, new_tree):
                where = f"{at}/{printable(name)}"
                old_folder, new_folder = (folder(was), folder(now)) if levels else (None, None)
                if old_folder or new_folder:
                    stack.append((old_folder, new_folder, where, levels - 1))
                old_file, new_file = None if old_folder else was, None if new_folder else now
                if old_file or new_file:
                    yield Change(where, old_file, new_file)

    def _read(self, id: bytes, type: pygit2.enums.ObjectType) -> bytes:
        try:
            kind, data = (id in self._loose and self._loose_object(id)) or self._odb.read(pygit2.Oid(raw=id))
        except KeyError:
            raise Unreadable(id, "is missing") from None
        except (pygit2.GitError, zlib.error, ValueError, OSError) as error:
            raise Unreadable(id, f"is damaged: {error}") from None
        if kind != type:  # older pygit2 returns a plain number
            raise Unreadable(id, f"is not a {type.name.lower()}")
        return data

    def _loose_object(self, id: bytes) -> tuple[pygit2.enums.ObjectType, bytes] | None:
        """A loose object's type and bytes, read without libgit2, which hangs on a truncated one. None if it is gone."""
        try:
            raw = zlib.decompress(self._loose[id].read_bytes())
        except FileNotFoundError:
            return None  # packed meanwhile
        if hashlib.sha1(raw, usedforsecurity=False).digest() != id:
            raise ValueError("its bytes do not match its name")
        head, _, data = raw.partition(b"\0")
        return _NAMES.get(head.split(b" ")[0], pygit2.enums.ObjectType.INVALID), data


def _loose_files(folder: Path) -> dict[bytes, Path]:
    """id → path of the loose objects. A store has hardly any: ctxvc writes packs."""
    files = {}
    for path in folder.glob("[0-9a-f][0-9a-f]/*"):
        if _LOOSE.fullmatch(path.name):
            files[bytes.fromhex(path.parent.name + path.name)] = path
    return files


class Unbrowsed(NamedTuple):
    """A folder whose differences are unknown because it is unreadable."""

    path: str
    error: Unreadable


def differing(old: Tree, new: Tree) -> list[tuple[bytes, Entry | None, Entry | None]]:
    """Name, old entry and new entry, for each difference between two folders."""
    get = old.get
    differences: list[tuple[bytes, Entry | None, Entry | None]]
    differences = [(name, entry(old, name), Entry(*now)) for name, now in new.items() if get(name) != now]
    if len(old) + sum(was is None for _, was, _ in differences) == len(new):
        return differences  # nothing was removed, as in nearly every commit
    return [*differences, *((name, Entry(*old[name]), None) for name in old.keys() - new.keys())]


def entry(tree: Tree, name: bytes) -> Entry | None:
    """The entry with that name in a folder, or None."""
    fields = tree.get(name)
    return None if fields is None else Entry(*fields)


def folder(entry: Entry | None) -> bytes | None:
    """The id of the tree if the entry is a folder, else None."""
    return entry.id if entry is not None and entry.mode == TREE else None


def printable(name: bytes) -> str:
    """A file name for display; the format itself has only ASCII names."""
    return name.decode("utf-8", "backslashreplace")


def find(
    objects: Objects, commits: Iterable[tuple[bytes, Commit]], ids: frozenset[bytes]
) -> dict[bytes, tuple[bytes, str]]:
    """For each object in `ids`, the first of the commits that needs it, and its path there.

    The path is empty for a commit or its root folder.
    """
    places: dict[bytes, tuple[bytes, str]] = {}
    seen: set[bytes] = set()
    for own, commit in commits:
        for need in (own, *commit.parents):
            if need in ids:
                places.setdefault(need, (own, ""))
        stack = [(TREE, commit.tree, "")]
        while stack and len(places) < len(ids):
            mode, child, path = stack.pop()
            if child in ids:
                places.setdefault(child, (own, path))
            if mode != TREE or child in seen:
                continue
            seen.add(child)
            try:
                tree = objects.tree(child)
            except Unreadable:
                continue
            stack += [(mode, below, f"{path}/{printable(name)}".lstrip("/")) for name, (mode, below) in tree.items()]
    return places
