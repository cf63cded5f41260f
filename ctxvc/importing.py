"""Files of recordings → sessions of a store: what `ctxvc import` does, for any caller."""

from __future__ import annotations

import os
import time as clock
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from ctxvc import importers
from ctxvc.core.events import Warned
from ctxvc.errors import BadInput, CtxvcError
from ctxvc.importers.reading import Recording
from ctxvc.store.record import Recorded, record
from ctxvc.store.store import Store

#: A file that was written to within so many seconds may still grow: its open step waits.
SETTLED = 3600.0


#: Each file makes a pack. Merging them costs more than looking things up in this many.
MANY_PACKS = 256


class Outcome(msgspec.Struct, kw_only=True):
    """What became of one file. `error` is set where it failed; then nothing of the conversation was taken."""

    path: Path
    format: str = ""
    session: str = ""
    created: bool = False
    units: int = 0
    blocks: int = 0
    waiting: int = 0
    warnings: list[Warned] = []
    error: CtxvcError | None = None


def files_below(folder: Path) -> list[Path]:
    """The files in a folder, at any depth, that could be transcripts; sub-agents' come with their session."""
    found = []
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "subagents")
        found += [Path(parent, name) for name in sorted(names) if name.endswith(importers.ENDINGS)]
    return found


def import_paths(
    store: Store,
    paths: Iterable[Path],
    *,
    format: str = "auto",
    name: str = "",
    final: bool = False,
    as_new: bool = False,
    progress: Callable[[int], None] = lambda _: None,
) -> Iterator[Outcome]:
    """Imports each file, a folder's known files one by one; yields what became of each conversation.

    A file that cannot be read does not stop the others. In a folder, files of no known format are passed over.
    `name` names the new session, `as_new` takes a recording that is in the store already as another session, `progress`
    is told of raw bytes read.
    """
    try:
        for path in paths:
            known_only = path.is_dir()
            for each in files_below(path) if known_only else [path]:
                yield from _import_file(store, each, format, name, final, as_new, progress, known_only=known_only)
                store.merge_packs(MANY_PACKS)
    finally:
        store.merge_packs()


def _import_file(
    store: Store,
    path: Path,
    format: str,
    name: str,
    final: bool,
    as_new: bool,
    progress: Callable[[int], None],
    *,
    known_only: bool,
) -> Iterator[Outcome]:
    recording = Recording(path, progress)
    known = "" if format == "auto" else format
    try:
        known = known or importers.detect(recording)
    except BadInput as error:
        if not known_only:
            yield Outcome(path=path, error=error)
        return
    try:
        settled = final or clock.time() - path.stat().st_mtime > SETTLED
        for suffix, events in importers.conversations(recording, known):
            wish = f"{name}{suffix}" if name else ""
            done = record(store, events, name=wish, suffix=suffix, final=settled, as_new=as_new)
            yield _outcome(path, known, done)
            yield from _beside(store, path, known, done.session, final, progress)
    except OSError as error:
        failed = CtxvcError(f"cannot read {path}: {error.strerror or error}")
        yield Outcome(path=path, format=known, error=failed)
    except CtxvcError as error:
        yield Outcome(path=path, format=known, error=error)


def _beside(
    store: Store, path: Path, format: str, session: str, final: bool, progress: Callable[[int], None]
) -> Iterator[Outcome]:
    """The sub-agents' own files: each a recording of its own, into scopes of the same session."""
    for other in importers.beside(path, format):
        try:
            settled = final or clock.time() - other.stat().st_mtime > SETTLED
            for _, events in importers.conversations(Recording(other, progress), format):
                yield _outcome(other, format, record(store, events, into=session, source=other.stem, final=settled))
        except CtxvcError as error:
            yield Outcome(path=other, format=format, session=session, error=error)


def _outcome(path: Path, format: str, done: Recorded) -> Outcome:
    return Outcome(
        path=path,
        format=format,
        session=done.session,
        created=done.created,
        units=done.units,
        blocks=done.blocks,
        waiting=done.waiting,
        warnings=done.warnings,
    )
