"""Recovery: reads out what left the prompt, in parts that fit the available room, without losing anything.

The first line of a part states what it contains, of how much, and which call returns the next part. The parts joined
without their first lines are the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

from ctxvc.core import display as text
from ctxvc.core import patterns
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.ledger import Group, Ledger, Row, blocks_of
from ctxvc.core.prompt import json_path, stub
from ctxvc.errors import BadInput, Phrase, Refused, render
from ctxvc.phrases import PYTHON

Measure = Literal["lines", "characters", "matches"]
#: First and last number, both counted from 1 and inclusive; None is the end.
Range = tuple[int, int | None]
Count = Callable[[str], int]

#: Characters shown of a matching line, and of a member of a group.
SHOWN = 300
#: The share of the room that a part fills at least if there is more text; finding its end then takes few counts.
_FULL = 0.9
_RANGE = re.compile(r"([0-9]{0,15})(:?)([0-9]{0,15})")


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a block's text, after a line that describes it.

    It contains the `unit`s numbered `first` to `last` of `total`: lines or characters of the whole text, or matching
    lines, which are counted within the requested range. `amount` states that in prose, and `remarks` what else a reader
    must know. `tokens` counts `text`. `complete` is true if nothing that was requested is missing; otherwise `call` and
    `next` are the call for the rest. `header`, `next` and `text` are for Python programs; a surface renders `heading`
    and `call` with its own table.
    """

    handle: str
    amount: str
    remarks: tuple[Phrase, ...] = ()
    call: Phrase | None = None
    content: str
    first: int = 0
    last: int = 0
    total: int = 0
    unit: Measure = "lines"
    tokens: int

    @property
    def complete(self) -> bool:
        return self.call is None

    @property
    def header(self) -> str:
        return self.heading(PYTHON)

    @property
    def next(self) -> str:
        return str(self.call or "")

    @property
    def text(self) -> str:
        return f"{self.header}\n{self.content}"

    def heading(self, table: dict[str, str]) -> str:
        """The first line, in the phrases of a surface."""
        return _heading(self.handle, self.amount, self.remarks, self.call, table)


class NoRoom(Refused):
    """The limit of a reading is below the tokens of its heading."""


def span(value: str) -> Range:
    """The range that `41:80`, `41:`, `:80` or `41` names. Raises: BadInput if it is none."""
    match = _RANGE.fullmatch(value)
    if not match or not (match[1] or match[3]):
        raise BadInput(f"{value[:40]!r} is not a range", hint="as in 41:80, 41: or :80, counted from 1")
    first = int(match[1] or 1)
    last = int(match[3]) if match[3] else None if match[2] else first
    return _checked((first, last), value)


def readable(row: Row, body: bytes) -> str:
    """The text of a body; for a result of several parts all their texts, with images by name. Never fails."""
    items = wire.items(body, row.extra) if row.kind == "tool_result" else None
    return text.decode(body) if items is None else "\n".join(_item(row, item) for item in items)


def recovered(
    row: Row,
    body: bytes,
    *,
    lines: Range | None = None,
    chars: Range | None = None,
    grep: str | None = None,
    path: str = "",
    until: Callable[[patterns.Pattern], patterns.Pattern] = lambda pattern: pattern,
    most: int,
    count: Count,
    address: str = "",
) -> Recovered:
    """As much of a block as fits into `most` tokens, from the beginning of the requested range.

    Returns whole lines, or characters if a single line is too long. `path` selects the value there if the text is JSON;
    lines and characters are then counted within that value. With `grep`, only matching lines, with their numbers;
    `until` returns the pattern with a time limit. `address` is the block's name in calls, by default its id.

    Raises: BadInput for an invalid range or pattern, Slow if matching takes too long, Refused if `most` leaves no room
    for any text.
    """
    address = address or row.id
    if row.kind in ("image", "document") and row.ext != "json":
        return _named_only(row, body, address, count)
    value = readable(row, body)
    remarks = _remarks(row, body, value, address)
    called: str | Phrase = address
    if path:
        value, called = json_path.values(value, path), Phrase("next-path", address=address, path=_quoted(path))
    reader = _Reader(row.handle, called, value, remarks, most, count)
    if grep is not None:
        if chars:
            raise BadInput("a pattern can be combined with lines, not with characters", hint=Phrase("grep-lines"))
        return reader.matches(until(patterns.compiled(grep)), lines)
    if lines and chars:
        raise BadInput("lines and characters cannot be combined", hint=Phrase("lines-or-chars"))
    return reader.characters(chars) if chars else reader.lines(lines)


