"""What blobs hold, decoded. A blob that many commits share is decoded, and a body hashed, once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

from ctxvc.core import wire
from ctxvc.core.ledger import Group, Meta, Row
from ctxvc.errors import Damaged
from ctxvc.store import format as fmt
from ctxvc.store.findings import FROM_A_COPY
from ctxvc.store.objects import Objects

T = TypeVar("T")


class Contents:
    """Decoded files of scopes by the id of their blob. `bytes` counts what was hashed."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self.rows = lru_cache(512)(self._rows)
        self.groups = lru_cache(16)(self._groups)
        self.meta = lru_cache(16)(self._meta)
        self._sums: dict[bytes, tuple[int, str]] = {}
        self.bytes = 0

    def sum(self, blob: bytes) -> tuple[int, str]:
        """Size and SHA-256. Raises: Unreadable."""
        if blob not in self._sums:
            data = self.objects.blob(blob)
            self._sums[blob] = len(data), hashlib.sha256(data).hexdigest()
            self.bytes += len(data)
        return self._sums[blob]

    def added(self, old: bytes, new: bytes) -> tuple[Row, ...]:
        """The last rows of a segment that only grew at its end, as it does in nearly every commit; else none."""
        before, after = self.objects.version(old), self.objects.version(new)
        if not before.endswith(b"\n") or not after.startswith(before):
            return ()
        # With the last row of before, so that the order is looked at across the seam.
        last = before.rfind(b"\n", 0, -1) + 1
        return _decoded(fmt.decode_rows, after[last:], "the ledger")[1:]

    def _rows(self, blob: bytes) -> dict[str, Row]:
        """Raises: Unreadable, Damaged."""
        return {row.id: row for row in _decoded(fmt.decode_rows, self.objects.version(blob), "the ledger")}

    def _groups(self, blob: bytes) -> dict[str, Group]:
        """Raises: Unreadable, Damaged."""
        return _decoded(fmt.decode_groups, self.objects.version(blob), "the groups")

    def _meta(self, blob: bytes) -> Meta:
        """Raises: Unreadable, Damaged, Refused for a newer format."""
        return _decoded(fmt.decode_meta, self.objects.version(blob), fmt.META)


def named_files(body: bytes) -> list[tuple[str, int, str]]:
    """Name, size and SHA-256 of the files that a result's JSON body names."""
    try:
        items = wire.parse(body)
    except ValueError:
        return []
    found = []
    for item in items if isinstance(items, list) else []:
        match item:
            case {"source": {"data": {"file": str(name), "bytes": int(size), "sha256": str(digest)}}}:
                found.append((name, size, digest))
    return found


def _decoded(decode: Callable[[bytes, str], T], data: bytes, what: str) -> T:
    """Raises: Damaged, Refused."""
    try:
        return decode(data, what)
    except RecursionError as error:
        raise Damaged(f"{what}: nested too deep", hint=FROM_A_COPY) from error
