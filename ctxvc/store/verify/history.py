"""Checks that each commit follows from its parent, its ledger and the laws.

By induction: a commit is compared only with its first parent, and only where their trees differ. So every version of
every file is read once, every body is hashed once, and the cost of checking a history is proportional to its changes,
not its contents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain

import msgspec

from ctxvc.core.ledger import name_rules
from ctxvc.core.ledger.ledger import Counters, Meta, Row
from ctxvc.errors import CtxvcError, Damaged, Phrase
from ctxvc.store import format as fmt
from ctxvc.store.format import trailers_of
from ctxvc.store.git.objects import (
    FILE,
    TREE,
    Change,
    Commit,
    Objects,
    Tree,
    Unreadable,
    differing,
    entry,
    folder,
    printable,
)
from ctxvc.store.verify.decoded import Contents, Trees, named_files
from ctxvc.store.verify.finding import EDITED, FROM_A_COPY, Finding, Where, damage, warning
from ctxvc.store.verify.ledger import LedgerChanges, altered

COMMITTER = "ctxvc <ctxvc@ctxvc>"

_TOP = {fmt.META: FILE, fmt.ATTRIBUTES: FILE, "ledger": TREE, "blocks": TREE, "archive": TREE, "request": TREE}
_REQUEST = frozenset({"request/system.txt", "request/system.json", "request/tools.json"})


class History:
    """Checks commits. `broken` collects the unreadable objects, each with the oldest commit that needs it."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._contents = Contents(objects)
        self.blocks: set[tuple[str, str]] = set()
        self.broken: dict[bytes, tuple[int, Finding]] = {}

    @property
    def bytes(self) -> int:
        """The number of bytes of bodies that were hashed."""
        return self._contents.bytes

    def findings(self, commit: Commit, parent: Commit | None, age: int, where: Where) -> Iterator[Finding]:
        """The faults of a commit: in its changes since `parent`, or in all of it without one.

        `age` is its distance from the first commit.
        """
        before: Tree = {}
        if parent is not None:
            try:
                before = self._objects.tree(parent.tree)
            except Unreadable:
                pass  # reported for the parent; this commit is checked as a whole
        try:
            root = self._objects.tree(commit.tree)
        except Unreadable as error:
            self.note(age, error, where)
            return
        if "Ctxvc-Op" not in trailers_of(commit.message) or commit.committer != COMMITTER:
            yield damage(f"created by another program: {commit.committer}", where, EDITED)
        yield from self._tree(Trees(self._contents, before, root, where, partial(self.note, age)))

    def meta(self, commit: Commit) -> Meta | None:
        """The commit's `ctxvc.json`, or None if it is unreadable."""
        try:
            meta_entry = entry(self._objects.tree(commit.tree), fmt.META.encode())
            return self._contents.meta(meta_entry.id) if meta_entry else None
        except (Unreadable, CtxvcError):
            return None

    def block_ids(self, commit: Commit) -> set[str]:
        """The ids of the blocks in the commit's ledger, as far as it is readable."""
        ids: set[str] = set()
        try:
            ledger = folder(entry(self._objects.tree(commit.tree), b"ledger"))
        except Unreadable:
            return ids
        for change in self._objects.diff(None, ledger, "ledger", 1):
            if isinstance(change, Change) and change.new and change.path != fmt.GROUPS:
                try:
                    ids |= self._contents.rows(change.new.id).keys()
                except (Unreadable, Damaged):
                    continue
        return ids

    def note(self, age: int, error: Unreadable, where: Where) -> None:
        if error.id not in self.broken or age < self.broken[error.id][0]:
            self.broken[error.id] = age, damage(str(error), where)

    def _tree(self, trees: Trees) -> Iterator[Finding]:
        """The faults of a tree, compared with the parent's."""
        old = _readable_meta(trees, trees.before)
        new = None
        try:
            new = _meta(trees, trees.root)
        except CtxvcError as error:
            yield damage(str(error), trees.at(fmt.META), error.advice)
        if new is not None and (name_rules.problem(new.session) or name_rules.scope_problem(new.scope)):
            what = f"{new.session!r} or {new.scope!r} is not a valid session or scope name"
            yield damage(what, trees.at(fmt.META), EDITED)
        elif new is not None:
            trees.where = msgspec.structs.replace(trees.where, session=new.session, scope=new.scope)
        same_scope = old is not None and new is not None and (old.session, old.scope) == (new.session, new.scope)
        yield from _top(trees)
        ledger = LedgerChanges(trees)
        yield from ledger.findings(same_scope)
        self.blocks.update((trees.where.session, block) for block, (_, row) in ledger.rows.items() if row is not None)
        if new is not None:
            yield from _counters(trees, old.counters if old and same_scope else Counters(), new.counters)
            yield from ledger.beyond(new.counters, same_scope)
        yield from body_findings(trees, ledger.rows)


def _meta(trees: Trees, root: Tree) -> Meta | None:
    """The parsed `ctxvc.json`; None if git cannot read it. Raises: Damaged, Refused."""
    meta_entry = entry(root, fmt.META.encode())
    if meta_entry is None:
        raise Damaged(f"there is no {fmt.META}", hint=FROM_A_COPY)
    try:
        return trees.contents.meta(meta_entry.id)
    except Unreadable as error:
        trees.note(error, fmt.META)
        return None


def _readable_meta(trees: Trees, root: Tree) -> Meta | None:
    """As `_meta`; None also if the `ctxvc.json` is invalid."""
    try:
        return _meta(trees, root)
    except CtxvcError:
        return None  # reported for the parent


