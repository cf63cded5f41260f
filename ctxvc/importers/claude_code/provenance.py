"""The mark of an export of ours: the commit it was made from, and a checksum that shows whether it was changed.

It is a field of the file's first line. The host leaves that alone: it only appends lines.
"""

from __future__ import annotations

import hashlib
import re

from ctxvc.core.ledger import wire
from ctxvc.core.recording.events import Exported
from ctxvc.errors import BadInput
from ctxvc.importers.file import Recording

FIELD = "ctxvc"
_ZEROS = "0" * 64
_COMMIT = re.compile("[0-9a-f]{40}")
_MARK = re.compile(rb'"ctxvc":\{"commit":"([0-9a-f]{40})","bytes":"([0-9]{12})","sha256":"([0-9a-f]{64})"\}\}\Z')


def marked(lines: list[bytes], commit: str) -> bytes:
    """The file made of these lines (a JSON object and newline each), with the mark in the first."""
    if not lines or not _COMMIT.fullmatch(commit):
        return b"".join(lines)
    first, *later = lines
    unmarked = first.rstrip(b"\n").removesuffix(b"}")
    size = len(b"".join(later)) + len(unmarked) + len(_mark(commit, 0, _ZEROS)) + 1
    blank = b"".join([unmarked, _mark(commit, size, _ZEROS), b"\n", *later])
    return b"".join([unmarked, _mark(commit, size, hashlib.sha256(blank).hexdigest()), b"\n", *later])


def exported(recording: Recording) -> Exported | None:
    """The export that the recording continues; None if it does not begin with an unchanged one."""
    try:
        first = recording.first_line()
        match = _MARK.search(first.rstrip(b"\n")[-256:])
        if match is None:
            return None
        commit, size, digest = match[1].decode(), int(match[2]), match[3]
        begin = recording.beginning(size)
    except BadInput:
        return None
    at = len(first.rstrip(b"\n")) - len(digest) - 3
    blank = begin[:at] + _ZEROS.encode() + begin[at + len(digest) :]
    is_unchanged = len(begin) == size and hashlib.sha256(blank).hexdigest().encode() == digest
    return Exported(commit=commit, end=size) if is_unchanged else None


def _mark(commit: str, size: int, digest: str) -> bytes:
    fields = {FIELD: {"commit": commit, "bytes": f"{size:012}", "sha256": digest}}
    return b"," + wire.compact(fields).removeprefix(b"{")