def members(
    group: Group, ledger: Ledger, *, tokens: Callable[[Row], int], most: int, count: Count, lines: Range | None = None
) -> Recovered:
    """A group's members, a line each: id, kind, tokens and index text; for a group in it, the call that lists it.

    Raises: BadInput and Refused as `recovered` does.
    """
    listed = "\n".join(_member(member, ledger, tokens) for member in group.members)
    return _Reader(group.id, group.id, listed, (), most, count).lines(lines)


class _Reader(msgspec.Struct, frozen=True):
    """A text that is read in parts of at most `most` tokens. Every header has the `remarks`."""

    handle: str
    address: str | Phrase
    text: str
    remarks: tuple[Phrase, ...]
    most: int
    count: Count

    def lines(self, requested: Range | None) -> Recovered:
        """Whole lines, or characters of the first line if it does not fit."""
        total = self._lines()
        first, last = _within(requested, total, "line", self.handle)
        start, stop = self._offset(first), self._offset(last + 1)
        end = self._reach(start, stop)
        whole = end if end == stop else self.text.rfind("\n", start, end) + 1
        if whole > start or start == stop:
            return self._as_lines(first, start, whole, stop, requested)
        return self._as_characters(start, end, stop, open=not requested or requested[1] is None)

    def characters(self, requested: Range) -> Recovered:
        """Characters; an open range ends at a line break if one is within reach."""
        first, last = _within(requested, len(self.text), "character", self.handle)
        start, stop = first - 1, last
        end = self._reach(start, stop)
        if requested[1] is None and end < stop and (whole := self.text.rfind("\n", start, end) + 1) > start:
            end = whole
        return self._as_characters(start, end, stop, open=requested[1] is None)

    def matches(self, pattern: patterns.Pattern, requested: Range | None) -> Recovered:
        """The matching lines with their numbers, long ones shortened. Raises: Slow."""
        total = self._lines()
        first, last = _within(requested, total, "line", self.handle)
        matching_lines = pattern.lines(self.text, self._offset(first), self._offset(last + 1))
        budget = room = self._room(quoted := _quoted(pattern.source))
        quoted_lines: list[tuple[int, str]] = []  # line number and text; the last may exceed the budget
        while budget >= 0 and (match := next(matching_lines, None)):
            quoted_lines.append((match.line, f"{match.line}: {around(self.text, match)}\n"))
            budget -= self.count(quoted_lines[-1][1]) + 1
        matching = len(quoted_lines) + sum(1 for _ in matching_lines)
        most = len(quoted_lines) - (budget < 0)
        bound = requested[1] if requested and requested[1] is not None and requested[1] < total else ""
        for fit in range(most, 0, -1) if matching else (0,):
            amount = f"{fit} of {matching} lines that match {quoted}, of {total} lines"
            call = None if fit == matching else self._rest_of_matches(quoted, f"{quoted_lines[fit][0]}:{bound}")
            recovered_part = self._part(amount, "".join(line for _, line in quoted_lines[:fit]), call)
            if recovered_part.tokens <= self.most:
                return msgspec.structs.replace(
                    recovered_part, first=min(1, fit), last=fit, total=matching, unit="matches"
                )
        raise self._no_room(self.most - room)

    # --- parts

    def _as_lines(self, first: int, start: int, end: int, stop: int, requested: Range | None) -> Recovered:
        """The lines from `start` to `end`; fewer if the header takes more room than estimated."""
        total = self._lines()
        while True:
            part = self.text[start:end]
            last = first + part.count("\n") - (part.endswith("\n") or not part)
            bound = requested[1] if requested and requested[1] is not None and requested[1] < total else None
            call = None if end == stop else self._rest_of_lines(f"{last + 1}:{bound or ''}")
            recovered_part = self._part(f"lines {first}-{last} of {total}" if part else "no text", part, call)
            if recovered_part.tokens <= self.most:
                return msgspec.structs.replace(recovered_part, first=first, last=last, total=total, unit="lines")
            shorter = self.text.rfind("\n", start, end - 1) + 1
            if shorter <= start:
                return self._as_characters(start, end, stop, open=bound is None)
            end = shorter

    def _as_characters(self, start: int, end: int, stop: int, *, open: bool) -> Recovered:
        """The characters from `start` to `end`. If they end with a line, the call for the rest is in lines again."""
        line = self.text.count("\n", 0, start) + 1
        while True:
            part = self.text[start:end]
            call = None if end == stop else self._rest_of_characters(f"{end + 1}:{'' if open else stop}")
            if call and open and part.endswith("\n"):
                next_line = line + part.count("\n")
                call = self._rest_of_lines(f"{next_line}:")
            total = len(self.text)
            recovered_part = self._part(f"characters {start + 1}-{end} of {total}, from line {line} on", part, call)
            if recovered_part.tokens <= self.most:
                return msgspec.structs.replace(
                    recovered_part, first=start + 1, last=end, total=total, unit="characters"
                )
            end -= max(1, (end - start) * (recovered_part.tokens - self.most) // recovered_part.tokens)
            if end <= start:
                raise self._no_room(recovered_part.tokens)

    def _part(self, amount: str, part: str, call: Phrase | None) -> Recovered:
        tokens = self.count(f"{self._header(amount, call)}\n{part}")
        return Recovered(
            handle=self.handle, amount=amount, remarks=self.remarks, call=call, content=part, tokens=tokens
        )

    def _header(self, amount: str, call: Phrase | None) -> str:
        return _heading(self.handle, amount, self.remarks, call, PYTHON)

    def _rest_of_lines(self, lines: str) -> Phrase:
        return Phrase("next-lines", address=self.address, lines=lines)

    def _rest_of_characters(self, chars: str) -> Phrase:
        return Phrase("next-chars", address=self.address, chars=chars)

    def _rest_of_matches(self, pattern: str, lines: str) -> Phrase:
        return Phrase("next-matches", address=self.address, pattern=pattern, lines=lines)

    # --- room

    def _room(self, pattern: str = "") -> int:
        """Tokens left for text beside the longest possible header."""
        size = len(self.text)
        amount, end = f"characters {size}-{size} of {size}, from line {size} on", f"{size}:{size}"
        call = self._rest_of_matches(pattern, end) if pattern else self._rest_of_characters(end)
        return self.most - self.count(self._header(amount, call) + "\n")

    def _reach(self, start: int, stop: int) -> int:
        """The end of about as much text from `start` as there is room for: an estimate, counted and corrected."""
        room = self._room()
        if start == stop:
            return stop
        if room <= 0:
            raise self._no_room(self.most - room)
        fits, breaks = start, stop + 1
        size = 4 * room
        by_half = False
        while breaks - fits > (1 if fits == start else max(1, room // 10)):
            end = min(max(start + size, fits + 1), breaks - 1)
            tokens = self.count(self.text[start:end])
            if tokens <= room:
                fits = end
                if end == stop or tokens >= room * _FULL:
                    break
                size = (end - start) * min(4, max(2, room // max(tokens, 1)))
            else:
                breaks = end
                size = (end - start) * room // tokens
            # Where the text's density varies, only halving is sure to terminate.
            if breaks <= stop and (by_half or not fits < start + size < breaks):
                size = (fits + breaks) // 2 - start
            by_half = not by_half
        if fits == start:
            raise self._no_room(self.most - room)
        return fits

    def _no_room(self, tokens: int) -> NoRoom:
        return NoRoom(
            f"no room for any of {self.handle}: of {self.most:,} tokens a heading takes {tokens:,}",
            hint=Phrase("recover-room", address=self.address),
        )

    # --- places

    def _lines(self) -> int:
        return self.text.count("\n") + (self.text != "" and not self.text.endswith("\n"))

    def _offset(self, line: int) -> int:
        """The offset of a line; the end of the text for a line after the last."""
        at, before, step = 0, 1, 1 << 16
        while at + step < len(self.text) and before + (inside := self.text.count("\n", at, at + step)) < line:
            at, before = at + step, before + inside
        while before < line:
            newline = self.text.find("\n", at)
            if newline < 0:
                return len(self.text)
            at, before = newline + 1, before + 1
        return at


def _named_only(row: Row, body: bytes, address: str, count: Count) -> Recovered:
    """The description of an image or a document."""
    what = f"{row.kind} of {text.human_bytes(len(body))}, which is not text"
    remarks = (Phrase("file-image", address=address),)
    tokens = count(_heading(row.handle, what, remarks, None, PYTHON) + "\n")
    return Recovered(handle=row.handle, amount=what, remarks=remarks, content="", tokens=tokens)


def _checked(requested: Range, source: str = "") -> Range:
    first, last = requested
    if first < 1 or (last is not None and last < first):
        quoted = source or f"{first}:{'' if last is None else last}"
        raise BadInput(f"{quoted} is not a range: it must count from 1 and upwards", hint="as in 41:80, 41: or :80")
    return requested


def _within(requested: Range | None, total: int, unit: str, handle: str) -> tuple[int, int]:
    """The requested range with both ends. Raises: BadInput if it begins after the end."""
    if requested is None:
        return 1, total
    first, last = _checked(requested)
    if first > max(total, 1):
        raise BadInput(f"{handle} has no {unit} {first}: it has {total}", hint=f"ask for 1:{total}, or for the whole")
    return first, total if last is None else min(last, total)


def _heading(handle: str, amount: str, remarks: Iterable[Phrase], call: Phrase | None, table: dict[str, str]) -> str:
    rest = (f"next: {render(call, table)}",) if call else ()
    return f"[recovered {handle}: {'; '.join((amount, *(render(remark, table) for remark in remarks), *rest))}]"


def _remarks(row: Row, body: bytes, value: str, address: str) -> tuple[Phrase, ...]:
    """Remarks for the header that a reader of the text needs."""
    remarks = []
    if row.files:
        siblings = ", ".join(f"{address}-{suffix}" for suffix in row.files[:4])
        more = f" and {len(row.files) - 4} more" if len(row.files) > 4 else ""
        remarks.append(Phrase("file-parts", address=address, names=f"{siblings}{more}"))
    if "\ufffd" in value and text.encode(value) != body and wire.items(body, row.extra) is None:
        remarks.append(Phrase("file-bytes", address=address))
    return tuple(remarks)


def _item(row: Row, item: object) -> str:
    match item:
        case str():
            return item
        case {"type": "text", "text": str(value)}:
            return value
        case {"type": "image" | "document" as kind, "source": {"data": {"file": str(name)}}} if name in row.files:
            return f"[{kind} {row.id}-{name}]"
    return text.decode(wire.compact(item))


def around(value: str, match: patterns.Match) -> str:
    """The line of a match; of a long line, the text around the match."""
    if match.end - match.begin <= SHOWN:
        return value[match.begin : match.end]
    first = max(match.begin, min(match.start - SHOWN // 4, match.end - SHOWN))
    last = min(match.end, first + SHOWN)
    before, after = "…" if first > match.begin else "", "…" if last < match.end else ""
    return f"{before}{value[first:last]}{after}"


def _quoted(source: str) -> str:
    """A pattern as one word of a call, on one line."""
    if re.fullmatch(r"[A-Za-z0-9_./:=,@%+-]+", source):
        return source
    printable = "".join(letter if letter.isprintable() else f"\\U{ord(letter):08x}" for letter in source)
    return "'" + printable.replace("'", "'\\''") + "'"


def _member(member: str, ledger: Ledger, tokens: Callable[[Row], int]) -> str:
    if inner := ledger.groups.get(member):
        blocks = [row for block in dict.fromkeys(blocks_of(ledger.groups, member)) if (row := _row(block, ledger))]
        size = sum(map(tokens, blocks))
        label = stub.escaped(inner.label, stub.INDEX)
        return f"{inner.id}  group of {len(blocks)} blocks, {size:,} tokens: {label}; recover {inner.id}"
    row = _row(member, ledger)
    if row is None:
        return f"{member}  not in this scope"
    tool = f" of {stub.escaped(row.tool, 60)}" if row.tool else ""
    index = stub.index(row)
    description = stub.escaped(index, SHOWN) if index else stub.escaped(row.label, stub.INDEX)
    return f"{row.handle}  {row.kind}{tool}, {tokens(row):,} tokens: {description}"


def _row(member: str, ledger: Ledger) -> Row | None:
    try:
        return ledger.get(member)
    except ValueError:
        return None  # a damaged list of members
