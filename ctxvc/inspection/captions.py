"""Labels for people: a result is named after its call, and paths are relative to the session's folder."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import msgspec

from ctxvc.core import display
from ctxvc.core.ledger import caption, facts, wire
from ctxvc.core.ledger.ledger import Row
from ctxvc.core.view.dashboard import Line
from ctxvc.errors import Damaged
from ctxvc.store.cache import local_cache
from ctxvc.store.read.revision import Snapshot
from ctxvc.store.store import Store

#: The cache file with the labels of blocks by commit, and the most commits in it.
_CAPTIONS, _COMMITS = "captions.json", 8
#: The modules that decide on a label.
_CODE = (caption, display, facts, wire)


class _Cache(msgspec.Struct, frozen=True):
    """The cached labels. `by` identifies the code that made them; labels of other code are not used."""

    by: str
    labels: dict[str, dict[str, str]]


def captioned(lines: Iterable[Line], snapshot: Snapshot, store: Store | None = None) -> tuple[Line, ...]:
    """The lines with labels for people: a result is named after its call, and paths are whole.

    With a store, its cache keeps the labels, since making one needs a call's body.
    """
    blocks = [line.id for line in lines if line.type not in ("group", "range")]
    code = _code()
    cache = local_cache.load(store, _CAPTIONS, _Cache) if store else None
    cached = cache.labels if cache and cache.by == code else {}
    labels = cached.get(snapshot.commit, {})
    if new := [block for block in blocks if block not in labels]:
        labels = {**labels, **labels_of(snapshot, new)}
        if store and not snapshot.waiting:  # the blocks of an open step are not in the commit
            newest = [(commit, texts) for commit, texts in cached.items() if commit != snapshot.commit][1 - _COMMITS :]
            local_cache.save(store, _CAPTIONS, _Cache(code, dict([*newest, (snapshot.commit, labels)])))
    return tuple(msgspec.structs.replace(line, label=labels[line.id]) if line.id in labels else line for line in lines)


@lru_cache(maxsize=1)
def _code() -> str:
    """A checksum of the modules that decide on a label."""
    digest = hashlib.sha256()
    for module in _CODE:
        with suppress(OSError):  # there may be no sources
            digest.update(Path(module.__file__ or "").read_bytes())
    return digest.hexdigest()[:16]


def labels_of(snapshot: Snapshot, blocks: Iterable[str]) -> dict[str, str]:
    """Block → what it is, in a few words for people; reads each call once for itself and its result."""
    bodies: dict[str, bytes] = {}

    def body_of(call: Row) -> bytes:
        if call.id not in bodies:
            bodies[call.id] = _body_of(call, snapshot)
        return bodies[call.id]

    rows = (row for block in blocks if (row := snapshot.ledger.get(block)))
    return {row.id: caption.of_row(row, snapshot.ledger, body_of) for row in rows}


def label_of(row: Row, snapshot: Snapshot) -> str:
    """A block in a few words for people."""
    return caption.of_row(row, snapshot.ledger, lambda call: _body_of(call, snapshot))


def _body_of(call: Row, snapshot: Snapshot) -> bytes:
    try:
        return snapshot.bodies.body(call)
    except Damaged:
        return b""  # the row's own label remains
