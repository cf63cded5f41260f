"""Files left by a killed `git fast-import`, and their removal under the store's exclusive lock.

Each of these kinds was seen to block all later flushes, or to be half a file: a ref's stale `.lock`, a `pack-*.keep`
with the name of the next pack (the replay is deterministic), temporary packs, crash reports. ctxvc's own temporary
files are removed too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from ctxvc.store.trust import contained

#: Temporary files of ctxvc, and of git and libgit2 for loose objects. Their writers may hold no lock of the store.
_OLD = (
    ".*.new",
    "ctxvc/journal/.*.new",
    "refs/ctxvc/*/.*.new",
    "objects/tmp_obj*",
    "objects/[0-9a-f][0-9a-f]/tmp_obj*",
)


def leftovers(path: Path) -> list[Path]:
    """Files that a killed writer may have left. An active writer has such files too: remove none without the lock."""
    # A folder with such a name is not ours: no writer makes one.
    return [leftover for leftover in _leftovers(path) if leftover.is_symlink() or not leftover.is_dir()]


def remove(path: Path) -> list[str]:
    """Removes the leftovers; returns their paths in the store."""
    removed = []
    for leftover in leftovers(path):
        leftover.unlink(missing_ok=True)
        removed.append(str(leftover.relative_to(path)))
    return removed


def _leftovers(path: Path) -> Iterator[Path]:
    for name in ("HEAD.lock", "packed-refs.lock", "config.lock"):
        if (path / name).exists():
            yield path / name
    for folder, _, files in os.walk(path / "refs"):
        yield from (Path(folder, name) for name in files if name.endswith(".lock"))
    for file in sorted((path / "objects" / "pack").iterdir()):
        if file.name.startswith(("tmp_", ".tmp-")) or (file.suffix == ".keep" and _ours(file)):
            yield file
    yield from path.glob("fast_import_crash_*")
    for pattern in _OLD:
        yield from (file for file in path.glob(pattern) if _abandoned(file))


def _abandoned(file: Path) -> bool:
    """Whether the file's writer was killed: an active one finishes within a minute."""
    try:
        return file.stat().st_mtime < time.time() - 60
    except FileNotFoundError:
        return False


def _ours(keep: Path) -> bool:
    """Whether fast-import made the file; git's own `receive-pack` and people write other text into theirs."""
    return contained.glance(keep, 64).strip() in (b"fast-import", b"")
