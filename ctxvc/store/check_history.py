"""Is each commit what its parent, its ledger and the laws say it must be?

By induction: a commit is compared with its first parent only, and only where their trees differ. So every version of
every file is looked at once, every body is hashed once, and a history costs what it changed, not what it holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter

import msgspec

from ctxvc.core import names
from ctxvc.core.blocks import block_number
from ctxvc.core.ledger import Counters, Group, Meta, Row, segment_of
from ctxvc.errors import CtxvcError, Damaged
from ctxvc.store import format as fmt
from ctxvc.store.check_groups import disagreements
from ctxvc.store.contents import Contents, named_files
from ctxvc.store.findings import FROM_A_COPY, Finding, Where, blocks_at, damage, warning
from ctxvc.store.flush import trailers_of
from ctxvc.store.objects import (
    FILE,
    TREE,
    Change,
    Commit,
    Entry,
    Objects,
    Tree,
    Unbrowsed,
    Unreadable,
    differing,
    entry,
    folder,
    shown,
)

COMMITTER = "ctxvc <ctxvc@ctxvc>"
EDITED = "something other than ctxvc wrote this commit; " + FROM_A_COPY

#: What no verb changes in a row; `extra` is another, without what we note in it ourselves.
IDENTITY = (
    "kind", "role", "origin", "msg", "step", "turn", "call", "tool", "error", "ext", "files", "bytes", "sha256",
)  # fmt: skip

_identity = attrgetter(*IDENTITY)

_TOP = {fmt.META: FILE, fmt.ATTRIBUTES: FILE, "ledger": TREE, "blocks": TREE, "archive": TREE, "request": TREE}
_REQUEST = frozenset({"request/system.txt", "request/system.json", "request/tools.json"})
_EXT = re.compile(r"[A-Za-z0-9]{1,16}")
_GROUP = re.compile(r"G[1-9][0-9]{0,11}")
_SUFFIX = re.compile(r"[1-9][0-9]{0,5}\.[A-Za-z0-9]{1,16}")


class History:
    """Checks commits. `broken` gathers the objects that cannot be read, each with the oldest commit that needs it."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._contents = Contents(objects)
        self.blocks: set[tuple[str, str]] = set()
        self.broken: dict[bytes, tuple[int, Finding]] = {}

    @property
    def bytes(self) -> int:
        """How many bytes of bodies were hashed."""
        return self._contents.bytes

    def findings(self, commit: Commit, parent: Commit | None, age: int, where: Where) -> Iterator[Finding]:
        """What is wrong with a commit: what it changed since `parent`, or without one all that it holds.

        `age` is its distance from the first commit.
        """
        before: Tree = {}
        if parent is not None:
            try:
                before = self._objects.tree(parent.tree)
            except Unreadable:
                pass  # told where that commit is looked at; of this one, all is
        try:
            root = self._objects.tree(commit.tree)
        except Unreadable as error:
            self.note(error, age, where)
            return
        if "Ctxvc-Op" not in trailers_of(commit.message) or commit.committer != COMMITTER:
            yield damage(f"made by something else: {commit.committer}", where, EDITED)
        yield from _Comparison(self, self._contents, before, root, age, where).findings()

    def meta(self, commit: Commit) -> Meta | None:
        """The commit's `ctxvc.json`, where it can be read."""
        try:
            found = entry(self._objects.tree(commit.tree), fmt.META.encode())
            return self._contents.meta(found.id) if found else None
        except (Unreadable, CtxvcError):
            return None

    def block_ids(self, commit: Commit) -> set[str]:
        """The blocks that the commit's ledger has, as far as it can be read."""
        found: set[str] = set()
        try:
            ledger = folder(entry(self._objects.tree(commit.tree), b"ledger"))
        except Unreadable:
            return found
        for change in self._objects.diff(None, ledger, "ledger", 1):
            if isinstance(change, Change) and change.new and change.path != fmt.GROUPS:
                try:
                    found |= self._contents.rows(change.new.id).keys()
                except (Unreadable, Damaged):
                    continue
        return found

    def note(self, error: Unreadable, age: int, where: Where) -> None:
        if error.id not in self.broken or age < self.broken[error.id][0]:
            self.broken[error.id] = age, damage(str(error), where)


