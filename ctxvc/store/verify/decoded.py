"""Blobs, each decoded or hashed once however many commits share it; and a commit's tree beside its parent's."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import takewhile
from operator import eq
from typing import NamedTuple, TypeVar

import msgspec

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import block_number
from ctxvc.core.ledger.ledger import Group, Meta, Row, segment_of
from ctxvc.errors import Damaged
from ctxvc.store import format as fmt
from ctxvc.store.git.objects import Change, Entry, Objects, Tree, Unbrowsed, Unreadable, entry, folder
from ctxvc.store.verify.finding import EDITED, FROM_A_COPY, Finding, Where, blocks_at, damage

T = TypeVar("T")

#: The number of versions of the groups that are cached: a history has many, and needs only the last few.
_VERSIONS = 8


class Regrouped(NamedTuple):
    """The groups before and after a change, and the names of those that differ."""

    old: Mapping[str, Group]
    new: Mapping[str, Group]
    touched: frozenset[str]


class Contents:
    """Decoded files of scopes by blob id, with at most `segments` segments of the ledger cached.

    `bytes` counts the bytes hashed.
    """

    def __init__(self, objects: Objects, *, segments: int = 512) -> None:
        self.objects = objects
        self.rows = lru_cache(segments)(self._rows)
        self._groups: dict[bytes, dict[str, Group]] = {}
        self.meta = lru_cache(16)(self._meta)
        self._sums: dict[bytes, tuple[int, str]] = {}
        self.bytes = 0

    def sum(self, blob: bytes) -> tuple[int, str]:
        """The size and SHA-256 of a blob. Raises: Unreadable."""
        if blob not in self._sums:
            data = self.objects.blob(blob)
            self._sums[blob] = len(data), hashlib.sha256(data).hexdigest()
            self.bytes += len(data)
        return self._sums[blob]

    def added(self, old: bytes, new: bytes) -> tuple[Row, ...]:
        """The rows added to a segment that only grew at its end, as in nearly every commit; else none."""
        before, after = self.objects.version(old), self.objects.version(new)
        if not before.endswith(b"\n") or not after.startswith(before):
            return ()
        # Including the last old row, so that the order is checked across the seam.
        last = before.rfind(b"\n", 0, -1) + 1
        return _decoded(fmt.decode_rows, after[last:], "the ledger")[1:]

    def _rows(self, blob: bytes) -> dict[str, Row]:
        """The rows of a segment by id. Raises: Unreadable, Damaged."""
        return {row.id: row for row in _decoded(fmt.decode_rows, self.objects.version(blob), "the ledger")}

    def groups(self, blob: bytes) -> dict[str, Group]:
        """The groups by id. Raises: Unreadable, Damaged."""
        if blob not in self._groups:
            self._keep(blob, _decoded(fmt.decode_groups, self.objects.version(blob), "the groups"))
        return self._groups[blob]

    def regrouped(self, old: bytes | None, new: bytes | None) -> Regrouped:
        """The difference between two versions of the groups (None: no groups). Raises: Unreadable, Damaged.

        Only lines that differ are decoded: there can be thousands of groups, and a verb changes a few.
        """
        if old is None or new is None:
            before, after = (self.groups(blob) if blob else {} for blob in (old, new))
            return Regrouped(before, after, frozenset(before or after))
        lines = self.objects.version(old).split(b"\n"), self.objects.version(new).split(b"\n")
        was, now = (_decoded(fmt.decode_groups, b"\n".join(part), "the groups") for part in _middles(*lines))
        before = self.groups(old)
        if new not in self._groups and len(before) == _filled(lines[0]):
            after = {name: group for name, group in before.items() if name not in was} if was else dict(before)
            after.update(now)
            if len(after) == _filled(lines[1]):  # else a name occurs twice, and the last one counts
                self._keep(new, after)
        after = self.groups(new)
        differ = {name for name in was.keys() | now.keys() if before.get(name) != after.get(name)}
        return Regrouped(before, after, frozenset(differ))

    def _keep(self, blob: bytes, groups: dict[str, Group]) -> None:
        while len(self._groups) >= _VERSIONS:
            del self._groups[next(iter(self._groups))]
        self._groups[blob] = groups

    def _meta(self, blob: bytes) -> Meta:
        """The parsed `ctxvc.json`. Raises: Unreadable, Damaged, Refused for a newer format."""
        return _decoded(fmt.decode_meta, self.objects.version(blob), fmt.META)


def named_files(body: bytes) -> list[tuple[str, int, str]]:
    """Name, size and SHA-256 of the files named in a result's JSON body."""
    try:
        items = wire.parse(body)
    except ValueError:
        return []
    files = []
    for item in items if isinstance(items, list) else []:
        match item:
            case {"source": {"data": {"file": str(name), "bytes": int(size), "sha256": str(digest)}}}:
                files.append((name, size, digest))
    return files


