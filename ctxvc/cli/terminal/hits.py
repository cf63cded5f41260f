"""Lines that were found, as a table and on a screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ctxvc.cli.answers.hits import Hit
from ctxvc.cli.output import Output, safe
from ctxvc.cli.terminal.table import breadth, cut, first_columns


class _Line(NamedTuple):
    """A line that is shown; with a match, what of it matches."""

    number: int
    text: str
    start: int = 0
    stop: int = 0

    @property
    def matches(self) -> bool:
        return self.stop > 0


class _Passage(NamedTuple):
    """Lines of a block that follow each other, with the first hit in them."""

    hit: Hit
    lines: list[_Line]


def _passages(items: Sequence[Hit]) -> Iterator[_Passage]:
    """The hits with the lines around them; where these meet, they are one passage."""
    passage: _Passage | None = None
    for item in items:
        first = item.line - len(item.before)
        lines = [_Line(first + at, text) for at, text in enumerate(item.before)]
        lines.append(_Line(item.line, item.text, item.start, max(item.stop, 1)))
        lines += [_Line(item.line + at, text) for at, text in enumerate(item.after, 1)]
        if passage is not None and _meet(passage, item, first):
            by_number = {line.number: line for line in passage.lines}
            by_number.update((line.number, line) for line in lines if line.matches or line.number not in by_number)
            passage.lines[:] = [by_number[number] for number in sorted(by_number)]
            continue
        if passage is not None:
            yield passage
        passage = _Passage(item, lines)
    if passage is not None:
        yield passage


def _meet(passage: _Passage, item: Hit, first: int) -> bool:
    """Whether the lines around a hit go on where the passage ends, in the same text of the same block."""
    newest = max(line.number for line in passage.lines if line.matches)
    is_same_block = (item.project, item.address) == (passage.hit.project, passage.hit.address)
    return is_same_block and newest < item.line and first <= passage.lines[-1].number + 1


def context_lines(items: Sequence[Hit]) -> Iterator[str]:
    """As `grep` writes them: `B17:3:` before a line that matches, `B17-2-` before another, `--` between passages."""
    for number, passage in enumerate(_passages(items)):
        if number:
            yield "--"
        for line in passage.lines:
            sign = ":" if line.matches else "-"
            yield f"{_place(passage.hit)}{sign}{line.number}{sign}{_clean(line.text)}"


def _place(hit: Hit) -> str:
    """The address, after the folder of its project where several are searched."""
    return f"{safe(hit.project)}: {hit.address}" if hit.project else hit.address


def screen_lines(output: Output, items: Sequence[Hit]) -> Iterator[str]:
    """Each block with its lines below it, what matches marked, and as much of a long line as there is room for."""
    digits = max(len(str(item.line + len(item.after))) for item in items)
    address = ""
    for passage in _passages(items):
        hit = passage.hit
        if _place(hit) != address:
            if address:
                yield ""
            address = _place(hit)
            also = ", ".join(f"{place.address} {place.state}" for place in hit.also)
            facts = f"  {hit.type}, {hit.state}, step {hit.step}" + (f"; also in {also}" if also else "")
            facts = cut(facts, max(output.width - breadth(address), 10))
            yield output.style(safe(address), bold=True) + output.style(facts, dim=True)
        elif hit.before or hit.after:
            yield output.style(f"{'⋮':>{digits + 2}}", dim=True)
        for line in passage.lines:
            number = f"  {line.number:>{digits}}"
            number = output.style(number, fg="green") if line.matches else output.style(number, dim=True)
            yield f"{number}  {_marked(output, line, output.width - digits - 4)}".rstrip()


def _marked(output: Output, line: _Line, room: int) -> str:
    """The part of a line around its match that has room, the match in colour."""
    before, match, after = (
        _clean(part) for part in (line.text[: line.start], line.text[line.start : line.stop], line.text[line.stop :])
    )
    if breadth(before + match + after) > room:
        lead = min(breadth(before), max(room // 4, room - breadth(match + after)))
        if lead < breadth(before):
            before = "…" + _last_columns(before, lead - 1)
        match = first_columns(match, room - breadth(before))
        after = first_columns(after, room - breadth(before + match))
    return before + (output.style(match, fg="red", bold=True) if match and line.matches else match) + after


def _last_columns(text: str, width: int) -> str:
    while text and breadth(text) > width:
        text = text[max(1, (breadth(text) - width) // 2) :]
    return text


def _clean(text: str) -> str:
    """A line, safe to print and without tabs, which have no width of their own."""
    return safe(text.rstrip("\r").replace("\t", "    "))
