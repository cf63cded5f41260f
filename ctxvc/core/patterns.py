"""Patterns that people and models search recorded text with: line by line, and always within a time limit.

`regex` (a dependency of tiktoken, Python's own syntax) has a timeout; Python's `re` cannot be stopped. Each match
attempt is always bounded, and a whole search by the deadline that it is given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple, Protocol

from ctxvc.errors import BadInput, Phrase

#: The most characters of a pattern.
LONGEST = 300
#: A longer line is searched in windows of this many characters, each of which begins with the end of the one before.
WINDOW = 4_000
OVERLAP = 500
#: Seconds of processor time for one match attempt in a line or window, or ahead over many lines.
PATIENCE = 0.2
#: Seconds for a whole search: one from the command line, and one by an agent's tool.
COMMAND_SECONDS = 10.0
TOOL_SECONDS = 2.0

# Syntax that may match a line alone but not among other lines; such patterns are matched line by line.
_LINE_ONLY = re.compile(r"\(\?(?!:|P[<=]|[aimsux]+\))|\\[AZzGKR]|[*+?}]\+|\{[^0-9,}]")


class Slow(BadInput):
    """A search took more time than allowed; earlier matches are valid."""


class SlowLine(Slow):
    """A single line took the pattern more time than allowed; other lines may not."""


class Deadline:
    """The end of a search, `seconds` from now by a monotonic `clock`."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._end = clock() + seconds

    def seconds(self) -> float:
        """The seconds that remain, more than 0. Raises: Slow if none do."""
        remaining = self._end - self._clock()
        if remaining <= 0:
            raise Slow(
                f"the search was stopped after {self._seconds:g} s",
                hint="simplify the pattern, or search less",
            )
        return remaining


class Match(NamedTuple):
    """A matching line: its number, from 1, and the offsets of line and match in the text."""

    line: int
    begin: int
    end: int
    start: int
    stop: int


class _RegexMatch(Protocol):
    def span(self) -> tuple[int, int]: ...


class _Regex(Protocol):
    def search(self, string: str, pos: int, endpos: int, *, timeout: float) -> _RegexMatch | None: ...


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled search pattern. `lines` yields the lines of a text that match it."""

    source: str
    _regex: _Regex | None
    deadline: Deadline | None = None

    @property
    def literal(self) -> str:
        """The text that every match equals; empty if there is no such text."""
        return self.source if self._regex is None else ""

    def until(self, seconds: float, clock: Callable[[], float]) -> Pattern:
        """The pattern with a deadline in `seconds` from now; 0 removes the limit."""
        return replace(self, deadline=Deadline(seconds, clock) if seconds else None)

    def patience(self) -> float:
        """The seconds that the next match attempt may take. Raises: Slow if none are left."""
        return min(PATIENCE, self.deadline.seconds()) if self.deadline else PATIENCE

    def lines(self, text: str, begin: int = 0, end: int | None = None) -> Iterator[Match]:
        """The matching lines of `text` between the two offsets; `begin` is where a line begins.

        A match in a line of more than 4,000 characters is found if it has at most 500; `$` also matches there at the
        end of a window. Raises: SlowLine if the pattern takes too long for one line, Slow if the whole search does.
        """
        end = len(text) if end is None else end
        line, at = text.count("\n", 0, begin) + 1, begin
        look = self._next if self._regex is None or not _LINE_ONLY.search(self.source) else _here
        while at < end and (candidate := look(text, at, end)) is not None:
            start = text.rfind("\n", at, candidate) + 1 or at
            line += text.count("\n", at, start)
            line_end = text.find("\n", candidate, end)
            stop = end if line_end < 0 else line_end
            if span := self._in_line(text, start, stop):
                yield Match(line, start, stop, *span)
            at, line = stop + 1, line + 1

    def _next(self, text: str, at: int, end: int) -> int | None:
        """The offset of the next line that may match; no earlier line does."""
        if self._regex is None:
            place = text.find(self.source, at, end)
            return None if place < 0 else place
        try:
            match = self._regex.search(text, at, end, timeout=self.patience())
        except TimeoutError:
            return at  # a giant line, or a slow pattern: search this line alone
        return None if match is None else match.span()[0]

    def _in_line(self, text: str, start: int, stop: int) -> tuple[int, int] | None:
        if self._regex is None:
            place = text.find(self.source, start, stop)
            return None if place < 0 else (place, place + len(self.source))
        line = text[start:stop]
        for begin in range(0, max(1, len(line) - OVERLAP), WINDOW - OVERLAP):
            try:
                match = self._regex.search(line, begin, begin + WINDOW, timeout=self.patience())
            except TimeoutError:
                self.patience()
                raise SlowLine(
                    f"the pattern {self.source[:80]!r} takes too long",
                    hint="simplify it (no nested repeats), or search for a fixed string",
                ) from None
            if match:
                first, last = match.span()
                return start + first, start + last
        return None


def compiled(source: str, *, fixed: bool = False, ignore_case: bool = False) -> Pattern:
    """The pattern of `source`: a Python regular expression, or with `fixed` a literal text. Raises: BadInput.

    Each match attempt is bounded; `until` bounds the whole search.
    """
    if not source:
        raise BadInput("the pattern is empty: every line would match", hint="give something to search for")
    if len(source) > LONGEST:
        raise BadInput(
            f"the pattern has {len(source):,} characters; at most {LONGEST} are allowed", hint="search for a part of it"
        )
    if "\n" in source:
        raise BadInput("the pattern has a line break, but lines are searched one by one", hint="search for one line")
    # A pattern without special characters equals a literal text, which is found faster.
    if not ignore_case and (fixed or re.fullmatch(r"[\w /:=,;<>@#%&'\"`~!-]+", source)):
        return Pattern(source, None)
    return Pattern(source, _compiled(source, fixed=fixed, ignore_case=ignore_case))


def _compiled(source: str, *, fixed: bool, ignore_case: bool) -> _Regex:
    import regex  # type: ignore[import-untyped]

    flags = regex.MULTILINE | (regex.IGNORECASE if ignore_case else 0)
    try:
        pattern: _Regex = regex.compile(regex.escape(source) if fixed else source, flags, cache_pattern=False)
    except (regex.error, ValueError, OverflowError, RecursionError) as error:
        raise BadInput(
            f"{source[:80]!r} is not a regular expression: {str(error)[:100]}", hint=Phrase("fixed-text")
        ) from None
    return pattern


def _here(_text: str, at: int, _end: int) -> int:
    return at


def any_of(literals: Iterable[bytes]) -> re.Pattern[bytes]:
    """A pattern that finds any of many non-empty literal texts, the longest if two begin alike.

    Common beginnings are factored out, so that a thousand texts cost little more than ten.
    """
    return re.compile(_branches(sorted(set(literals))))


def _branches(literals: list[bytes]) -> bytes:
    """A pattern for sorted words. An empty one comes first."""
    ends = not literals[0]
    branches = []
    for _, group in groupby(literals[ends:], key=lambda word: word[0]):
        alike = list(group)
        # What the first and the last of sorted words have in common, all have.
        common = next((n for n, (a, b) in enumerate(zip(alike[0], alike[-1], strict=False)) if a != b), len(alike[0]))
        branches.append(re.escape(alike[0][:common]) + _branches([word[common:] for word in alike]))
    if not branches:
        return b""
    return b"(?:%s)" % b"|".join(branches) + (b"?" if ends else b"")
