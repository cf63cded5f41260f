"""Anchors that say nothing of a project: the list that ships, of those that two projects or more have."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import msgspec

from ctxvc.replay.measures.anchors import DEFINITIONS

FILE = Path(__file__).parents[2] / "data" / "common-anchors.txt"


class CommonAnchors(msgspec.Struct, frozen=True):
    """`version` is carried by every result: figures under different versions do not compare."""

    version: str
    anchors: frozenset[str]

    def __contains__(self, anchor: str) -> bool:
        return anchor in self.anchors


#: For a conversation in which every anchor is to count.
NONE = CommonAnchors(f"{DEFINITIONS}-none", frozenset())


@cache
def common_anchors(file: Path = FILE) -> CommonAnchors:
    """The list in a file that `listing` made."""
    version, *anchors = file.read_bytes().decode().split("\n")
    return CommonAnchors(version, frozenset(anchors) - {""})


def listing(anchors: Iterable[str]) -> str:
    """The text of a list's file: its version, from the definitions and the list itself, then an anchor a line."""
    lines = "".join(f"{anchor}\n" for anchor in sorted(anchors))
    return f"{DEFINITIONS}-{hashlib.sha256(lines.encode()).hexdigest()[:8]}\n{lines}"