@dataclass(slots=True)
class _Comparison:
    """One commit's tree against the tree before it (empty: all of it is looked at).

    `changed` are the rows that differ, before and after. `unknown` are folders (`00/0b`, `00` for all in it, empty for
    all) of which the rows or the files cannot be read: of their blocks nothing more is said.
    """

    history: History
    contents: Contents
    before: Tree
    root: Tree
    age: int
    where: Where
    changed: dict[str, tuple[Row | None, Row | None]] = field(default_factory=dict)
    groups: tuple[dict[str, Group], dict[str, Group]] | None = None
    unknown: set[str] = field(default_factory=set)

    def findings(self) -> Iterator[Finding]:
        old = self._held_meta(self.before)
        new = None
        try:
            new = self._meta(self.root)
        except CtxvcError as error:
            yield damage(str(error), self._at(fmt.META), error.hint)
        if new is not None and (names.problem(new.session) or names.problem(new.scope)):
            yield damage(
                f"{new.session!r} or {new.scope!r} is no name of a session or scope", self._at(fmt.META), EDITED
            )
        elif new is not None:
            self.where = msgspec.structs.replace(self.where, session=new.session, scope=new.scope)
        same_scope = old is not None and new is not None and (old.session, old.scope) == (new.session, new.scope)
        yield from self._top()
        yield from self._ledger()
        yield from self._rows(same_scope)
        if new is not None:
            yield from self._counters(old.counters if old and same_scope else Counters(), new.counters)
        yield from self._grouping()
        yield from self._bodies()

    # --- ctxvc.json, and what stands beside it

    def _meta(self, root: Tree) -> Meta | None:
        """What `ctxvc.json` says; None where git cannot read it. Raises: Damaged, Refused."""
        found = entry(root, fmt.META.encode())
        if found is None:
            raise Damaged(f"there is no {fmt.META}", hint=FROM_A_COPY)
        try:
            return self.contents.meta(found.id)
        except Unreadable as error:
            self._note(error, fmt.META)
            return None

    def _held_meta(self, root: Tree) -> Meta | None:
        try:
            return self._meta(root)
        except CtxvcError:
            return None  # told where that commit is looked at

    def _counters(self, old: Counters, new: Counters) -> Iterator[Finding]:
        """Counters count what is there and never go back: else a number would be given out twice."""
        back = [name for name in new.__struct_fields__ if getattr(new, name) < getattr(old, name)]
        if back:
            yield damage(f"the counters of {', '.join(back)} went back", self._at(fmt.META), EDITED)
        for _, row in self.changed.values():
            if row is not None and row.number > new.block:
                what = f"{row.id} is beyond the counter of blocks, {new.block}"
                yield damage(what, self._at(fmt.META, row.id), EDITED)
        _, groups = self.groups or ({}, {})
        newest = max((int(name[1:]) for name in groups if _GROUP.fullmatch(name)), default=0)
        if newest > new.group:
            yield damage(f"G{newest} is beyond the counter of groups, {new.group}", self._at(fmt.META), EDITED)

    def _top(self) -> Iterator[Finding]:
        for name, _, now in differing(self.before, self.root):
            path = shown(name)
            if now is not None and _TOP.get(path) != now.mode:
                yield self._foreign(path)
            elif now is not None and path == fmt.ATTRIBUTES:
                yield from self._attributes(now)
        for change in self._diff("request", 0):
            if change.new is not None and (change.path not in _REQUEST or change.new.mode != FILE):
                yield self._foreign(change.path)

    def _attributes(self, found: Entry) -> Iterator[Finding]:
        try:
            if self.contents.objects.version(found.id) != fmt.ATTRIBUTES_TEXT:
                what = "the attributes are not those that ctxvc writes: a plain checkout may change bytes"
                yield warning(what, self._at(fmt.ATTRIBUTES), "`ctxvc checkout` gives the exact bytes all the same")
        except Unreadable as error:
            self._note(error, fmt.ATTRIBUTES)

    # --- the ledger

    def _ledger(self) -> Iterator[Finding]:
        for change in self._diff("ledger", 1):
            if change.new is not None and change.new.mode != FILE:
                yield self._foreign(change.path)
            elif change.path == fmt.GROUPS:
                yield from self._changed_groups(change)
            else:
                yield from self._segment(change)

    def _segment(self, change: Change) -> Iterator[Finding]:
        """Takes in the rows of a segment that differ."""
        try:
            segment = fmt.segment_number(change.path)
        except ValueError:
            segment = -1
        if segment < 0 or fmt.segment_path(segment) != change.path:
            yield self._foreign(change.path)
            return
        try:
            was, now = self._versions(change)
        except Unreadable as error:
            self._note(error, change.path)
            self._forget(change.path)
            return
        except Damaged as error:
            yield damage(str(error), self._at(change.path))
            self._forget(change.path)
            return
        for block in was.keys() | now.keys():
            if was.get(block) != now.get(block):
                self.changed[block] = was.get(block), now.get(block)
        for row in now.values():
            if segment_of(row.number) != segment:
                yield damage(f"the row of {row.id} is in another's place", self._at(change.path, row.id), EDITED)

    def _versions(self, change: Change) -> tuple[Mapping[str, Row], Mapping[str, Row]]:
        """The rows before and after, without some that are the same in both. Raises: Unreadable, Damaged."""
        if change.old and change.new and (added := self.contents.added(change.old.id, change.new.id)):
            return {}, {row.id: row for row in added}
        old = self.contents.rows(change.old.id) if change.old else {}
        return old, self.contents.rows(change.new.id) if change.new else {}

    def _rows(self, same_scope: bool) -> Iterator[Finding]:
        for block, (old, new) in self.changed.items():
            if new is None:
                if same_scope:
                    yield damage(f"the row of {block} is gone, and no verb does that", self._row_at(block), EDITED)
                continue
            self.history.blocks.add((self.where.session, block))
            if not _EXT.fullmatch(new.ext) or not all(map(_SUFFIX.fullmatch, new.files)):
                yield damage(f"the row of {block} names a file as no block's is named", self._row_at(block), EDITED)
            if old is not None and (names := altered(old, new)):
                what = f"the row of {block} was edited: another {', '.join(names)}, and no verb does that"
                yield damage(what, self._row_at(block), EDITED)

    def _changed_groups(self, change: Change) -> Iterator[Finding]:
        try:
            old = self.contents.groups(change.old.id) if change.old else {}
            self.groups = old, self.contents.groups(change.new.id) if change.new else {}
        except Unreadable as error:
            self._note(error, change.path)
        except Damaged as error:
            yield damage(str(error), self._at(change.path))

    def _grouping(self) -> Iterator[Finding]:
        """Groups and rows point to each other: looked at where either changed."""
        moved = any((old.group if old else "") != (new.group if new else "") for old, new in self.changed.values())
        if self.groups is None and not moved:
            return
        try:
            if self.groups is None:
                found = entry(self._child("ledger"), b"groups.jsonl")
                held = self.contents.groups(found.id) if found else {}
                self.groups = held, held
            for block, what in disagreements(*self.groups, self.changed, self._row):
                yield damage(what, msgspec.structs.replace(self.where, block=block, path=fmt.GROUPS), EDITED)
        except (Unreadable, Damaged):
            return  # told where that file changed

    def _row(self, block: str) -> Row | None:
        """The row of a block in this commit. Raises: Unreadable, Damaged."""
        if block in self.changed:
            return self.changed[block][1]
        try:
            high, low = fmt.folder(block_number(block)).split("/")
        except ValueError:
            return None
        segments = entry(self._child("ledger"), high.encode())
        found = entry(self.contents.objects.tree(segments.id), f"{low}.jsonl".encode()) if segments else None
        return self.contents.rows(found.id).get(block) if found else None

    def _child(self, name: str) -> Tree:
        found = entry(self.root, name.encode())
        return self.contents.objects.tree(found.id) if found else {}

    # --- the bodies

    def _bodies(self) -> Iterator[Finding]:
        gone, came = self._expected()
        left: dict[str, bytes] = {}
        blobs: dict[str, bytes] = {}
        for change in chain(self._diff("blocks", 2), self._diff("archive", 2)):
            yield from self._file(change, gone, came)
            if change.old is not None:
                left[change.path] = change.old.id
            if change.new is not None:
                blobs[change.path] = change.new.id
        for path in came.keys() - blobs.keys():
            if self._known(came[path]):
                yield damage(f"{came[path]} has no file where its state says it lies", self._at(path, came[path]))
        for path in gone.keys() - left.keys():
            if self._known(gone[path]):
                yield damage(f"{gone[path]} lies where its state says it does not", self._at(path, gone[path]))
        for old, new in self.changed.values():
            if new is not None and (old is None or altered(old, new)):
                yield from self._content(new, blobs)
            elif old is not None and new is not None and old.present != new.present:
                yield from self._moved(old, new, left, blobs)

    def _expected(self) -> tuple[dict[str, str], dict[str, str]]:
        """The files that must go and come by what the rows say: path → block."""
        gone: dict[str, str] = {}
        came: dict[str, str] = {}
        for block, (old, new) in self.changed.items():
            if old and new and (old.present, old.ext, old.files) == (new.present, new.ext, new.files):
                continue
            gone.update((path, block) for path in (fmt.paths(old) if old else ()))
            came.update((path, block) for path in (fmt.paths(new) if new else ()))
        for path in gone.keys() & came.keys():
            del gone[path], came[path]
        return gone, came

    def _moved(self, old: Row, new: Row, left: Mapping[str, bytes], blobs: Mapping[str, bytes]) -> Iterator[Finding]:
        for was, now in zip(fmt.paths(old), fmt.paths(new), strict=True):
            if was in left and now in blobs and left[was] != blobs[now]:
                yield damage(f"another body came out when {new.id} moved", self._at(now, new.id), EDITED)

    def _file(self, change: Change, gone: Mapping[str, str], came: Mapping[str, str]) -> Iterator[Finding]:
        """A file that came, went or changed, against what the rows say."""
        path, old, new = change
        if (new.mode == FILE and old is None and path in came) if new else path in gone:
            return
        block = fmt.block_of_path(path)
        if block and not self._known(block):
            return
        if new is None:
            yield damage(f"{block or path} is gone from where its state says it lies", self._at(path))
        elif new.mode != FILE:
            yield self._foreign(path)
        elif old is not None:
            yield damage(f"the body of {block or path} was replaced, and no verb does that", self._at(path), EDITED)
        else:
            yield damage("there is a file here that no row is about", self._at(path), EDITED)

    def _content(self, row: Row, blobs: Mapping[str, bytes]) -> Iterator[Finding]:
        """The bytes of a new body, and of the files that it names, are those that were recorded."""
        path = fmt.body_path(row)
        if path not in blobs:
            return
        try:
            if self.contents.sum(blobs[path]) != (row.bytes, row.sha256):
                yield damage(f"the body of {row.id} is not the one that was recorded", self._at(path, row.id))
            elif row.files and row.ext == "json":
                for name, size, digest in named_files(self.contents.objects.blob(blobs[path])):
                    path = fmt.file_path(row, name)
                    if name not in row.files:
                        yield damage(f"{row.id} names a file that its row does not", self._at(path, row.id), EDITED)
                    elif path in blobs and self.contents.sum(blobs[path]) != (size, digest):
                        yield damage(f"{row.id}-{name} is not the one that was recorded", self._at(path, row.id))
        except Unreadable as error:
            self._note(error, path)

    # --- words

    def _diff(self, name: str, depth: int) -> Iterator[Change]:
        """What differs in a folder of the root. Rows and bodies of what cannot be read are `unknown`."""
        old, new = folder(entry(self.before, name.encode())), folder(entry(self.root, name.encode()))
        if old == new:
            return
        for change in self.contents.objects.diff(old, new, name, depth):
            if isinstance(change, Unbrowsed):
                self._note(change.error, change.path)
                self._forget(change.path)
            else:
                yield change

    def _forget(self, path: str) -> None:
        self.unknown.add(path.removesuffix(".jsonl").partition("/")[2])

    def _known(self, block: str) -> bool:
        place = fmt.folder(block_number(block))
        return self.unknown.isdisjoint(("", place.split("/")[0], place))

    def _note(self, error: Unreadable, path: str) -> None:
        self.history.note(error, self.age, self._at(path))

    def _foreign(self, path: str) -> Finding:
        return damage("ctxvc puts nothing here", self._at(path), EDITED)

    def _row_at(self, block: str) -> Where:
        return self._at(fmt.segment_path(segment_of(block_number(block))), block)

    def _at(self, path: str, block: str = "") -> Where:
        return msgspec.structs.replace(self.where, path=path, block=block or blocks_at(path))


def altered(old: Row, new: Row) -> list[str]:
    """The fields that differ and never may."""
    names = []
    if _identity(old) != _identity(new):
        names = [name for name in IDENTITY if getattr(old, name) != getattr(new, name)]
    if old.extra != new.extra and _received(old) != _received(new):
        names.append("extra")
    return names


def _received(row: Row) -> dict[str, object]:
    return {name: value for name, value in row.extra.items() if name != "ctxvc"}
