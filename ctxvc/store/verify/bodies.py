"""Checks that every body is where its row says, with the bytes that were recorded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

from ctxvc.core.ledger.ledger import Row
from ctxvc.store import format as fmt
from ctxvc.store.git.objects import FILE, Change, Unreadable
from ctxvc.store.verify.decoded import named_files
from ctxvc.store.verify.finding import EDITED, Finding, damage
from ctxvc.store.verify.ledger import altered
from ctxvc.store.verify.trees import Trees

#: block → its row before and after.
Rows = Mapping[str, tuple[Row | None, Row | None]]


def findings(trees: Trees, rows: Rows) -> Iterator[Finding]:
    """The faults of the files under `blocks/` and `archive/`; `rows` are those that differ."""
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
    """The files that must be removed and added according to the rows: path → block."""
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
    """A file that was added, removed or changed, compared with the rows."""
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
    """Compares the bytes of a new body, and of the files that it names, with the recorded checksums."""
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
