"""Lines of blocks that were found, and where the blocks are now: as answers, tables, and on a screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, NamedTuple

from ctxvc.cli.answers.shared import BlockId, Item, ScopeName, SessionName, TimeText, described
from ctxvc.cli.output import Column, Output, Timestamp, safe
from ctxvc.cli.terminal.table import breadth, cut, first_columns


class Standing(Item, frozen=True, kw_only=True):
    """Another place with the same bytes."""

    address: Annotated[str, described("`SESSION/SCOPE:B17`")]
    state: str


def _places(also: Sequence[Standing]) -> str:
    return ", ".join(f"{place.address} {place.state}" for place in also)


class Hit(Item, frozen=True, kw_only=True):
    """A matching line, and where its block is now."""

    TABLE = "project address state step line text also"

    address: Annotated[str, described("`SESSION/SCOPE:B17`"), Column("block")]
    session: SessionName
    scope: ScopeName
    block: BlockId
    type: Annotated[str, described("the block's kind")]
    state: Annotated[str, Column("state")]
    step: Annotated[int, described("in which it came in"), Column("step", right=True)]
    line: Annotated[
        int,
        described("in the block's text, from 1; in a JSON block, in the string that matches"),
        Column("line", right=True, rank=1),
    ]
    text: Annotated[str, described("the line, or the part of a long line around the match"), Column("text", least=32)]
    start: Annotated[int, described("position in `text` at which the match begins, in characters")]
    stop: Annotated[int, described("position at which it ends")]
    before: Annotated[list[str], described("with -C, the lines before it")]
    after: Annotated[list[str], described("with -C, the lines after it")]
    also: Annotated[list[Standing], Column("also in", least=8, rank=2, cell=_places)]
    project: Annotated[
        str, described("with --all-projects, the project's folder"), Column("project", least=16, rare=True)
    ] = ""


class RankedHit(Hit, frozen=True, kw_only=True):
    """The line of a block that fits best."""

    TABLE = "project address state time line text copies"

    time: Annotated[TimeText, described("when the block's step was made"), Column("time", cell=Timestamp)]
    copies: Annotated[
        int,
        described("other sessions that have the same text, among those that were looked at"),
        Column("copies", right=True, rank=2),
    ]


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
    """The lines in the form of `grep -C`: `B17:3:` before a match, `B17-2-` before another, `--` between passages."""
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
    """The lines for a terminal: below each block its lines, cut to the width around the match, which is coloured."""
    digits = max(len(str(item.line + len(item.after))) for item in items)
    address = ""
    for passage in _passages(items):
        hit = passage.hit
        if _place(hit) != address:
            if address:
                yield ""
            address = _place(hit)
            also = _places(hit.also)
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
