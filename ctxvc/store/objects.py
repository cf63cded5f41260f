"""git objects as a check reads them: raw, so that nothing is taken on trust, and with an error that names the object."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

import pygit2

TREE = b"40000"
FILE = b"100644"

_ENTRY = re.compile(rb"([0-7]{5,6}) ([^\0]+)\0(.{20})", re.DOTALL)
_TYPES = {
    pygit2.enums.ObjectType.COMMIT: "commit",
    pygit2.enums.ObjectType.TREE: "tree",
    pygit2.enums.ObjectType.BLOB: "blob",
}


class Unreadable(Exception):
    """An object that is missing, damaged, or of another type than its place asks for. `id` is its 20 bytes."""

    def __init__(self, id: bytes, why: str) -> None:
        super().__init__(f"object {id.hex()[:12]} {why}")
        self.id = id


class Entry(NamedTuple):
    mode: bytes
    id: bytes


class Commit(NamedTuple):
    """A commit as it is stored. `committer` is `name <mail>`."""

    tree: bytes
    parents: tuple[bytes, ...]
    committer: str
    message: str


class Change(NamedTuple):
    """What differs between two trees at `path`: a file, or a folder below the depth that was asked for."""

    path: str
    old: Entry | None
    new: Entry | None


class Objects:
    """Reads objects; those that are asked for again soon are kept."""

    def __init__(self, repository: pygit2.Repository) -> None:
        self._odb = repository.odb
        self.tree = lru_cache(4096)(self._tree)
        self.blob = lru_cache(256)(self.big_blob)

    def commit(self, id: bytes) -> Commit:
        """Raises: Unreadable."""
        head, _, message = self._read(id, "commit").partition(b"\n\n")
        fields = [line.partition(b" ")[::2] for line in head.split(b"\n")]
        try:
            trees = [bytes.fromhex(value.decode()) for name, value in fields if name == b"tree"]
            parents = tuple(bytes.fromhex(value.decode()) for name, value in fields if name == b"parent")
            committer = next(value for name, value in fields if name == b"committer")
        except (ValueError, StopIteration):
            raise Unreadable(id, "is no proper commit") from None
        if [len(other) for other in (*trees, *parents)] != [20] * (1 + len(parents)):
            raise Unreadable(id, "is no proper commit")
        name = committer.rpartition(b">")[0] + b">"
        return Commit(trees[0], parents, name.decode("utf-8", "replace"), message.decode("utf-8", "replace"))

    def _tree(self, id: bytes) -> dict[bytes, Entry]:
        """The entries of a tree by name. Raises: Unreadable."""
        raw = self._read(id, "tree")
        entries = {name: Entry(mode, other) for mode, name, other in _ENTRY.findall(raw)}
        if sum(len(mode) + len(name) + 22 for name, (mode, _) in entries.items()) != len(raw):
            raise Unreadable(id, "is no proper tree")
        return entries

    def big_blob(self, id: bytes) -> bytes:
        """The bytes of a blob that is not kept. Raises: Unreadable."""
        return self._read(id, "blob")

    def diff(self, old: bytes | None, new: bytes, path: str, depth: int, broken: list[str]) -> Iterator[Change]:
        """What differs below two trees, `depth` folders deep; deeper ones are told as they are, never entered.

        `path` is where the trees lie (empty: the root). Folders that cannot be read are added to `broken`; the error
        of the first is raised at the end. Raises: Unreadable.
        """
        failed: Unreadable | None = None
        stack = [(old, new, path, depth)]
        while stack:
            before, after, at, levels = stack.pop()
            try:
                left = self.tree(before) if before is not None else {}
                right = self.tree(after) if after is not None else {}
            except Unreadable as error:
                broken.append(at)
                failed = failed or error
                continue
            for name in _differing(left, right):
                was, now = left.get(name), right.get(name)
                where = f"{at}/{_name(name)}" if at else _name(name)
                folders = _folder(was), _folder(now)
                if levels and any(folders):
                    stack.append((*folders, where, levels - 1))
                    was, now = was if not folders[0] else None, now if not folders[1] else None
                if was or now:
                    yield Change(where, was, now)
        if failed:
            raise failed

    def _read(self, id: bytes, type: str) -> bytes:
        try:
            found, data = self._odb.read(pygit2.Oid(raw=id))
        except KeyError:
            raise Unreadable(id, "is missing") from None
        except (pygit2.GitError, ValueError, OSError) as error:
            raise Unreadable(id, f"is damaged: {error}") from None
        if _TYPES.get(found) != type:
            raise Unreadable(id, f"is no {type}")
        return data


def find(objects: Objects, commits: Iterable[tuple[bytes, Commit]], wanted: set[bytes]) -> dict[bytes, tuple[bytes, str]]:
    """For each wanted object the first of the commits that holds it, and the path there (empty: itself, or its root)."""
    found: dict[bytes, tuple[bytes, str]] = {}
    seen: set[bytes] = set()
    for id, commit in commits:
        for parent in commit.parents:
            if parent in wanted:
                found.setdefault(parent, (id, ""))
        if id in wanted:
            found[id] = (id, "")
        stack = [(Entry(TREE, commit.tree), "")]
        while stack and len(found) < len(wanted):
            entry, path = stack.pop()
            if entry.id in wanted:
                found.setdefault(entry.id, (id, path))
            if entry.mode != TREE or entry.id in seen:
                continue
            seen.add(entry.id)
            try:
                entries = objects.tree(entry.id)
            except Unreadable:
                continue
            stack += [(child, f"{path}/{_name(name)}".lstrip("/")) for name, child in entries.items()]
    return found


def _differing(left: dict[bytes, Entry], right: dict[bytes, Entry]) -> list[bytes]:
    return sorted({name for name, _ in left.items() ^ right.items()})


def _folder(entry: Entry | None) -> bytes | None:
    return entry.id if entry is not None and entry.mode == TREE else None


def _name(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")
