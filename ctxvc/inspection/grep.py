"""grep: the matching lines of all bodies, and the current places of each body."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from ctxvc.core import display as text
from ctxvc.core.patterns import Match, Pattern, Slow, SlowLine
from ctxvc.core.prompt.recover import SHOWN, around
from ctxvc.inspection.bodies import Place, StoredBody, searchable


class Hit(msgspec.Struct, frozen=True):
    """A line that matches. `places` are all places of the body; `text` is recorded, and bounded.

    `line` counts from 1 in the body's text; in a JSON body, in the string that matches. `start` and `stop` bound the
    match in `text`; `before` and `after` are the requested lines around it.
    """

    places: list[Place]
    line: int
    text: str
    start: int = 0
    stop: int = 0
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


class Search:
    """The lines that match, body by body, and how far the search got if the pattern takes too long.

    `searched` counts the finished bodies, `skipped` those abandoned at a line that took too long; matches before that
    line count. `over` says whether the time ran out first. `slow` is the reason why not all bodies were searched, None
    if they were.
    """

    def __init__(self, bodies: Iterable[tuple[StoredBody, bytes]], pattern: Pattern, context: int = 0) -> None:
        self.searched = self.skipped = 0
        self.slow: Slow | None = None
        self._bodies = bodies
        self._pattern = pattern
        self._context = context

    @property
    def over(self) -> bool:
        return self.slow is not None and not isinstance(self.slow, SlowLine)

    def __iter__(self) -> Iterator[Hit]:
        needle = text.encode(self._pattern.literal)
        try:
            for stored, body in self._bodies:
                self._pattern.patience()
                try:
                    yield from _hits(stored, body, self._pattern, needle, self._context)
                    self.searched += 1
                except SlowLine as error:
                    self.skipped += 1
                    self.slow = error
        except Slow as error:
            self.slow = error


def _hits(stored: StoredBody, body: bytes, pattern: Pattern, needle: bytes, context: int) -> Iterator[Hit]:
    """The lines of a body that match. Raises: Slow if the pattern takes too long."""
    if needle and needle not in body and b"\\" not in body:
        return  # without a backslash, a JSON string equals its bytes
    for string, match in _first_matching(stored, body, pattern):
        excerpt, start = around(string, match), match.start - match.begin
        if match.end - match.begin > len(excerpt):  # a part of a long line
            start = excerpt.find(string[match.start : match.stop])
        stop = min(start + match.stop - match.start, len(excerpt))
        before, after = _before(string, match.begin, context), _after(string, match.end, context)
        yield Hit(stored.places, match.line, excerpt, max(start, 0), max(stop, 0), before, after)


def _before(string: str, begin: int, count: int) -> tuple[str, ...]:
    """The `count` lines before the one that begins at `begin`, each bounded."""
    lines: list[str] = []
    while begin > 0 and len(lines) < count:
        end = begin - 1
        begin = string.rfind("\n", 0, end) + 1
        lines.append(_bounded(string, begin, end))
    return tuple(reversed(lines))


def _after(string: str, end: int, count: int) -> tuple[str, ...]:
    """The `count` lines after the one that ends at `end`, each bounded."""
    lines: list[str] = []
    while end < len(string) - 1 and len(lines) < count:
        begin = end + 1
        end = string.find("\n", begin)
        end = len(string) if end < 0 else end
        lines.append(_bounded(string, begin, end))
    return tuple(lines)


def _bounded(string: str, begin: int, end: int) -> str:
    return string[begin:end] if end - begin <= SHOWN else f"{string[begin : begin + SHOWN]}…"


def _first_matching(stored: StoredBody, body: bytes, pattern: Pattern) -> Iterator[tuple[str, Match]]:
    """The matches in the strings of a JSON body; if there are none, those in its text."""
    row = stored.places[0].row
    matched = False
    *strings, document = searchable(row, body)
    for string in strings:
        for match in pattern.lines(string):
            matched = True
            yield string, match
    if not matched:
        for match in pattern.lines(document):
            yield document, match
