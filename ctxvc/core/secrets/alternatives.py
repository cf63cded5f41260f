"""One pattern for many fixed texts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby


def any_of(literals: Iterable[bytes]) -> re.Pattern[bytes]:
    """A pattern that finds each of some words, of which none is empty; the longest where two begin alike.

    What they have in common is factored out, so that a thousand of them cost little more than ten.
    """
    return re.compile(_branches(sorted(set(literals))))


def _branches(literals: list[bytes]) -> bytes:
    """A pattern for sorted words. The empty one among them comes first."""
    ends = not literals[0]
    branches = []
    for _, group in groupby(literals[ends:], key=lambda word: word[0]):
        alike = list(group)
        # Of sorted words, the first and the last have in common what all have.
        common = next((n for n, (a, b) in enumerate(zip(alike[0], alike[-1], strict=False)) if a != b), len(alike[0]))
        branches.append(re.escape(alike[0][:common]) + _branches([word[common:] for word in alike]))
    if not branches:
        return b""
    return b"(?:%s)" % b"|".join(branches) + (b"?" if ends else b"")
