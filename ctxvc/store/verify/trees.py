"""A commit's tree compared with the one before it: the differences, and the blocks that cannot be checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec

from ctxvc.core.ledger.block import block_number
from ctxvc.core.ledger.ledger import segment_of
from ctxvc.store import format as fmt
from ctxvc.store.git.objects import Change, Entry, Objects, Tree, Unbrowsed, Unreadable, entry, folder
from ctxvc.store.verify.decoded import Contents
from ctxvc.store.verify.finding import EDITED, Finding, Where, blocks_at, damage

#: Called with an unreadable object and its place.
Note = Callable[[Unreadable, Where], None]


@dataclass(slots=True)
class Trees:
    """The two root folders; `before` is empty if there is none, and then all of `root` is checked.

    `unknown` are folders (`00/0b`, `00` for all in it, empty for all) whose rows or files are unreadable: their blocks
    get no further findings.
    """

    contents: Contents
    before: Tree
    root: Tree
    where: Where
    tell: Note
    unknown: set[str] = field(default_factory=set)

    @property
    def objects(self) -> Objects:
        return self.contents.objects

    def diff(self, name: str, depth: int) -> Iterator[Change]:
        """The differences in a folder of the root, down to files `depth` folders below. Unreadable objects are
        noted."""
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
        """The ledger file with a block's row, if there is one. Raises: Unreadable; ValueError if `block` is not a
        block."""
        high, low = fmt.folder(block_number(block)).split("/")
        segments = entry(self.child("ledger"), high.encode())
        return entry(self.objects.tree(segments.id), f"{low}.jsonl".encode()) if segments else None

    def child(self, name: str) -> Tree:
        """A folder of the root; empty if there is none. Raises: Unreadable."""
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
        self.tell(error, self.at(path))

    def foreign(self, path: str) -> Finding:
        return damage("ctxvc writes nothing here", self.at(path), EDITED)

    def row_at(self, block: str) -> Where:
        return self.at(fmt.segment_path(segment_of(block_number(block))), block)

    def at(self, path: str, block: str = "") -> Where:
        return msgspec.structs.replace(self.where, path=path, block=block or blocks_at(path))