def _counters(trees: Trees, old: Counters, new: Counters) -> Iterator[Finding]:
    """Checks that no counter decreases: a number would be used twice."""
    back = [name for name in new.__struct_fields__ if getattr(new, name) < getattr(old, name)]
    if back:
        yield damage(f"the counters of {', '.join(back)} went backwards", trees.at(fmt.META), EDITED)


def _top(trees: Trees) -> Iterator[Finding]:
    """Checks the entries besides the ledger and the bodies."""
    for name, _, now in differing(trees.before, trees.root):
        path = printable(name)
        if now is not None and _TOP.get(path) != now.mode:
            yield trees.foreign(path)
        elif now is not None and path == fmt.ATTRIBUTES:
            yield from _attributes(trees, now.id)
    for change in trees.diff("request", 3):
        is_ours = change.path in _REQUEST or fmt.is_piece(change.path)
        if change.new is not None and not (is_ours and change.new.mode == FILE):
            yield trees.foreign(change.path)


def _attributes(trees: Trees, blob: bytes) -> Iterator[Finding]:
    try:
        if trees.objects.version(blob) != fmt.ATTRIBUTES_TEXT:
            what = "the attributes differ from those that ctxvc writes: a plain checkout may change bytes"
            yield warning(what, trees.at(fmt.ATTRIBUTES), Phrase("exact-checkout"))
    except Unreadable as error:
        trees.note(error, fmt.ATTRIBUTES)


#: block → its row before and after.
Rows = Mapping[str, tuple[Row | None, Row | None]]


def body_findings(trees: Trees, rows: Rows) -> Iterator[Finding]:
    """The faults of the files under `blocks/` and `archive/`; `rows` are the rows that differ."""
    removed, added = _expected(rows)
    moved_away: dict[str, bytes] = {}
    blobs: dict[str, bytes] = {}
    for change in chain(trees.diff("blocks", 2), trees.diff("archive", 2)):
        yield from _file(trees, change, removed, added)
        if change.old is not None:
            moved_away[change.path] = change.old.id
        if change.new is not None:
            blobs[change.path] = change.new.id
    for path in added.keys() - blobs.keys():
        if trees.is_checkable(added[path]):
            yield damage(f"{added[path]} has no file where its state requires one", trees.at(path, added[path]))
    for path in removed.keys() - moved_away.keys():
        if trees.is_checkable(removed[path]):
            yield damage(f"{removed[path]} has a file where its state allows none", trees.at(path, removed[path]))
    for old, new in rows.values():
        if new is not None and (old is None or altered(old, new)):
            yield from _content(trees, new, blobs)
        elif old is not None and new is not None and old.present != new.present:
            yield from _moved(trees, old, new, moved_away, blobs)


def _expected(rows: Rows) -> tuple[dict[str, str], dict[str, str]]:
    """The files that the rows require to be removed and added: path → block."""
    removed: dict[str, str] = {}
    added: dict[str, str] = {}
    for block, (old, new) in rows.items():
        if old and new and (old.present, old.ext, old.files) == (new.present, new.ext, new.files):
            continue
        removed.update(dict.fromkeys(fmt.paths(old), block) if old else {})
        added.update(dict.fromkeys(fmt.paths(new), block) if new else {})
    for path in removed.keys() & added.keys():
        del removed[path], added[path]
    return removed, added


def _file(trees: Trees, change: Change, removed: Mapping[str, str], added: Mapping[str, str]) -> Iterator[Finding]:
    """Checks a file that was added, removed or changed against the rows."""
    path, old, new = change
    if (new.mode == FILE and old is None and path in added) if new else path in removed:
        return
    block = fmt.block_of_path(path)
    if block and not trees.is_checkable(block):
        return
    if new is None:
        yield damage(f"{block or path} is missing from where its state requires it", trees.at(path))
    elif new.mode != FILE:
        yield trees.foreign(path)
    elif old is not None:
        yield damage(f"the body of {block or path} was replaced, which no verb does", trees.at(path), EDITED)
    else:
        yield damage("a file here belongs to no row", trees.at(path), EDITED)


def _content(trees: Trees, row: Row, blobs: Mapping[str, bytes]) -> Iterator[Finding]:
    """Compares the bytes of a new body, and of its sibling files, with the recorded checksums."""
    path = fmt.body_path(row)
    if path not in blobs:
        return
    try:
        if trees.contents.sum(blobs[path]) != (row.bytes, row.sha256):
            yield damage(f"the body of {row.id} differs from the recorded one", trees.at(path, row.id))
        elif row.files and row.ext == "json":
            for name, size, digest in named_files(trees.objects.blob(blobs[path])):
                path = fmt.file_path(row, name)
                if name not in row.files:
                    yield damage(f"{row.id} names a file that its row does not", trees.at(path, row.id), EDITED)
                elif path in blobs and trees.contents.sum(blobs[path]) != (size, digest):
                    yield damage(f"{row.id}-{name} differs from the recorded one", trees.at(path, row.id))
    except Unreadable as error:
        trees.note(error, path)


def _moved(
    trees: Trees, old: Row, new: Row, moved_away: Mapping[str, bytes], blobs: Mapping[str, bytes]
) -> Iterator[Finding]:
    for was, now in zip(fmt.paths(old), fmt.paths(new), strict=True):
        if was in moved_away and now in blobs and moved_away[was] != blobs[now]:
            yield damage(f"the body changed when {new.id} moved", trees.at(now, new.id), EDITED)