def _middles(old: Sequence[bytes], new: Sequence[bytes]) -> tuple[Sequence[bytes], Sequence[bytes]]:
    """Two lists without their common beginning and end."""
    head = sum(takewhile(bool, map(eq, old, new)))
    old, new = old[head:], new[head:]
    tail = sum(takewhile(bool, map(eq, reversed(old), reversed(new))))
    return old[: len(old) - tail], new[: len(new) - tail]


def _filled(lines: Sequence[bytes]) -> int:
    return sum(map(bool, lines))


def _decoded(decode: Callable[[bytes, str], T], data: bytes, what: str) -> T:
    """The result of `decode`. Raises: Damaged, Refused."""
    try:
        return decode(data, what)
    except RecursionError as error:
        raise Damaged(f"{what}: nested too deep", hint=FROM_A_COPY) from error


#: Called with an unreadable object and its place.
Note = Callable[[Unreadable, Where], None]


@dataclass(slots=True)
class Trees:
    """The root folders of a commit and its parent; without a parent, `before` is empty and all of `root` is checked.

    `unknown` are folders (`00/0b`, `00` for all in it, empty for all) whose rows or files are unreadable: their blocks
    get no further findings.
    """

    contents: Contents
    before: Tree
    root: Tree
    where: Where
    report: Note
    unknown: set[str] = field(default_factory=set)

    @property
    def objects(self) -> Objects:
        return self.contents.objects

    def diff(self, name: str, depth: int) -> Iterator[Change]:
        """The differences in a folder of the root, down to files `depth` folders below.

        Unreadable objects are reported.
        """
        old, new = folder(entry(self.before, name.encode())), folder(entry(self.root, name.encode()))
        if old == new:
            return
        for change in self.objects.diff(old, new, name, depth):
            if isinstance(change, Unbrowsed):
                self.note(change.error, change.path)
                self.forget(change.path)
            else:
                yield change

    def segment(self, block: str) -> Entry | None:
        """The ledger file with a block's row, or None. Raises: Unreadable; ValueError if `block` is not a block."""
        high, low = fmt.folder(block_number(block)).split("/")
        segments = entry(self.child("ledger"), high.encode())
        return entry(self.objects.tree(segments.id), f"{low}.jsonl".encode()) if segments else None

    def child(self, name: str) -> Tree:
        """A folder of the root; empty if it is missing. Raises: Unreadable."""
        child = entry(self.root, name.encode())
        return self.objects.tree(child.id) if child else {}

    def forget(self, path: str) -> None:
        """Suppresses further findings for the blocks of the ledger file or folder at `path`."""
        self.unknown.add(path.removesuffix(".jsonl").partition("/")[2])

    def is_checkable(self, block: str) -> bool:
        if not self.unknown:
            return True
        place = fmt.folder(block_number(block))
        return self.unknown.isdisjoint(("", place.split("/")[0], place))

    def note(self, error: Unreadable, path: str) -> None:
        self.report(error, self.at(path))

    def foreign(self, path: str) -> Finding:
        return damage("ctxvc writes nothing here", self.at(path), EDITED)

    def row_at(self, block: str) -> Where:
        return self.at(fmt.segment_path(segment_of(block_number(block))), block)

    def at(self, path: str, block: str = "") -> Where:
        return msgspec.structs.replace(self.where, path=path, block=block or blocks_at(path))
